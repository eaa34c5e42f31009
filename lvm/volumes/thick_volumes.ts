/**
 * Creates and extends thick volumes.
 *
 * @module
 */

import { activationArguments } from "../pools/activation.ts";
import { causeOf, StorageError } from "../../base/error.ts";
import { planExtension } from "../model/extension.ts";
import {
  allocatedBytes,
  cacheBytes,
  type CachedLayout,
  chooseCachePv,
  choosePvs,
  isCached,
  isLinear,
  layoutOptions,
} from "../model/layout.ts";
import { cacheTags, ownedSnapshotId } from "../model/tags.ts";
import type { FreshReport, Lvm } from "../client/client.ts";
import { cowSnapshotsOf, isPublishedAsDevice, requireDeactivatable, splitSnapshot } from "../deletion/cow_origin.ts";
import { formatBytes } from "../../base/size.ts";
import type { Volume, VolumeRequest } from "../inventory/volume.ts";
import { refuseWhileCopied } from "../inventory/copying.ts";
import { cacheLvName, uniqueLvName } from "../../base/ids.ts";
import { lvchange, lvchangeTags, lvcreate, type LvcreateOptions, lvextend } from "../model/command_lines.ts";
import { newVolumeLvName, pendingTags, volumeCommand } from "./volume_command.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";

/** Context of operations on thick volumes. */
export interface ThickContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
}

/**
 * Creates a thick volume of a size in bytes. What LVM adds to a complete LV, checksums or a cache, is recorded as pending in
 * its tags until it is there: from then on, nobody takes the volume for incomplete when an administrator removes it.
 *
 * @param group a group in which the volume fits
 * @throws {StorageError} of the kinds of {@linkcode Lvm.allocate}
 */
export async function createThick(
  context: ThickContext,
  group: VolumeGroup,
  size: bigint,
  request: VolumeRequest,
): Promise<void> {
  const { lvm, driver } = context;
  const { layout, id } = request;
  const cache = isCached(layout) ? await createCache(context, group, layout, request) : {};
  const options: LvcreateOptions = { zero: "y", size, ...layoutOptions(layout), ...cache };
  const pvs = isLinear(layout) ? [] : choosePvs(layout, size, group)!;
  const bytes = allocatedBytes(layout, size, group.extentSize);
  await lvm.allocate(group, bytes, volumeCommand(driver, group, request, { options, pvs }));
  const [pending] = pendingTags(layout);
  if (pending === undefined) return;
  await lvm.change(group, lvchangeTags(["--deltag", pending], `${group.name}/${newVolumeLvName(driver, group, id)}`));
}

/**
 * Creates the LV that becomes the cache of a new volume. It has the driver's tags before it becomes the cache, since LVM
 * changes no hidden LV: they tell what is left of it when the creation or the deletion of the volume is interrupted.
 *
 * @returns the options of lvcreate that make it the cache of a new LV
 */
async function createCache(
  { lvm, driver }: ThickContext,
  group: VolumeGroup,
  layout: CachedLayout,
  request: VolumeRequest,
): Promise<Pick<LvcreateOptions, "type" | "cachevol" | "config">> {
  // the LV of a deleted volume with this id may still have its cache, which LVM hides under its name
  const taken = group.lvs.flatMap(({ name, cache }) => cache === undefined ? [name] : [name, cache.name]);
  const name = uniqueLvName(cacheLvName(request.id), taken);
  const options: LvcreateOptions = {
    yes: true,
    activate: "n", // LVM zeroes its start when it makes it a cache
    zero: "n",
    wipesignatures: "n",
    name,
    size: cacheBytes(layout, group.extentSize),
    addtag: cacheTags(driver, request),
  };
  const pv = chooseCachePv(layout, group)!;
  await lvm.change(group, lvcreate(options, group.name, [pv.path]));
  // lvm.conf could make the cache of reads one of writes, whose loss is that of the volume
  const config = layout.type === "cache" ? { config: 'allocation/cache_mode="writethrough"' } : {};
  return { type: layout.type, cachevol: name, ...config };
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
      { cause, reason: causeOf(cause) ?? "NoSpace" },
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
