import { assert, assertEquals } from "@std/assert";
import { draw, sampleCases } from "./sample.ts";

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

Deno.test("sampleCases() draws about one in so many, other cases for another name, and all when it is told so", async () => {
  using env = new DisposableStack();
  for (const name of ["SAMPLE", "CRASHES"]) {
    const before = Deno.env.get(name);
    env.defer(() => before === undefined ? Deno.env.delete(name) : Deno.env.set(name, before));
    Deno.env.delete(name);
  }
  Deno.env.set("SAMPLE", "a");
  const drawn = await sampleCases("x", NAMES, 6);
  assert(drawn.length > 60 && drawn.length < 140, `${drawn.length} of 600`);
  assertEquals(await sampleCases("x", NAMES, 6), drawn);
  assert((await sampleCases("y", NAMES, 6)).join() !== drawn.join());
  Deno.env.set("CRASHES", "all");
  assertEquals(await sampleCases("x", NAMES, 6), NAMES);
});
