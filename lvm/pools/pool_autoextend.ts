/**
 * When a thin pool grows, and by how much.
 *
 * @module
 */

import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { roundUp } from "../size.ts";
import { isBeingErased } from "./pool.ts";
import { defined } from "../defined.ts";

/** When and by how much the driver's pools grow. */
export interface PoolAutoextend {
  /** How full the data of a pool is when it grows, in percent; 100 for never. */
  readonly threshold: number;
  /** By how much it grows, in percent of its size. */
  readonly percent: bigint;
}

/** How pools grow of which nobody says otherwise: as lvmthin(7) advises, but for its threshold, which is higher. */
export const DEFAULT_AUTOEXTEND: PoolAutoextend = { threshold: 80, percent: 20n };

/**
 * How full metadata is when it grows, in percent, whatever is said of data: LVM makes nothing in a pool with less than a quarter
 * of its metadata free, or 4 MiB (lvmthin(7)).
 */
const METADATA_THRESHOLD = 70;

/** The most metadata that a pool can use, in bytes (lvmthin(7)): 15.81 GiB. */
const MAX_METADATA_BYTES = 16_978_542_592n;

/** The sizes that a pool is to grow to now, in bytes. */
export interface PoolExtension {
  /** Of its data. */
  readonly data?: bigint;
  /** Of its metadata. */
  readonly metadata?: bigint;
}

/** Whether a pool is to grow, if its group has room. */
export function isExtensionDue(group: VolumeGroup, pool: LogicalVolume, { threshold }: PoolAutoextend): boolean {
  const { dataPercent = 0, metadataPercent = 0 } = pool.thinPool!;
  return threshold < 100 && !isBeingErased(group, pool) &&
    (dataPercent >= threshold || metadataPercent >= METADATA_THRESHOLD);
}

/** The sizes that a pool is to grow to now, as far as its group has room. Metadata comes first: without it data is no use. */
export function planPoolExtension(group: VolumeGroup, pool: LogicalVolume, autoextend: PoolAutoextend): PoolExtension {
  if (!isExtensionDue(group, pool, autoextend)) return {};
  const { threshold, percent } = autoextend;
  const { dataPercent = 0, metadataPercent = 0, metadataSize } = pool.thinPool!;
  const increment = (size: bigint) => roundUp(size * percent / 100n, group.extentSize);
  let free = group.free / group.extentSize * group.extentSize;
  let metadata: bigint | undefined;
  if (metadataPercent >= METADATA_THRESHOLD) {
    const added = min(increment(metadataSize), free / 2n / group.extentSize * group.extentSize); // its spare grows, too
    const size = min(metadataSize + added, MAX_METADATA_BYTES);
    if (size > metadataSize) {
      metadata = size;
      free -= 2n * (size - metadataSize);
    }
  }
  const added = dataPercent >= threshold ? min(increment(pool.size), free) : 0n;
  return { ...defined({ metadata }), ...(added > 0n ? { data: pool.size + added } : {}) };
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
