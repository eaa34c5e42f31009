import { assert, assertEquals } from "@std/assert";
import { draw, sampleCases } from "./sample.ts";

const NAMES = Array.from({ length: 600 }, (_, i) => `suite ${i}`);

Deno.test("draw() draws the same names for the same seed, and other names for another", () => {
  const first = draw(NAMES, "a");
  assertEquals(draw(NAMES, "a"), first);
  assert(draw(NAMES, "b").join() !== first.join());
});

Deno.test("draw() draws one of three neighbours, each of them by a third of the seeds", () => {
  assertEquals(draw(NAMES, "a").length, NAMES.length / 3);
  const seeds = Array.from({ length: 600 }, (_, i) => `seed ${i}`);
  for (const names of [["x", "y", "z"], ["x", "y"], ["x"]]) {
    const drawn = seeds.flatMap((seed) => draw(names, seed));
    for (const name of names) {
      const count = drawn.filter((one) => one === name).length;
      assert(count > 150 && count < 250, `${name} of ${names}: by ${count} of 600 seeds`);
    }
  }
});

Deno.test("draw() draws nothing for the seed none", () => {
  assertEquals(draw(NAMES, "none"), []);
});

Deno.test("sampleCases() draws about one in so many, and other cases for another name", async () => {
  const drawn = await sampleCases("x", NAMES, 6);
  if (Deno.env.get("CRASHES") === "all") return assertEquals(drawn, NAMES);
  assert(drawn.length > 60 && drawn.length < 140, `${drawn.length} of 600`);
  assertEquals(await sampleCases("x", NAMES, 6), drawn);
  assert((await sampleCases("y", NAMES, 6)).join() !== drawn.join());
});
