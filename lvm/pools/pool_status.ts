/**
 * How a thin pool is, in words that a person can act on.
 *
 * @module
 */

import { DEFAULT_AUTOEXTEND, planPoolExtension } from "./pool_autoextend.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import {
  allocatedVirtual,
  availableVirtual,
  formatOvercommit,
  fullnessOf,
  isBeingErased,
  isDamaged,
  isDriverPool,
  NEAR_FULL_PERCENT,
  overcommitOf,
} from "./pool.ts";
import { defined } from "../defined.ts";

/**
 * The state of a pool. `Ready`: it has room. `NearFull`: four fifths of its data or its metadata are used. `CannotExtend`: likewise, and
 * its group has no room for it to grow. `Full`: its data or its metadata is used up. `Damaged`: its metadata has to be checked or
 * repaired. `Erasing`: all of it is overwritten, so that it can be removed.
 */
export type PoolState = "Ready" | "NearFull" | "CannotExtend" | "Full" | "Damaged" | "Erasing";

/** A thin pool; sizes in bytes. */
export interface PoolStatus {
  /** The group that it is in. */
  readonly group: string;
  /** Its name. */
  readonly name: string;
  /** Whether the driver made it, and so grows it; otherwise a class names it. */
  readonly owned: boolean;
  /** The size of its data. */
  readonly size: bigint;
  /** The size of its metadata. */
  readonly metadataSize: bigint;
  /** How much of its data is taken, in percent; absent while it is inactive, or broken. */
  readonly dataPercent?: number;
  /** How much of its metadata is taken, in percent; likewise. */
  readonly metadataPercent?: number;
  /** How much it may promise, in its own sizes, such as `1.5`. */
  readonly overcommit: string;
  /** What it has promised to volumes and snapshots. */
  readonly allocatedVirtual: bigint;
  /** What it may still promise. */
  readonly availableVirtual: bigint;
  /** Whether its device is there. */
  readonly active: boolean;
  /** Its state. */
  readonly state: PoolState;
  /** What is wrong with it, and what to do about it. */
  readonly problem?: string;
}

/** How a pool is. `overcommit` holds for pools whose tags say nothing else, in percent. */
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
    ...{ group: group.name, name: pool.name, owned, size: pool.size, metadataSize },
    ...defined({ dataPercent, metadataPercent }),
    overcommit: formatOvercommit(overcommitOf(pool, overcommit)),
    allocatedVirtual: allocatedVirtual(group, pool),
    availableVirtual: availableVirtual(group, pool, overcommit),
    active: pool.active,
    state,
    ...defined({ problem }),
  };
}

/** The state of a pool of the group. */
export function poolState(group: VolumeGroup, pool: LogicalVolume): PoolState {
  if (isDamaged(pool)) return "Damaged";
  if (isBeingErased(group, pool)) return "Erasing";
  const fullness = fullnessOf(pool);
  if (fullness === "NearFull") return cannotExtend(group, pool) ? "CannotExtend" : "NearFull";
  return fullness === "Full" ? "Full" : "Ready";
}

/** Whether a pool cannot grow where it fills, whoever would grow it. */
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
      return `nearly full, and volume group ${group.name} has no room for it to grow: ${
        describeFreeingSpace(group, pool)
      }`;
    case "Full":
      return `full: what is written to its volumes fails; ${remedyFor(group, pool, owned)}`;
    case "Damaged":
      return `what is written to its volumes fails; ${remedyFor(group, pool, owned)}`;
  }
}

/** What to do about a pool that fills, is full or is damaged. */
export function remedyFor(group: VolumeGroup, pool: LogicalVolume, owned: boolean): string {
  if (isDamaged(pool)) {
    const repair = `lvconvert --repair ${group.name}/${pool.name}`;
    return `its metadata has to be checked: end what uses it, then ${repair} (lvmthin(7))`;
  }
  const growth = owned ? "it grows by itself only while its group has free space" : "its growth is its owner's affair";
  return `${growth}; ${describeFreeingSpace(group, pool)}`;
}

function describeFreeingSpace(group: VolumeGroup, pool: LogicalVolume): string {
  const grow = `vgextend, lvextend --size +10G ${group.name}/${pool.name}`;
  return `make room: delete volumes or snapshots, or grow it (${grow})`;
}
