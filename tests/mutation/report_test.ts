import { assertEquals } from "@std/assert";
import { type Equivalent, problemsOf } from "./equivalents.ts";
import type { Mutant } from "./instrument.ts";
import { describeMutant, scoreMarkdown, scores, scoreTable } from "./report.ts";
import { Results, type Status } from "./results.ts";

function mutant(file: string, key: string): Mutant {
  return { key, file, line: 3, scope: "f", mutator: "Bound", original: `a < ${key}`, replacement: "true" };
}

const MUTANTS = ["killed", "timeout", "survived", "uncovered"].map((key) => mutant("lvm/pools/pool.ts", key)).concat(
  ["killed", "equivalent", "untried"].map((key) => mutant("csi/server.ts", key)),
);

const statusOf = ({ key }: Mutant) => key === "untried" ? undefined : key as Status | "equivalent";

/** The mutant that a timeout kills survived at first. */
const firstOf = ({ key }: Mutant) => key === "timeout" ? "survived" : key === "untried" ? undefined : key as Status;

Deno.test("scores() counts a mutant without a test as survived, and an equivalent one not at all", () => {
  const [csi, pools, all] = scores(MUTANTS, statusOf, firstOf);
  assertEquals([csi!.folder, csi!.mutants, csi!.equivalent, csi!.untried, csi!.score], ["csi", 3, 1, 1, 100]);
  assertEquals([pools!.folder, pools!.killed, pools!.timedOut, pools!.survived], ["lvm/pools", 1, 1, 2]);
  assertEquals([pools!.score, all!.score], [50, 60]);
});

Deno.test("scoreTable() has a row for each folder", () => {
  assertEquals(scoreTable(scores(MUTANTS, statusOf, firstOf)).split("\n")[1]!.split(/ {2,}/), [
    ...["csi", "3", "1", "0", "0", "1", "1", "100.0 %"],
  ]);
});

Deno.test("scoreMarkdown() tells what was killed at first from what was killed since", () => {
  assertEquals(scoreMarkdown(scores(MUTANTS, statusOf, firstOf)).split("\n").slice(2), [
    "| csi | 3 | 1 | 1 | 100 % | 0 | 0 | 1 | 100 % |",
    "| lvm/pools | 4 | 4 | 1 | 25 % | 1 | 2 | 0 | 50 % |",
    "| all | 7 | 5 | 2 | 40 % | 1 | 2 | 1 | 60 % |",
  ]);
});

Deno.test("describeMutant() says where the mutant is, and what it changes", () => {
  assertEquals(describeMutant(MUTANTS[0]!), "lvm/pools/pool.ts:3 f: a < killed → true [Bound]");
});

Deno.test("problemsOf() finds entries that mean no mutant, give no reason, or mean one that a test kills", () => {
  const entry = { file: "lvm/pools/pool.ts", scope: "f", original: "a < survived", replacement: "tr…", reason: "why" };
  const problems = (change: Partial<Equivalent>) =>
    problemsOf([{ ...entry, ...change }], MUTANTS, (mutant) => statusOf(mutant) as Status)
      .map((problem) => /: ([^:;]+)(?:;[^:]+)?$/.exec(problem)?.[1]);
  assertEquals(problems({}), []);
  assertEquals(problems({ scope: "g" }), ["there is no such mutant"]);
  assertEquals(problems({ original: "a < surv" }), ["there is no such mutant"]);
  assertEquals(problems({ reason: " " }), ["the reason is missing"]);
  assertEquals(problems({ original: "a < killed" }), ["a test kills it, so it is not equivalent"]);
});

Deno.test("Results: a later result replaces an earlier one, and half a line is not read", async () => {
  const folder = await Deno.makeTempDir({ prefix: "denolith-test-" });
  try {
    const path = `${folder}/below/results.jsonl`;
    const results = await Results.read(path);
    await results.add({ ...MUTANTS[0]!, status: "survived" });
    await results.add({ ...MUTANTS[0]!, status: "killed", by: "a test" });
    await Deno.writeTextFile(path, '{"key": "surv', { append: true });
    const read = await Results.read(path);
    assertEquals([read.of(MUTANTS[0]!)?.status, read.of(MUTANTS[2]!)], ["killed", undefined]);
    assertEquals([read.firstOf(MUTANTS[0]!), read.firstOf(MUTANTS[2]!)], ["survived", undefined]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
