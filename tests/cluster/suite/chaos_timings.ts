import { chanceOfRun } from "./chance.ts";
import { Ledger } from "./ledger.ts";
import { Scene } from "./scene.ts";

/** How many moments are tried. */
const MOMENTS = 20;

/** How many claims are under way at once. */
const AT_ONCE = 5;

Deno.test("a claim deleted at any moment of its creation leaves no LV, LVMVolume or PV", async () => {
  await using scene = await Scene.open("timings");
  await using ledger = await Ledger.open(scene);
  const className = await scene.storageClass("now", { volumeBindingMode: "Immediate" });
  const usualMs = await measure(ledger, className);
  console.error(`${AT_ONCE} claims at once are bound after ${Math.round(usualMs)} ms`);

  const chance = chanceOfRun();
  const moments = Array.from({ length: MOMENTS }, (_, n) => (n + chance()) / MOMENTS * 1.5 * usualMs);
  // Near ones and far ones together, so that deletions meet creations.
  const mixed = Array.from({ length: MOMENTS }, (_, n) => moments[(n * 7) % MOMENTS]!);
  while (mixed.length > 0) {
    await Promise.all(
      mixed.splice(0, AT_ONCE).map(async (ms, n) => {
        const name = `short-${mixed.length}-${n}`;
        await ledger.claim(name, className);
        // The time itself is what is tried here.
        await new Promise((resolve) => setTimeout(resolve, ms));
        await ledger.remove(name);
      }),
    );
  }
  await ledger.balanced();
});

/** How long some claims at once take to be bound, in milliseconds. */
async function measure(ledger: Ledger, className: string): Promise<number> {
  const names = Array.from({ length: AT_ONCE }, (_, n) => `usual-${n}`);
  const began = performance.now();
  await Promise.all(names.map((name) => ledger.claim(name, className)));
  await ledger.bound(names);
  const ms = performance.now() - began;
  await Promise.all(names.map((name) => ledger.remove(name)));
  return ms;
}
