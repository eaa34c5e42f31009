import { assertEquals, assertRejects } from "@std/assert";
import { type Command, HostExec } from "./exec.ts";
import { nextTurn } from "../base/clock.ts";
import { StorageError } from "../base/error.ts";

const MiB = 1 << 20;

/** Returns the command by which dd writes its input into a file. */
function writing(path: string, input: Command["input"] & object): Command {
  const args = [`of=${path}`, "bs=1M", "iflag=fullblock", "status=none"];
  return { program: "dd", args, mutates: true, input };
}

/** Yields parts in one buffer, each filled with its number. */
async function* parts(count: number, end: () => void | Promise<void> = () => {}) {
  const part = new Uint8Array(MiB);
  for (let number = 1; number <= count; number++) yield part.fill(number);
  await end();
}

Deno.test("a command reads its input, and what it writes is received part by part", async () => {
  const path = await Deno.makeTempFile();
  const exec = new HostExec();
  assertEquals((await exec.run(writing(path, parts(16)))).code, 0);
  let [sum, length] = [0, 0];
  const onOutput = (part: Uint8Array<ArrayBuffer>) => {
    length += part.length;
    for (let at = 0; at < part.length; at += 4096) sum += part[at]!;
    return Promise.resolve();
  };
  const args = [`if=${path}`, "bs=4k", "status=none"];
  const { code, stdout } = await exec.run({ program: "dd", args, mutates: false, onOutput });
  assertEquals([code, stdout, length, sum], [0, "", 16 * MiB, 256 * (16 * 17 / 2)]);
  await Deno.remove(path);
});

Deno.test("an input that fails ends the input, not the command: it writes what it has, and then the failure is thrown", async () => {
  const path = await Deno.makeTempFile();
  const failing = parts(3, () => Promise.reject(new StorageError("Unavailable", "the connection broke")));
  await assertRejects(() => new HostExec().run(writing(path, failing)), StorageError, "the connection broke");
  assertEquals((await Deno.stat(path)).size, 3 * MiB);
  await Deno.remove(path);
});

Deno.test("a command that ends before its input says why, although the next part never comes", async () => {
  const { promise } = Promise.withResolvers<void>();
  const output = await new HostExec().run(writing("/dev/full", parts(1, () => promise)));
  assertEquals([output.code, output.stderr.includes("No space left on device")], [1, true], output.stderr);
});

Deno.test("a command without end is killed when the receiver of its output fails", async () => {
  const args = ["if=/dev/zero", "bs=1M", "status=none"];
  const onOutput = () => Promise.reject(new Error("enough"));
  await assertRejects(() => new HostExec().run({ program: "dd", args, mutates: false, onOutput }), Error, "enough");
});

Deno.test("a command waits for the receiver of its output", async () => {
  let received = 0;
  const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const onOutput = async (part: Uint8Array) => {
    received += part.length;
    begun.resolve();
    await gate.promise;
  };
  const args = ["if=/dev/zero", "bs=1M", "count=8", "status=none"];
  const running = new HostExec().run({ program: "dd", args, mutates: false, onOutput });
  await begun.promise;
  for (let turn = 0; turn < 100; turn++) await nextTurn();
  assertEquals(received <= MiB, true);
  gate.resolve();
  assertEquals([(await running).code, received], [0, 8 * MiB]);
});
