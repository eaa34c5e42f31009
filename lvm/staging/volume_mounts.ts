/**
 * What is mounted of a volume, and its unmounts.
 *
 * @module
 */

import {
  isDeletedNodeMount,
  isDeviceNodeMount,
  isDeviceOfLv,
  isMountOfLv,
  type Mount,
  mountsOf,
  readMounts,
  unmount,
} from "../host/mounts.ts";
import { contentDevice } from "../encryption/mapping.ts";
import type { Lvm } from "../client/client.ts";
import { ignoring, StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { allowWrites, type BlockDevice, readBlockDevice, restoreDeviceNode } from "../host/device.ts";
import { type VolumeId, volumeLvName } from "../../base/ids.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { Trimmer } from "./trimmer.ts";

/** What the functions need. */
export interface VolumeMountsContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly volumes: VolumeFinder;
  /** Trims filesystems regularly, and pauses for a volume that is to be unmounted; absent for no trimming. */
  readonly trimmer?: Pick<Trimmer, "pause"> | undefined;
}

/**
 * Reports whether a mount is of a volume. A device node that was removed, or whose device does not exist any more,
 * counts as the volume's: nothing else needs it.
 *
 * @param device the device of a mount of a device node, if it exists
 */
export async function isMountOfVolume(
  { lvm, volumes }: VolumeMountsContext,
  id: VolumeId,
  mount: Mount,
  device: BlockDevice | undefined,
): Promise<boolean> {
  const name = volumeLvName(id);
  if (isDeletedNodeMount(mount)) return true;
  if (isDeviceNodeMount(mount)) {
    if (device === undefined || isDeviceOfLv(device.name, name)) return true;
  } else if (isMountOfLv(mount, name)) return true;
  // an administrator may have renamed the LV: then its tags identify it
  const found = volumes.locate(await lvm.report(), id);
  if (found.state !== "present") return false;
  return mountsOf([mount], contentDevice(found.volume.lv)).length > 0;
}

/** Returns the device of a mount of a device node, if it exists. */
export async function deviceOf(exec: Exec, mount: Mount): Promise<BlockDevice | undefined> {
  if (!isDeviceNodeMount(mount)) return undefined;
  return await readBlockDevice(exec, mount.target).catch(ignoring("FailedPrecondition"));
}

/**
 * Unmounts all that is mounted at a path.
 *
 * @returns what was mounted there
 * @throws {StorageError} `InUse` while a mount is in use; `FailedPrecondition` when something else is mounted there
 */
export async function unmountAll(context: VolumeMountsContext, id: VolumeId, path: string): Promise<Mount[]> {
  const { exec } = context.lvm;
  using _pause = await context.trimmer?.pause(id);
  const mounts = await readMounts(exec);
  const layers = mounts.filter((mount) => mount.target === path).reverse();
  for (const layer of layers) {
    const device = await deviceOf(exec, layer);
    if (!await isMountOfVolume(context, id, layer, device)) {
      throw new StorageError(
        "FailedPrecondition",
        `unmounting volume ${id}: ${layer.source} is mounted at ${path}, which is not the volume; it stays mounted`,
      );
    }
    await unmount(exec, path);
    const isPublished = mounts.some((other) =>
      other !== layer && isDeviceNodeMount(other) && other.root === layer.root
    );
    if (!device?.readOnly || isPublished) continue;
    // whoever uses the device next, an administrator as well, can write to it again
    const devicePath = `/dev/mapper/${device.name}`;
    await restoreDeviceNode(exec, { devicePath });
    await allowWrites(exec, devicePath);
  }
  return layers;
}
