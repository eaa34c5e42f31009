/**
 * When the store of a copy-on-write snapshot is grown, and to what size.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { usable } from "../model/groups.ts";
import type { SnapshotId, VolumeId } from "../ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { roundUp } from "../size.ts";
import { fullStoreBytes } from "../spec/cow_size.ts";
import { ownedSnapshotId, parseSnapshotTags } from "../model/tags.ts";

/** When stores are grown, and by how much. */
export interface StorePolicy {
  /** How full one may be, in percent. */
  readonly threshold: number;
  /** By how much of its size it is grown at least, in percent. */
  readonly step: number;
}

/** The policy that stands where nobody names one: that which lvm.conf(5) proposes for dmeventd. */
export const DEFAULT_POLICY = "70:20";

/** A store that could overflow. */
export interface Store {
  /** The snapshot that it belongs to. */
  readonly id: SnapshotId;
  /** The volume that the snapshot was taken of. */
  readonly source: VolumeId;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** How full it is, in percent. */
  readonly percent: number;
  /** The size in bytes at which it could not overflow any more. */
  readonly enough: bigint;
}

/** What to do about a store: nothing, grow it to a size in bytes, or tell that it cannot be grown. */
export type StoreNeed = { readonly kind: "none" } | { readonly kind: "grow"; readonly size: bigint } | {
  readonly kind: "stuck";
};

/**
 * The policy that `70:20` stands for, a threshold and a step in percent; `undefined` for `off`.
 *
 * @throws {StorageError} `InvalidArgument` for anything else.
 */
export function parseStorePolicy(text: string): StorePolicy | undefined {
  if (text === "off") return undefined;
  const [threshold, step] = /^([1-9]\d):([1-9]\d{0,2})$/.exec(text)?.slice(1).map(Number) ?? [];
  if (threshold !== undefined && step !== undefined) return { threshold, step };
  throw new StorageError(
    "InvalidArgument",
    `when stores of snapshots grow ${
      JSON.stringify(text)
    }: neither off nor a threshold from 10 to 99 and a step from 1 to ` +
      `999, both in percent, such as ${DEFAULT_POLICY}`,
  );
}

/** The stores of the driver's snapshots that have a content and could overflow, the fullest first. */
export function storesAtRisk(groups: readonly VolumeGroup[], driver: string): Store[] {
  const stores = groups.filter(({ answers }) => answers).flatMap((group) =>
    group.lvs.flatMap((lv) => {
      const { originSize, snapshotPercent: percent, invalidSnapshot } = lv;
      const id = ownedSnapshotId(driver, lv.tags);
      if (id === undefined || percent === undefined || originSize === undefined || invalidSnapshot) return [];
      const source = sourceOf(driver, lv);
      const enough = fullStoreBytes(originSize, group.extentSize);
      return source === undefined || lv.size >= enough ? [] : [{ id, source, lv, group, percent, enough }];
    })
  );
  return stores.sort((a, b) => b.percent - a.percent);
}

/**
 * What a store needs: at its threshold a step more, or as much as takes it below the threshold; never more than it could use.
 * When its group has not so much, it gets what there is: a snapshot that overflows is lost for good.
 */
export function needOf({ lv, group, percent, enough }: Store, { threshold, step }: StorePolicy): StoreNeed {
  if (percent < threshold) return { kind: "none" };
  const { extentSize } = group;
  const used = lv.size * BigInt(Math.ceil(percent * 100)) / 10_000n;
  const below = roundUp(used * 100n / BigInt(threshold) + 1n, extentSize);
  const stepped = roundUp(lv.size * BigInt(100 + step) / 100n, extentSize);
  const free = usable(group) ? group.free - group.free % extentSize : 0n;
  const size = [below > stepped ? below : stepped, enough, lv.size + free].reduce((least, each) =>
    each < least ? each : least
  );
  return size > lv.size ? { kind: "grow", size } : { kind: "stuck" };
}

/** How soon stores are looked at again, at the latest, in milliseconds. */
const CALM_MS = 60_000;

/** How soon that is when one of them fills, in milliseconds. */
const FILLING_MS = 10_000;

/** When stores have to be looked at again, in milliseconds; `undefined` when none could overflow, and so never. */
export function nextLookMs(stores: readonly Store[], { threshold }: StorePolicy): number | undefined {
  if (stores.length === 0) return undefined;
  return stores.some(({ percent }) => percent * 2 >= threshold) ? FILLING_MS : CALM_MS;
}

function sourceOf(driver: string, lv: LogicalVolume): VolumeId | undefined {
  try {
    return parseSnapshotTags(driver, lv.tags)?.source;
  } catch {
    return undefined; // tags that cannot be read: what it is is not certain, so it is left alone
  }
}
