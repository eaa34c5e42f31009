/**
 * Thin pools: the pool of a volume, the size of a new pool, and the virtual size that a pool can allocate.
 *
 * A pool allocates to each of its thin LVs the LV's size, although the LV takes only the blocks that were written. The
 * driver never allocates more than the size of the pool times its overcommit ratio. The ratio belongs to the pool,
 * since a full pool stops all of its volumes (docs/adr/0015). Snapshots count with their size, too.
 *
 * @module
 */

import { formatBytes, max, min, roundUp, sum } from "../../base/size.ts";
import { type GroupSpace, isUsable } from "../model/groups.ts";
import type { LocatedLv, LogicalVolume, VolumeGroup } from "../model/report.ts";
import { defined } from "../../base/defined.ts";
import type { SizeOrPercent } from "../settings/cow_size.ts";
import { hasPoolTag, isDeleted, isOwned, overcommitTagValue } from "../model/tags.ts";

/** Thin provisioning of a volume: its pool, and the size of a new pool. */
export interface ThinSpec {
  /** The name of an existing pool; absent for the group's own pool, which is created when it is first needed. */
  readonly pool?: string;
  /** The size of the pool when it is created: bytes, or a percentage of the space that is free in its group then. */
  readonly poolSize: SizeOrPercent;
}

/** The overcommit ratio of pools that set no other, in percent of their size: they never fill up. */
export const DEFAULT_OVERCOMMIT = 100n;

/** The default size of a new pool: the rest of the group is for its metadata, and for its extension. */
export const DEFAULT_POOL_SIZE: SizeOrPercent = { percent: 80n };

/** The usage from which a pool counts as near full, in percent. */
export const NEAR_FULL_PERCENT = 80;

/** The available space of a thin pool, in bytes. */
export interface PoolSpace {
  /** The name of the pool. */
  readonly name: string;
  /** The virtual size that it can still allocate. */
  readonly free: bigint;
}

/** A group with its thin pools. */
export interface GroupWithPools extends GroupSpace {
  /** The thin pools of the group. */
  readonly pools: readonly PoolSpace[];
  /** The overcommit ratio of a new pool, in percent of its size. */
  readonly overcommit: bigint;
}

/**
 * Parses an overcommit ratio such as `1`, `1.5` or `20`.
 *
 * @returns the ratio in percent; `undefined` for text that is no ratio of 1 to 1000
 */
export function parseOvercommit(text: string): bigint | undefined {
  const match = /^(\d{1,4})(?:\.(\d{1,2}))?$/.exec(text);
  if (match === null) return undefined;
  const percent = BigInt(match[1]!) * 100n + BigInt((match[2] ?? "").padEnd(2, "0"));
  return percent >= 100n && percent <= 100_000n ? percent : undefined;
}

/** Formats a ratio in percent so that {@linkcode parseOvercommit} can parse it. */
export function formatOvercommit(percent: bigint): string {
  const fraction = `${percent % 100n}`.padStart(2, "0").replace(/0+$/, "");
  return `${percent / 100n}${fraction === "" ? "" : `.${fraction}`}`;
}

/**
 * Returns the overcommit ratio of a pool, in percent of its size: that of its tag, or else the default. A tag that
 * cannot be parsed counts as 1.
 */
export function overcommitOf(pool: LogicalVolume, defaultOvercommit: bigint): bigint {
  const tag = overcommitTagValue(pool.tags);
  return tag === undefined ? defaultOvercommit : parseOvercommit(tag) ?? DEFAULT_OVERCOMMIT;
}

/** Reports whether an LV is a thin volume or a thin snapshot. */
export function isThin(lv: Pick<LogicalVolume, "pool">): boolean {
  return lv.pool !== undefined;
}

/** Reports whether an LV is a copy-on-write snapshot: one of a thin volume is a thin LV. */
export function isCowSnapshot(lv: Pick<LogicalVolume, "origin" | "pool">): boolean {
  return lv.origin !== undefined && !isThin(lv);
}

