import { assert, assertEquals } from "@std/assert";
import { declarationAt, instrument, placed } from "./instrument.ts";

const SOURCE = `
/** Says whether a number is small. */
export function isSmall(value: number): boolean {
  return value <= 3;
}

export async function create(volumes: Volumes): Promise<void> {
  await volumes.record();
  await volumes.format();
  log.info("created", { force: 1 > 0, size: 1 });
  if (volumes.isLost) throw new StorageError("Lost", \`\${1 > 0}\`);
}

const MAX_TRIES = 5;
const ARGS = ["--yes", "text"];
const MESSAGE = "text";
`;

/** Returns the mutants of a source as texts. */
async function mutantsOf(source: string): Promise<string[]> {
  const { mutants } = await instrument("lvm/example.ts", source);
  return mutants.map(({ line, scope, original, replacement }) => `${line} ${scope}: ${original} → ${replacement}`);
}

Deno.test("instrument() changes conditions, the order of commands, bounds and options, and no messages", async () => {
  const mutants = await mutantsOf(SOURCE);
  for (
    const expected of [
      "4 isSmall: value <= 3 → true",
      "4 isSmall: value <= 3 → false",
      "4 isSmall: value <= 3 → value < 3",
      "8 create: await volumes.record(); → ;",
      "11 create: volumes.isLost → false",
      "14 MAX_TRIES: 5 → 6",
      "14 MAX_TRIES: 5 → 4",
      '15 ARGS: "--yes" → ""',
      '15 ARGS: "text" → ""',
    ]
  ) assert(mutants.includes(expected), `${expected} is missing in\n${mutants.join("\n")}`);
  const swapped = mutants.find((mutant) => mutant.includes("→ { await volumes.format(); await volumes.record();"));
  assert(swapped !== undefined, mutants.join("\n"));
  assertEquals(mutants.filter((mutant) => /^10 |^16 |1 > 0 →/.test(mutant)), []);
});

Deno.test("instrument() notes something only after the answer, and does not wait for it", async () => {
  const mutants = await mutantsOf(`
async function remove(key: string): Promise<void> {
  waiting.set(key, 1);
  const answer = await client.remove(key);
  handle(answer);
  state = await client.get(key);
  log.info("sent");
  await client.forget(key);
  sum += 1;
}
`);
  const swapped = mutants.filter((mutant) => mutant.includes("→ { ")).map((mutant) =>
    [...mutant.replace(/^.*→ /, "").matchAll(/set|remove|handle|get|info|forget|sum/g)].join(" ")
  );
  assertEquals(swapped, [
    "remove set handle get info forget sum",
    "set remove get handle info forget sum",
    "set remove handle get info sum forget",
  ]);
  assert(mutants.includes("8 remove: await client.forget(key) → client.forget(key)"), mutants.join("\n"));
});

Deno.test("instrument() removes wake-ups, elements of lists, and parts of conditions", async () => {
  const mutants = await mutantsOf(`
const KINDS: readonly string[] = ["Busy", "Lost"];
function run(): void {
  controller.watch(claims).watch(volumes, keysOf);
  if (isOpen(volume) && !isHeld && size === 1) stop();
}
`);
  const expected = [
    '2 KINDS: ["Busy", "Lost"] → ["Lost"]',
    '2 KINDS: ["Busy", "Lost"] → ["Busy"]',
    "4 run: controller.watch(claims).watch(volumes, keysOf) → controller.watch(claims)",
    "4 run: controller.watch(claims) → controller",
    "5 run: isOpen(volume) && !isHeld → isOpen(volume)",
    "5 run: isOpen(volume) && !isHeld → !isHeld",
  ];
  assertEquals(expected.filter((text) => !mutants.includes(text)), [], mutants.join("\n"));
});

Deno.test("instrument() removes the mark of a command that changes something, and not that of one that reads", async () => {
  const mutants = await mutantsOf(`
run({ program: "dd", mutates: true });
run({ program: "df", mutates: false });
`);
  const removals = mutants.filter((mutant) => mutant.includes("→ { program:") && !mutant.endsWith("mutates: false }"));
  assertEquals(removals.map((mutant) => mutant.replace(/^.*→ /, "")), ['{ program: "dd" }']);
});

Deno.test("instrument() gives a mutant the same key until its declaration changes", async () => {
  const keysOf = async (source: string) => {
    const { mutants } = await instrument("lvm/example.ts", source);
    return new Set(mutants.filter(({ scope }) => scope === "isSmall").map(({ key }) => key));
  };
  const keys = await keysOf(SOURCE);
  assertEquals(await keysOf(`const BEFORE = 1;\n${SOURCE}`), keys);
  const changed = await keysOf(SOURCE.replace("value <= 3", "value <= 4"));
  assertEquals([...changed].filter((key) => keys.has(key)), []);
});

Deno.test("placed() numbers the mutants of a file from its first one, and imports the switch", async () => {
  const text = placed("lvm/deep/example.ts", await instrument("lvm/deep/example.ts", SOURCE), 100);
  assert(text.startsWith(`import ${JSON.stringify("../../tests/mutation/switch.ts")};\n`), text);
  const numbers = [...text.matchAll(/stryMutAct_9fa48\((\d+)\)/g)].map(([, number]) => Number(number));
  assertEquals([Math.min(...numbers), new Set(numbers).size], [100, Math.max(...numbers) - 99]);
});

Deno.test("declarationAt() names the function, or the class and its member", () => {
  const text = "const A = 1;\nexport class B {\n  #c = 2;\n  async *d() {\n    return 3;\n  }\n}\nfunction e() {}\n";
  const nameAt = (part: string) => declarationAt(text, text.indexOf(part)).name;
  assertEquals(["1;", "2;", "3;", "{}"].map(nameAt), ["A", "B.#c", "B.d", "e"]);
});
