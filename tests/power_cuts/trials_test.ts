import { assert, assertEquals } from "@std/assert";
import type { Step } from "./life.ts";
import { drawTrials, START, stepAt } from "./trials.ts";
import type { LogEntry } from "./write_log.ts";

const STEPS: readonly Step[] = [
  { do: "create", volume: "one", mib: 16 },
  { do: "delete", volume: "one" },
];

const mark = (text: string): LogEntry => ({ kind: "mark", text });
const flush: LogEntry = { kind: "flush" };
const write: LogEntry = { kind: "write", offset: 0, length: 512, dataOffset: 0, fua: false };

/** The log of two steps with two flushes each, and one after them. */
const LOG = {
  sectorBytes: 512,
  entries: [
    mark(START),
    ...[write, flush, write, flush, mark("0-create-one")],
    ...[write, flush, write, flush, mark("1-delete-one")],
    ...[write, flush],
  ],
};

const draw = (selection: { seed?: string; isFull?: boolean; step?: string }) =>
  drawTrials("a life", STEPS, LOG, { seed: "0", isFull: false, step: "", ...selection });

Deno.test("drawTrials() draws three power cuts, and the same ones for the same seed", async () => {
  const describe = async (seed: string) =>
    (await draw({ seed })).map(({ title, givesUp, activates }) => `${title} ${givesUp} ${activates}`);
  assertEquals((await describe("1")).length, 3);
  assertEquals(await describe("1"), await describe("1"));
  const others = await Promise.all(["2", "3", "4"].map(describe));
  assert(others.some((other) => other.join() !== others[0]!.join()));
});

Deno.test("drawTrials() draws one power cut at each flush, and fifty more, in the order of the log", async () => {
  const trials = await draw({ isFull: true });
  assertEquals(trials.length, 5 + 50);
  const whole = trials.filter(({ cut }) => cut.random === undefined);
  assertEquals(whole.map(({ title }) => title), [0, 1, 2, 3, 4].map((number) => `flush ${number}, all writes`));
  const flushes = trials.map(({ cut }) => cut.flush);
  assertEquals(flushes, flushes.toSorted((one, other) => one - other));
});

Deno.test("drawTrials() draws each reaction to power cuts at each flush of a step", async () => {
  const trials = await draw({ step: "delete-one" });
  assertEquals(trials.length, 2 * 2 * 4);
  assertEquals(new Set(trials.map(({ cut }) => stepAt(STEPS, LOG, cut))), new Set(["1-delete-one"]));
  const ofFirst = trials.filter(({ title }) => title === "flush 2, all writes");
  const reactions = ofFirst.map(({ givesUp, activates }) => `${givesUp} ${activates}`);
  assertEquals(new Set(reactions), new Set(["false false", "false true", "true false", "true true"]));
  // with the same seed, the reactions are to the same loss
  const lossOf = ({ cut: { random } }: (typeof trials)[number]) => Array.from({ length: 3 }, () => random!());
  const [first, ...others] = trials.filter(({ title }) => title.startsWith("flush 2, writes by ")).map(lossOf);
  for (const other of others) assertEquals(other, first);
});

Deno.test("stepAt() names the step that was not acknowledged before a power cut", () => {
  const flushes = LOG.entries.flatMap(({ kind }, index) => kind === "flush" ? [index] : []);
  const found = flushes.map((flush) => stepAt(STEPS, LOG, { flush }));
  assertEquals(found, ["0-create-one", "0-create-one", "1-delete-one", "1-delete-one", "the end"]);
});
