/**
 * Thin LVs that their pool lacks. LVM writes a new thin LV to the metadata of the group first, with a message for the pool,
 * and sends the message after that. When it is killed in between, or the power fails, the LV is pending: it cannot be
 * activated, and that does not send the message. The next creation or removal in the pool does, so a pending snapshot
 * then gets what its origin has by that time.
 *
 * LVM does not report messages, but the number of a pool's last transaction, and for each thin LV the one before its own
 * (lvs(8), transaction_id). It sends pending messages before a creation begins another transaction. So only the last LV
 * of a pool can be pending. Whether it is, only its activation shows: the numbers stay the same when the message was
 * sent. They do not show either whether a later command has sent it. So the driver removes pending LVs when it starts, and
 * before it creates another LV in their pool. What stays open: another program that changes the pool before that.
 *
 * The kernel answers the same (ENODATA) for an LV that a damaged pool lacks, and where it cannot read the pool's metadata: LVM
 * checks these only when it activates the pool. Then the pool has the number of the last transaction already, and its last LV
 * is not pending.
 *
 * @module
 */

import { type ErrorKind, ignoring, isOfKind, StorageError } from "../../base/error.ts";
import type { Lvm } from "../client/client.ts";
import { lvremove } from "../model/command_lines.ts";
import { type LocatedLv, type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import {
  copySnapshotOf,
  hasRecordedFilesystem,
  hasSourceData,
  isOwned,
  ownedSnapshotId,
  ownedVolumeId,
  usedLvUuids,
} from "../model/tags.ts";
import type { Volume } from "../inventory/volume.ts";
import { readPoolTransactions } from "../host/device_mapper.ts";
import { findPool, isThin, kernelNameOf } from "../pools/pool.ts";
import { activationArguments, isMissingInPool } from "../pools/activation.ts";

/** The kinds of failure of an activation that say nothing about the pool: LVM refused it, or the device could not be read. */
const OTHER_REASONS: readonly ErrorKind[] = ["CommandFailed", "FailedPrecondition", "InUse"];

/**
 * Reports whether a thin LV is missing in its pool. To find that out, it activates an inactive LV: after its creation an
 * LV is active, so that costs nothing but after a restart of the machine.
 *
 * @param located an LV in a new report
 */
export async function isMissingThin(lvm: Lvm, driver: string, { lv, group }: LocatedLv): Promise<boolean> {
  if (!isThin(lv) || lv.active) return false;
  try {
    await lvm.change(group, activationArguments(driver, group, lv));
    return false;
  } catch (error) {
    if (isOfKind(error, "NotFound") || isMissingInPool(error)) return true; // not found: another call has removed it
    throw error;
  }
}

/** Removes an LV that its pool lacks, if another call has not done so; not another one of its name. */
export async function removeMissing(lvm: Lvm, located: LocatedLv): Promise<void> {
  const command = lvremove({ yes: true, uuid: located.lv.uuid }, lvPath(located));
  await lvm.changeSelected(located.group, command);
}

/** Reports whether a thin LV may be pending: its pool has had no transaction since that of its creation. */
function canBePending(group: VolumeGroup, { pool, segment: { transactionId } }: LogicalVolume): boolean {
  return transactionId !== undefined && findPool(group, pool)?.segment.transactionId === transactionId + 1n;
}

/** Reports whether the kernel's pool of a thin LV has the number of LVM's last transaction. It has none of an inactive pool. */
async function isTransactionComplete({ exec }: Lvm, { lv, group }: LocatedLv): Promise<boolean> {
  const pool = findPool(group, lv.pool);
  return pool !== undefined &&
    (await readPoolTransactions(exec)).get(kernelNameOf(pool)) === pool.segment.transactionId;
}

/**
 * Removes the LV of a snapshot whose creation may not have been acknowledged, if it is pending, so that the snapshot can
 * be taken again. Requires the snapshot's lock.
 *
 * @returns whether the LV was removed
 * @throws {StorageError} `Lost` when its pool lacks an LV that it once had, and that may be recovered with the pool's
 * metadata. It is not taken again: it may be a snapshot that was acknowledged long ago.
 */
export async function removePendingSnapshot(lvm: Lvm, driver: string, located: LocatedLv): Promise<boolean> {
  if (!await isMissingThin(lvm, driver, located)) return false;
  const { lv, group } = located;
  if (!canBePending(group, lv) || await isTransactionComplete(lvm, located)) {
    throw new StorageError(
      "Lost",
      `activating snapshot ${
        lvPath(located)
      }: thin pool ${group.name}/${lv.pool} does not contain it any more; repair the ` +
        "pool, or delete the snapshot",
    );
  }
  await removeMissing(lvm, located);
  return true;
}

/**
 * Removes the LV of a volume that was never used, if its pool lacks it, so that it can be created again. Requires the
 * volume's lock. A volume that may have been used keeps its LV: what its pool lacks may be recovered.
 *
 * @returns whether the LV was removed
 */
export async function removeMissingVolume(lvm: Lvm, driver: string, volume: Volume): Promise<boolean> {
  if (!isUnused(driver, volume.group, volume.lv) || !await isMissingThin(lvm, driver, volume)) return false;
  await removeMissing(lvm, volume);
  return true;
}

/**
 * Removes the pending LVs of a group: of volumes that were never used, of snapshots, and of temporary snapshots of
 * copies. Requires that nothing is created in the pools of the group meanwhile ({@linkcode
 * PoolReservation.runExclusive}): LVM would then make the LV, and a call could acknowledge it.
 *
 * @returns whether it removed any
 */
export async function removePendingThin(lvm: Lvm, driver: string, group: VolumeGroup): Promise<boolean> {
  let isChanged = false;
  for (const lv of removableIfMissing(driver, group)) {
    if (await findPresence(lvm, driver, { lv, group }) !== "missing") continue;
    if (await isTransactionComplete(lvm, { lv, group })) continue;
    await removeMissing(lvm, { lv, group });
    isChanged = true;
  }
  return isChanged;
}

/**
 * Activates the driver's thin snapshots that a pool may just have made, so that the kernel shows the pool. {@linkcode
 * removePendingThin} has activated those that it would remove; others are volumes that were made as a snapshot, and deleted LVs.
 *
 * @param groups a report
 * @returns whether it activated any
 */
export async function activateLastSnapshots(
  lvm: Lvm,
  driver: string,
  groups: readonly VolumeGroup[],
): Promise<boolean> {
  let isActivated = false;
  for (const group of groups) {
    for (const lv of group.lvs) {
      const isLast = !lv.active && lv.origin !== undefined && isOwned(driver, lv.tags) && canBePending(group, lv);
      if (isLast && await findPresence(lvm, driver, { lv, group }) === "present") isActivated = true;
    }
  }
  return isActivated;
}

/** Finds out whether the pool of a thin LV has it; `undefined` when the LV cannot be activated for another reason. */
async function findPresence(lvm: Lvm, driver: string, located: LocatedLv): Promise<"present" | "missing" | undefined> {
  const presence = isMissingThin(lvm, driver, located).then((isMissing) => isMissing ? "missing" as const : "present");
  // such an LV keeps nobody from the pools; whoever needs it learns why
  return await presence.catch(ignoring(...OTHER_REASONS));
}

/** Reports whether a group may have an LV that {@linkcode removePendingThin} removes. */
export function mayHavePendingThin(driver: string, group: VolumeGroup): boolean {
  return removableIfMissing(driver, group).length > 0;
}

function removableIfMissing(driver: string, group: VolumeGroup): LogicalVolume[] {
  return group.lvs.filter((lv) => !lv.active && canBePending(group, lv) && isEmpty(driver, group, lv));
}

/** Reports whether an LV can have no data that its pool does not share with another one: a snapshot, or an unused volume. */
function isEmpty(driver: string, group: VolumeGroup, lv: LogicalVolume): boolean {
  const isSnapshot = ownedSnapshotId(driver, lv.tags) !== undefined || copySnapshotOf(driver, lv.tags) !== undefined;
  return isSnapshot || isUnused(driver, group, lv);
}

/** Reports whether an LV is a volume of the driver that nobody has used, and to which nothing was copied. */
function isUnused(driver: string, group: VolumeGroup, { uuid, tags }: LogicalVolume): boolean {
  const id = ownedVolumeId(driver, tags);
  return id !== undefined && !usedLvUuids(driver, id, group.tags).includes(uuid) && !hasSourceData(tags) &&
    !hasRecordedFilesystem(tags);
}
