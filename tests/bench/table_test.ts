import { assert, assertEquals } from "@std/assert";
import { type BenchResult, mapOperations, OPERATIONS } from "./result.ts";
import { tables } from "./table.ts";

const START = { socketMs: 9_500, readyMs: 10_250, firstCallMs: 48 };
const OPERATION = { driverMs: 123_456, plainMs: 1_234, ratio: 100.05, commands: 17, runs: 3 };

const RESULT: BenchResult = {
  version: "0.1.0",
  machine: { cpus: 2, kernel: "6.1.0-35-amd64", kind: "uml" },
  start: { first: START, later: { ...START, runs: 5 }, emptyFileMs: 4_100 },
  memory: {
    idle: { rssMiB: 90.4, anonymousMiB: 60, pssMiB: 88.1 },
    afterCalls: { rssMiB: 109.6, anonymousMiB: 71.4 },
    afterOperations: { rssMiB: 120, anonymousMiB: 80, pssMiB: 118 },
  },
  calls: { count: 4000, atATime: 8, perSecond: 66.4 },
  operations: mapOperations(() => ({ ...OPERATION, plain: ["lvconvert a/b", "blkdiscard x", "lvremove"] })),
};

Deno.test("tables() reads well at 100 columns, whatever the operation", () => {
  const lines = tables(RESULT).split("\n");
  assertEquals(lines.filter((line) => line.length > 100), []);
  for (const label of Object.values(OPERATIONS)) assert(lines.some((line) => line.startsWith(label)), label);
});

Deno.test("tables() has seconds, MiB and ratios, and leaves out values that the kernel does not report", () => {
  const text = tables(RESULT).replaceAll(/ +/g, " ");
  for (
    const row of [
      "Start first ever later, median of 5",
      "socket answers 9.50 s 9.50 s",
      "… beside an empty file 2.5",
      "idle 90 MiB 60 MiB 88 MiB",
      "after 4000 calls 110 MiB 71 MiB\n",
      "8 at a time: 66 per second",
      "CreateVolume 123.46 s 1.23 s 100.0 17 lvconvert, blkdiscard, lvremove",
    ]
  ) assert(text.includes(row), `${row} is not in\n${text}`);
});
