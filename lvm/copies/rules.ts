/**
 * Decides from a report what a volume can be created from, and what space that needs. It changes nothing.
 *
 * @module
 */

import { fitToExtents, formatBytes, formatQuantity, max, roundUp, type SizeRange } from "../../base/size.ts";
import { StorageError } from "../../base/error.ts";
import type { FilesystemType } from "../settings/filesystem.ts";
import { isSelected, isUsable } from "../model/groups.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import { describeFree } from "../settings/spare_space.ts";
import { cowBytes, FULL_COW } from "../settings/cow_size.ts";
import { describeSource } from "../model/tags.ts";
import { availableVirtual, findPool, poolNameIn } from "../pools/pool.ts";
import type { VolumeRequest } from "../inventory/volume.ts";

/** Properties of a source. */
export interface SourceProperties {
  /** Its size in bytes. */
  readonly size: bigint;
  /** The bytes that the sizes of volumes with its layout are multiples of, in its group. */
  readonly step: bigint;
  /** The size that was asked for it, in bytes, where that is known. */
  readonly requested?: bigint;
  /** Its format; `undefined` where it is not known any more. */
  readonly content?: FilesystemType | "raw";
  /** True if it is encrypted. */
  readonly encrypted?: boolean;
}

/** A request for a copy. If its range requires zero, the copy is as large as its source. */
export type CopyRequest = Pick<VolumeRequest, "id" | "range" | "format"> & Required<Pick<VolumeRequest, "source">>;

/**
 * Returns the size range of a copy, which is at least as large as its source. An equal request is enough for a copy: what was
 * asked for the source, or what would be made as large. Less is refused, because a quota counts what is asked for.
 *
 * @returns the range, in bytes
 * @throws {StorageError} `OutOfRange` when less is requested, or the limit is below the size of the source (CSI spec,
 * CreateVolume); `InvalidArgument` when another filesystem is requested than the source has.
 */
export function copyRange({ id, range, format, source }: CopyRequest, properties: SourceProperties): SizeRange {
  const making = `creating volume ${id} from ${describeSource(source)}`;
  const { required, limit } = range;
  const { size, step, requested = size } = properties;
  const unsuitable = { reason: "SourceUnsuitable" } as const;
  const isLess = required !== 0n && required < requested && roundUp(required, step) < size;
  if (isLess || (limit !== undefined && limit < size)) {
    const asked = isLess ? `requested: only ${formatQuantity(required)}` : `limit: ${formatQuantity(limit!)}`;
    throw new StorageError("OutOfRange", `${making}: the source has ${formatQuantity(size)} (${asked})`, unsuitable);
  }
  const isEncrypted = format.luks !== undefined;
  // what was decrypted for a copy would stay readable
  if (properties.encrypted !== undefined && properties.encrypted !== isEncrypted) {
    const [has, wanted] = [properties.encrypted, isEncrypted].map((is) => is ? "encrypted" : "not encrypted");
    throw new StorageError("InvalidArgument", `${making}: the source is ${has} (requested: ${wanted})`, unsuitable);
  }
  const type = format.state === "raw" ? "raw" : format.type;
  // From a block device to a filesystem or back, the signatures on the copy decide (see `complete`).
  if (
    type !== "raw" && properties.content !== undefined && properties.content !== "raw" && properties.content !== type
  ) {
    throw new StorageError(
      "InvalidArgument",
      `${making}: the source is ${properties.content}, and ${type} is requested, or the default; set fsType to ` +
        properties.content,
      unsuitable,
    );
  }
  return { ...range, required: max(required, size) };
}

/**
 * Returns the COW space that the copy snapshot of a thick volume needs, in bytes. With that size it cannot overflow.
 */
export function copySnapshotBytes({ lv, group }: LocatedLv): bigint {
  return cowBytes(FULL_COW, lv.size, group.extentSize);
}

/**
 * Returns the size of a copy that can be a thin clone of its source. That needs a source in the pool that is requested,
 * and enough available virtual size in that pool.
 *
 * @param groups the groups in which the driver creates volumes
 * @param overcommit the overcommit ratio of pools without one of their own, in percent
 * @returns the size in bytes, or `undefined` when the bytes have to be copied
 */
export function thinCloneSize(
  groups: readonly VolumeGroup[],
  original: LocatedLv,
  { thin, groups: wanted, range }: Pick<VolumeRequest, "thin" | "groups" | "range">,
  overcommit: bigint,
): bigint | undefined {
  const group = groups.find(({ uuid }) => uuid === original.group.uuid);
  const pool = group && findPool(group, original.lv.pool);
  if (group === undefined || pool === undefined || !isSelected(group, wanted) || !isUsable(group)) return undefined;
  if (thin === undefined || poolNameIn(group.name, thin) !== pool.name) return undefined;
  const size = fitToExtents(range, group.extentSize);
  return size !== undefined && size <= availableVirtual(group, pool, overcommit) ? size : undefined;
}

/**
 * Makes sure that the pool of a thin volume has enough available virtual size for the copy snapshot.
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
 * Returns the groups without the space that the copy snapshot of a thick volume needs.
 *
 * @throws {StorageError} `NoSpace` when the group of the source has too little space for the copy snapshot.
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
      `creating volume ${id}: while it is copied, a temporary snapshot of its source takes ${
        formatBytes(pending)
      } of volume ` +
        `group ${group.name}, which has ${describeFree(group)}`,
    );
  }
  return groups.map((each) => each.name === group.name ? { ...each, free: each.free - pending, pending } : each);
}
