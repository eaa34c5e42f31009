/**
 * When the store of a copy-on-write snapshot is grown, and to what size.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { isUsable } from "../model/groups.ts";
import type { SnapshotId, VolumeId } from "../ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { roundUp } from "../size.ts";
import { fullCowBytes } from "../spec/cow_size.ts";
import { ownedSnapshotId, parseSnapshotTags } from "../model/tags.ts";

/** When stores are grown, and by how much. */
export interface SnapshotAutoextend {
  /** How full one may be, in percent. */
  readonly threshold: number;
  /** By how much of its size it is grown at least, in percent. */
  readonly percent: number;
}

/** The policy that stands where nobody names one: that which lvm.conf(5) proposes for dmeventd. */
export const DEFAULT_SNAPSHOT_AUTOEXTEND = "70:20";

/** A store that could overflow. */
export interface CowUsage {
  /** The snapshot that it belongs to. */
  readonly id: SnapshotId;
  /** The volume that the snapshot was taken of. */
  readonly source: VolumeId;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** How full it is, in percent. */
  readonly usedPercent: number;
  /** The size in bytes at which it could not overflow any more. */
  readonly maxSize: bigint;
}

/** What to do about a store: nothing, grow it to a size in bytes, or tell that it cannot be grown. */
export type CowDecision = { readonly kind: "none" } | { readonly kind: "extend"; readonly size: bigint } | {
  readonly kind: "cannotExtend";
};

/**
 * The policy that `70:20` stands for, a threshold and a step in percent; `undefined` for `off`.
 *
 * @throws {StorageError} `InvalidArgument` for anything else.
 */
export function parseSnapshotAutoextend(text: string): SnapshotAutoextend | undefined {
  if (text === "off") return undefined;
  const [threshold, percent] = /^([1-9]\d):([1-9]\d{0,2})$/.exec(text)?.slice(1).map(Number) ?? [];
  if (threshold !== undefined && percent !== undefined) return { threshold, percent };
  throw new StorageError(
    "InvalidArgument",
    `when stores of snapshots grow ${
      JSON.stringify(text)
    }: neither off nor a threshold from 10 to 99 and a step from 1 to ` +
      `999, both in percent, such as ${DEFAULT_SNAPSHOT_AUTOEXTEND}`,
  );
}

/** The stores of the driver's snapshots that have a content and could overflow, the fullest first. */
export function cowsAtRisk(groups: readonly VolumeGroup[], driver: string): CowUsage[] {
  const cows = groups.filter(({ responsive }) => responsive).flatMap((group) =>
    group.lvs.flatMap((lv) => {
      const { originSize, snapshotPercent: usedPercent, invalidSnapshot } = lv;
      const id = ownedSnapshotId(driver, lv.tags);
      if (id === undefined || usedPercent === undefined || originSize === undefined || invalidSnapshot) return [];
      const source = sourceVolumeId(driver, lv);
      const maxSize = fullCowBytes(originSize, group.extentSize);
      return source === undefined || lv.size >= maxSize ? [] : [{ id, source, lv, group, usedPercent, maxSize }];
    })
  );
  return cows.sort((a, b) => b.usedPercent - a.usedPercent);
}

/**
 * What a store needs: at its threshold a step more, or as much as takes it below the threshold; never more than it could use.
 * When its group has not so much, it gets what there is: a snapshot that overflows is lost for good.
 */
export function decideCowExtension(
  { lv, group, usedPercent, maxSize }: CowUsage,
  { threshold, percent }: SnapshotAutoextend,
): CowDecision {
  if (usedPercent < threshold) return { kind: "none" };
  const { extentSize } = group;
  const used = lv.size * BigInt(Math.ceil(usedPercent * 100)) / 10_000n;
  const belowThreshold = roundUp(used * 100n / BigInt(threshold) + 1n, extentSize);
  const byPercent = roundUp(lv.size * BigInt(100 + percent) / 100n, extentSize);
  const free = isUsable(group) ? group.free - group.free % extentSize : 0n;
  const size = [belowThreshold > byPercent ? belowThreshold : byPercent, maxSize, lv.size + free].reduce((min, each) =>
    each < min ? each : min
  );
  return size > lv.size ? { kind: "extend", size } : { kind: "cannotExtend" };
}

/** How soon stores are looked at again, at the latest, in milliseconds. */
const CHECK_INTERVAL_MS = 60_000;

/** How soon that is when one of them fills, in milliseconds. */
const NEAR_FULL_INTERVAL_MS = 10_000;

/** When stores have to be looked at again, in milliseconds; `undefined` when none could overflow, and so never. */
export function nextCheckMs(cows: readonly CowUsage[], { threshold }: SnapshotAutoextend): number | undefined {
  if (cows.length === 0) return undefined;
  return cows.some(({ usedPercent }) => usedPercent * 2 >= threshold) ? NEAR_FULL_INTERVAL_MS : CHECK_INTERVAL_MS;
}

function sourceVolumeId(driver: string, lv: LogicalVolume): VolumeId | undefined {
  try {
    return parseSnapshotTags(driver, lv.tags)?.source;
  } catch {
    return undefined; // tags that cannot be read: what it is is not certain, so it is left alone
  }
}
