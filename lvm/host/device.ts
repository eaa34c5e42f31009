/**
 * Inspecting a block device before anything is written to it.
 *
 * @module
 */

import { asString, asUnsignedInteger, parseRows } from "../../base/json.ts";
import type { LocatedLv, LogicalVolume } from "../model/report.ts";
import { readMappedDevice } from "./device_mapper.ts";
import { max } from "../../base/size.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { allDone, type Command, commandError, dd, type Exec, type Output, runOk } from "../exec.ts";

/** A block device, as the kernel reports it. */
export interface BlockDevice {
  /** The device-mapper name. */
  readonly name: string;
  /** The device number, `major:minor`. */
  readonly number: string;
  /** The size in bytes. */
  readonly size: bigint;
  /** True if the kernel refuses writes to it. */
  readonly readOnly: boolean;
}

/** A block device, and where its node is. */
export interface LocatedDevice extends BlockDevice {
  /** The path of the node. */
  readonly path: string;
}

/** A signature on a device, as libblkid reports it. */
export interface Signature {
  /** The type, such as `ext4`, `xfs`, `LVM2_member` or `gpt`. */
  readonly type: string;
  /** The UUID of the filesystem, if it has one. */
  readonly uuid?: string;
}

/** The bytes at the end of a device that must be readable before the device counts as blank. */
const TAIL_BYTES = 64n * 1024n;

/**
 * Reads the block device whose node is at the path.
 *
 * @throws {StorageError} `FailedPrecondition` when there is none (lsblk(8), EXIT STATUS: 32)
 */
export async function readBlockDevice(exec: Exec, path: string): Promise<LocatedDevice> {
  const classify = ({ code }: Output) => code === 32 ? "FailedPrecondition" : "CommandFailed";
  const [device] = parseBlockDevices(await runOk(exec, listBlockDevices([path]), classify));
  if (device === undefined) {
    throw new StorageError("FailedPrecondition", `reading ${path}: lsblk names no block device`);
  }
  return { ...device, path };
}

/** Reads the block device whose node is at the path; `undefined` when there is none. */
export async function findBlockDevice(exec: Exec, path: string): Promise<LocatedDevice | undefined> {
  const [device] = await readBlockDevices(exec, [path]);
  return device && { ...device, path };
}

/** Reads the block devices whose nodes are at the paths. A path without a block device is left out. */
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
  return parseRows("lsblk", stdout, "blockdevices").map((device) => ({
    name: asString(device.name),
    number: asString(device["maj:min"]).trim(),
    size: asUnsignedInteger(device.size),
    readOnly: device.ro === true || device.ro === "1",
  }));
}

/** Reads the size of the largest logical sectors of block devices, in bytes. @throws {StorageError} */
export async function readSectorBytes(exec: Exec, paths: readonly string[]): Promise<bigint> {
  const args = ["--json", "--nodeps", "--output", "LOG-SEC", ...paths];
  const answer = await runOk(exec, { program: "lsblk", args, mutates: false });
  return max(0n, ...parseRows("lsblk", answer, "blockdevices").map((device) => asUnsignedInteger(device["log-sec"])));
}

/**
 * Makes the node at the path of an active LV, if there is none.
 *
 * A node gets lost where LVM runs without udev's rules, as in a container. The link of an LV that the host activated is
 * udev's. A change by the container's LVM resumes the device, which tells udev to leave the link to LVM
 * (DM_UDEV_DISABLE_DM_RULES_FLAG, 55-dm.rules). LVM still finds the link and makes nothing, and then udev removes it.
 *
 * @returns whether there was none
 */
export async function restoreDeviceNode(
  exec: Exec,
  { devicePath }: Pick<LogicalVolume, "devicePath">,
): Promise<boolean> {
  if (await findBlockDevice(exec, devicePath) !== undefined) return false;
  await makeDeviceNode(exec, devicePath);
  return true;
}

