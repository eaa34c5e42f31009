import { assertEquals } from "@std/assert";
import { partSelector } from "./suites.ts";

Deno.test("partSelector() deals out each test to exactly one part", () => {
  const parts = ["1/3", "2/3", "3/3"].map(partSelector);
  const dealt = Array.from({ length: 7 }, () => parts.map((isInPart) => isInPart() ? 1 : 0).join(""));
  assertEquals(dealt, ["100", "010", "001", "100", "010", "001", "100"]);
});

Deno.test("partSelector() takes all tests where there are no parts", () => {
  const isInPart = partSelector("");
  assertEquals([isInPart(), isInPart()], [true, true]);
});
