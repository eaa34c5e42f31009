/**
 * What a volume can be made from, and what that asks for: decided from a report, and nothing is done.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { FilesystemType } from "../spec/filesystem.ts";
import { isUsable } from "../model/groups.ts";
import type { VolumeId } from "../ids.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import { formatBytes, roundToExtents, type SizeRange } from "../size.ts";
import { cowBytes, FULL_COW } from "../spec/cow_size.ts";
import { type ContentSource, describeSource, type FormatState } from "../model/tags.ts";
import { availableVirtual, findPool, poolNameIn } from "../pools/pool.ts";
import type { VolumeRequest } from "../inventory/volume.ts";

/** What is known of a source. */
export interface SourceProperties {
  /** How large it is, in bytes. */
  readonly size: bigint;
  /** What it was made for; `undefined` where nobody knows any more. */
  readonly content?: FilesystemType | "raw";
}

/** What a copy asks for. */
export interface CopyRequest {
  /** The volume to be made. */
  readonly id: VolumeId;
  /** How large it is to be; zero for as large as its source. */
  readonly range: SizeRange;
  /** What it is for. */
  readonly format: FormatState;
  /** What it is made from. */
  readonly source: ContentSource;
}

/**
 * The size that a copy is to have.
 *
 * @throws {StorageError} `OutOfRange` when that is less than its source has (CSI spec, CreateVolume), `InvalidArgument` when
 * it is for another filesystem than its source.
 */
export function copyRange({ id, range, format, source }: CopyRequest, properties: SourceProperties): SizeRange {
  const making = `creating volume ${id} from ${describeSource(source)}`;
  const { required, limit } = range;
  const minSize = required === 0n ? properties.size : required;
  if (minSize < properties.size || (limit !== undefined && limit < properties.size)) {
    throw new StorageError(
      "OutOfRange",
      `${making}: that has ${formatBytes(properties.size)}, asked for is only ${
        formatBytes(minSize < properties.size ? minSize : limit!)
      }`,
    );
  }
  const type = format.state === "raw" ? "raw" : format.type;
  // from a block device to a filesystem or back, what is on it tells
  if (
    type !== "raw" && properties.content !== undefined && properties.content !== "raw" && properties.content !== type
  ) {
    throw new StorageError(
      "InvalidArgument",
      `${making}: that is ${properties.content}, asked for is ${type}; ask for the same`,
    );
  }
  return { ...range, required: minSize };
}

/** The room that the LV takes which keeps a thick volume as it was while it is copied: one that cannot overflow. */
export function copySnapshotBytes({ lv, group }: LocatedLv): bigint {
  return cowBytes(FULL_COW, lv.size, group.extentSize);
}

/**
 * The size of a copy that can be made at once, as a thin snapshot of its source, in bytes: that is, when its source is in the pool
 * in which it is to be itself, and the pool may promise that much. `undefined` for one that has to be copied.
 *
 * @param groups those in which the driver makes volumes
 * @throws {StorageError} `OutOfRange` when whole extents do not fit into the range.
 */
export function thinCloneSize(
  groups: readonly VolumeGroup[],
  original: LocatedLv,
  { thin, groups: wanted, range }: Pick<VolumeRequest, "thin" | "groups" | "range">,
  overcommit: bigint,
): bigint | undefined {
  const group = groups.find(({ uuid }) => uuid === original.group.uuid);
  const pool = group && findPool(group, original.lv.pool);
  if (group === undefined || pool === undefined || !wanted.matches(group.name) || !isUsable(group)) return undefined;
  if (thin === undefined || poolNameIn(group.name, thin) !== pool.name) return undefined;
  const size = roundToExtents(range, group.extentSize);
  return size <= availableVirtual(group, pool, overcommit) ? size : undefined;
}

/**
 * Makes sure that the pool of a thin volume may promise the snapshot that keeps it as it was while it is copied.
 *
 * @throws {StorageError} `NoSpace`.
 */
export function requireSpaceForCopySnapshot(
  reservation: PoolReservation,
  id: VolumeId,
  { lv, group }: LocatedLv,
): void {
  reservation.requireAvailableVirtual(
    `creating volume ${id}: a temporary snapshot of its source`,
    group,
    reservation.requirePool(group, lv),
    lv.size,
  );
}

/**
 * The groups without the room that the copying of a thick volume itself takes for a while.
 *
 * @throws {StorageError} `NoSpace` when the group of the volume that is copied has not even that.
 */
export function groupsWithoutCopySnapshotSpace(
  groups: readonly VolumeGroup[],
  original: LocatedLv,
  id: VolumeId,
): VolumeGroup[] {
  const { group } = original;
  const pending = copySnapshotBytes(original);
  if (group.free < pending) {
    throw new StorageError(
      "NoSpace",
      `creating volume ${id}: while it is made, a temporary snapshot of its source takes ${
        formatBytes(pending)
      } of volume ` +
        `group ${group.name}, which has ${formatBytes(group.free)} free`,
    );
  }
  return groups.map((each) => each.name === group.name ? { ...each, free: each.free - pending, pending } : each);
}