/** Returns the copy-on-write snapshots of an LV. */
export function cowSnapshotsOn({ lv, group }: LocatedLv): LogicalVolume[] {
  return group.lvs.filter((other) => other.origin === lv.name && isCowSnapshot(other));
}

/** Returns the name of a volume's pool in a group. */
export function poolNameIn(groupName: string, { pool }: Pick<ThinSpec, "pool">): string {
  return pool ?? `${groupName}_thinpool`;
}

/** Returns the thin pool of a group with a name. */
export function findPool(group: VolumeGroup, name: string | undefined): LogicalVolume | undefined {
  return group.lvs.find((lv) => lv.name === name && lv.thinPool !== undefined);
}

/**
 * Returns the name of the device of a pool that has the kernel's target, below the one that LVM shows. It is there while the
 * pool, or an LV in it, is active.
 */
export function kernelNameOf({ devicePath }: Pick<LogicalVolume, "devicePath">): string {
  return `${devicePath.replace("/dev/mapper/", "")}-tpool`;
}

/**
 * Returns why the data of a thin LV could be read after its removal: its pool provides blocks to other LVs as they are.
 * `undefined` where it zeroes them before.
 */
export function unzeroedReason(group: VolumeGroup, { pool: name }: Pick<LogicalVolume, "pool">): string | undefined {
  if (findPool(group, name)?.thinPool?.zeroes !== false) return undefined;
  const path = `${group.name}/${name}`;
  return `thin pool ${path} does not zero new blocks, so deleted data could be read; let it zero them (lvchange --zero y ${path})`;
}

/** Returns the thin pools of a group. */
export function poolsOf(group: VolumeGroup): LogicalVolume[] {
  return group.lvs.filter(({ thinPool }) => thinPool !== undefined);
}

/** Returns the LVs in a thin pool. */
export function lvsInPool(group: VolumeGroup, pool: LogicalVolume): LogicalVolume[] {
  return group.lvs.filter((lv) => lv.pool === pool.name);
}

/** Returns the virtual size that a pool has allocated, in bytes: the sizes of its LVs, whatever they take now. */
export function allocatedVirtual(group: VolumeGroup, pool: LogicalVolume): bigint {
  return sum(lvsInPool(group, pool).map(({ size }) => size));
}

/**
 * Returns the virtual size that a pool can still allocate, in bytes; 0 while it is full, damaged, or erased to be
 * removed.
 *
 * @param defaultOvercommit ratio of pools without a tag, in percent
 */
export function availableVirtual(group: VolumeGroup, pool: LogicalVolume, defaultOvercommit: bigint): bigint {
  if (fullnessOf(pool) === "Full" || isBeingErased(group, pool)) return 0n;
  return max(0n, pool.size * overcommitOf(pool, defaultOvercommit) / 100n - allocatedVirtual(group, pool));
}

/** Returns whether a pool is full, near full, or neither. A damaged pool counts as full. */
export function fullnessOf(pool: Pick<LogicalVolume, "thinPool">): "Full" | "NearFull" | "Ok" {
  const { thinPool } = pool;
  if (thinPool === undefined) return "Ok";
  const max = Math.max(thinPool.dataPercent ?? 0, thinPool.metadataPercent ?? 0);
  if (thinPool.health !== "" || isDamaged(pool) || max >= 100) return "Full";
  return max >= NEAR_FULL_PERCENT ? "NearFull" : "Ok";
}

/**
 * Reports whether the metadata of a pool has to be checked or repaired (lvmthin(7)). A pool whose data is full is not
 * damaged.
 */
export function isDamaged({ thinPool }: Pick<LogicalVolume, "thinPool">): boolean {
  return thinPool !== undefined && (thinPool.needsCheck || !["", "out_of_data"].includes(thinPool.health));
}

/**
 * Reports whether all of a pool may be being overwritten, so that it can be removed: then it has only deleted LVs, of which one
 * is as large as the pool, and fills it.
 */
export function isBeingErased(group: VolumeGroup, pool: LogicalVolume): boolean {
  const lvs = lvsInPool(group, pool);
  return lvs.some(({ size }) => size >= pool.size) && lvs.every(({ tags }) => isDeleted(tags));
}

