/**
 * The block devices that the kernel has, and which of them carry LVM's label.
 *
 * @module
 */

import { type Command, type Exec, runOk } from "../exec.ts";
import { asArray, asObject, asString, parseJson } from "../json.ts";

/** A block device. */
export interface Disk {
  /** Its path. */
  readonly path: string;
  /** `major:minor`. */
  readonly number: string;
  /** What lsblk(8) calls its kind: `disk`, `part`, `lvm`, `crypt`, `mpath`, … */
  readonly type: string;
  /** The UUID of the physical volume that it is, by its label. */
  readonly pvUuid?: string;
}

/** Ramdisks and empty devices included: a group can be on the one, and what is on the other is no more. */
const LIST_DISKS: Command = {
  program: "lsblk",
  args: ["--json", "--list", "--paths", "--all", "--output", "NAME,MAJ:MIN,TYPE,FSTYPE,UUID"],
  mutates: false,
};

/** All block devices. @throws {StorageError} `CommandFailed` when they cannot be listed. */
export async function readDisks(exec: Exec): Promise<Disk[]> {
  const answer = parseJson("lsblk", await runOk(exec, LIST_DISKS));
  return asArray(asObject(answer).blockdevices).map(asObject).map((device) => ({
    path: asString(device.name),
    number: asString(device["maj:min"]).trim(),
    type: asString(device.type ?? ""),
    ...(device.fstype === "LVM2_member" ? { pvUuid: asString(device.uuid) } : {}),
  }));
}
