/**
 * The deletion of LVs from thin pools: messages that a power cut, or the death of an lvm command, has left in LVM's metadata.
 *
 * LVM adds the removal of a thin LV to the messages that it still has. If the pool has followed these already, LVM takes
 * all of them for sent. Then the removed LV stays in the pool, with its data. The pool numbers its LVs, and LVM gives the
 * number to another LV later, and does not mind that the pool knows it: the new LV has the data of the removed one.
 *
 * If the power failed after a pool has made a snapshot, and before the pool has got the number of the transaction, LVM
 * sends the message again. The pool refuses it, and LVM cannot change the pool any more. Then the driver gives the pool the
 * number, which is all that is missing.
 *
 * LVM sends what it has before it creates an LV. So before the first removal from a pool, unless this process has created
 * an LV in it, the driver creates a small one, and deletes it like any other. After a command was killed, or failed, in the
 * pool's group, it sends the messages again. If there still is a small LV, it is removed for that: what is lost of it has no
 * data. So a pool in which nothing can be removed does not fill up with small LVs. LVM does not report whether it has
 * messages.
 *
 * A thin pool is removed with its last LV, if the driver is asked to. Deleted LVs of a pool are not overwritten, and their
 * data could be read from the extents of the removed pool. So its last LV overwrites the whole pool.
 *
 * @module
 */

import { max } from "../../base/size.ts";
import type { Lvm } from "../client/client.ts";
import { type DeletedLv, deletedLvs } from "../inventory/leftovers.ts";
import { lvcreate, lvextend, lvremove } from "../model/command_lines.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { findPool, isDriverPool, isThin, kernelNameOf, lvsInPool } from "../pools/pool.ts";
import { monitoringOptions, removePool } from "../pools/pool_commands.ts";
import type { PoolContext } from "../pools/pool_reservation.ts";
import type { Eraser } from "./eraser.ts";
import { messagePool, readPoolTransactions } from "../host/device_mapper.ts";
import { lateCompletion } from "../../base/error.ts";
import { isMessageLvName, messageLvName, uniqueLvName } from "../../base/ids.ts";
import { DELETED, ERASE, OWNER } from "../model/tags.ts";

/**
 * Makes LVM send the messages that it has for the pool of a thin LV that will be removed, by creating or removing an LV that
 * has no data. Does nothing if the LV is such a one.
 *
 * @returns whether it created an LV for that, which is marked as deleted
 */
export async function sendMessages(
  { lvm, driver, reservation }: PoolContext,
  { lv, group, tags }: DeletedLv,
): Promise<boolean> {
  if (lv.pool === undefined || isMessageLvName(lv.name) || reservation.areMessagesSent(group, lv.pool)) return false;
  return await reservation.runExclusive([group], group, async (current) => {
    const pool = findPool(current, lv.pool);
    if (pool === undefined) return false;
    const record = () => reservation.recordMessagesSent(current, pool.name);
    const earlier = deletedLvs(driver, [current]).map(({ lv }) => lv).find((other) =>
      other.pool === pool.name && isMessageLvName(other.name)
    );
    if (earlier !== undefined) {
      const command = lvremove({ yes: true, uuid: earlier.uuid }, lvPath({ group: current, lv: earlier }));
      await lvm.changeKnown(current, command);
      record();
      return false;
    }
    const options = {
      yes: true,
      type: "thin",
      name: uniqueLvName(messageLvName(tags.id), current.lvs.map(({ name }) => name)),
      thinpool: pool.name,
      virtualsize: current.extentSize,
      ...monitoringOptions(driver, current, lv),
      addtag: [OWNER + driver, DELETED + tags.id, `${ERASE}none`],
    } as const;
    try {
      await lvm.change(current, lvcreate(options, current.name));
    } catch (error) {
      lateCompletion(error)?.then(record, () => {}); // or each pass would create one more, where LVM is slow
      throw error;
    }
    record();
    return true;
  });
}

/**
 * Returns the pools of a group whose last transaction made a thin snapshot that is there, active: the pool has made it.
 * Its transaction may be incomplete.
 */
export function poolsWithLastSnapshot(group: VolumeGroup): LogicalVolume[] {
  return group.lvs.filter((pool) =>
    pool.thinPool !== undefined &&
    group.lvs.some((lv) => lv.active && lv.origin !== undefined && isLastOf(pool, lv))
  );
}

/** Completes the last transactions of pools whose snapshots they have made. The pool compares the number that it has. */
export async function completeTransactions(lvm: Lvm, pools: readonly LogicalVolume[]): Promise<void> {
  if (pools.length === 0) return;
  const current = await readPoolTransactions(lvm.exec);
  for (const pool of pools) {
    const found = current.get(kernelNameOf(pool));
    const { transactionId = 0n } = pool.segment;
    if (found === undefined || found + 1n !== transactionId) continue;
    await messagePool(lvm.exec, kernelNameOf(pool), `set_transaction_id ${found} ${transactionId}`);
  }
}

function isLastOf(pool: LogicalVolume, { pool: name, segment: { transactionId } }: LogicalVolume): boolean {
  return name === pool.name && transactionId !== undefined && pool.segment.transactionId === transactionId + 1n;
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
  { lvm, driver, reservation }: PoolContext,
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
  { lvm, reservation }: PoolContext,
  group: VolumeGroup,
  emptied: EmptiedPool,
): Promise<void> {
  await reservation.runExclusive([group], group, async (current) => {
    const pool = current.lvs.find(({ uuid }) => uuid === emptied.pool.uuid);
    if (pool === undefined || isExtended(current, emptied)) return;
    if (lvsInPool(current, pool).length === 0) await removePool(lvm, current, pool);
  });
}
