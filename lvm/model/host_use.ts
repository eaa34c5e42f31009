/**
 * The volume groups that the operating system of this machine uses, such as for its root filesystem.
 *
 * @module
 */

import { StorageError, truncate } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { type DeviceNode, readDeviceTree } from "./device_tree.ts";
import type { LogicalVolume, VolumeGroup } from "./report.ts";
import { ownersOf } from "./tags.ts";

/** Where kubelet mounts volumes of pods, whatever its data directory is. */
const VOLUME_MOUNT = /\/(?:volumes|plugins)\/kubernetes\.io[~/]|\/volume-subpaths\//;

/** The maximum length of the description of a use, in characters, as an LVMNode may have it. */
const MAX_LENGTH = 1_000;

/**
 * Returns the groups, each with what this machine itself uses of it ({@linkcode VolumeGroup.hostUse}). The devices are read only
 * where something may be: an LV that is open, and not of a driver of ours.
 */
export async function withHostUse<Group extends VolumeGroup>(exec: Exec, groups: readonly Group[]): Promise<Group[]> {
  if (!mayHaveHostUse(groups)) return [...groups];
  try {
    const tree = await readDeviceTree(exec);
    return groups.map((group) => {
      const uses = group.lvs.filter(isSuspect).flatMap((lv) => {
        const use = useOf(tree, lv);
        return use === undefined ? [] : [`${lv.name} (${use})`];
      });
      return uses.length === 0 ? group : { ...group, hostUse: truncate(uses.join(", "), MAX_LENGTH) };
    });
  } catch (error) {
    if (error instanceof StorageError) return [...groups];
    throw error;
  }
}

/** Reports whether this machine itself may use a group, so that the devices must be read. */
export function mayHaveHostUse(groups: readonly VolumeGroup[]): boolean {
  return groups.some(({ lvs }) => lvs.some(isSuspect));
}

/** Reports whether the machine may use an LV. A thin pool is open by its LVs, which are judged themselves. */
function isSuspect({ open, thinPool, tags }: LogicalVolume): boolean {
  return open && thinPool === undefined && ownersOf(tags).length === 0;
}

/** Returns how this machine uses an LV; `undefined` when it does not, as one that another driver mounts for pods. */
function useOf(tree: readonly DeviceNode[], { devicePath }: LogicalVolume): "swap" | "mounted" | undefined {
  const points = tree.flatMap((device) => nodesAt(device, devicePath)).flatMap(mountPointsOf);
  if (points.includes("[SWAP]")) return "swap";
  return points.some((point) => !VOLUME_MOUNT.test(point)) ? "mounted" : undefined;
}

function nodesAt(device: DeviceNode, path: string): DeviceNode[] {
  return device.name === path ? [device] : device.children.flatMap((child) => nodesAt(child, path));
}

/** Returns where a device is mounted, or what is made of it, but for other LVs. */
function mountPointsOf({ mountPoints, children }: DeviceNode): string[] {
  return [...mountPoints, ...children.filter(({ type }) => type !== "lvm").flatMap(mountPointsOf)];
}
