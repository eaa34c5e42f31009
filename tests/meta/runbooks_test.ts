/**
 * Comparison of the runbooks with the reasons of failures and the names of controllers.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { ERROR_KINDS, REASONS } from "../../base/error.ts";
import { SYMPTOM_CHAPTERS, SYMPTOMS } from "../../plugin/diagnosis/symptoms.ts";
import { anchors, chapter, inlineCode } from "./markdown.ts";
import { runbookChapter } from "./runbooks.ts";
import { sourceFiles } from "./source_files.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** Returns the texts of the sources in these folders. */
function readSources(...folders: readonly string[]): string {
  return folders.flatMap(sourceFiles).map((path) => Deno.readTextFileSync(path)).join("\n");
}

/** Returns the text of a chapter of the runbooks, by its page and anchor. */
function readChapter(link: string): string {
  const [page, anchor] = link.split("#");
  const text = Deno.readTextFileSync(join(ROOT, "docs/guides/runbooks", page!));
  const titles = [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title!);
  return chapter(text, titles.find((title) => anchors(`# ${title}`)[0] === `#${anchor}`)!);
}

Deno.test("the runbooks describe each reason in the chapters that its answer names, and a code of the driver in no others", () => {
  for (const [name, link] of Object.entries(SYMPTOM_CHAPTERS)) {
    const text = readChapter(link);
    const expected = Object.entries(SYMPTOMS).filter(([, { chapters }]) => chapters.includes(name as never))
      .map(([reason]) => reason);
    assertEquals(expected.filter((reason) => !inlineCode(text).includes(reason)), [], `${link} lacks them`);
    const rows = [...text.matchAll(/^- \*\*((?:`\w+`(?:,\s+)?)+)\*\*:/gm)].flatMap(([, codes]) => inlineCode(codes!));
    const others = rows.filter((reason) => reason in SYMPTOMS && !expected.includes(reason));
    assertEquals(others, [], `${link} has them, and no answer leads there`);
  }
});

Deno.test("each reason is given where an error is made", () => {
  const sources = readSources("base", "csi", "k8s", "lvm").replace(/^export const REASONS = [^]*?\] as const;/m, "");
  assertEquals(sources.includes("export const REASONS"), false, "the table itself is left out");
  const kinds: readonly string[] = ERROR_KINDS;
  assertEquals(REASONS.filter((reason) => !kinds.includes(reason) && !sources.includes(`"${reason}"`)), []);
});

Deno.test("the runbooks name the controllers that exist", () => {
  const source = readSources("cli", "csi", "k8s", "lvm");
  const controllers = [
    ...source.matchAll(/\b(?:sidecarController|createController)\(\s*"(\w+)"/g),
    ...source.matchAll(/^ +name: "(\w+)",\n +(?:ownerKind|resource):/gm), // of contents and handovers
  ];
  const rows = runbookChapter("Reconcile failing").matchAll(/^\| `(\w+)` +\|/gm);
  const names = (matches: Iterable<RegExpExecArray>) => [...matches].map(([, name]) => name!).sort();
  assertEquals(names(rows), names(controllers));
});
