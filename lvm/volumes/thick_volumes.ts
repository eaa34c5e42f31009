/**
 * Extends thick volumes.
 *
 * @module
 */

import { activationArguments } from "../pools/activation.ts";
import { StorageError } from "../error.ts";
import { planExtension } from "../model/extension.ts";
import type { FreshReport, Lvm } from "../client/client.ts";
import { cowSnapshotsOf, isPublishedAsDevice, requireDeactivatable } from "../deletion/cow_origin.ts";
import { formatBytes } from "../size.ts";
import { splitSnapshot } from "../deletion/snapshot_split.ts";
import type { Volume } from "../inventory/volume.ts";
import { refuseWhileCopied } from "../inventory/copying.ts";
import { uniqueLvName, type VolumeId, volumeLvName } from "../ids.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import { INTEGRITY } from "../model/tag_text.ts";
import { lvchange, lvchangeTags, lvextend } from "../model/commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { ownedSnapshotId } from "../model/tags.ts";

/** Context of operations on thick volumes. */
export interface ThickContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
}

/** Returns the name of the LV of a new volume in a group: no deleted LV has it. */
export function newVolumeLvName(driver: string, group: VolumeGroup, id: VolumeId): string {
  return uniqueLvName(volumeLvName(id), deletedLvs(driver, [group]).map(({ lv }) => lv.name));
}

/**
 * Records that the RAID images of a new volume have their checksums: from now on, nobody takes it for incomplete when an
 * administrator removes them.
 *
 * @param group the group as it was when the LV was created
 */
export async function confirmIntegrity({ lvm, driver }: ThickContext, group: VolumeGroup, id: VolumeId): Promise<void> {
  const path = `${group.name}/${newVolumeLvName(driver, group, id)}`;
  await lvm.change(group, lvchangeTags(["--deltag", INTEGRITY], path));
}

/**
 * Extends the LV of a thick volume.
 *
 * LVM extends the origin of a COW snapshot only while the origin is inactive, and its snapshots are inactive with it.
 * So an active volume with snapshots is deactivated for a moment.
 *
 * @param groups the report in which the volume was found
 * @param size the new size in bytes, in whole extents
 * @throws {StorageError} `OutOfRange` when the group has too little free space; `FailedPrecondition` when the volume
 * has snapshots, and the volume or one of them is in use; `Busy` while a volume is created from one of them.
 */
export async function extendThick(
  context: ThickContext,
  groups: FreshReport,
  volume: Volume,
  size: bigint,
): Promise<void> {
  const { id, lv, group } = volume;
  const { chosenPvs, bytes, shortfall } = planExtension(lv, group, size);
  const groupFullError = (cause?: unknown) =>
    new StorageError(
      "OutOfRange", // After RESOURCE_EXHAUSTED the resizer would repeat the old size for ever.
      `expanding volume ${id} to ${formatBytes(size)}: ${shortfall}`,
      { cause },
    );
  if (chosenPvs === undefined) throw groupFullError();
  const path = `${group.name}/${lv.name}`;
  try {
    await extend(context, groups, volume, { bytes, args: lvextend({ size }, path, chosenPvs.map(({ path }) => path)) });
  } catch (error) {
    throw error instanceof StorageError && error.kind === "NoSpace" ? groupFullError(error) : error;
  }
}

/**
 * Makes sure that nothing is copied from the snapshots of a volume, which are deactivated with it.
 *
 * @throws {StorageError} `Busy`, with the names of the volumes that are being created.
 */
function refuseWhileSnapshotsAreCopied(
  driver: string,
  groups: FreshReport,
  { id }: Volume,
  snapshots: readonly LogicalVolume[],
): void {
  for (const { tags } of snapshots) {
    const snapshot = ownedSnapshotId(driver, tags);
    if (snapshot === undefined) continue;
    refuseWhileCopied(driver, groups, { kind: "snapshot", id: snapshot }, `expanding volume ${id}`);
  }
}

async function extend(
  { lvm, driver }: ThickContext,
  groups: FreshReport,
  volume: Volume,
  command: { readonly bytes: bigint; readonly args: readonly string[] },
): Promise<void> {
  const { lv, group } = volume;
  const { kept, deleted } = cowSnapshotsOf(driver, volume, groups);
  const run = () => lvm.allocate(group, command.bytes, command.args);
  if (!lv.active) return await run();
  if (kept.length > 0) {
    refuseWhileSnapshotsAreCopied(driver, groups, volume, kept);
    requireDeactivatable(volume, kept, await isPublishedAsDevice(lvm.exec, volume));
  }
  for (const snapshot of deleted) await splitSnapshot(lvm, group, snapshot); // nobody wants it: it is in nobody's way
  if (kept.length === 0) return await run();
  await lvm.change(group, lvchange({ activate: "n" }, `${group.name}/${lv.name}`)); // and its snapshots with it
  const activate = () => lvm.change(group, activationArguments(driver, group, lv));
  try {
    await run();
  } catch (error) {
    await activate().catch(() => {}); // The first error is the cause. Staging activates the LV, too.
    throw error;
  }
  await activate();
}
