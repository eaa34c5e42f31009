/**
 * The removal of a thin pool with its last LV. Deleted LVs of a pool are not overwritten, and their data could be read from
 * the extents of the removed pool. So its last LV overwrites the whole pool.
 *
 * @module
 */

import { max } from "../../base/size.ts";
import type { Lvm } from "../client/client.ts";
import type { DeletedLv } from "../inventory/leftovers.ts";
import { lvextend } from "../model/commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { findPool, isDriverPool, isThin, lvsInPool } from "../pools/pool.ts";
import { monitoringOptions, removePool } from "../pools/pool_commands.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import type { Eraser } from "./eraser.ts";

/** What the functions need. */
export interface WipingContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
  /** The reservation of the machine's pools. */
  readonly reservation: PoolReservation;
}

/** A thin pool whose last LV is deleted. */
export interface EmptiedPool {
  /** The pool. */
  readonly pool: LogicalVolume;
  /** Its last LV, which is as large as the pool, and overwrites it. */
  readonly wiper: DeletedLv;
}

/**
 * Extends an LV to the size of its pool, if it is the last LV of a pool of the driver.
 *
 * @returns the pool, and the LV that overwrites it; `undefined` when the pool has other LVs
 */
export async function extendLastOfPool(
  { lvm, driver, reservation }: WipingContext,
  { lv, tags, ...located }: DeletedLv,
): Promise<EmptiedPool | undefined> {
  if (!isThin(lv)) return undefined;
  return await reservation.runExclusive([located.group], located.group, async (group) => {
    const pool = findPool(group, lv.pool);
    if (pool === undefined || !isDriverPool(driver, pool)) return undefined;
    const lvs = lvsInPool(group, pool);
    if (lvs.length !== 1 || lvs[0]!.uuid !== lv.uuid) return undefined;
    const size = max(lv.size, pool.size);
    if (lv.size < size) {
      const options = { size, ...monitoringOptions(driver, group, lv) };
      await lvm.change(group, lvextend(options, `${group.name}/${lv.name}`));
    }
    return { pool, wiper: { ...located, lv: { ...lv, size }, group, tags: { ...tags, erase: "zero" } } };
  });
}

/**
 * Overwrites a pool by its last LV. What the LV has beyond the size of the pool is discarded before: otherwise the pool would
 * be full before all of it is overwritten.
 *
 * @param wiper the active LV
 * @returns false when it was interrupted
 */
export async function overwritePool(eraser: Eraser, wiper: DeletedLv, { size }: LogicalVolume): Promise<boolean> {
  const beyond = { ...wiper, tags: { ...wiper.tags, erase: "discard" } } as const;
  const isFitting = wiper.lv.size <= size || await eraser.erase(beyond, { from: size });
  return isFitting && await eraser.erase(wiper, { to: size });
}

/** Reports whether a pool is larger than it was when it was overwritten: then data may be left in it. */
export function isExtended(group: VolumeGroup, { pool: { uuid, size } }: EmptiedPool): boolean {
  const pool = group.lvs.find((lv) => lv.uuid === uuid);
  return pool !== undefined && pool.size > size;
}

/** Removes a pool that was overwritten, unless it has got another LV, or was extended. */
export async function removeEmptyPool(
  { lvm, reservation }: WipingContext,
  group: VolumeGroup,
  emptied: EmptiedPool,
): Promise<void> {
  await reservation.runExclusive([group], group, async (current) => {
    const pool = current.lvs.find(({ uuid }) => uuid === emptied.pool.uuid);
    if (pool === undefined || isExtended(current, emptied)) return;
    if (lvsInPool(current, pool).length === 0) await removePool(lvm, current, pool);
  });
}
