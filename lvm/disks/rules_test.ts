import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { type CreateMatcher, parseDiskRules } from "./rules.ts";

/** A matcher of whole names, by the patterns of JavaScript. */
const createMatcher: CreateMatcher = (_field, pattern) => ({
  matches: (name) => new RegExp(`^(?:${pattern})$`).test(name),
});

Deno.test("parseDiskRules() parses groups, patterns of names, sizes, and whether disks turn", () => {
  const [first, second, ...others] = parseDiskRules(
    "data=/nvme-.*/;min=100Gi;max=4Ti;rotational=no  slow=/ata-(A|B)_\\d{1,3}/",
    createMatcher,
  );
  assertEquals([first!.group, first!.minBytes, first!.maxBytes, first!.rotational], [
    "data",
    100n << 30n,
    4n << 40n,
    false,
  ]);
  assertEquals(["nvme-x", "my-nvme-x", "ata-A"].map((name) => first!.names.matches(name)), [true, false, false]);
  assertEquals([second!.group, second!.minBytes, second!.rotational, others], ["slow", undefined, undefined, []]);
  assertEquals(["ata-A_12", "ata-C_1"].map((name) => second!.names.matches(name)), [true, false]);
});

Deno.test("parseDiskRules() refuses what is no rule", () => {
  const texts = [
    "",
    " ",
    "data",
    "data=nvme",
    "=/x/",
    "data=//",
    "data=/x/;min=big",
    "data=/x/;min",
    "data=/x/;size=1Gi",
  ];
  for (const text of [...texts, "data=/x/;rotational=maybe", "a/b=/x/", "data=/x/extra", "-x=/y/"]) {
    assertEquals(assertThrows(() => parseDiskRules(text, createMatcher), StorageError).kind, "InvalidArgument", text);
  }
});
