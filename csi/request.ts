/**
 * Parses the fields of requests, so that no wire type passes further in.
 *
 * Invalid input is refused here with the code that the spec names. What is returned is safe in a command line: ids are
 * ours, paths are absolute and normalized, and sizes are positive.
 *
 * @module
 */

import { parseSnapshotId, parseVolumeId, type SnapshotId, type VolumeId } from "../base/ids.ts";
import { unknownToken } from "./status.ts";
import { quote, type Reason, StorageError } from "../base/error.ts";
import { isBelow } from "../lvm/host/mounts.ts";
import type { SizeRange } from "../base/size.ts";
import type { CapacityRange } from "./proto/csi_pb.ts";

/** Characters that names must not contain (CSI spec, CreateVolumeRequest.name). */
// deno-lint-ignore no-control-regex
const FORBIDDEN_IN_NAMES = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/;

/** Maximum length of a name, in characters; the spec requires at least 128 bytes. */
const MAX_NAME_LENGTH = 128;

/** Maximum length of a path on Linux, and of one name in it, in bytes (path_resolution(7)). */
const MAX_PATH_BYTES = 4096;
const MAX_FILE_NAME_BYTES = 255;

/** Creates the error for an invalid request. */
export function invalidArgument(message: string, reason?: Reason): StorageError {
  return new StorageError("InvalidArgument", message, { reason });
}

/** Creates the error for an invalid parameter of a class. */
export function wrongParameter(message: string): StorageError {
  return invalidArgument(message, "WrongParameter");
}

/** Returns the name of a request. @throws {StorageError} `InvalidArgument` for an invalid one */
export function requireName(value: string): string {
  if (value === "") throw invalidArgument("name: missing");
  if ([...value].length > MAX_NAME_LENGTH) throw invalidArgument(`name: longer than ${MAX_NAME_LENGTH} characters`);
  if (FORBIDDEN_IN_NAMES.test(value)) throw invalidArgument("name: has a control character");
  return value;
}

/**
 * Parses the id of what is to be deleted.
 *
 * @param field the name of the field, for messages
 * @returns `undefined` for an id of another driver
 * @throws {StorageError} `InvalidArgument` if missing
 */
export function parseIdToDelete<Id>(
  field: string,
  value: string,
  parse: (text: string) => Id | undefined,
): Id | undefined {
  if (value === "") throw invalidArgument(`${field}: missing`);
  return parse(value);
}

/** Parses an id. @throws {StorageError} `InvalidArgument` if missing, `NotFound` for an id of another driver */
export function requireId<Id>(field: string, value: string, parse: (text: string) => Id | undefined): Id {
  const id = parseIdToDelete(field, value, parse);
  if (id === undefined) throw new StorageError("NotFound", `${field} ${quote(value)}: not an id of this driver`);
  return id;
}

/** Parses the id of a volume, as {@linkcode requireId} does. */
export function requireVolumeId(value: string, field = "volume_id"): VolumeId {
  return requireId(field, value, parseVolumeId);
}

/** Parses the id of a snapshot, as {@linkcode requireId} does. */
export function requireSnapshotId(value: string, field = "snapshot_id"): SnapshotId {
  return requireId(field, value, parseSnapshotId);
}

/**
 * Returns a path in normalized form.
 *
 * @param field the name of the field, for messages
 * @throws {StorageError} `InvalidArgument` for a relative path, the root directory, dots, control characters
 * or names that no file can have
 */
export function requirePath(field: string, value: string): string {
  if (value === "") throw invalidArgument(`${field}: missing`);
  if (!value.startsWith("/")) throw invalidArgument(`${field} ${quote(value)}: not an absolute path`);
  const byteLength = (text: string) => new TextEncoder().encode(text).length;
  if (byteLength(value) > MAX_PATH_BYTES) {
    throw invalidArgument(`${field} ${quote(value)}: longer than ${MAX_PATH_BYTES} bytes`);
  }
  // deno-lint-ignore no-control-regex
  if (/[\u0000-\u001F\u007F]/.test(value)) throw invalidArgument(`${field} ${quote(value)}: has a control character`);
  const elements = value.split("/").filter((element) => element !== "");
  if (elements.length === 0) throw invalidArgument(`${field} ${quote(value)}: is the root directory`);
  if (elements.includes("..") || elements.includes(".")) {
    throw invalidArgument(`${field} ${quote(value)}: has "." or ".." in it`);
  }
  if (elements.some((element) => byteLength(element) > MAX_FILE_NAME_BYTES)) {
    throw invalidArgument(`${field} ${quote(value)}: has a name of more than ${MAX_FILE_NAME_BYTES} bytes`);
  }
  return "/" + elements.join("/");
}

/** Returns a path to stage or publish at. @throws {StorageError} `InvalidArgument` if it is not below a mount root */
export function requireMountPath(field: string, value: string, mountRoots: readonly string[]): string {
  const path = requirePath(field, value);
  if (isBelow(path, mountRoots)) return path;
  throw invalidArgument(`${field} ${quote(value)}: not below one of --mount-roots, which are ${mountRoots.join(", ")}`);
}

/**
 * Parses the id of a volume and a path of it.
 *
 * @throws {StorageError} `InvalidArgument` if one of them is missing, `NotFound` for a foreign id or an invalid path
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
 * Parses the size that a request asks for. For a limit alone, the required size is the default, or half of the limit.
 *
 * @param defaultBytes the size in bytes if the range is missing
 * @throws {StorageError} `InvalidArgument` for a negative number or an empty range, `OutOfRange` for a limit below the
 * required size (CSI spec, CapacityRange, and "Unsupported capacity_range" of the error tables)
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
  if (requiredBytes > 0n) return { required: requiredBytes, limit: limitBytes };
  // From half of the limit to the limit there is a multiple of every extent size that is not above the limit.
  const half = (limitBytes + 1n) / 2n;
  return { required: defaultBytes < half ? defaultBytes : half, limit: limitBytes };
}

/**
 * Returns a page of items, and the token of the next page, which is empty after the last one. A token names the last item of
 * the previous page, so it stays valid when items are added or removed.
 *
 * @param items all items, in the order of their keys
 * @param key returns the key of an item, which is an id
 * @param startingToken the token of the page; empty for the first one
 * @param maxEntries the maximum number of items; 0 for all
 * @throws {StorageError} `InvalidArgument` for a negative number
 * @throws {StatusError} ABORTED for a token of another driver
 */
export function paginate<T>(
  items: readonly T[],
  key: (item: T) => string,
  startingToken: string,
  maxEntries: number,
): { items: readonly T[]; nextToken: string } {
  if (maxEntries < 0) throw invalidArgument(`max_entries: negative: ${maxEntries}`);
  if (startingToken !== "" && parseVolumeId(startingToken) === undefined) throw unknownToken(startingToken);
  const remaining = items.filter((item) => key(item) > startingToken);
  const pageItems = maxEntries === 0 ? remaining : remaining.slice(0, maxEntries);
  const last = pageItems.at(-1);
  return { items: pageItems, nextToken: last === undefined || pageItems.length === remaining.length ? "" : key(last) };
}
