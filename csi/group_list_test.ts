import { assert, assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { cpuMs } from "../tests/fake/cpu_time.ts";
import { parseGroupList, patternMatcher } from "./group_list.ts";
import { nameMatcher } from "./driver_options.ts";

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

Deno.test("parseGroupList() reads names and patterns, which may contain commas and blanks", () => {
  const groups = parseGroupList(" data , /fast-[a-z]{1,3}/,, /a b/,other");
  const names = ["data", "fast-ab", "a b", "other", "fast-1", "dat"];
  assertEquals(names.map((name) => groups.matches(name)), [true, true, true, true, false, false]);
  assertEquals(parseGroupList(String(groups)).matches("fast-ab"), true);
});

Deno.test.each(["", " , ", "/", "/a", "a/b", "/a/b", "/a/ b", "a,/b", "-x", "a b"])(
  "parseGroupList() refuses a list with an entry that is none: %j",
  (list) => void assertThrows(() => parseGroupList(list), StorageError, "volume groups"),
);

Deno.test("the text of a pattern with any character can be read again, as an agent does", () => {
  for (const pattern of ["a\nb", "[\n,]", " a", "", "\u2028"]) {
    const matcher = patternMatcher("parameter volumeGroupPattern", pattern);
    const again = parseGroupList(String(matcher));
    for (const name of ["a\nb", ",", " a", "", "\u2028", "a"]) assertEquals(again.matches(name), matcher.matches(name));
  }
});

Deno.test("no pattern and no list takes long", () => {
  const slow = "(?:a?){1000}".repeat(20);
  assertThrows(() => patternMatcher("parameter volumeGroupPattern", slow), StorageError, "repeats too much");
  const start = cpuMs();
  const large = patternMatcher("parameter volumeGroupPattern", "(?:a?){400}");
  large.matches("a".repeat(127));
  assertThrows(() => parseGroupList(" ".repeat(20_000) + "/"), StorageError);
  assert(cpuMs() - start < 2_000, "it takes seconds");
});
