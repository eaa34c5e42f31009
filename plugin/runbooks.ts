/**
 * The runbooks, and the guides that problems refer to, as `kubectl denolith help runbook` and the page show them. Their
 * texts are part of the module, so that they are those of this version wherever the plugin runs.
 *
 * @module
 */

import { wrapText } from "../base/text_table.ts";
import security from "../docs/explanation/security.md" with { type: "text" };
import disks from "../docs/guides/disks.md" with { type: "text" };
import encryption from "../docs/guides/encryption.md" with { type: "text" };
import importing from "../docs/guides/import.md" with { type: "text" };
import install from "../docs/guides/install.md" with { type: "text" };
import ioLimits from "../docs/guides/io-limits.md" with { type: "text" };
import move from "../docs/guides/move.md" with { type: "text" };
import nodeMaintenance from "../docs/guides/node-maintenance.md" with { type: "text" };
import symptoms from "../docs/guides/runbooks.md" with { type: "text" };
import claimsAndPods from "../docs/guides/runbooks/claims-and-pods.md" with { type: "text" };
import nodesAndControllers from "../docs/guides/runbooks/nodes-and-controllers.md" with { type: "text" };
import storage from "../docs/guides/runbooks/storage.md" with { type: "text" };
import snapshots from "../docs/guides/snapshots.md" with { type: "text" };
import storageClasses from "../docs/guides/storage-classes.md" with { type: "text" };
import thinVolumes from "../docs/guides/thin-volumes.md" with { type: "text" };
import upgrade from "../docs/guides/upgrade.md" with { type: "text" };
import volumeRepair from "../docs/guides/volume-repair.md" with { type: "text" };

/** The pages by their paths in the documents. */
const PAGES: Readonly<Record<string, string>> = {
  "guides/runbooks/claims-and-pods.md": claimsAndPods,
  "guides/runbooks/storage.md": storage,
  "guides/runbooks/nodes-and-controllers.md": nodesAndControllers,
  "guides/disks.md": disks,
  "guides/encryption.md": encryption,
  "guides/import.md": importing,
  "guides/install.md": install,
  "guides/io-limits.md": ioLimits,
  "guides/move.md": move,
  "guides/node-maintenance.md": nodeMaintenance,
  "guides/snapshots.md": snapshots,
  "guides/storage-classes.md": storageClasses,
  "guides/thin-volumes.md": thinVolumes,
  "guides/upgrade.md": upgrade,
  "guides/volume-repair.md": volumeRepair,
  "explanation/security.md": security,
};

/** A chapter: a heading of a page, with what follows up to the next one of its level. */
export interface Chapter {
  /** The path of its page in the documents. */
  readonly page: string;
  readonly title: string;
  /** Its text, in Markdown. */
  readonly markdown: string;
}

/**
 * Returns the name of the chapter that a link of the documents leads to: of the runbooks that of its heading, such as
 * `lost-volume`, and otherwise that of the guide, too, such as `move/turn-transfers-on`.
 *
 * @param path path of the page, with a heading after `#`
 */
export function chapterName(path: string): string {
  const [page = "", heading] = path.split("#");
  const parts = [page.includes("runbooks/") ? undefined : page.replace(/^.*\/|\.md$/g, ""), heading];
  return parts.filter((part) => part !== undefined).join("/");
}

/** The chapters by their names, which are read at the first use. */
let found: ReadonlyMap<string, Chapter> | undefined;

/** Returns the chapters by their names, in the order of the pages. */
export function chapters(): ReadonlyMap<string, Chapter> {
  return found ??= new Map(Object.entries(PAGES).flatMap(([page, text]) => chaptersOf(page, text)));
}

function chaptersOf(page: string, text: string): (readonly [string, Chapter])[] {
  const outside = text.replace(/^```[^]*?^```/gm, (code) => " ".repeat(code.length));
  const headings = [...outside.matchAll(/^(#+) (.*)$/gm)];
  return headings.flatMap(([, level, title], index) => {
    const isPage = level === "#";
    if (isPage && page.includes("runbooks/")) return [];
    const heading = title!.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-");
    const next = headings.slice(index + 1).find(([, other]) => other!.length <= level!.length);
    const markdown = text.slice(headings[index]!.index, next?.index);
    return [[chapterName(isPage ? page : `${page}#${heading}`), { page, title: title!, markdown }]];
  });
}

/** Returns the names of the chapters of the runbooks, with what one sees, and of the guides, with their titles. */
export function chapterRows(): (readonly [name: string, meaning: string])[] {
  const seen = new Map(
    [...symptoms.matchAll(/^- (.*):\s+\[.*\]\(.*#(.*)\)$/gm)].map((
      [, text, name],
    ) => [name, text!.replaceAll("`", "")]),
  );
  return [...chapters()].filter(([name]) => !name.includes("/"))
    .map(([name, { title }]) => [name, seen.get(name) ?? title]);
}

/** Returns the command that prints a chapter. */
export function chapterCommand(name: string): string {
  return `kubectl denolith help runbook ${name}`;
}

/** Returns the text of a chapter for terminals; `undefined` if there is none of this name. */
export function chapterText(name: string): string | undefined {
  const chapter = chapters().get(name);
  if (chapter === undefined) return undefined;
  // every other part is code
  const lines = chapter.markdown.trim().split(/^ *```\w*\n([^]*?)^ *```$/m).flatMap((part, index) =>
    index % 2 === 1 ? part.trimEnd().replace(/^/gm, "    ").split("\n") : textLines(part, chapter.page)
  );
  const text = lines.join("\n").replace(/\n{3,}/g, "\n\n");
  return /\[[\w/-]+\]/.test(text) ? `${text.trimEnd()}\n\n[NAME]: ${chapterCommand("NAME")}` : text.trimEnd();
}

/** Returns the lines of a text without code, each paragraph and list item broken anew. */
function textLines(markdown: string, page: string): string[] {
  const paragraphs = markdown.replace(/(?<=\S)\n *(?![\n|]|- |\d+\. )(?=\S)/g, " ")
    .replace(/\[([^\]]*)\]\(([^)]*)\)/g, (_, text: string, target: string) => linkText(text, target, page));
  return paragraphs.split("\n").flatMap((line) => {
    if (line.startsWith("|")) return [line.replace(/ {2,}/g, " ")];
    const [, prefix = "", text = ""] = /^( *(?:- |\d+\. )?)(.*)$/.exec(line)!;
    return text === "" ? [""] : wrapText(prefix, text);
  });
}

/** Returns a link as a terminal shows it: with the name of the chapter, or the address, if it leads to one. */
function linkText(text: string, target: string, page: string): string {
  if (/^https?:/.test(target)) return `${text} (${target})`;
  const { pathname, hash } = new URL(target, `file:///${page}`);
  const name = chapterName(pathname.slice(1) + hash);
  return chapters().has(name) ? `${text} [${name}]` : text;
}
