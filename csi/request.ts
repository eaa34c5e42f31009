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
const BANNED_IN_NAMES = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/;

/** How many characters a name may have; the spec asks for 128 bytes at least. */
const LONGEST_NAME = 128;

/** The longest path that Linux takes, in bytes. */
const LONGEST_PATH = 4096;

/** The error for a request that is wrong in itself. */
export function invalid(message: string): StorageError {
  return new StorageError("InvalidArgument", message);
}

/** A name that the caller chose. @throws {StorageError} `InvalidArgument`. */
export function requireName(value: string): string {
  if (value === "") throw invalid("name: missing");
  if ([...value].length > LONGEST_NAME) throw invalid(`name: longer than ${LONGEST_NAME} characters`);
  if (BANNED_IN_NAMES.test(value)) throw invalid("name: has a control character");
  return value;
}

/** The id of a volume that must exist. @throws {StorageError} `InvalidArgument` without one, `NotFound` for a foreign one. */
export function requireVolumeId(value: string): VolumeId {
  if (value === "") throw invalid("volume_id: missing");
  const id = parseVolumeId(value);
  if (id === undefined) throw new StorageError("NotFound", `volume_id ${quote(value)}: not an id of this driver`);
  return id;
}

/** The id of a volume to delete; `undefined` for a foreign one. @throws {StorageError} `InvalidArgument` without one. */
export function volumeIdToDelete(value: string): VolumeId | undefined {
  if (value === "") throw invalid("volume_id: missing");
  return parseVolumeId(value);
}

/** The id of a snapshot to delete; `undefined` for a foreign one. @throws {StorageError} `InvalidArgument` without one. */
export function snapshotIdToDelete(value: string): SnapshotId | undefined {
  if (value === "") throw invalid("snapshot_id: missing");
  return parseSnapshotId(value);
}

/** The id of a snapshot that must exist. @throws {StorageError} `InvalidArgument` without one, `NotFound` for a foreign one. */
export function requireSnapshotId(value: string): SnapshotId {
  const id = snapshotIdToDelete(value);
  if (id === undefined) throw new StorageError("NotFound", `snapshot_id ${quote(value)}: not an id of this driver`);
  return id;
}

/** An absolute path without surprises. @throws {StorageError} `InvalidArgument`. */
export function requirePath(field: string, value: string): string {
  if (value === "") throw invalid(`${field}: missing`);
  if (!value.startsWith("/")) throw invalid(`${field} ${quote(value)}: not an absolute path`);
  if (new TextEncoder().encode(value).length > LONGEST_PATH) {
    throw invalid(`${field}: longer than ${LONGEST_PATH} bytes`);
  }
  // deno-lint-ignore no-control-regex
  if (/[\u0000-\u001F\u007F]/.test(value)) throw invalid(`${field}: has a control character`);
  const elements = value.split("/").filter((element) => element !== "");
  if (elements.length === 0) throw invalid(`${field}: is the root directory`);
  if (elements.includes("..") || elements.includes(".")) {
    throw invalid(`${field} ${quote(value)}: has "." or ".." in it`);
  }
  return "/" + elements.join("/");
}

/** A path below one of the mount roots, where a volume may be staged or published. @throws {StorageError} `InvalidArgument`. */
export function requireMountPath(field: string, value: string, mountRoots: readonly string[]): string {
  const path = requirePath(field, value);
  if (isBelow(path, mountRoots)) return path;
  throw invalid(`${field} ${quote(value)}: not below one of --mount-roots, which are ${mountRoots.join(", ")}`);
}

/**
 * A volume that must exist, and a path at which it is said to be.
 *
 * @throws {StorageError} `InvalidArgument` without one of them, `NotFound` for a foreign id or a path at which no volume
 * can be.
 */
export function requireVolumeAt(volumeId: string, volumePath: string): { id: VolumeId; path: string } {
  if (volumePath === "") throw invalid("volume_path: missing");
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
export function sizeRange(range: CapacityRange | undefined, fallback: bigint): SizeRange {
  if (range === undefined) return { required: fallback };
  const { requiredBytes, limitBytes } = range;
  if (requiredBytes < 0n) throw invalid(`capacity_range.required_bytes: negative: ${requiredBytes}`);
  if (limitBytes < 0n) throw invalid(`capacity_range.limit_bytes: negative: ${limitBytes}`);
  if (requiredBytes === 0n && limitBytes === 0n) {
    throw invalid("capacity_range: neither required_bytes nor limit_bytes is set");
  }
  if (limitBytes === 0n) return { required: requiredBytes };
  if (limitBytes < requiredBytes) {
    throw new StorageError(
      "OutOfRange",
      `capacity_range: the limit of ${limitBytes} is below the required ${requiredBytes}`,
    );
  }
  const required = requiredBytes > 0n ? requiredBytes : fallback < limitBytes ? fallback : limitBytes;
  return { required, limit: limitBytes };
}

/** Text from outside for a message: quoted, and cut where it is long. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? text.slice(0, 80) + "…" : text);
}
