import { assertEquals, assertThrows } from "@std/assert";
import { median, round } from "./statistics.ts";

Deno.test("median() returns the middle value in any order, and does not change the values", () => {
  const values = [30, 10, 200];
  assertEquals(median(values), 30);
  assertEquals(values, [30, 10, 200]);
  assertEquals(median([4]), 4);
  assertEquals(median([4, 1, 3, 2]), 2.5);
  assertThrows(() => median([]), RangeError, "no values");
});

Deno.test("round() keeps the given number of decimals", () => {
  assertEquals([round(1.2345), round(1.2355, 2), round(2, 2)], [1, 1.24, 2]);
});
