import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { drawer, randomRuns } from "../rig/sample.ts";
import { keptHistories } from "./corpus.ts";
import { histories, type History } from "./history.ts";
import { play } from "./play.ts";

/** The number of random histories. */
const RUNS = randomRuns(2, 40);

// what a killed process was about to do is never done
const NO_SANITIZERS = { sanitizeOps: false, sanitizeResources: false };

const isDrawn = await drawer(4);

for (const { file, reason, history } of keptHistories()) {
  const name = file.split("/").at(-1)!;
  if (isDrawn(name)) {
    Deno.test(`a kept history (${name}) does not fail again: ${reason}`, NO_SANITIZERS, () => play(history));
  }
}

Deno.test(
  "a cluster with deaths and outages: a user sees what they may, all settles, and nothing is left",
  NO_SANITIZERS,
  async () => {
    await fc.assert(fc.asyncProperty(histories, (history) => play(history)), { numRuns: RUNS, endOnFailure: true });
  },
);

Deno.test("a history takes the same course each time", NO_SANITIZERS, async () => {
  const [history] = fc.sample(histories, { seed: 3, numRuns: 1 }) as [History];
  const courses: string[][] = [[], []];
  for (const course of courses) await play(history, { onLog: (line) => void course.push(line) });
  assertEquals(courses[0], courses[1]);
});
