/**
 * Decides when the COW space of a snapshot is extended, and to what size.
 *
 * @module
 */

import { ignoreStorageError, StorageError } from "../../base/error.ts";
import { type LogicalVolume, lvsOf, type VolumeGroup } from "../model/report.ts";
import { max, min, roundUp } from "../../base/size.ts";
import { isUsable } from "../model/groups.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { fullCowBytes } from "../settings/cow_size.ts";
import { parseSnapshotTags } from "../model/tags.ts";

/** Policy for the extension of COW space. */
export interface SnapshotAutoextend {
  /** The usage from which on COW space is extended, in percent. */
  readonly threshold: number;
  /** The minimum extension, in percent of its size. */
  readonly percent: number;
}

/** The default policy, which lvm.conf(5) proposes for dmeventd. */
export const DEFAULT_SNAPSHOT_AUTOEXTEND = "70:20";

/** COW space that could overflow. */
export interface CowUsage {
  /** The snapshot that it belongs to. */
  readonly id: SnapshotId;
  /** The volume that the snapshot was created from. */
  readonly source: VolumeId;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** Its usage in percent. */
  readonly usedPercent: number;
  /** The size in bytes with which it could not overflow any more. */
  readonly maxSize: bigint;
}

/**
 * A decision about COW space: nothing, an extension to a size in bytes, or that it has to be extended and cannot be.
 */
export type CowDecision = { readonly kind: "none" } | { readonly kind: "extend"; readonly size: bigint } | {
  readonly kind: "cannotExtend";
};

/**
 * Parses a policy, such as `70:20`: a threshold and an extension, both in percent.
 *
 * @param field the name of the setting, for messages
 * @returns the policy, or `undefined` for `off`
 * @throws {StorageError} `InvalidArgument` for any other text.
 */
export function parseSnapshotAutoextend(
  text: string,
  field = "autoextend of snapshots",
): SnapshotAutoextend | undefined {
  if (text === "off") return undefined;
  const [threshold, percent] = /^([1-9]\d):([1-9]\d{0,2})$/.exec(text)?.slice(1).map(Number) ?? [];
  if (threshold !== undefined && percent !== undefined) return { threshold, percent };
  throw new StorageError(
    "InvalidArgument",
    `${field} ${
      JSON.stringify(text)
    }: must be off or a threshold from 10 to 99 and an extension from 1 to 999, both in ` +
      `percent, such as ${DEFAULT_SNAPSHOT_AUTOEXTEND}`,
  );
}

/**
 * Returns the COW space of those snapshots of the driver that are active, have not overflowed and could overflow.
 *
 * @param groups a report of LVM
 * @param driver the driver's name
 * @returns the COW space with the highest usage first
 */
export function cowsAtRisk(groups: readonly VolumeGroup[], driver: string): CowUsage[] {
  const cows = lvsOf(groups.filter(({ responsive }) => responsive)).flatMap(({ group, lv }) => {
    const { originSize, snapshotPercent: usedPercent, invalidSnapshot } = lv;
    if (usedPercent === undefined || originSize === undefined || invalidSnapshot) return [];
    // what an LV is whose tags cannot be read is not certain: it is not changed
    const snapshot = ignoreStorageError(() => parseSnapshotTags(driver, lv.tags));
    const maxSize = fullCowBytes(originSize, group.extentSize);
    if (snapshot === undefined || lv.size >= maxSize) return [];
    return [{ id: snapshot.id, source: snapshot.source, lv, group, usedPercent, maxSize }];
  });
  return cows.sort((a, b) => b.usedPercent - a.usedPercent);
}

/**
 * Decides whether COW space is extended. At its threshold it is extended by the policy's percent, or by more until it
 * is below the threshold, but never beyond the size with which it cannot overflow. If its group has less free space, it
 * gets all of that, because a snapshot that overflows is lost for good.
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
  const size = min(max(belowThreshold, byPercent), maxSize, lv.size + free);
  return size > lv.size ? { kind: "extend", size } : { kind: "cannotExtend" };
}

/** The time between two checks of COW space, in milliseconds. */
const CHECK_INTERVAL_MS = 60_000;

/** The time between two checks while any COW space is at half its threshold, in milliseconds. */
const NEAR_FULL_INTERVAL_MS = 10_000;

/**
 * Returns the delay until the next check of COW space, in milliseconds, or `undefined` while no COW space could
 * overflow.
 */
export function nextCheckMs(cows: readonly CowUsage[], { threshold }: SnapshotAutoextend): number | undefined {
  if (cows.length === 0) return undefined;
  return cows.some(({ usedPercent }) => usedPercent * 2 >= threshold) ? NEAR_FULL_INTERVAL_MS : CHECK_INTERVAL_MS;
}
