import { assert, assertEquals } from "@std/assert";

const PROGRAM = new URL("broken_connections.ts", import.meta.url).pathname;

/** The number of connections. */
const COUNT = 600;

Deno.test("connections between agents that break in every way at random moments never end the process", async () => {
  const [seed] = crypto.getRandomValues(new Uint32Array(1));
  const args = ["run", "-A", "--quiet", PROGRAM, String(seed), String(COUNT)];
  const output = await new Deno.Command(Deno.execPath(), { args, env: { NO_COLOR: "1" } }).output();
  const [printed, errors] = [output.stdout, output.stderr].map((bytes) => new TextDecoder().decode(bytes));
  assertEquals([output.code, errors], [0, ""], `seed ${seed}`);
  const [, encrypted] = /^encrypted: (\d+)$/m.exec(printed!) ?? [];
  assert(Number(encrypted) > COUNT / 10, `seed ${seed}: ${printed}`);
});
