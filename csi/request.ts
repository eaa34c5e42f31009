/**
 * Reading the fields of requests: where wire types stop.
 *
 * Bad input is refused here with the code that the spec names, and what passes is safe in a command line: ids are ours,
 * paths are absolute and plain, sizes are positive.
 *
 * @module
 */

import { StorageError } from "../lvm/error.ts";
import { parseSnapshotId, parseVolumeId, type SnapshotId, type VolumeId } from "../lvm/ids.ts";
import { isBelow } from "../lvm/host/mounts.ts";
import type { SizeRange } from "../lvm/size.ts";
import type { CapacityRange } from "./proto/csi_pb.ts";

/** The characters that names must not have (CSI spec, CreateVolumeRequest.name). */
// deno-lint-ignore no-control-regex
const FORBIDDEN_IN_NAMES = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/;

/** How many characters a name may have; the spec asks for 128 bytes at least. */
const MAX_NAME_LENGTH = 128;

/** The longest path that Linux takes, in bytes. */
const MAX_PATH_BYTES = 4096;

/** The error for a request that is wrong in itself. */
export function invalidArgument(message: string): StorageError {
  return new StorageError("InvalidArgument", message);
}

/** A name that the caller chose. @throws {StorageError} `InvalidArgument`. */
export function requireName(value: string): string {
  if (value === "") throw invalidArgument("name: missing");
  if ([...value].length > MAX_NAME_LENGTH) throw invalidArgument(`name: longer than ${MAX_NAME_LENGTH} characters`);
  if (FORBIDDEN_IN_NAMES.test(value)) throw invalidArgument("name: has a control character");
  return value;
}

/** The id of a volume that must exist. @throws {StorageError} `InvalidArgument` without one, `NotFound` for a foreign one. */
export function requireVolumeId(value: string): VolumeId {
  if (value === "") throw invalidArgument("volume_id: missing");
  const id = parseVolumeId(value);
  if (id === undefined) throw new StorageError("NotFound", `volume_id ${quote(value)}: not an id of this driver`);
  return id;
}

/** The id of a volume to delete; `undefined` for a foreign one. @throws {StorageError} `InvalidArgument` without one. */
export function parseVolumeIdToDelete(value: string): VolumeId | undefined {
  if (value === "") throw invalidArgument("volume_id: missing");
  return parseVolumeId(value);
}

/** The id of a snapshot to delete; `undefined` for a foreign one. @throws {StorageError} `InvalidArgument` without one. */
export function parseSnapshotIdToDelete(value: string): SnapshotId | undefined {
  if (value === "") throw invalidArgument("snapshot_id: missing");
  return parseSnapshotId(value);
}

/** The id of a snapshot that must exist. @throws {StorageError} `InvalidArgument` without one, `NotFound` for a foreign one. */
export function requireSnapshotId(value: string): SnapshotId {
  const id = parseSnapshotIdToDelete(value);
  if (id === undefined) throw new StorageError("NotFound", `snapshot_id ${quote(value)}: not an id of this driver`);
  return id;
}

/** An absolute path without surprises. @throws {StorageError} `InvalidArgument`. */
export function requirePath(field: string, value: string): string {
  if (value === "") throw invalidArgument(`${field}: missing`);
  if (!value.startsWith("/")) throw invalidArgument(`${field} ${quote(value)}: not an absolute path`);
  if (new TextEncoder().encode(value).length > MAX_PATH_BYTES) {
    throw invalidArgument(`${field}: longer than ${MAX_PATH_BYTES} bytes`);
  }
  // deno-lint-ignore no-control-regex
  if (/[\u0000-\u001F\u007F]/.test(value)) throw invalidArgument(`${field}: has a control character`);
  const elements = value.split("/").filter((element) => element !== "");
  if (elements.length === 0) throw invalidArgument(`${field}: is the root directory`);
  if (elements.includes("..") || elements.includes(".")) {
    throw invalidArgument(`${field} ${quote(value)}: has "." or ".." in it`);
  }
  return "/" + elements.join("/");
}

/** A path below one of the mount roots, where a volume may be staged or published. @throws {StorageError} `InvalidArgument`. */
export function requireMountPath(field: string, value: string, mountRoots: readonly string[]): string {
  const path = requirePath(field, value);
  if (isBelow(path, mountRoots)) return path;
  throw invalidArgument(`${field} ${quote(value)}: not below one of --mount-roots, which are ${mountRoots.join(", ")}`);
}

/**
 * A volume that must exist, and a path at which it is said to be.
 *
 * @throws {StorageError} `InvalidArgument` without one of them, `NotFound` for a foreign id or a path at which no volume
 * can be.
 */
export function requireVolumeAndPath(volumeId: string, volumePath: string): { id: VolumeId; path: string } {
  if (volumePath === "") throw invalidArgument("volume_path: missing");
  const id = requireVolumeId(volumeId);
  try {
    return { id, path: requirePath("volume_path", volumePath) };
  } catch (cause) {
    throw new StorageError("NotFound", `volume_path ${quote(volumePath)}: no volume is there`, { cause });
  }
}

/**
 * The size that a request asks for; a missing range stands for `fallback` bytes.
 *
 * @throws {StorageError} `InvalidArgument` for a negative number or a range without any, `OutOfRange` for a limit below
 * what is required (CSI spec, CapacityRange, and "Unsupported capacity_range" of the error tables).
 */
export function parseSizeRange(range: CapacityRange | undefined, defaultBytes: bigint): SizeRange {
  if (range === undefined) return { required: defaultBytes };
  const { requiredBytes, limitBytes } = range;
  if (requiredBytes < 0n) throw invalidArgument(`capacity_range.required_bytes: negative: ${requiredBytes}`);
  if (limitBytes < 0n) throw invalidArgument(`capacity_range.limit_bytes: negative: ${limitBytes}`);
  if (requiredBytes === 0n && limitBytes === 0n) {
    throw invalidArgument("capacity_range: neither required_bytes nor limit_bytes is set");
  }
  if (limitBytes === 0n) return { required: requiredBytes };
  if (limitBytes < requiredBytes) {
    throw new StorageError(
      "OutOfRange",
      `capacity_range: the limit of ${limitBytes} is below the required ${requiredBytes}`,
    );
  }
  const required = requiredBytes > 0n ? requiredBytes : defaultBytes < limitBytes ? defaultBytes : limitBytes;
  return { required, limit: limitBytes };
}

/** Text from outside for a message: quoted, and cut where it is long. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? text.slice(0, 80) + "…" : text);
}
