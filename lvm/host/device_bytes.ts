/**
 * Reads devices past the page cache: the kernel writes the tables of snapshots past it, too. Reads files of the kernel.
 *
 * @module
 */

import { dd, type Exec } from "../exec.ts";
import { StorageError } from "../../base/error.ts";
import { type FilesystemType, maximumSectorBytes, SUPERBLOCK_BYTES } from "../settings/filesystem.ts";

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
  const flags = "direct,fullblock,skip_bytes,count_bytes";
  await dd(exec, { if: path, bs: BLOCK_BYTES, skip: offset, count: length, iflag: flags }, {
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
 * Reads the size of the largest logical sectors with which a device can have the filesystem of another one, in bytes.
 *
 * @returns `undefined` when there is no filesystem of the type on the device
 * @throws {StorageError} `CommandFailed` when it cannot be read
 */
export async function readMaximumSectorBytes(
  exec: Exec,
  path: string,
  type: FilesystemType,
): Promise<number | undefined> {
  return maximumSectorBytes(type, await readBytes(exec, path, { offset: 0, length: SUPERBLOCK_BYTES }));
}

/**
 * Reads the release of the kernel, as uname(1) prints it.
 *
 * @throws {StorageError} `CommandFailed` when it cannot be read
 */
export async function readKernelRelease(exec: Exec): Promise<string> {
  // with a program, since Deno refuses /proc under scoped permissions (docs/adr/0001)
  return (await dd(exec, { if: "/proc/sys/kernel/osrelease" })).trim();
}
