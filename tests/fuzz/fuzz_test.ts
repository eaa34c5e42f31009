import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { describeFinding, runKeptInputs, runRandomInputs, statelessTarget } from "./target.ts";
import { TARGETS } from "./targets.ts";

/** The seed of the random inputs in `task test`. `task fuzz` draws others. */
const SEED = 1;

for (const target of TARGETS) {
  Deno.test(`fuzz target ${target.name} accepts its kept inputs and some random ones`, async () => {
    const { findings } = await runKeptInputs(target);
    const { finding } = await runRandomInputs(target, { seed: SEED, runs: target.testRuns });
    const all = finding === undefined ? findings : [...findings, finding];
    if (all.length > 0) throw new Error(all.map(describeFinding).join("\n"), { cause: all[0]!.error });
  });
}

Deno.test("runRandomInputs() reports a check that fails after the time of the run is over", async () => {
  const target = statelessTarget({
    name: "late",
    description: "",
    inputs: fc.constant("input"),
    testRuns: 1,
    check: async () => {
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      throw new Error("too late");
    },
  });
  // on a busy machine, the time may be over before the first input otherwise
  const { finding } = await runRandomInputs(target, { seed: SEED, runs: 10, timeMs: 1_000 });
  assertEquals((finding?.error as Error).message, "too late");
  await Deno.remove(new URL("corpus/late", import.meta.url), { recursive: true });
});
