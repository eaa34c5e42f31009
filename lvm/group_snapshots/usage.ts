/**
 * Decides whether a volume may be suspended: only the pods that use it may wait for it. What the machine itself, or the driver,
 * needs to resume it again must not.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import { StorageError } from "../../base/error.ts";
import { filesystemMounts, isBelow, type Mount } from "../host/mounts.ts";
import type { Volume } from "../inventory/volume.ts";
import type { DeviceNode } from "../model/device_tree.ts";
import { lvPath } from "../model/report.ts";

/**
 * Makes sure that a volume may be suspended.
 *
 * @param use what is built on its device; `undefined` for an inactive volume
 * @param mounts the mounts of this machine
 * @param mountRoots the directories below which volumes are staged and published
 * @throws {StorageError} `FailedPrecondition` with what prevents it
 */
export function requireSuspendable(
  volume: Volume,
  use: DeviceNode | undefined,
  mounts: readonly Mount[],
  mountRoots: readonly string[],
): void {
  const { lv, tags } = volume;
  const refuse = (why: string) =>
    new StorageError("FailedPrecondition", `suspending volume ${volume.id} (${lvPath(volume)}): ${why}`, {
      reason: "MustNotBeSuspended",
    });
  const mapping = use?.children.find(({ name }) => name === contentDevice(lv).devicePath);
  const own = [use, mapping].filter((each) => each !== undefined);
  if (own.some(({ mountPoints }) => mountPoints.includes("[SWAP]"))) throw refuse("it is swap space of this machine");
  const holder = own.flatMap(({ children }) => children).find((each) => each !== mapping);
  if (holder !== undefined) throw refuse(`${holder.name} is on it, and would have to wait for it, too`);
  const targets = filesystemMounts(mounts, contentDevice(lv)).map(({ target }) => target);
  const outside = targets.find((target) => !isBelow(target, mountRoots));
  if (outside !== undefined) {
    throw refuse(`it is mounted at ${outside}, which is not below ${mountRoots.join(", ")}; unmount it there`);
  }
  if (lv.open && targets.length === 0 && tags.format.state !== "raw") {
    throw refuse("it is open, but not mounted where this driver sees it; something else may need it");
  }
}
