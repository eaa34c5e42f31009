/**
 * What is another thing for volumes that have all of their space from the beginning: how they grow.
 *
 * @module
 */

import { activationArguments } from "./activation.ts";
import { StorageError } from "../error.ts";
import { planExtension } from "../model/extension.ts";
import type { FreshReport, Lvm } from "../model/client.ts";
import { cowSnapshotsOf, isPublishedAsDevice, requireDeactivatable } from "./cow_origin.ts";
import { formatBytes } from "../size.ts";
import { splitSnapshot } from "../model/snapshot_split.ts";
import type { Volume } from "../inventory/volume.ts";

/** What it takes to work on them. */
export interface ThickContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
}

/**
 * Grows the volume's LV to a size, which is one of whole extents.
 *
 * @throws {StorageError} `OutOfRange` when the group is too full, `FailedPrecondition` when it has snapshots and it or one of
 * them is in use: LVM grows the origin of a copy-on-write snapshot only while it is inactive, and its snapshots are inactive
 * with it.
 */
export async function extendThick(
  context: ThickContext,
  groups: FreshReport,
  volume: Volume,
  size: bigint,
): Promise<void> {
  const { id, lv, group } = volume;
  const { chosenPvs, shortfall } = planExtension(lv, group, size);
  const groupFullError = (cause?: unknown) =>
    new StorageError(
      "OutOfRange", // the resizer would repeat RESOURCE_EXHAUSTED with the old size for ever
      `growing volume ${id} to ${formatBytes(size)}: ${shortfall}`,
      { cause },
    );
  if (chosenPvs === undefined) throw groupFullError();
  const path = `${group.name}/${lv.name}`;
  try {
    await extend(context, groups, volume, [
      "lvextend",
      "--size",
      `${size}b`,
      path,
      ...chosenPvs.map(({ path }) => path),
    ]);
  } catch (error) {
    throw error instanceof StorageError && error.kind === "NoSpace" ? groupFullError(error) : error;
  }
}

async function extend(
  { lvm, driver }: ThickContext,
  groups: FreshReport,
  volume: Volume,
  lvextend: readonly string[],
): Promise<void> {
  const { lv, group } = volume;
  const { kept, deleted } = cowSnapshotsOf(driver, volume, groups);
  if (!lv.active) return await lvm.change(group, lvextend);
  if (kept.length > 0) requireDeactivatable(volume, kept, await isPublishedAsDevice(lvm.exec, volume));
  for (const snapshot of deleted) await splitSnapshot(lvm, group, snapshot); // nobody wants it: it is in nobody's way
  if (kept.length === 0) return await lvm.change(group, lvextend);
  await lvm.change(group, ["lvchange", "--activate", "n", `${group.name}/${lv.name}`]); // and its snapshots with it
  const activate = () => lvm.change(group, activationArguments(driver, group, lv));
  try {
    await lvm.change(group, lvextend);
  } catch (error) {
    await activate().catch(() => {}); // the first error is the one to tell; staging activates, too
    throw error;
  }
  await activate();
}
