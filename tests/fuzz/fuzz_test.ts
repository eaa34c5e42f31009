import { describeFinding, runKeptInputs, runRandomInputs } from "./target.ts";
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
