import { assert, assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../error.ts";
import { volumeIdOf } from "../ids.ts";
import { formatCommand, openCommand, testCommand } from "./cryptsetup.ts";
import { Passphrase, passphraseOf, requirePassphrase } from "./passphrase.ts";

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
    formatCommand("/dev/x", "uuid", passphrase),
    openCommand({ device: "/dev/x", name: "x", discards: true }, passphrase),
    testCommand("/dev/x", passphrase),
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

Deno.test("passphraseOf() takes the key passphrase alone", async () => {
  assertEquals(passphraseOf({}), undefined);
  assertEquals(passphraseOf({ password: SECRET, Passphrase: SECRET }), undefined);
  assertEquals(await textOf(passphraseOf({ passphrase: SECRET, other: "x" })!), SECRET);
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
