import { assert, assertEquals, assertThrows } from "@std/assert";
import manifest from "../../deno.json" with { type: "json" };
import { changelogEntry, readChangelog } from "./changelog.ts";

const TEXT = `# Changelog

## [Unreleased]

### Fixed

- A defect.

## [1.1.0] - 2026-02-03

### Added

- A thing.

## [1.0.0] - 2026-01-02
`;

Deno.test("CHANGELOG.md has Keep a Changelog's form, and an entry of this version", async () => {
  const text = await Deno.readTextFile(new URL("../../CHANGELOG.md", import.meta.url));
  assert(changelogEntry(text, manifest.version, { isDated: false }).changes.size > 0);
});

Deno.test("readChangelog() returns versions, dates and changes", () => {
  const read = readChangelog(TEXT).map(({ version, date, changes }) => ({ version, date, changes: [...changes] }));
  assertEquals(read, [
    { version: "Unreleased", date: undefined, changes: [["Fixed", "- A defect."]] },
    { version: "1.1.0", date: "2026-02-03", changes: [["Added", "- A thing."]] },
    { version: "1.0.0", date: "2026-01-02", changes: [] },
  ]);
});

Deno.test("changelogEntry() refuses a version that is missing, empty, or without the date of a release", () => {
  const refuse = (text: string, version: string, message: string) =>
    assertThrows(() => changelogEntry(text, version, { isDated: true }), Error, message);
  assertEquals(changelogEntry(TEXT, "1.1.0", { isDated: true }).date, "2026-02-03");
  refuse(TEXT, "1.2.0", "it has no entry of version 1.2.0");
  refuse(TEXT, "1.0.0", "the entry of version 1.0.0 has no changes");
  refuse(TEXT.replace("2026-02-03", "unreleased"), "1.1.0", "version 1.1.0 has no date");
});

Deno.test("readChangelog() refuses other forms", () => {
  for (
    const [from, to, message] of [
      ["# Changelog", "# Changes", "first line"],
      ["[1.1.0] - 2026-02-03", "1.1.0 (2026-02-03)", "must be [VERSION] - YYYY-MM-DD"],
      ["[1.1.0] - 2026-02-03", "[1.1.0]", "must be [VERSION] - YYYY-MM-DD"],
      ["2026-02-03", "2026-02-30", "no such day"],
      ["2026-02-03", "2025-02-03", "the newest version must stand first"],
      ["[1.1.0]", "[1.0.0]", "1.0.0 is there twice"],
      ["### Added", "### New", "New: must be Added, Changed"],
      ["- A thing.", "### Added", "Added is there twice"],
    ] as const
  ) assertThrows(() => readChangelog(TEXT.replace(from, to)), Error, message);
});
