/**
 * `deno task reference`: writes the generated parts of the pages in docs/ and of the chart's README, and the files of Deno for JSR.
 * With `--check`, it only checks that they are up to date.
 *
 * A generated part is between the lines {@linkcode BEGIN} and {@linkcode END}. A page can have several. All other text of
 * a page is written by hand.
 *
 * @module
 */

import { join } from "@std/path";
import { chartValuesTables } from "./chart_values.ts";
import { crdSections } from "./crds.ts";
import { conditionSections, eventSections } from "./events.ts";
import { figuresTable } from "./figures.ts";
import { flagSections, topicList } from "./flags.ts";
import { metricsList, reasonsList, situationSections } from "./lists.ts";
import { ioLimits, layoutsList, openEbsNames, snapshotParameters, volumeParameters } from "./parameters.ts";
import { DENOLITH } from "../../cli/help/denolith.ts";
import { PLUGIN } from "../../plugin/subcommands.ts";
import { jsrFiles } from "../standard_library.ts";

const ROOT = join(import.meta.dirname!, "../..");

/** The line before a generated part. */
export const BEGIN = "<!-- generated: begin -->";

/** The line after a generated part. */
export const END = "<!-- generated: end -->";

/** The generators of the pages' generated parts, in the order of the page, by the page's path from the root. */
const PAGES: Readonly<Record<string, readonly (() => string)[]>> = {
  "deploy/chart/README.md": [chartValuesTables],
  "docs/explanation/performance.md": [figuresTable],
  "docs/reference/crds.md": [crdSections],
  "docs/reference/errors.md": [reasonsList],
  "docs/reference/events.md": [eventSections, conditionSections],
  "docs/reference/flags.md": [
    () => topicList(DENOLITH, "exit-status"),
    () => topicList(DENOLITH, "environment"),
    () => flagSections(DENOLITH),
  ],
  "docs/reference/kubectl-plugin.md": [() => topicList(PLUGIN, "environment"), () => flagSections(PLUGIN)],
  "docs/reference/metrics.md": [metricsList],
  "docs/reference/parameters.md": [volumeParameters, layoutsList, ioLimits, openEbsNames, snapshotParameters],
  "docs/reference/situations.md": [situationSections],
};

/**
 * Returns the pages with their generated parts up to date: their text, by their path from the root.
 *
 * @throws {Error} when a page cannot be read, or does not have as many generated parts as generators
 */
export function referencePages(): Map<string, string> {
  return new Map(
    Object.entries(PAGES).map(([path, generators]) => [
      path,
      replaceGeneratedParts(path, Deno.readTextFileSync(join(ROOT, path)), generators.map((generate) => generate())),
    ]),
  );
}

/**
 * Returns the generated parts of a page, in their order.
 *
 * @throws {Error} when a part does not begin or end on lines of its own
 */
export function generatedParts(page: string): string[] {
  return splitPage(page).parts;
}

/**
 * Replaces the generated parts of a page.
 *
 * @throws {Error} when the page has more or fewer of them
 */
function replaceGeneratedParts(path: string, page: string, parts: readonly string[]): string {
  const { texts, parts: old } = splitPage(page);
  if (old.length !== parts.length) {
    throw new Error(
      `generating ${path}: it has ${old.length} parts from ${BEGIN} to ${END}; it must have ${parts.length}`,
    );
  }
  return texts.map((text, index) => index === 0 ? text : `${BEGIN}\n\n${parts[index - 1]}\n\n${END}\n${text}`).join("");
}

/** Splits a page into the texts that are written by hand, and the generated parts between them. */
function splitPage(page: string): { texts: string[]; parts: string[] } {
  const [first, ...rest] = page.split(`${BEGIN}\n`);
  const pairs = rest.map((text) => {
    const [part, after, ...ends] = text.split(`\n${END}\n`);
    if (after === undefined || ends.length > 0) {
      throw new Error(`splitting a page: ${BEGIN} and ${END} do not alternate`);
    }
    return { part: part!, after };
  });
  return { texts: [first!, ...pairs.map(({ after }) => after)], parts: pairs.map(({ part }) => part) };
}

if (import.meta.main) {
  const pages = [...referencePages(), ...jsrFiles()];
  if (Deno.args.includes("--check")) {
    const stale = pages.filter(([path, text]) => Deno.readTextFileSync(join(ROOT, path)) !== text).map(([path]) =>
      path
    );
    if (stale.length > 0) {
      console.error(`not up to date: ${stale.join(", ")}; run: deno task reference`);
      Deno.exit(1);
    }
  } else {
    for (const [path, text] of pages) await Deno.writeTextFile(join(ROOT, path), text);
  }
}
