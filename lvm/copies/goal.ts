/**
 * What a volume that is filled from several snapshots of another node should have next, and what it has.
 *
 * @module
 */

import type { CopyGoal } from "../model/remote_source.ts";
import type { LogicalVolume } from "../model/report.ts";
import type { VolumeTags } from "../model/tags.ts";

/** The size of a range that is fetched from another node, in bytes: a few seconds, too, and written and read in between. */
export const FETCH_BYTES = 256n << 20n;

/** Reports whether two goals are the same. */
export function isSameGoal(a: CopyGoal | undefined, b: CopyGoal): boolean {
  return a?.snapshot === b.snapshot && a.base === b.base && a.last === b.last;
}

/** Reports whether a volume has all data of the snapshot that its tag names. */
export function hasBase({ size }: Pick<LogicalVolume, "size">, copied: VolumeTags["copied"]): boolean {
  return copied !== undefined && copied !== "all" && copied >= size;
}
