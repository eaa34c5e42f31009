import { assertEquals, assertMatch } from "@std/assert";
import { passphraseHarness } from "../../tests/fake/machine/passphrase_harness.ts";
import { interruptedReencryptions } from "./read_once.ts";

Deno.test("interruptedReencryptions() reads the header of an encrypted volume that nobody uses", async () => {
  const s = await passphraseHarness("OLD");
  await s.stage("OLD");
  const [found, errors]: [unknown[], unknown[]] = [[], []];
  const headers = interruptedReencryptions(s.machine, {
    onRead: (_, isInterrupted) => found.push(isInterrupted),
    onError: (error) => errors.push(error),
  });
  const read = async (more: object = {}) => {
    const volume = await s.find();
    headers.of({ ...volume, lv: { ...volume.lv, ...more } });
    await headers.idle();
    return found.splice(0);
  };
  assertEquals(await read(), [], "it is in use");
  await s.close();
  assertEquals(await read({ active: false }), []);
  assertEquals(await read({ suspended: true }), []);
  assertEquals([await read(), await read()], [[false], []]);
  s.luks().isReencrypting = true;
  headers.forget((await s.find()).id);
  assertEquals(await read(), [true]);
  delete s.lv.content.luks;
  headers.forget((await s.find()).id);
  assertEquals([await read(), errors], [[false], []], "no header");
  s.machine.fault = ({ program }) =>
    program === "cryptsetup" ? { code: 1, stdout: "", stderr: "I/O error" } : undefined;
  headers.forget((await s.find()).id);
  assertEquals(await read(), []);
  assertMatch(`${errors}`, /I\/O error/);
});
