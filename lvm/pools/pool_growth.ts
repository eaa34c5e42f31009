/**
 * When a thin pool grows, and by how much.
 *
 * @module
 */

import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { roundUp } from "../size.ts";
import { isBeingWiped } from "./pool.ts";

/** When and by how much the driver's pools grow. */
export interface PoolGrowth {
  /** How full the data of a pool is when it grows, in percent; 100 for never. */
  readonly at: number;
  /** By how much it grows, in percent of its size. */
  readonly by: bigint;
}

/** How pools grow of which nobody says otherwise: as lvmthin(7) advises, but for its threshold, which is higher. */
export const DEFAULT_GROWTH: PoolGrowth = { at: 80, by: 20n };

/**
 * How full metadata is when it grows, in percent, whatever is said of data: LVM makes nothing in a pool with less than a quarter
 * of its metadata free, or 4 MiB (lvmthin(7)).
 */
const METADATA_AT = 70;

/** The most metadata that a pool can use, in bytes (lvmthin(7)): 15.81 GiB. */
const MOST_METADATA = 16_978_542_592n;

/** The sizes that a pool is to grow to now, in bytes. */
export interface DueGrowth {
  /** Of its data. */
  readonly data?: bigint;
  /** Of its metadata. */
  readonly metadata?: bigint;
}

/** Whether a pool is to grow, if its group has room. */
export function wantsGrowth(group: VolumeGroup, pool: LogicalVolume, { at }: PoolGrowth): boolean {
  const { dataPercent = 0, metadataPercent = 0 } = pool.thinPool!;
  return at < 100 && !isBeingWiped(group, pool) && (dataPercent >= at || metadataPercent >= METADATA_AT);
}

/** The sizes that a pool is to grow to now, as far as its group has room. Metadata comes first: without it data is no use. */
export function growthDue(group: VolumeGroup, pool: LogicalVolume, growth: PoolGrowth): DueGrowth {
  if (!wantsGrowth(group, pool, growth)) return {};
  const { at, by } = growth;
  const { dataPercent = 0, metadataPercent = 0, metadataSize } = pool.thinPool!;
  const step = (size: bigint) => roundUp(size * by / 100n, group.extentSize);
  let free = group.free / group.extentSize * group.extentSize;
  let metadata: bigint | undefined;
  if (metadataPercent >= METADATA_AT) {
    const more = least(step(metadataSize), free / 2n / group.extentSize * group.extentSize); // its spare grows, too
    const size = least(metadataSize + more, MOST_METADATA);
    if (size > metadataSize) {
      metadata = size;
      free -= 2n * (size - metadataSize);
    }
  }
  const more = dataPercent >= at ? least(step(pool.size), free) : 0n;
  return { ...(metadata === undefined ? {} : { metadata }), ...(more > 0n ? { data: pool.size + more } : {}) };
}

function least(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
