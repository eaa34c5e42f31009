/**
 * Draws what CI runs in its time: what is overdue first, then by chance, by the age of the last pass and by what has changed.
 *
 * @module
 */

import type { Change } from "./record.ts";
import type { Row } from "./rows.ts";

/** The number of commits of the product after which a pass no longer counts. */
export const MAX_COMMITS = 150;

/** The age at which a row is drawn before others, so that none becomes overdue. */
const OLD_COMMITS = 75;

/** How many times as likely a row is drawn whose code has changed. */
const CHANGED = 4;

/** A row with its estimated time, in seconds, and what has changed since its last pass. */
export interface Candidate {
  readonly row: Row;
  readonly seconds: number;
  readonly change: Change;
}

/**
 * Returns what fits in a time: all that CI runs at each commit, then what is oldest, then others by chance.
 *
 * @param seconds the time, in seconds
 * @param random numbers from 0 to 1, the same for the same commit
 */
export function drawRows(candidates: readonly Candidate[], seconds: number, random: () => number): Candidate[] {
  const always = candidates.filter(({ row }) => row.ci === "always");
  const keyed = candidates.filter(({ row }) => row.ci === "drawn").map((candidate) => {
    const { change: { commits, covered } } = candidate;
    const weight = (1 + Math.min(commits, MAX_COMMITS)) * (covered > 0 ? CHANGED : 1);
    return { candidate, old: commits >= OLD_COMMITS ? commits : 0, key: random() ** (1 / weight) };
  });
  const drawn = [...always];
  let left = seconds - always.reduce((sum, next) => sum + next.seconds, 0);
  for (const { candidate } of keyed.toSorted((a, b) => compare(b.old, a.old) || b.key - a.key)) {
    if (candidate.seconds > left) continue;
    left -= candidate.seconds;
    drawn.push(candidate);
  }
  return drawn;
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1; // also of two that are infinite
}
