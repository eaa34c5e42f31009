/**
 * Thin pools: which one a volume is in, how large a new one is, and how much one may promise.
 *
 * A pool promises each thin LV in it the size that the LV has, although an LV takes only what was written. What a pool may
 * promise is a gate that is never passed: its size, times its overcommit ratio. The ratio belongs to the pool, since all that
 * is in a pool is lost or saved together (docs/adr/0015). Snapshots are promised their size, too.
 *
 * @module
 */

import type { GroupSpace } from "../model/groups.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes, roundUp } from "../size.ts";
import type { SizeOrPercent } from "../spec/cow_size.ts";
import { hasPoolTag, isDeleted, isOwned, overcommitTagValue } from "../model/tags.ts";

/** How a volume is to be thin. */
export interface ThinSpec {
  /** The name of the pool, which has to be there; without it, the group's own pool, which is made when it is first needed. */
  readonly pool?: string;
  /** How large the pool is when it is made: bytes, or a percentage of what is free in its group then. */
  readonly poolSize: SizeOrPercent;
}

/** How much pools promise that say nothing else, in percent of their sizes: no more than they have, so none ever fills. */
export const DEFAULT_OVERCOMMIT = 100n;

/** The size of a pool for which nothing else is asked: the rest of the group is for its metadata, and for its growth. */
export const DEFAULT_POOL_SIZE: SizeOrPercent = { percent: 80n };

/** A pool that is this full, in percent, is filling: people are told. */
export const NEAR_FULL_PERCENT = 80;

/** What a thin pool has room for; sizes in bytes. */
export interface PoolSpace {
  /** Its name. */
  readonly name: string;
  /** What it may still promise. */
  readonly free: bigint;
}

/** A group with its thin pools. */
export interface GroupWithPools extends GroupSpace {
  /** Its thin pools. */
  readonly pools: readonly PoolSpace[];
  /** How much a pool that is yet to be made may promise, in percent of its size. */
  readonly overcommit: bigint;
}

/** The ratio that `1`, `1.5` or `20` stands for, in percent; `undefined` for what is none, below 1 or above 1000. */
export function parseOvercommit(text: string): bigint | undefined {
  const match = /^(\d{1,4})(?:\.(\d{1,2}))?$/.exec(text);
  if (match === null) return undefined;
  const percent = BigInt(match[1]!) * 100n + BigInt((match[2] ?? "").padEnd(2, "0"));
  return percent >= 100n && percent <= 100_000n ? percent : undefined;
}

/** The ratio as {@linkcode parseOvercommit} reads it. */
export function formatOvercommit(percent: bigint): string {
  const fraction = `${percent % 100n}`.padStart(2, "0").replace(/0+$/, "");
  return `${percent / 100n}${fraction === "" ? "" : `.${fraction}`}`;
}

/** How much a pool may promise, in percent of its size: as its tag says, or else by default. A tag that is none says 1. */
export function overcommitOf(pool: LogicalVolume, defaultOvercommit: bigint): bigint {
  const tag = overcommitTagValue(pool.tags);
  return tag === undefined ? defaultOvercommit : parseOvercommit(tag) ?? DEFAULT_OVERCOMMIT;
}

/** Whether an LV is a thin volume or a thin snapshot. */
export function isThin(lv: Pick<LogicalVolume, "pool">): boolean {
  return lv.pool !== undefined;
}

/** The name of the pool that a volume is in, or is to be in. */
export function poolNameIn(groupName: string, { pool }: Pick<ThinSpec, "pool">): string {
  return pool ?? `${groupName}_thinpool`;
}

/** The thin pool of a group with that name. */
export function findPool(group: VolumeGroup, name: string | undefined): LogicalVolume | undefined {
  return group.lvs.find((lv) => lv.name === name && lv.thinPool !== undefined);
}

/** The thin pools of a group. */
export function poolsOf(group: VolumeGroup): LogicalVolume[] {
  return group.lvs.filter(({ thinPool }) => thinPool !== undefined);
}

/** The LVs in a thin pool. */
export function lvsInPool(group: VolumeGroup, pool: LogicalVolume): LogicalVolume[] {
  return group.lvs.filter((lv) => lv.pool === pool.name);
}

/** What the LVs in a pool were promised, in bytes: their sizes, whatever they take now. */
export function allocatedVirtual(group: VolumeGroup, pool: LogicalVolume): bigint {
  return lvsInPool(group, pool).reduce((sum, lv) => sum + lv.size, 0n);
}

/** What a pool may still promise, in bytes; nothing while it is full, broken or overwritten to be removed. */
export function availableVirtual(group: VolumeGroup, pool: LogicalVolume, defaultOvercommit: bigint): bigint {
  if (fullnessOf(pool) === "Full" || isBeingErased(group, pool)) return 0n;
  const available = pool.size * overcommitOf(pool, defaultOvercommit) / 100n - allocatedVirtual(group, pool);
  return available > 0n ? available : 0n;
}

