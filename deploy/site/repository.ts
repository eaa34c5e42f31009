/**
 * The files of the repository that the site shows.
 *
 * @module
 */

import { join } from "node:path";
import { statSync } from "node:fs";
import type { KindOf } from "./links.ts";

/** The root of the checkout. */
export const ROOT: string = new URL("../..", import.meta.url).pathname;

/**
 * The folder in which VitePress runs, with its packages and a copy of the documents: it looks for packages only above
 * them. Tests read the sources of the project, and not what is below dist/.
 */
export const WORK: string = join(ROOT, "dist/site-work");

/** The copy of the documents, by their paths from the root of the repository. */
export const PAGES: string = join(WORK, "pages");

/** Returns what is at a path of the checkout. */
export const kindOf: KindOf = (path) => {
  const found = statSync(join(ROOT, path), { throwIfNoEntry: false });
  return found === undefined ? undefined : found.isDirectory() ? "folder" : "file";
};
