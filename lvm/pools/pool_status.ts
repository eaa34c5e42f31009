/**
 * The status of thin pools, with problems and remedies for users.
 *
 * @module
 */

import {
  allocatedVirtual,
  availableVirtual,
  DEFAULT_AUTOEXTEND,
  formatOvercommit,
  fullnessOf,
  isBeingErased,
  isDamaged,
  isDriverPool,
  NEAR_FULL_PERCENT,
  overcommitOf,
  planPoolExtension,
} from "./pool.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { defined } from "../../base/defined.ts";

/**
 * The state of a pool. `Ready`: it has free space. `NearFull`: 80 % of its data or its metadata are used.
 * `CannotExtend`: the same, and its group has no space to extend it. `Full`: its data or its metadata is full.
 * `Damaged`: its metadata has to be checked or repaired. `Erasing`: all of it is overwritten, so that it can be
 * removed.
 */
export type PoolState = "Ready" | "NearFull" | "CannotExtend" | "Full" | "Damaged" | "Erasing";

/** The status of a thin pool; sizes in bytes. */
export interface PoolStatus {
  /** The group of the pool. */
  readonly group: string;
  /** Its name. */
  readonly name: string;
  /** True if the driver created it and so extends it; otherwise a StorageClass names it. */
  readonly owned: boolean;
  /** The size of its data. */
  readonly size: bigint;
  /** The size of its metadata. */
  readonly metadataSize: bigint;
  /** The usage of its data, in percent; absent while it is inactive or damaged. */
  readonly dataPercent?: number;
  /** The usage of its metadata, in percent; absent in the same cases. */
  readonly metadataPercent?: number;
  /** The overcommit ratio, as a multiple of its size, such as `1.5`. */
  readonly overcommit: string;
  /** The virtual size of its volumes and snapshots. */
  readonly allocatedVirtual: bigint;
  /** The virtual size that it can still allocate. */
  readonly availableVirtual: bigint;
  /** True if it is active. */
  readonly active: boolean;
  /** Its state. */
  readonly state: PoolState;
  /** Its problem, with the remedy; absent when nothing is wrong. */
  readonly problem?: string;
}

/**
 * Returns the status of a pool.
 *
 * @param overcommit ratio of pools without a tag, in percent
 */
export function poolStatus(
  driver: string,
  group: VolumeGroup,
  pool: LogicalVolume,
  overcommit: bigint,
): PoolStatus {
  const { dataPercent, metadataPercent, metadataSize } = pool.thinPool!;
  const state = poolState(group, pool);
  const owned = isDriverPool(driver, pool);
  const problem = describeProblem(state, group, pool, owned);
  return {
    group: group.name,
    name: pool.name,
    owned,
    size: pool.size,
    metadataSize,
    ...defined({ dataPercent, metadataPercent }),
    overcommit: formatOvercommit(overcommitOf(pool, overcommit)),
    allocatedVirtual: allocatedVirtual(group, pool),
    availableVirtual: availableVirtual(group, pool, overcommit),
    active: pool.active,
    state,
    ...defined({ problem }),
  };
}

/** Returns the state of a pool of the group. */
export function poolState(group: VolumeGroup, pool: LogicalVolume): PoolState {
  if (isDamaged(pool)) return "Damaged";
  if (isBeingErased(group, pool)) return "Erasing";
  const fullness = fullnessOf(pool);
  if (fullness === "NearFull") return cannotExtend(group, pool) ? "CannotExtend" : "NearFull";
  return fullness === "Full" ? "Full" : "Ready";
}

/** Reports whether a pool cannot be extended where it is near full, by whatever program. */
function cannotExtend(group: VolumeGroup, pool: LogicalVolume): boolean {
  const { dataPercent = 0, metadataPercent = 0 } = pool.thinPool!;
  const { data, metadata } = planPoolExtension(group, pool, DEFAULT_AUTOEXTEND);
  return (dataPercent >= NEAR_FULL_PERCENT && data === undefined) ||
    (metadataPercent >= NEAR_FULL_PERCENT && metadata === undefined);
}

function describeProblem(
  state: PoolState,
  group: VolumeGroup,
  pool: LogicalVolume,
  owned: boolean,
): string | undefined {
  switch (state) {
    case "Ready":
      return undefined;
    case "Erasing":
      return "all of it is overwritten, so that it can be removed";
    case "NearFull":
      return `nearly full: ${remedyFor(group, pool, owned)}`;
    case "CannotExtend":
      return `nearly full, and volume group ${group.name} has no space to extend it: ${
        describeFreeingSpace(group, pool)
      }`;
    case "Full":
      return `full: writes to its volumes fail; ${remedyFor(group, pool, owned)}`;
    case "Damaged":
      return `damaged: writes to its volumes fail; ${remedyFor(group, pool, owned)}`;
  }
}

/** Returns what to do about a pool that is near full, full or damaged. */
export function remedyFor(group: VolumeGroup, pool: LogicalVolume, owned: boolean): string {
  if (isDamaged(pool)) {
    const repair = `lvconvert --repair ${group.name}/${pool.name}`;
    return `its metadata has to be checked: stop the workloads that use it, then ${repair} (lvmthin(7))`;
  }
  const extension = owned
    ? "the driver extends it only while its volume group has free space"
    : "the driver does not extend it, since an administrator created it";
  return `${extension}; ${describeFreeingSpace(group, pool)}`;
}

function describeFreeingSpace(group: VolumeGroup, pool: LogicalVolume): string {
  const extend = `vgextend, lvextend --size +10G ${group.name}/${pool.name}`;
  return `free space: delete volumes or snapshots, or extend it (${extend})`;
}
