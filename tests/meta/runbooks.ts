/**
 * Reading the runbooks: the index docs/guides/runbooks.md, and a page for each area in docs/guides/runbooks/.
 *
 * @module
 */

import { join } from "@std/path";
import { chapter } from "./markdown.ts";

const GUIDES = new URL("../../docs/guides/", import.meta.url).pathname;

/** Returns the texts of the index and of the pages. */
export function readRunbooks(): string[] {
  const names = [...Deno.readDirSync(join(GUIDES, "runbooks"))].map(({ name }) => join("runbooks", name)).sort();
  return ["runbooks.md", ...names].map((name) => Deno.readTextFileSync(join(GUIDES, name)));
}

/**
 * Returns the text of the chapter with a title, on whichever page it is.
 *
 * @throws {Error} when not exactly one page has it
 */
export function runbookChapter(title: string): string {
  const [page, ...more] = readRunbooks().filter((text) => text.includes(`\n## ${title}\n`));
  if (page === undefined || more.length > 0) throw new Error(`reading the runbooks: one page must have ${title}`);
  return chapter(page, title);
}
