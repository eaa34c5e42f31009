/**
 * Decides whether a volume may be suspended: only the pods that use it may wait for it. What the machine itself, or the driver,
 * needs to resume it again must not.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { StorageError } from "../../base/error.ts";
import { type Exec, runOk } from "../exec.ts";
import { filesystemMounts, isBelow, type Mount } from "../host/mounts.ts";
import type { Volume } from "../inventory/volume.ts";
import { asArray, asObject, asString, parseJson } from "../../base/json.ts";
import { lvPath } from "../model/report.ts";

/** A device, and what the kernel has built on it. */
export interface DeviceUse {
  /** The path of its node. */
  readonly path: string;
  /** Where lsblk(8) says that it is mounted; `[SWAP]` for swap space. */
  readonly mountPoint?: string;
  /** The devices that are on it. */
  readonly holders: readonly DeviceUse[];
}

/**
 * Reads what the kernel has built on devices.
 *
 * @param paths the nodes of the devices; at least one
 * @throws {StorageError} `CommandFailed`.
 */
export async function readDeviceUses(exec: Exec, paths: readonly string[]): Promise<DeviceUse[]> {
  const args = ["--json", "--paths", "--output", "NAME,MOUNTPOINT", ...paths];
  const answer = parseJson("lsblk", await runOk(exec, { program: "lsblk", args, mutates: false }));
  return asArray(asObject(answer).blockdevices).map(parseUse);
}

function parseUse(value: unknown): DeviceUse {
  const { name, mountpoint, children = [] } = asObject(value);
  return {
    path: asString(name),
    ...defined({ mountPoint: typeof mountpoint === "string" ? mountpoint : undefined }),
    holders: asArray(children).map(parseUse),
  };
}

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
  use: DeviceUse | undefined,
  mounts: readonly Mount[],
  mountRoots: readonly string[],
): void {
  const { lv, tags } = volume;
  const refuse = (why: string) =>
    new StorageError("FailedPrecondition", `suspending volume ${volume.id} (${lvPath(volume)}): ${why}`, {
      reason: "MustNotBeSuspended",
    });
  const mapping = use?.holders.find(({ path }) => path === contentDevice(lv).devicePath);
  const own = [use, mapping].filter((each) => each !== undefined);
  if (own.some(({ mountPoint }) => mountPoint === "[SWAP]")) throw refuse("it is swap space of this machine");
  const holder = own.flatMap(({ holders }) => holders).find((each) => each !== mapping);
  if (holder !== undefined) throw refuse(`${holder.path} is on it, and would have to wait for it, too`);
  const targets = filesystemMounts(mounts, contentDevice(lv)).map(({ target }) => target);
  const outside = targets.find((target) => !isBelow(target, mountRoots));
  if (outside !== undefined) {
    throw refuse(`it is mounted at ${outside}, which is not below ${mountRoots.join(", ")}; unmount it there`);
  }
  if (lv.open && targets.length === 0 && tags.format.state !== "raw") {
    throw refuse("it is open, but not mounted where this driver sees it; something else may need it");
  }
}
