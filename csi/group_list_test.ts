import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../lvm/error.ts";
import { nameMatcher, parseGroupList, patternMatcher } from "./group_list.ts";

function assertRefused(call: () => unknown, words: string): void {
  assertEquals(assertThrows(call, StorageError, words).kind, "InvalidArgument");
}

Deno.test("parseGroupList() takes names and patterns, and a pattern matches whole names", () => {
  const groups = parseGroupList(" data , /fast-[a-z]{1,3}/,other");
  const names = ["data", "other", "fast-a", "fast-abc", "fast-abcd", "xfast-a", "dat", "data2", "/fast-[a-z]{1,3}/"];
  assertEquals(names.filter((name) => groups.matches(name)), ["data", "other", "fast-a", "fast-abc"]);
});

Deno.test("parseGroupList() refuses an empty list, and names that no volume group can have", () => {
  assertRefused(() => parseGroupList("", "--groups"), '--groups "": must be names of volume groups');
  for (const name of ["-a", ".", "..", "a b", "a/b", "x".repeat(128)]) {
    assertRefused(() => nameMatcher("volumeGroup", name), "volumeGroup ");
  }
  for (const name of ["...", "a-", "x".repeat(127)]) assertEquals(nameMatcher("volumeGroup", name).matches(name), true);
});

Deno.test("patternMatcher() refuses patterns of more than 256 characters, with slashes, or that RE2 does not know", () => {
  assertEquals(patternMatcher("f", "a".repeat(256)).matches("a".repeat(256)), true);
  assertRefused(() => patternMatcher("f", "a".repeat(257)), "longer than 256 characters");
  assertRefused(() => patternMatcher("f", "a/b"), "slash");
  for (const pattern of ["(", "(?=a)", "a{2000}"]) assertRefused(() => patternMatcher("f", pattern), "syntax of RE2");
});
