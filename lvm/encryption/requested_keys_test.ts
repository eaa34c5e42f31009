import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { type PassphraseHarness, passphraseHarness, type Secret } from "../../tests/fake/machine/passphrase_harness.ts";
import { StorageError } from "../../base/error.ts";

/** Returns the commands of cryptsetup by which a secret is published again. */
async function publishCommands(s: PassphraseHarness, ...secret: Secret): Promise<(string | undefined)[]> {
  const commands: (string | undefined)[] = [];
  s.machine.fault = ({ program, args }) => {
    if (program === "cryptsetup") commands.push(args[0]);
  };
  await s.publish(...secret);
  s.machine.fault = undefined;
  return commands;
}

Deno.test("a publish completes an interrupted change also by the new passphrase and the name of the volume key alone", async () => {
  const s = await passphraseHarness("OLD", undefined, "k");
  await s.stage("OLD", undefined, "k");
  await s.interrupt("NEW");
  await s.publish("NEW", undefined, "k");
  assertEquals([s.keys(), s.backups(), s.errors, await s.state()], [["NEW"], [], [], "PassphraseReplaced"]);
});

Deno.test("a publish that requests nothing is no request, derives no key, and hides no interrupted change", async () => {
  const secrets: Secret[] = [["NEW"], ["NEW", "NEW"], ["WRONG", "WRONG"]];
  for (const secret of secrets) {
    const s = await passphraseHarness("OLD");
    await s.stage("OLD");
    assertEquals([await publishCommands(s, ...secret), await s.state()], [[], "NotRequested"]);
    await s.interrupt("NEW");
    assertEquals(await publishCommands(s, ...secret), []);
    assertMatch(JSON.stringify(await s.state()), /KeyChangeInterrupted/);
    assertEquals(s.keys(), ["OLD", "NEW"]);
  }
});

Deno.test("keys are complete only for a passphrase that opens the volume: a wrong one is refused once", async () => {
  const s = await passphraseHarness("OLD", undefined, "k");
  await s.stage("OLD", undefined, "k");
  assertEquals(await s.state(), "Complete");
  assertEquals(await publishCommands(s, "WRONG", undefined, "k"), ["luksDump", "open"]);
  assertMatch(JSON.stringify(await s.state()), /KeyChangeFailed.*opens none of its key slots/);
  assertEquals([await publishCommands(s, "WRONG", undefined, "k"), s.errors.length], [[], 1]);
  await s.close();
  await assertRejects(() => s.stage("WRONG", undefined, "k"), StorageError, "opens none of its key slots");
  assertMatch(JSON.stringify(await s.state()), /KeyChangeFailed.*opens none of its key slots/);
});

Deno.test("what was found complete for a secret is not looked at again while the volume is in use", async () => {
  const s = await passphraseHarness("OLD");
  const secrets: Secret[] = [["OLD", undefined, "k"], ["NEW", "OLD", "k"], ["NEW", undefined, "k"]];
  for (const [index, secret] of secrets.entries()) {
    await s.stage(...secret);
    assertEquals([await publishCommands(s, ...secret), s.errors], [[], []], "it was staged with it");
    s.restart();
    const [first, second] = [await publishCommands(s, ...secret), await publishCommands(s, ...secret)];
    assertEquals(second, []);
    const tests = first.filter((name) => name === "open");
    assertEquals(tests.length, index === 1 ? 2 : 1, `${first}`);
    await s.close();
  }
});

Deno.test("nothing says that the previous passphrase opens nothing where nobody knows: a copy of an interrupted change has both", async () => {
  const s = await passphraseHarness("OLD", undefined, "k");
  s.luks().passphrases.push("NEW"); // and no backup
  await s.use("NEW", undefined, "k");
  assertEquals([s.keys(), await s.state()], [["OLD", "NEW"], "Complete"]);
  await s.use("NEW", "OLD", "k");
  assertEquals([s.keys(), await s.state()], [["NEW"], "PassphraseReplaced"]);
});
