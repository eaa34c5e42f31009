/**
 * The policy for the extension of thin pools: its time, and the new size.
 *
 * @module
 */

import { min, roundUp } from "../../base/size.ts";
import { isUsable } from "../model/groups.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isBeingErased } from "./pool.ts";
import { defined } from "../../base/defined.ts";

/** The policy for the extension of the driver's pools. */
export interface PoolAutoextend {
  /** The usage of a pool's data at which it is extended, in percent; 100 for never. */
  readonly threshold: number;
  /** The part of its size by which it is extended, in percent. */
  readonly percent: bigint;
}

/** The default: as lvmthin(7) recommends, but with a higher threshold. */
export const DEFAULT_AUTOEXTEND: PoolAutoextend = { threshold: 80, percent: 20n };

/**
 * The usage of metadata at which it is extended, in percent, whatever is set for data: LVM creates nothing in a pool
 * with less than a quarter of its metadata free, or 4 MiB (lvmthin(7)).
 */
const METADATA_THRESHOLD = 70;

/** The maximum size of a pool's metadata, in bytes (lvmthin(7)): 15.81 GiB. */
const MAX_METADATA_BYTES = 16_978_542_592n;

/** The sizes to which a pool is to be extended now, in bytes. */
export interface PoolExtension {
  /** Of its data. */
  readonly data?: bigint;
  /** Of its metadata. */
  readonly metadata?: bigint;
}

/** Reports whether a pool should be extended, if its group has free space. */
export function isExtensionDue(group: VolumeGroup, pool: LogicalVolume, { threshold }: PoolAutoextend): boolean {
  const { dataPercent = 0, metadataPercent = 0 } = pool.thinPool!;
  return threshold < 100 && !isBeingErased(group, pool) &&
    (dataPercent >= threshold || metadataPercent >= METADATA_THRESHOLD);
}

/**
 * Returns the sizes to which a pool is to be extended now, as far as its group has free space that LVM would allocate.
 * Metadata comes first: without it, more data cannot be used.
 */
export function planPoolExtension(group: VolumeGroup, pool: LogicalVolume, autoextend: PoolAutoextend): PoolExtension {
  if (!isExtensionDue(group, pool, autoextend)) return {};
  const { threshold, percent } = autoextend;
  const { dataPercent = 0, metadataPercent = 0, metadataSize } = pool.thinPool!;
  const increment = (size: bigint) => roundUp(size * percent / 100n, group.extentSize);
  let free = isUsable(group) ? group.free / group.extentSize * group.extentSize : 0n;
  let metadata: bigint | undefined;
  if (metadataPercent >= METADATA_THRESHOLD) {
    const added = min(increment(metadataSize), free / 2n / group.extentSize * group.extentSize); // its spare is extended, too
    const size = min(metadataSize + added, MAX_METADATA_BYTES);
    if (size > metadataSize) {
      metadata = size;
      free -= 2n * (size - metadataSize);
    }
  }
  const added = dataPercent >= threshold ? min(increment(pool.size), free) : 0n;
  return defined({ metadata, data: added > 0n ? pool.size + added : undefined });
}
