/**
 * How often what happened: histories in which nothing succeeds find nothing.
 *
 * @module
 */

/** The numbers of what happened, in all histories of this process. */
export const tally = new Map<string, number>();

/** Counts something that happened. */
export function count(what: string): void {
  tally.set(what, (tally.get(what) ?? 0) + 1);
}

/** Returns the numbers in words. */
export function tallyText(): string {
  return [...tally].sort().map(([what, number]) => `${what} ${number}`).join(", ");
}
