/**
 * The figures of the last release, which were measured by the same bench: `deno task bench --earlier --json`.
 *
 * @module
 */

import { type BenchResult, type Memory, type Operation, OPERATIONS } from "./result.ts";

/** The file with the figures. */
export const LAST_RELEASE_FILE = new URL("last_release.json", import.meta.url);

/** How far a figure may be above that of the last release: it also differs from run to run on a machine with other work. */
const TOLERATED = { ratio: 1.5, ratioMore: 0.5, memory: 1.2 } as const;

/** Reads the figures of the last release. */
export async function lastRelease(): Promise<BenchResult> {
  return JSON.parse(await Deno.readTextFile(LAST_RELEASE_FILE));
}

/**
 * Returns what costs more than in the last release, by more than what is tolerated, in words. The figures of one kind of
 * guest tell nothing of another kind.
 */
export function regressions(now: BenchResult, last: BenchResult): string[] {
  if (now.machine.kind !== last.machine.kind) return [];
  const slower = Object.entries(now.operations).flatMap(([name, { ratio }]) => {
    const before = last.operations[name as Operation]?.ratio;
    return before !== undefined && ratio > before * TOLERATED.ratio + TOLERATED.ratioMore
      ? [`${OPERATIONS[name as Operation]}: ${ratio.toFixed(1)} times the plain commands, ${before.toFixed(1)} before`]
      : [];
  });
  const larger = Object.entries(now.memory).flatMap(([when, { anonymousMiB }]) => {
    const before = (last.memory as Record<string, Memory>)[when]!.anonymousMiB;
    return anonymousMiB > before * TOLERATED.memory
      ? [`anonymous memory, ${when}: ${Math.round(anonymousMiB)} MiB, ${Math.round(before)} before`]
      : [];
  });
  const [start, startBefore] = [startRatio(now), startRatio(last)];
  const later = start > startBefore * TOLERATED.ratio
    ? [`start: ${start.toFixed(1)} times an empty file, ${startBefore.toFixed(1)} before`]
    : [];
  return [...slower, ...larger, ...later];
}

/** Returns how long a start takes until it is ready, beside the runtime with an empty file. */
export function startRatio({ start: { later, emptyFileMs } }: BenchResult): number {
  return later.readyMs / emptyFileMs;
}
