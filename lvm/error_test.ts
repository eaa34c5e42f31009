import { assertEquals } from "@std/assert";
import { quote, truncate } from "./error.ts";

Deno.test("truncate() returns the start of a text, and never half of a character", () => {
  assertEquals([truncate("abc", 3), truncate("abcd", 3), truncate("", 3)], ["abc", "ab…", ""]);
  assertEquals(truncate("a💾💾", 3), "a…");
  assertEquals(truncate("a💾💾", 4), "a💾…");
});

Deno.test("quote() escapes a text, and truncates it to 80 characters", () => {
  assertEquals([quote('a"\n'), quote("b".repeat(80))], ['"a\\"\\n"', `"${"b".repeat(80)}"`]);
  assertEquals(quote("b".repeat(81)), `"${"b".repeat(79)}…"`);
});
