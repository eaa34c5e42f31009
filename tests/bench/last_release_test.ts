import { assertEquals } from "@std/assert";
import { lastRelease, regressions } from "./last_release.ts";
import { type BenchResult, mapOperations } from "./result.ts";

const START = { socketMs: 900, readyMs: 1_000, firstCallMs: 48 };
const MEMORY = { rssMiB: 90, anonymousMiB: 40 };

const BEFORE: BenchResult = {
  version: "1.0.0",
  machine: { cpus: 2, kernel: "6.1.0", kind: "uml" },
  start: { first: START, later: { ...START, runs: 5 }, emptyFileMs: 500 },
  memory: { idle: MEMORY, afterCalls: MEMORY, afterOperations: MEMORY },
  calls: { count: 4000, atATime: 8, perSecond: 66 },
  operations: mapOperations(() => ({ driverMs: 200, plainMs: 100, ratio: 2, commands: 2, plain: [], runs: 20 })),
};

Deno.test("regressions() names no figure that is as before, or better, or worse by no more than a busy machine makes it", () => {
  assertEquals(regressions(BEFORE, BEFORE), []);
  const operations = mapOperations((name) => ({ ...BEFORE.operations[name], ratio: 3.4 }));
  const memory = { ...BEFORE.memory, idle: { ...MEMORY, anonymousMiB: 47 } };
  assertEquals(regressions({ ...BEFORE, operations, memory }, BEFORE), []);
});

Deno.test("regressions() names an operation, memory, and a start that cost more than in the last release", () => {
  const operations = { ...BEFORE.operations, publish: { ...BEFORE.operations.publish, ratio: 3.6 } };
  const memory = { ...BEFORE.memory, afterCalls: { ...MEMORY, anonymousMiB: 49 } };
  const start = { ...BEFORE.start, later: { ...BEFORE.start.later, readyMs: 1_600 } };
  assertEquals(regressions({ ...BEFORE, operations, memory, start }, BEFORE), [
    "NodePublishVolume: 3.6 times the plain commands, 2.0 before",
    "anonymous memory, afterCalls: 49 MiB, 40 before",
    "start: 3.2 times an empty file, 2.0 before",
  ]);
});

Deno.test("regressions() compares nothing with another kind of guest", () => {
  const operations = mapOperations((name) => ({ ...BEFORE.operations[name], ratio: 50 }));
  assertEquals(regressions({ ...BEFORE, operations, machine: { ...BEFORE.machine, kind: "qemu" } }, BEFORE), []);
});

Deno.test("the figures of the last release have every operation", async () => {
  const { operations } = await lastRelease();
  assertEquals(Object.keys(operations), Object.keys(BEFORE.operations));
});
