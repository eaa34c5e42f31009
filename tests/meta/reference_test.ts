/**
 * Comparison of the generated reference pages with what they are generated from.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { generatedParts, referencePages } from "../../deploy/reference/generate.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

Deno.test("the generated parts of docs/reference are up to date", async () => {
  const pages = referencePages();
  assert(pages.size > 0, "the test sees the pages");
  const stale: string[] = [];
  for (const [path, text] of pages) if (await Deno.readTextFile(`${ROOT}${path}`) !== text) stale.push(path);
  assertEquals(stale, [], "these pages are stale; run: deno task reference");
});

Deno.test("the generated tables and lists have no row without a meaning", () => {
  const empty = [...referencePages()].flatMap(([path, text]) =>
    generatedParts(text).flatMap((part) =>
      [...part.matchAll(/^\|.*\| +\|$|^( *)- .*: *\.?$(?!\n\1 {2}[^ -])/gm)].map(([row]) => `${path}: ${row}`)
    )
  );
  assertEquals(empty, []);
});
