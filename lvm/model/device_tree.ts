/**
 * The block devices of this machine, with what is made of each.
 *
 * @module
 */

import { type Exec, refusalKind, runOk } from "../exec.ts";
import { asArray, asObject, asString, parseJson } from "../../base/json.ts";

/** A block device, with what is made of it. */
export interface DeviceNode {
  /** The path of its node. */
  readonly name: string;
  /** The path of its node by the kernel's name, such as `/dev/dm-3`. */
  readonly kernelName: string;
  /** The type that lsblk(8) reports: `lvm` for a logical volume. */
  readonly type: string;
  /** Where its filesystem is mounted in this mount namespace; `[SWAP]` for swap space. */
  readonly mountPoints: readonly string[];
  /** What is made of it. */
  readonly children: readonly DeviceNode[];
}

/**
 * Reads block devices.
 *
 * @param paths the nodes of the devices; none for all
 * @throws {StorageError} `FailedPrecondition` when lsblk(8) cannot list all of them, `CommandFailed` when it was killed, or cannot
 * list the given ones
 */
export async function readDeviceTree(exec: Exec, paths: readonly string[] = []): Promise<DeviceNode[]> {
  const args = ["--json", "--paths", "--output", "NAME,KNAME,TYPE,MOUNTPOINTS", ...paths];
  const classify = paths.length === 0 ? refusalKind : undefined;
  const answer = parseJson("lsblk", await runOk(exec, { program: "lsblk", args, mutates: false }, classify));
  return parseTree(asObject(answer).blockdevices);
}

function parseTree(devices: unknown): DeviceNode[] {
  return asArray(devices ?? []).map(asObject).map(({ name, kname, type, mountpoints, children }) => ({
    name: asString(name),
    kernelName: asString(kname),
    type: asString(type ?? ""),
    mountPoints: asArray(mountpoints ?? []).flatMap((point) => typeof point === "string" ? [point] : []),
    children: parseTree(children),
  }));
}
