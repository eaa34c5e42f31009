import { assert, assertEquals } from "@std/assert";
import { draw } from "./sample.ts";

const NAMES = Array.from({ length: 600 }, (_, i) => `suite ${i}`);

Deno.test("draw() draws the same names for the same seed, and other names for another", async () => {
  const first = await draw(NAMES, "a");
  assertEquals(await draw(NAMES, "a"), first);
  assert((await draw(NAMES, "b")).join() !== first.join());
});

Deno.test("draw() draws about one name in three, whatever else is in the list", async () => {
  const drawn = await draw(NAMES, "a");
  assert(drawn.length > 150 && drawn.length < 250, `${drawn.length} of 600`);
  assertEquals(await draw(NAMES.slice(0, 300), "a"), drawn.filter((name) => NAMES.indexOf(name) < 300));
});

Deno.test("draw() draws nothing for the seed none", async () => {
  assertEquals(await draw(NAMES, "none"), []);
});
