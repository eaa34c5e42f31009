/**
 * The removal of a thin pool with its last LV. Deleted LVs of a pool are not overwritten, and their data could be read from
 * the extents of the removed pool. So its last LV overwrites the whole pool.
 *
 * @module
 */

import type { Lvm } from "../client/client.ts";
import type { DeletedLv } from "../inventory/leftovers.ts";
import { lvextend } from "../model/commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { findPool, isDriverPool, isThin, lvsInPool } from "../pools/pool.ts";
import { monitoringOptions, removePool } from "../pools/pool_commands.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";

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
    const size = lv.size > pool.size ? lv.size : pool.size;
    if (lv.size < size) {
      const options = { size, ...monitoringOptions(driver, group, lv) };
      await lvm.change(group, lvextend(options, `${group.name}/${lv.name}`));
    }
    return { pool, wiper: { lv: { ...lv, size }, group, tags: { ...tags, erase: "zero" } } };
  });
}

/** Removes a pool, unless it has got another LV. */
export async function removeEmptyPool(
  { lvm, reservation }: WipingContext,
  group: VolumeGroup,
  { uuid }: LogicalVolume,
): Promise<void> {
  await reservation.runExclusive([group], group, async (current) => {
    const pool = current.lvs.find((lv) => lv.uuid === uuid);
    if (pool !== undefined && lvsInPool(current, pool).length === 0) await removePool(lvm, current, pool);
  });
}