/** Whether a pool is full, or broken, which is told alike; or may be soon; or has room. */
export function fullnessOf(pool: Pick<LogicalVolume, "thinPool">): "Full" | "NearFull" | "Ok" {
  const { thinPool } = pool;
  if (thinPool === undefined) return "Ok";
  const max = Math.max(thinPool.dataPercent ?? 0, thinPool.metadataPercent ?? 0);
  if (thinPool.health !== "" || isDamaged(pool) || max >= 100) return "Full";
  return max >= NEAR_FULL_PERCENT ? "NearFull" : "Ok";
}

/** Whether a pool has more wrong with it than that its data is full: its metadata has to be checked or repaired (lvmthin(7)). */
export function isDamaged({ thinPool }: Pick<LogicalVolume, "thinPool">): boolean {
  return thinPool !== undefined && (thinPool.needsCheck || !["", "out_of_data"].includes(thinPool.health));
}

/**
 * Whether all of a pool is being overwritten, so that it can be removed: then what was deleted last in it is as large as the
 * pool, and fills it.
 */
export function isBeingErased(group: VolumeGroup, pool: LogicalVolume): boolean {
  return lvsInPool(group, pool).some(({ tags, size }) => size >= pool.size && isDeleted(tags));
}

/** Whether a pool was made by the driver. */
export function isDriverPool(driver: string, lv: LogicalVolume): boolean {
  return lv.thinPool !== undefined && hasPoolTag(driver, lv.tags);
}

/** Whether a pool concerns the driver: it made it, or has something in it. */
export function isPoolUsedByDriver(driver: string, group: VolumeGroup, pool: LogicalVolume): boolean {
  return isDriverPool(driver, pool) || lvsInPool(group, pool).some(({ tags }) => isOwned(driver, tags));
}

/** A group as {@linkcode withThinSpace} takes it. */
export function withPools(group: VolumeGroup, overcommit: bigint): VolumeGroup & GroupWithPools {
  const pools = poolsOf(group).map((pool) => ({ name: pool.name, free: availableVirtual(group, pool, overcommit) }));
  return { ...group, pools, overcommit };
}

/** The groups as they are for thin volumes: what is free is what the pool that is meant may still promise. */
export function withThinSpace<G extends GroupWithPools>(groups: readonly G[], spec: ThinSpec): G[] {
  return groups.map((group) => {
    const name = poolNameIn(group.name, spec);
    const pool = group.pools.find((pool) => pool.name === name);
    if (pool !== undefined) return { ...group, free: pool.free, freeDescription: `left in thin pool ${name}` };
    if (spec.pool !== undefined) return { ...group, free: 0n, freeDescription: `free: it has no thin pool ${name}` };
    return { ...group, free: newPoolAvailableVirtual(group, spec), freeDescription: `for a new thin pool ${name}` };
  });
}

/** The groups as they are for volumes of such a kind. */
export function withSpaceFor<G extends GroupWithPools>(groups: readonly G[], thin: ThinSpec | undefined): readonly G[] {
  return thin === undefined ? groups : withThinSpace(groups, thin);
}

/** What a pool that is yet to be made in a group may promise, in bytes. */
export function newPoolAvailableVirtual(group: GroupWithPools, spec: ThinSpec): bigint {
  return newPoolBytes(group, spec) * group.overcommit / 100n;
}

/**
 * The size of a new pool in whole extents: what is asked for, but no more than the group holds beside the pool's metadata and
 * its spare, which LVM keeps for repairs (lvmthin(7), "Metadata space").
 */
export function newPoolBytes({ free, extentSize }: GroupSpace, { poolSize }: ThinSpec): bigint {
  const requested = "bytes" in poolSize ? roundUp(poolSize.bytes, extentSize) : free * poolSize.percent / 100n;
  const max = free - 2n * poolMetadataBytes(requested < free ? requested : free, extentSize);
  const size = (requested < max ? requested : max) / extentSize * extentSize;
  return size > 0n ? size : 0n;
}

/** What LVM takes for the metadata of a pool when nobody says: 64 bytes for each 64 KiB, 2 MiB to 128 MiB (lvmthin(7)). */
function poolMetadataBytes(poolBytes: bigint, extentSize: bigint): bigint {
  const bytes = poolBytes / 1024n;
  const [min, max] = [2n << 20n, 128n << 20n];
  return roundUp(bytes < min ? min : bytes > max ? max : bytes, extentSize);
}

/** What a group keeps for a new pool of that size: its data, its metadata and the spare. */
export function newPoolFootprint(poolBytes: bigint, extentSize: bigint): bigint {
  return poolBytes + 2n * poolMetadataBytes(poolBytes, extentSize);
}

/** A pool for messages. */
export function describePool(group: VolumeGroup, pool: LogicalVolume): string {
  const { dataPercent, metadataPercent, health, needsCheck } = pool.thinPool!;
  const percent = (value: number | undefined) => value === undefined ? "unknown" : `${value} %`;
  const problems = (health === "" ? "" : ` and is ${health}`) +
    (needsCheck ? " and needs a check of its metadata" : "");
  return `thin pool ${group.name}/${pool.name} of ${formatBytes(pool.size)} is ${
    percent(dataPercent)
  } full, its metadata ${percent(metadataPercent)}${problems}`;
}
