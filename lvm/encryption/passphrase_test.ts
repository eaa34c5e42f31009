import { assert, assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import {
  addKeyCommand,
  beginReencryptionCommand,
  formatCommand,
  killSlotCommand,
  openCommand,
  reencryptCommand,
  testCommand,
} from "./cryptsetup.ts";
import { Passphrase, passphrasesOf, previousOf, requirePassphrase } from "./passphrase.ts";

const SECRET = "correct horse battery staple";
const ID = volumeIdOf("one");

async function textOf(passphrase: Passphrase): Promise<string> {
  return await new Response(ReadableStream.from(passphrase.input())).text();
}

Deno.test("a passphrase is given to a program each time byte for byte, and shown nowhere else", async () => {
  const text = `${SECRET} ü\n`;
  const passphrase = new Passphrase(text);
  assertEquals([await textOf(passphrase), await textOf(passphrase)], [text, text]);
  const commands = [
    formatCommand({ device: "/dev/x", uuid: "uuid" }, passphrase),
    beginReencryptionCommand("/dev/x", 0, passphrase),
    reencryptCommand("/dev/x", passphrase),
    openCommand({ device: "/dev/x", name: "x", discards: true }, passphrase),
    testCommand("/dev/x", passphrase),
    addKeyCommand("/dev/x", passphrase, passphrase),
    killSlotCommand("/dev/x", 1, passphrase),
  ];
  const shown = [
    `${passphrase}`,
    JSON.stringify({ passphrase }),
    Deno.inspect(passphrase),
    Deno.inspect({ passphrase }),
  ];
  for (const each of [...shown, ...commands.map((command) => Deno.inspect(command) + JSON.stringify(command))]) {
    assert(!each.includes("horse"), each);
  }
});

Deno.test("passphrasesOf() takes the keys passphrase and previousPassphrase alone", async () => {
  const none = { passphrase: undefined, previous: undefined, volumeKey: undefined };
  assertEquals(passphrasesOf({}), none);
  assertEquals(passphrasesOf({ password: SECRET, Passphrase: SECRET, previous: SECRET }), none);
  const { passphrase, previous } = passphrasesOf({ passphrase: SECRET, previousPassphrase: "old\n", other: "x" });
  assertEquals([await textOf(passphrase!), await textOf(previous!)], [SECRET, "old\n"]);
});

Deno.test("two passphrases reach cryptsetup one after the other, and the arguments have their lengths in bytes", async () => {
  const { args, input } = addKeyCommand("/dev/x", new Passphrase("ü\n"), new Passphrase("next"));
  assertEquals(await new Response(ReadableStream.from(input!)).text(), "ü\nnext");
  assertEquals(args.slice(args.indexOf("--keyfile-size")), [
    "--keyfile-size",
    "3",
    "--new-keyfile-size",
    "4",
    "/dev/x",
    "-",
  ]);
});

Deno.test("previousOf() is none without one, or where nothing changes, and refuses what no volume has", () => {
  const passphrase = new Passphrase(SECRET);
  assertEquals(previousOf(ID, { passphrase }), undefined);
  assertEquals(previousOf(ID, { passphrase, previous: new Passphrase(SECRET) }), undefined);
  const previous = new Passphrase(`${SECRET}\n`);
  assertEquals(previousOf(ID, { passphrase, previous }), previous);
  for (const wrong of ["", "horse".repeat(1000)]) {
    const refused = () => previousOf(ID, { passphrase, previous: new Passphrase(wrong) });
    const error = assertThrows(refused, StorageError, "previousPassphrase");
    assert(error.kind === "InvalidArgument" && !error.message.includes("horse"), error.message);
  }
});

Deno.test("the digest of a passphrase depends on its bytes and on the key", async () => {
  const digests = await Promise.all([
    new Passphrase(SECRET).digest("a"),
    new Passphrase(SECRET).digest("a"),
    new Passphrase(SECRET).digest("b"),
    new Passphrase(`${SECRET} `).digest("a"),
  ]);
  assertEquals(digests[0], digests[1]);
  assertEquals(new Set(digests).size, 3);
});

Deno.test("requirePassphrase() refuses what no volume has, without showing it", () => {
  for (const wrong of [undefined, new Passphrase(""), new Passphrase(SECRET.repeat(200))]) {
    const error = assertThrows(() => requirePassphrase("staging", ID, wrong), StorageError, "passphrase");
    assertEquals(error.kind, "InvalidArgument");
    assert(!error.message.includes("horse"), error.message);
  }
  const longest = new Passphrase("x".repeat(4096));
  assertEquals(requirePassphrase("staging", ID, longest), longest);
});
