/**
 * Reads devices past the page cache: the kernel writes the tables of snapshots past it, too.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { type Exec, runOk } from "../exec.ts";
import { readBlockDevices, restoreDeviceNode } from "../host/device.ts";
import { readMappedDevice } from "../host/device_mapper.ts";
import type { LocatedLv } from "../model/report.ts";

/** The block size of dd, in bytes. */
const BLOCK_BYTES = 1 << 20;

/** The time in which one read ends, in milliseconds. None is longer than some tens of MiB. */
const READ_MS = 5 * 60 * 1000;

/** A part of a device, in bytes. Both numbers are multiples of the disk's blocks. */
export interface DeviceRange {
  /** Where it begins. */
  readonly offset: number;
  /** Its length. */
  readonly length: number;
}

/**
 * Reads a part of a device in pieces.
 *
 * @param onBytes receives the pieces, in order
 * @throws {StorageError} `CommandFailed` when it cannot be read, as a snapshot that has overflowed
 */
export async function readDevice(
  exec: Exec,
  path: string,
  { offset, length }: DeviceRange,
  onBytes: (bytes: Uint8Array) => void,
): Promise<void> {
  await runOk(exec, {
    program: "dd",
    args: [
      `if=${path}`,
      `bs=${BLOCK_BYTES}`,
      `skip=${offset}`,
      `count=${length}`,
      "iflag=direct,fullblock,skip_bytes,count_bytes",
      "status=none",
    ],
    mutates: false,
    deadlineMs: READ_MS,
    onOutput: (bytes) => Promise.resolve(onBytes(bytes)),
  });
}

/**
 * Reads a part of a device as a whole.
 *
 * @throws {StorageError} `CommandFailed` also when the device ends before it
 */
export async function readBytes(exec: Exec, path: string, range: DeviceRange): Promise<Uint8Array> {
  const bytes = new Uint8Array(range.length);
  let at = 0;
  await readDevice(exec, path, range, (piece) => {
    bytes.set(piece.subarray(0, range.length - at), at);
    at += piece.length;
  });
  if (at === range.length) return bytes;
  throw new StorageError("CommandFailed", `reading ${range.length} bytes of ${path} at ${range.offset}: got ${at}`);
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
