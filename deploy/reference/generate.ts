/**
 * `deno task reference`: writes the generated parts of the pages in docs/reference.
 *
 * A generated part is between the lines {@linkcode BEGIN} and {@linkcode END}. All other text of a page is written by
 * hand.
 *
 * @module
 */

import { join } from "@std/path";
import { chartValuesTable } from "./chart_values.ts";
import { crdSections } from "./crds.ts";
import { conditionSections, eventSections } from "./events.ts";
import { flagSections } from "./flags.ts";
import { metricsTable } from "./metrics.ts";
import { parametersTable } from "./parameters.ts";

const ROOT = join(import.meta.dirname!, "../..");

/** The line before a generated part. */
export const BEGIN = "<!-- generated: begin -->";

/** The line after a generated part. */
export const END = "<!-- generated: end -->";

/** The generators of the pages' generated parts, by the page's path from the root. */
const PAGES: Readonly<Record<string, () => string>> = {
  "docs/reference/chart-values.md": chartValuesTable,
  "docs/reference/conditions.md": conditionSections,
  "docs/reference/crds.md": crdSections,
  "docs/reference/events.md": eventSections,
  "docs/reference/flags.md": flagSections,
  "docs/reference/metrics.md": metricsTable,
  "docs/reference/parameters.md": parametersTable,
};

/**
 * Returns the pages with their generated parts up to date: their text, by their path from the root.
 *
 * @throws {Error} when a page cannot be read, or does not have one generated part
 */
export function referencePages(): Map<string, string> {
  return new Map(
    Object.entries(PAGES).map(([path, generate]) => [
      path,
      replaceGeneratedPart(path, Deno.readTextFileSync(join(ROOT, path)), generate()),
    ]),
  );
}

/**
 * Replaces the generated part of a page.
 *
 * @throws {Error} when the page does not have exactly one
 */
function replaceGeneratedPart(path: string, page: string, part: string): string {
  const [before, rest, ...others] = page.split(`${BEGIN}\n`);
  const [, after, ...ends] = rest?.split(`\n${END}\n`) ?? [];
  if (after === undefined || others.length > 0 || ends.length > 0) {
    throw new Error(`generating ${path}: it must have one part from ${BEGIN} to ${END}, each on a line of its own`);
  }
  return `${before}${BEGIN}\n\n${part}\n\n${END}\n${after}`;
}

if (import.meta.main) {
  for (const [path, text] of referencePages()) await Deno.writeTextFile(join(ROOT, path), text);
}
