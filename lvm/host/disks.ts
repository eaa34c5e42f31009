/**
 * The block devices that the kernel has, and which of them have LVM's label.
 *
 * @module
 */

import { asString, parseRows } from "../../base/json.ts";
import { defined } from "../../base/defined.ts";
import { type Command, type Exec, runOk } from "../exec.ts";

/** A block device. */
export interface Disk {
  /** The path of its node. */
  readonly path: string;
  /** The device number, `major:minor`. */
  readonly number: string;
  /** The type that lsblk(8) reports: `disk`, `part`, `lvm`, `crypt`, `mpath`, … */
  readonly type: string;
  /** The UUID in LVM's label, if the device is a physical volume. */
  readonly pvUuid?: string;
  /** What udev has found on it, such as `btrfs`, `LVM2_member` or `linux_raid_member`. */
  readonly content?: { readonly type: string; readonly uuid: string };
}

/** `--all` includes ramdisks, which can be physical volumes, and empty devices, whose data is gone. */
const LIST_DISKS: Command = {
  program: "lsblk",
  args: ["--json", "--list", "--paths", "--all", "--output", "NAME,MAJ:MIN,TYPE,FSTYPE,UUID"],
  mutates: false,
};

/**
 * Reads all block devices.
 *
 * @throws {StorageError} `CommandFailed` when they cannot be listed
 */
export async function readDisks(exec: Exec): Promise<Disk[]> {
  return parseRows("lsblk", await runOk(exec, LIST_DISKS), "blockdevices").map((device) => ({
    path: asString(device.name),
    number: asString(device["maj:min"]).trim(),
    type: asString(device.type ?? ""),
    ...defined({
      pvUuid: device.fstype === "LVM2_member" ? asString(device.uuid) : undefined,
      content: device.fstype === null
        ? undefined
        : { type: asString(device.fstype ?? ""), uuid: asString(device.uuid ?? "") },
    }),
  }));
}
