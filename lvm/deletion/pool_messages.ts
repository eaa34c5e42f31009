/**
 * Messages to thin pools that a power cut, or the death of an lvm command, has left in LVM's metadata.
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
 * @module
 */

import { messagePool, readPoolTransactions } from "../host/device_mapper.ts";
import { lateCompletion } from "../../base/error.ts";
import { isMessageLvName, messageLvName, uniqueLvName } from "../../base/ids.ts";
import { type DeletedLv, deletedLvs } from "../inventory/leftovers.ts";
import type { Lvm } from "../client/client.ts";
import { lvcreate, lvremove } from "../model/commands.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { DELETED, ERASE, OWNER } from "../model/tag_text.ts";
import { findPool, kernelNameOf } from "../pools/pool.ts";
import { monitoringOptions } from "../pools/pool_commands.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";

/** What {@linkcode sendMessages} needs. */
export interface SendingContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
  /** The reservation of the machine's pools, which knows in which of them this process has created an LV. */
  readonly reservation: PoolReservation;
}

/**
 * Makes LVM send the messages that it has for the pool of a thin LV that will be removed, by creating or removing an LV that
 * has no data. Does nothing if the LV is such a one.
 *
 * @returns whether it created an LV for that, which is marked as deleted
 */
export async function sendMessages(
  { lvm, driver, reservation }: SendingContext,
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
