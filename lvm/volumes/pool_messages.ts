/**
 * Messages to thin pools that a power cut, or the death of an lvm command, has left in LVM's metadata.
 *
 * LVM adds the removal of a thin LV to the messages that it still has. If the pool has followed these already, LVM takes
 * all of them for sent. Then the removed LV stays in the pool, with its data. The pool numbers its LVs, and LVM gives the
 * number to another LV later, and does not mind that the pool knows it: the new LV has the data of the removed one.
 *
 * LVM sends what it has before it creates an LV. So before the first removal from a pool, unless this process has created
 * an LV in it, the driver creates one, and deletes it like any other. LVM does not report whether it has messages.
 *
 * @module
 */

import { uniqueLvName } from "../ids.ts";
import type { DeletedLv } from "../inventory/leftovers.ts";
import type { Lvm } from "../model/client.ts";
import { lvcreate } from "../model/commands.ts";
import { DELETED, ERASE, OWNER } from "../model/tag_text.ts";
import { findPool } from "../pools/pool.ts";
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
 * Makes LVM send the messages that it has for the pool of a thin LV that will be removed.
 *
 * @returns whether it created an LV for that, which is marked as deleted
 */
export async function sendMessages(
  { lvm, driver, reservation }: SendingContext,
  { lv, group, tags }: DeletedLv,
): Promise<boolean> {
  if (lv.pool === undefined || reservation.hasCreatedIn(group, lv.pool)) return false;
  return await reservation.runExclusive([group], group, async (current) => {
    const pool = findPool(current, lv.pool);
    if (pool === undefined) return false;
    const options = {
      yes: true,
      type: "thin",
      name: uniqueLvName(lv.name.replace(/\.\d+$/, ""), current.lvs.map(({ name }) => name)),
      thinpool: pool.name,
      virtualsize: current.extentSize,
      ...monitoringOptions(driver, current, lv),
      addtag: [OWNER + driver, DELETED + tags.id, `${ERASE}none`],
    } as const;
    await lvm.change(current, lvcreate(options, current.name));
    reservation.recordCreation(current, pool.name);
    return true;
  });
}