async function makeDeviceNode(exec: Exec, path: string): Promise<void> {
  // When it fails, the node is still missing, and what needs it says so.
  await exec.run({ program: "dmsetup", args: ["mknodes", path.replace(/^.*\//, "")], mutates: true });
}

/**
 * Checks that the node at the LV's path is the device that LVM has active for the LV, and has its size. The device
 * number and the UUID are from one report, so this ties the path to the UUID. A missing node is made first.
 *
 * @throws {StorageError} `FailedPrecondition` when it is another device, or has another size
 */
export async function verifyDevice(exec: Exec, lv: LogicalVolume): Promise<LocatedDevice> {
  const found = await findBlockDevice(exec, lv.devicePath);
  if (found === undefined) await makeDeviceNode(exec, lv.devicePath);
  const device = found ?? await readBlockDevice(exec, lv.devicePath);
  if (device.number !== lv.deviceNumber || device.size !== lv.size) {
    throw new StorageError(
      "FailedPrecondition",
      `verifying ${lv.devicePath}: it is device ${device.number} of ${device.size} bytes, but LVM reports ${lv.uuid} as ` +
        `device ${lv.deviceNumber ?? "(inactive)"} of ${lv.size} bytes`,
    );
  }
  return device;
}

/**
 * Reads the signatures on a device with wipefs(8). blkid(8) is not used: its exit status 2 means that nothing was
 * found, or that the device is unreadable.
 *
 * @returns the signatures; an empty list only when wipefs could read the device and found none
 */
export async function readSignatures(exec: Exec, device: string): Promise<Signature[]> {
  const answer = await runOk(exec, { program: "wipefs", args: ["--no-act", "--json", device], mutates: false });
  return parseRows("wipefs", answer, "signatures").map((signature) => ({
    type: asString(signature.type),
    ...defined({ uuid: typeof signature.uuid === "string" && signature.uuid !== "" ? signature.uuid : undefined }),
  }));
}

/**
 * Lets the kernel refuse writes to a device, until {@linkcode allowWrites} or until the device is deactivated.
 */
export async function refuseWrites(exec: Exec, device: string): Promise<void> {
  await runOk(exec, { program: "blockdev", args: ["--setro", device], mutates: true });
}

/**
 * Undoes {@linkcode refuseWrites}. A device to which LVM does not permit writes stays read-only: the kernel keeps that
 * apart (lvchange(8), `--permission`; blockdev(8), `--setrw`).
 */
export async function allowWrites(exec: Exec, device: string): Promise<void> {
  await runOk(exec, { program: "blockdev", args: ["--setrw", device], mutates: true });
}

/** Removes all signatures. To be called only when all of them are known to be the driver's own unfinished work. */
export async function wipeSignatures(exec: Exec, device: string): Promise<void> {
  await runOk(exec, { program: "wipefs", args: ["--all", device], mutates: true });
}

/**
 * Checks that a device is blank: it has no signature, its first 4 KiB are still the zeros that lvcreate wrote
 * (lvcreate(8), --zero), and its end is readable.
 *
 * @throws {StorageError} `ForeignData` with what was found
 */
export async function requireBlank(exec: Exec, device: LocatedDevice): Promise<void> {
  // all three only read, so they run at the same time
  await allDone([
    requireNoSignatures(exec, device.path),
    requireZeroHead(exec, device.path),
    requireReadableTail(exec, device),
  ]);
}

async function requireNoSignatures(exec: Exec, path: string): Promise<void> {
  const signatures = await readSignatures(exec, path);
  if (signatures.length > 0) throw foreignDataError(path, `it holds ${describeSignatures(signatures)}`);
}

async function requireZeroHead(exec: Exec, path: string): Promise<void> {
  const head: Command = { program: "cmp", args: ["--bytes=4096", "/dev/zero", path], mutates: false };
  const compared = await exec.run(head);
  if (compared.code === 1) throw foreignDataError(path, "its first 4 KiB are not zeros, though it was never formatted");
  if (compared.code !== 0) throw commandError(head, compared);
}

async function requireReadableTail(exec: Exec, { path, size }: LocatedDevice): Promise<void> {
  const tail = max(size - TAIL_BYTES, 0n);
  const flags = "direct,skip_bytes"; // an LV may not be a multiple of the block
  await dd(exec, { if: path, of: "/dev/null", bs: TAIL_BYTES, skip: tail, count: 1, iflag: flags });
}

/** Formats signatures for messages. */
export function describeSignatures(signatures: readonly Signature[]): string {
  if (signatures.length === 0) return "nothing";
  return signatures.map(({ type, uuid }) => uuid === undefined ? type : `${type} with the UUID ${uuid}`).join(" and ");
}

/** Returns the error for a device that must not be formatted. */
export function foreignDataError(path: string, reason: string): StorageError {
  return new StorageError(
    "ForeignData",
    `using ${path}: ${reason}. It is not changed. Inspect it; if its data is not needed, delete the volume and create it again`,
    { reason: "UnexpectedData" },
  );
}

/**
 * Makes sure that a hidden device of an LV is what its node leads to: the kernel knows it under its name, in the LV's group,
 * and the node has its number. A missing node is made first.
 *
 * @param suffix the layer, such as `-cow`
 * @returns the path of its node
 * @throws {StorageError} `FailedPrecondition`
 */
export async function requireHiddenDevice(
  exec: Exec,
  { group, lv }: LocatedLv,
  suffix: "-cow" | "_tmeta",
): Promise<string> {
  const devicePath = `${lv.devicePath}${suffix}`;
  const fail = (reason: string) => new StorageError("FailedPrecondition", `verifying ${devicePath}: ${reason}`);
  const mapped = await readMappedDevice(exec, devicePath.replace("/dev/mapper/", ""));
  if (mapped === undefined) throw fail("the kernel has no such device");
  // the hidden LV of a pool's metadata has a UUID of its own, which no report has
  const owner = suffix === "-cow" ? `${group.uuid}${lv.uuid}` : group.uuid;
  if (!mapped.uuid.startsWith(`LVM-${owner.replaceAll("-", "")}`)) throw fail(`it is ${mapped.uuid}`);
  await restoreDeviceNode(exec, { devicePath });
  const [node] = await readBlockDevices(exec, [devicePath]);
  if (node?.number !== mapped.number) throw fail(`its node is ${node?.number ?? "missing"}, not ${mapped.number}`);
  return devicePath;
}
