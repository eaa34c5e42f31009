/**
 * Comparison of messages that documents quote with those in the sources.
 *
 * @module
 */

import { join } from "@std/path";
import { sourceFiles } from "./source_files.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** Fewest letters that a text of the sources must have besides its placeholders, to be compared with a whole message. */
const MIN_LETTERS = 14;

/** Returns the driver's sources with concatenated strings joined, and `…` for each value that is inserted. */
export function sourceText(): string {
  const paths = [join(ROOT, "main.ts"), ...["base", "cli", "csi", "k8s", "lvm", "plugin"].flatMap(sourceFiles)];
  let all = paths.map((path) => Deno.readTextFileSync(path)).join("\n");
  for (let before = ""; before !== all;) [before, all] = [all, all.replace(/\$\{[^{}]*\}/g, "…")];
  return all.replace(/(["`])\s*\+\s*["`]/g, "");
}

/** Returns the inline code of a Markdown text. */
export function inlineCode(text: string): string[] {
  return [...text.replace(/```[^]*?```/g, "").matchAll(/`([^`]+)`/g)].map(([, code]) => code!);
}

/** Returns the parts between the `…` of a message, without those that have no word. */
export function pieces(message: string): string[] {
  return message.split("…").map((piece) => piece.trim()).filter((piece) => /\w{2}/.test(piece));
}

/**
 * Returns the messages that the sources cannot produce. A message is either abridged with `…`, so that all of its parts are
 * in the sources, or an example of a text of the sources with values inserted.
 */
export function unknownMessages(messages: readonly string[], source: string): string[] {
  const texts = [...source.matchAll(/(["`])((?:(?!\1|\n).){8,})\1/g)].map(([, , text]) => text!)
    .filter((text) => text.replace(/[^a-z]/gi, "").length >= MIN_LETTERS).map(asPattern);
  return messages.filter((message) =>
    !pieces(message).every((piece) => source.includes(piece)) &&
    !texts.some((text) => text.test(message.replace(/^… /, "")))
  );
}

function asPattern(text: string): RegExp {
  return new RegExp(`^${text.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".+")}$`);
}
