import { assert, assertEquals } from "@std/assert";
import { draw } from "./sample.ts";

const NAMES = Array.from({ length: 600 }, (_, i) => `suite ${i}`);

Deno.test("draw() draws the same names for the same seed, and other names for another", async () => {
  const first = await draw(NAMES, "a");
  assertEquals(await draw(NAMES, "a"), first);
  assert((await draw(NAMES, "b")).join() !== first.join());
});

Deno.test("draw() draws one of three neighbours, each of them by a third of the seeds", async () => {
  assertEquals((await draw(NAMES, "a")).length, NAMES.length / 3);
  const seeds = Array.from({ length: 600 }, (_, i) => `seed ${i}`);
  for (const names of [["x", "y", "z"], ["x", "y"], ["x"]]) {
    const drawn = (await Promise.all(seeds.map((seed) => draw(names, seed)))).flat();
    for (const name of names) {
      const count = drawn.filter((one) => one === name).length;
      assert(count > 150 && count < 250, `${name} of ${names}: by ${count} of 600 seeds`);
    }
  }
});

Deno.test("draw() draws nothing for the seed none", async () => {
  assertEquals(await draw(NAMES, "none"), []);
});
