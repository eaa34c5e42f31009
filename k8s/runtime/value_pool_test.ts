import { assert, assertEquals } from "@std/assert";
import { ValuePool } from "./value_pool.ts";

Deno.test("ValuePool returns equal values as one", () => {
  const pool = new ValuePool();
  assert(pool.list(["a", "b"]) === pool.list(["a", "b"]));
  const names = ["a", "b"];
  assert(pool.entries({ a: "1", b: "2", c: "3" }, names) === pool.entries({ b: "2", a: "1" }, names));
  assertEquals(pool.entries({ a: "1", b: "2", c: "3" }, names), { a: "1", b: "2" });
  assertEquals([pool.entries({ c: "3" }, names), pool.entries(undefined, names), pool.text(undefined)], [
    ...[undefined, undefined, undefined],
  ]);
});

Deno.test("ValuePool takes no value for another one, whatever texts have in them", () => {
  const pool = new ValuePool();
  const names = ["a", "b"];
  assertEquals(pool.entries({ a: "1b 1:2" }, names), { a: "1b 1:2" });
  assertEquals(pool.entries({ a: "1", b: "2" }, names), { a: "1", b: "2" });
  assertEquals([pool.list(["a", "b"]), pool.list(["a1:b"]), pool.list([])], [["a", "b"], ["a1:b"], []]);
  assertEquals([pool.text("[1:a"), pool.list(["a"]), pool.text("[1:a")], ["[1:a", ["a"], "[1:a"]);
});

Deno.test("ValuePool keeps no more than some values", () => {
  const pool = new ValuePool();
  const first = pool.list(["first"]);
  for (let index = 0; index < 50_000; index++) pool.list([`${index}`]);
  assert(pool.list(["first"]) !== first);
});
