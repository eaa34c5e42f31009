/**
 * Prints seeds with which concurrent callers soon find that the driver lacks a lock, for the list of pinned seeds.
 *
 * Usage: `deno run -A tests/crash/find_seeds.ts [SEEDS]`, where SEEDS is the number of seeds to try for each lock
 *
 * @module
 */

import { MemoryFiles } from "../fake/machine/memory_files.ts";
import { checkInterleavings, Interleavings } from "./interleaving.ts";
import { loseLock, LOST_LOCKS, runsFor } from "./lost_locks.ts";

/** The maximum number of runs with one seed, and the number with which the search ends. */
const [MAX_RUNS, ENOUGH_RUNS] = [40, 12];

if (import.meta.main) {
  using files = new MemoryFiles();
  for (const lost of LOST_LOCKS) {
    let [best, runs] = [0, Infinity];
    for (let seed = 1; seed <= Number(Deno.args[0] ?? 20) && runs > ENOUGH_RUNS; seed++) {
      using _lost = loseLock(lost);
      const options = { seed, numRuns: MAX_RUNS, endOnFailure: true, chosen: runsFor(lost) };
      const { failed, numRuns } = await checkInterleavings(new Interleavings(files), options);
      if (failed && numRuns < runs) [best, runs] = [seed, numRuns];
    }
    console.log(runs === Infinity ? `${lost}: no seed` : `{ lost: "${lost}", seed: ${best}, runs: ${runs} },`);
  }
  Deno.exit(0); // operations of crashed drivers stay pending
}
