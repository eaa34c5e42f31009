/**
 * Finds the volumes that are being filled from their sources in a report, and describes their progress.
 *
 * @module
 */

import { ignoreStorageError, StorageError } from "../../base/error.ts";
import { type LocatedLv, lvPath, lvsOf, type VolumeGroup } from "../model/report.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { layoutOf, snapshotRefusal } from "../model/layout.ts";
import {
  type ContentSource,
  copySnapshotOf,
  describeSource,
  hasSourceData,
  ownedVolumeId,
  parseVolumeTags,
} from "../model/tags.ts";
import { formatBytes } from "../../base/size.ts";
import type { Volume } from "./volume.ts";

/** The progress of a copy; sizes in bytes. */
export interface CopyProgress {
  /** The bytes that are copied. */
  readonly copied: bigint;
  /** The bytes to copy in all; `undefined` before that is known. */
  readonly total?: bigint;
  /** The reason why the copy does not continue at present. */
  readonly lastError?: string;
  /** The snapshot of another node whose data it has, of a volume that is filled from several. */
  readonly snapshot?: SnapshotId;
  /** The bytes of data that were received from another node for the last one of these. */
  readonly received?: bigint;
}

/**
 * Returns the volumes of the driver that are being filled.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 */
export function copiesInProgress(
  driver: string,
  groups: readonly VolumeGroup[],
): { id: VolumeId; source: ContentSource }[] {
  return groups.flatMap(({ lvs }) => lvs).flatMap(({ tags, incomplete }) => {
    if (ownedVolumeId(driver, tags) === undefined || (incomplete && !hasSourceData(tags))) return [];
    // the inventory reports tags that cannot be read
    const { id, source, copied } = ignoreStorageError(() => parseVolumeTags(driver, tags)) ?? {};
    return id === undefined || source === undefined || copied === undefined ? [] : [{ id, source }];
  });
}

/**
 * Makes sure that no volume is being created from a source.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 * @param source the volume or snapshot to check
 * @param operation what the caller is about to do, for the error message
 * @throws {StorageError} `Busy`, with the names of the volumes that are being created.
 */
export function refuseWhileCopied(
  driver: string,
  groups: readonly VolumeGroup[],
  source: ContentSource,
  operation: string,
): void {
  const copies = copiesInProgress(driver, groups).filter((copy) =>
    describeSource(copy.source) === describeSource(source)
  );
  if (copies.length === 0) return;
  const names = copies.map(({ id }) => id).sort().join(", ");
  throw new StorageError(
    "Busy",
    `${operation}: volume ${names} is being created from it; wait until it is complete, or delete that volume`,
    { retryOnChange: true },
  );
}

/**
 * Reports whether what a volume is copied from does not change any more, although its content source is used: a snapshot
 * never changes, and a copy snapshot keeps the data of a volume.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 * @param copy the volume that is being filled, and its source
 */
export function isSourceKept(
  driver: string,
  groups: readonly VolumeGroup[],
  { id, source }: { readonly id: VolumeId; readonly source: ContentSource },
): boolean {
  return source.kind === "snapshot" ||
    groups.some(({ lvs }) => lvs.some(({ tags }) => copySnapshotOf(driver, tags) === id));
}

/**
 * Returns the copy snapshots whose copies are complete or were dropped.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 */
export function staleCopySnapshots(driver: string, groups: readonly VolumeGroup[]): LocatedLv[] {
  const copies = new Set(copiesInProgress(driver, groups).map(({ id }) => id));
  return lvsOf(groups).filter(({ lv }) => {
    const copy = copySnapshotOf(driver, lv.tags);
    return copy !== undefined && !copies.has(copy);
  });
}

/**
 * Makes sure that no earlier copy of the same id has left its copy snapshot. A new copy would read it, although it is of
 * another moment, or even of another source.
 *
 * @param driver the driver's name
 * @param groups a report of LVM that shows no volume with the id
 * @param id the volume to create
 * @throws {StorageError} `Busy`: the background work removes such a copy snapshot.
 */
export function requireNoCopySnapshot(driver: string, groups: readonly VolumeGroup[], id: VolumeId): void {
  const left = groups.flatMap(({ lvs }) => lvs).find(({ tags }) => copySnapshotOf(driver, tags) === id);
  if (left === undefined) return;
  throw new StorageError(
    "Busy",
    `creating volume ${id}: ${left.name}, the temporary snapshot of an earlier copy, is not removed yet; try again`,
  );
}

/**
 * Makes sure that the driver takes snapshots of a volume.
 *
 * @param operation beginning of the error message
 * @throws {StorageError} `FailedPrecondition`
 */
export function requireSnapshots(operation: string, { group, lv }: LocatedLv): void {
  const layout = layoutOf(lv);
  const refusal = layout && snapshotRefusal(layout);
  if (refusal === undefined) return;
  throw new StorageError("FailedPrecondition", `${operation}: ${lvPath({ group, lv })} ${refusal}`);
}

/** Returns a sentence about the progress of a copy, for an error message. */
export function describeProgress({ id, tags: { source } }: Volume, { copied, total, lastError }: CopyProgress): string {
  const all = total === undefined ? "" : ` of ${formatBytes(total)}`;
  const why = lastError === undefined ? "" : `; it is tried again after a failure: ${lastError}`;
  return `creating volume ${id} from ${describeSource(source)}: ${formatBytes(copied)}${all} copied${why}`;
}
