/**
 * The histories that are kept because they have found something.
 *
 * @module
 */

import { join } from "@std/path";
import type { History } from "./history.ts";

/** A kept history. */
export interface KeptHistory {
  /** The failure for which it is kept. */
  readonly reason: string;
  readonly history: History;
}

const CORPUS = new URL("corpus", import.meta.url).pathname;
const FOUND = new URL("../../dist/histories", import.meta.url).pathname;

/** Reads a kept history. */
export function readHistory(file: string): KeptHistory {
  return JSON.parse(Deno.readTextFileSync(file));
}

/** Returns the kept histories, with their paths. */
export function keptHistories(): (KeptHistory & { readonly file: string })[] {
  return [...Deno.readDirSync(CORPUS)].map(({ name }) => join(CORPUS, name)).sort().map((file) => ({
    ...readHistory(file),
    file,
  }));
}

/** Writes a history, outside of what is committed. @returns the path, and the text */
export function writeHistory(name: string, { reason, history }: KeptHistory): { file: string; text: string } {
  const file = join(FOUND, `${name}.json`);
  const fields = (step: object) => Object.entries(step).map(([key, value]) => `"${key}": ${JSON.stringify(value)}`);
  const steps = history.map((step) => `    { ${fields(step).join(", ")} }`).join(",\n"); // as deno fmt has it
  const text = `{\n  "reason": ${JSON.stringify(reason)},\n  "history": [\n${steps}\n  ]\n}\n`;
  Deno.mkdirSync(FOUND, { recursive: true });
  Deno.writeTextFileSync(file, text);
  return { file, text };
}
