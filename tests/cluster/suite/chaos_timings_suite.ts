import { runRandom } from "../../rig/seeded_random.ts";
import { ClaimTracker } from "./helpers/claim_tracker.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** The number of moments to test. */
const MOMENTS = 20;

/** The number of claims that are pending at once. */
const CONCURRENT_CLAIMS = 5;

Deno.test("a claim deleted at any moment of its creation leaves no LV, LVMVolume or PV", async () => {
  await using ns = await TestNamespace.open("timings");
  await using tracker = await ClaimTracker.open(ns);
  const className = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });
  const usualMs = await measureBindMs(tracker, className);
  console.error(`${CONCURRENT_CLAIMS} claims at once are bound after ${Math.round(usualMs)} ms`);

  const random = runRandom();
  const moments = Array.from({ length: MOMENTS }, (_, n) => (n + random()) / MOMENTS * 1.5 * usualMs);
  // Near ones and far ones together, so that deletions meet creations.
  const shuffled = Array.from({ length: MOMENTS }, (_, n) => moments[(n * 7) % MOMENTS]!);
  while (shuffled.length > 0) {
    await Promise.all(
      shuffled.splice(0, CONCURRENT_CLAIMS).map(async (ms, n) => {
        const name = `short-${shuffled.length}-${n}`;
        await tracker.createClaim(name, className);
        // The test needs this fixed time.
        await new Promise((resolve) => setTimeout(resolve, ms));
        await tracker.deleteClaim(name);
      }),
    );
  }
  await tracker.waitForConsistency();
});

/** Measures how long some claims at once take to be bound. @returns milliseconds */
async function measureBindMs(tracker: ClaimTracker, className: string): Promise<number> {
  const names = Array.from({ length: CONCURRENT_CLAIMS }, (_, n) => `usual-${n}`);
  const startedAt = performance.now();
  await Promise.all(names.map((name) => tracker.createClaim(name, className)));
  await tracker.waitForBound(names);
  const ms = performance.now() - startedAt;
  await Promise.all(names.map((name) => tracker.deleteClaim(name)));
  return ms;
}