/** Reports whether the driver created a pool. */
export function isDriverPool(driver: string, lv: LogicalVolume): boolean {
  return lv.thinPool !== undefined && hasPoolTag(driver, lv.tags);
}

/** Reports whether the driver created a pool, or has an LV in it. */
export function isPoolUsedByDriver(driver: string, group: VolumeGroup, pool: LogicalVolume): boolean {
  return isDriverPool(driver, pool) || lvsInPool(group, pool).some(({ tags }) => isOwned(driver, tags));
}

/**
 * Adds its thin pools to a group, for {@linkcode withThinSpace}.
 *
 * @param overcommit ratio of pools without a tag, in percent
 */
export function withPools(group: VolumeGroup, overcommit: bigint): VolumeGroup & GroupWithPools {
  const pools = poolsOf(group).map((pool) => ({ name: pool.name, free: availableVirtual(group, pool, overcommit) }));
  return { ...group, pools, overcommit };
}

/** Returns the groups for a thin volume: their free space is the available virtual size of the pool. */
export function withThinSpace<G extends GroupWithPools>(groups: readonly G[], spec: ThinSpec): G[] {
  return groups.map((group) => {
    const name = poolNameIn(group.name, spec);
    const pool = group.pools.find((pool) => pool.name === name);
    if (pool !== undefined) return { ...group, free: pool.free, freeDescription: `left in thin pool ${name}` };
    if (spec.pool !== undefined) return { ...group, free: 0n, freeDescription: `free: it has no thin pool ${name}` };
    return { ...group, free: newPoolAvailableVirtual(group, spec), freeDescription: `for a new thin pool ${name}` };
  });
}

/** Returns the groups for a thin or a thick volume. */
export function withSpaceFor<G extends GroupWithPools>(groups: readonly G[], thin: ThinSpec | undefined): readonly G[] {
  return thin === undefined ? groups : withThinSpace(groups, thin);
}

/** Returns the virtual size that a new pool of a group could allocate, in bytes. */
export function newPoolAvailableVirtual(group: GroupWithPools, spec: ThinSpec): bigint {
  return newPoolBytes(group, spec) * group.overcommit / 100n;
}

/**
 * Returns the size of a new pool in bytes, in whole extents: the requested size, but at most what the group can hold
 * with the pool's metadata and its spare, which LVM keeps for repairs (lvmthin(7), "Metadata space").
 */
export function newPoolBytes({ free, extentSize }: GroupSpace, { poolSize }: ThinSpec): bigint {
  const requested = "bytes" in poolSize ? roundUp(poolSize.bytes, extentSize) : free * poolSize.percent / 100n;
  const most = free - 2n * poolMetadataBytes(min(requested, free), extentSize);
  return max(0n, min(requested, most) / extentSize * extentSize);
}

/**
 * Returns LVM's default size of a pool's metadata: 64 bytes for each 64 KiB, at least 2 MiB and at most 128 MiB
 * (lvmthin(7)).
 */
function poolMetadataBytes(poolBytes: bigint, extentSize: bigint): bigint {
  return roundUp(max(2n << 20n, min(poolBytes / 1024n, 128n << 20n)), extentSize);
}

/** Returns the bytes that a new pool takes in its group: its data, its metadata and the spare. */
export function newPoolFootprint(poolBytes: bigint, extentSize: bigint): bigint {
  return poolBytes + 2n * poolMetadataBytes(poolBytes, extentSize);
}

/** Formats a pool and its usage for messages. */
export function describePool(group: VolumeGroup, pool: LogicalVolume): string {
  const { dataPercent, metadataPercent, health, needsCheck } = pool.thinPool!;
  const percent = (value: number | undefined) => value === undefined ? "unknown" : `${value} %`;
  const problems = (health === "" ? "" : ` and is ${health}`) +
    (needsCheck ? " and needs a check of its metadata" : "");
  return `thin pool ${group.name}/${pool.name} of ${formatBytes(pool.size)} is ${
    percent(dataPercent)
  } full, its metadata ${percent(metadataPercent)}${problems}`;
}

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
