/**
 * Mutants that no test can kill because they do the same: the list in equivalents.json.
 *
 * @module
 */

import type { Mutant } from "./instrument.ts";
import { isKilled, type Status } from "./results.ts";

/** An entry of the list. It means all mutants that agree with it. */
export interface Equivalent {
  readonly file: string;
  readonly scope: string;
  /** The original code in one line, or its beginning followed by `…`. */
  readonly original: string;
  /** What replaces it in one line, or its beginning followed by `…`. */
  readonly replacement: string;
  /** Why the mutant does the same as the original. */
  readonly reason: string;
}

/** Reports whether an entry means a mutant. */
export function means(entry: Equivalent, mutant: Mutant): boolean {
  return entry.file === mutant.file && entry.scope === mutant.scope &&
    agrees(entry.original, mutant.original) && agrees(entry.replacement, mutant.replacement);
}

function agrees(pattern: string, text: string): boolean {
  return pattern.endsWith("…") ? text.startsWith(pattern.slice(0, -1)) : pattern === text;
}

/**
 * Returns what is wrong with the list: entries that mean no mutant, give no reason, or mean a mutant that a test killed.
 *
 * @param entries the list
 * @param mutants all mutants
 * @param statusOf what is known of a mutant
 */
export function problemsOf(
  entries: readonly Equivalent[],
  mutants: readonly Mutant[],
  statusOf: (mutant: Mutant) => Status | undefined,
): string[] {
  return entries.flatMap((entry) => {
    const name = `${entry.file}: ${entry.scope}: ${entry.original} → ${entry.replacement}`;
    const meant = mutants.filter((mutant) => means(entry, mutant));
    if (meant.length === 0) return [`${name}: there is no such mutant; remove the entry`];
    if (entry.reason.trim() === "") return [`${name}: the reason is missing`];
    const isWrong = meant.some((mutant) => isKilled(statusOf(mutant) ?? "survived"));
    return isWrong ? [`${name}: a test kills it, so it is not equivalent; remove the entry`] : [];
  });
}
