/**
 * Looking at a block device before anything is done to it.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { type Command, commandError, type Exec, runOk } from "../exec.ts";
import { asArray, asObject, asString, asUnsignedInteger, parseJson } from "../json.ts";
import type { LogicalVolume } from "../model/report.ts";

/** A block device as the kernel has it. */
export interface BlockDevice {
  /** Its device-mapper name. */
  readonly name: string;
  /** `major:minor`. */
  readonly number: string;
  /** Bytes. */
  readonly size: bigint;
  /** Whether the kernel refuses writes to it. */
  readonly readOnly: boolean;
}

/** What is written on a device, in the eyes of libblkid. */
export interface Signature {
  /** For example `ext4`, `xfs`, `LVM2_member`, `gpt`. */
  readonly type: string;
  /** The filesystem's UUID, where it has one. */
  readonly uuid?: string;
}

/** How much of a device's end must be readable before it can pass as blank. */
const TAIL_BYTES = 64 * 1024;

/**
 * The block device whose node is at the path.
 *
 * @throws {StorageError} `FailedPrecondition` when there is none.
 */
export async function readBlockDevice(exec: Exec, path: string): Promise<BlockDevice> {
  const [device] = parseBlockDevices(await runOk(exec, listBlockDevices([path]), () => "FailedPrecondition"));
  if (device === undefined) {
    throw new StorageError("FailedPrecondition", `looking at ${path}: lsblk names no block device`);
  }
  return device;
}

/** The block devices whose nodes are at the paths; a path without one is left out. */
export async function readBlockDevices(exec: Exec, paths: readonly string[]): Promise<BlockDevice[]> {
  if (paths.length === 0) return []; // lsblk would list all
  const command = listBlockDevices(paths);
  const output = await exec.run(command);
  // lsblk(8), EXIT STATUS: 32 none of the devices found, 64 some found
  if (output.code !== 0 && output.code !== 32 && output.code !== 64) throw commandError(command, output);
  return output.stdout.trim() === "" ? [] : parseBlockDevices(output.stdout);
}

function listBlockDevices(paths: readonly string[]): Command {
  const args = ["--json", "--bytes", "--nodeps", "--output", "NAME,MAJ:MIN,SIZE,RO", ...paths];
  return { program: "lsblk", args, mutates: false };
}

function parseBlockDevices(stdout: string): BlockDevice[] {
  return asArray(asObject(parseJson("lsblk", stdout)).blockdevices).map(asObject).map((device) => ({
    name: asString(device.name),
    number: asString(device["maj:min"]).trim(),
    size: asUnsignedInteger(device.size),
    readOnly: device.ro === true || device.ro === "1",
  }));
}

/**
 * Makes sure that the node at the LV's path is the device that LVM has active for the LV, and has its size. The number
 * and the UUID come from one report, so this ties the path to the UUID.
 *
 * @throws {StorageError} `FailedPrecondition` when it is another device, or another size.
 */
export async function verifyDevice(exec: Exec, lv: LogicalVolume): Promise<BlockDevice> {
  const device = await readBlockDevice(exec, lv.devicePath);
  if (device.number !== lv.deviceNumber || device.size !== lv.size) {
    throw new StorageError(
      "FailedPrecondition",
      `looking at ${lv.devicePath}: it is device ${device.number} of ${device.size} bytes, but LVM says that ${lv.uuid} is ` +
        `device ${lv.deviceNumber ?? "(inactive)"} of ${lv.size} bytes`,
    );
  }
  return device;
}

/**
 * The signatures on the device; an empty list only when wipefs read it and found none. Not blkid(8): its exit status 2
 * means nothing found as well as unreadable.
 */
export async function readSignatures(exec: Exec, device: string): Promise<Signature[]> {
  const answer = parseJson(
    "wipefs",
    await runOk(exec, { program: "wipefs", args: ["--no-act", "--json", device], mutates: false }),
  );
  return asArray(asObject(answer).signatures).map(asObject).map((signature) => ({
    type: asString(signature.type),
    ...(typeof signature.uuid === "string" ? { uuid: signature.uuid } : {}),
  }));
}

/** Removes all signatures: only for a device whose signatures were all found to be our own unfinished work. */
export async function wipeSignatures(exec: Exec, device: string): Promise<void> {
  await runOk(exec, { program: "wipefs", args: ["--all", device], mutates: true });
}

/**
 * Makes sure that nothing is on the device: no signature, the first 4 KiB still the zeros that lvcreate left there
 * (lvcreate(8), --zero), and the end readable.
 *
 * @throws {StorageError} `ForeignData` with what was found.
 */
export async function requireBlank(exec: Exec, device: BlockDevice, path: string): Promise<void> {
  const signatures = await readSignatures(exec, path);
  if (signatures.length > 0) throw foreignDataError(path, `it holds ${describeSignatures(signatures)}`);

  const head: Command = { program: "cmp", args: ["--bytes=4096", "/dev/zero", path], mutates: false };
  const compared = await exec.run(head);
  if (compared.code === 1) throw foreignDataError(path, "its first 4 KiB are not zeros, though it was never formatted");
  if (compared.code !== 0) throw commandError(head, compared);

  const blocks = device.size / BigInt(TAIL_BYTES);
  await runOk(exec, {
    program: "dd",
    args: [
      `if=${path}`,
      "of=/dev/null",
      `bs=${TAIL_BYTES}`,
      `skip=${blocks - 1n}`,
      "count=1",
      "iflag=direct",
      "status=none",
    ],
    mutates: false,
  });
}

/** The signatures for a message. */
export function describeSignatures(signatures: readonly Signature[]): string {
  if (signatures.length === 0) return "nothing";
  return signatures.map(({ type, uuid }) => uuid === undefined ? type : `${type} with the UUID ${uuid}`).join(" and ");
}

/** The error for a device that must not be formatted. */
export function foreignDataError(path: string, reason: string): StorageError {
  return new StorageError(
    "ForeignData",
    `using ${path}: ${reason}. It is left as it is. Look at it; if nothing on it matters, delete the volume and create it again`,
  );
}
