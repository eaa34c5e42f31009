/**
 * The protocol of lists of changed blocks: how another process, the controller of a cluster, asks the machine of a snapshot
 * for one, in a connection of its own.
 *
 * It begins as a transfer does ({@linkcode decodeRequest} of transfers): one request, as JSON with its length, and a head or
 * the reason of a refusal. Then come frames: the size of the snapshot, groups of ranges, and the end or a failure. A group
 * without ranges says that the list is still being made. Numbers are big-endian. Each frame has a limit, so that the reader
 * needs no more memory than for one, whatever it receives.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import {
  type Bytes,
  concatenate,
  decodeFrameHeader,
  decodeJson,
  encodeFailureJson,
  encodeFrameHeader,
  encodeJson,
  END,
  FAILURE,
  type FrameHeader,
  type FrameKind,
  MAX_BYTES,
  parseBytes,
  protocolError,
  requireVersion,
  VERSION,
} from "../transfers/protocol.ts";
import { ignoreStorageError, type StorageError } from "../../base/error.ts";
import { parseSnapshotId } from "../../base/ids.ts";
import type { Extent, ExtentList, ListRequest } from "./differences.ts";

/** The most ranges in a frame. */
export const MAX_EXTENTS = 4096;

/** The length of a range in a frame, in bytes. */
const EXTENT_BYTES = 16;

/** The length of the size of a snapshot in a frame, in bytes. What identifies the snapshots follows. */
const SIZE_BYTES = 8;

/** The maximum length of what identifies the snapshots of a list, in bytes. */
const MAX_IDENTITY_BYTES = 200;

/** A request of another process. */
export interface RemoteListRequest extends Omit<ListRequest, "signal"> {
  /** The driver's name. */
  readonly driver: string;
}

const FRAME_KINDS = {
  size: { type: 1, allows: (length) => length >= SIZE_BYTES && length <= SIZE_BYTES + MAX_IDENTITY_BYTES },
  extents: { type: 2, allows: (length) => length % EXTENT_BYTES === 0 && length <= EXTENT_BYTES * MAX_EXTENTS },
  end: END,
  failure: FAILURE,
} as const satisfies Record<string, FrameKind>;

/** Reports whether the JSON of a request asks for a list, and not for data. */
export function isListRequest(bytes: Uint8Array): boolean {
  return ignoreStorageError(() => decodeJson(bytes)["kind"]) === "list";
}

/** Encodes a request. */
export function encodeListRequest({ driver, target, base, from, groupSize }: RemoteListRequest): Bytes {
  return encodeJson({ version: VERSION, kind: "list", driver, target, base, from: `${from}`, groupSize });
}

/**
 * Decodes the JSON of a request.
 *
 * @throws {StorageError} `Unavailable`
 */
export function decodeListRequest(bytes: Uint8Array): RemoteListRequest {
  const { version, driver, target, base, from, groupSize } = decodeJson(bytes);
  requireVersion(version);
  const ids = [target, base].map((id) => typeof id === "string" ? parseSnapshotId(id) : undefined);
  if (ids[0] === undefined || (base !== undefined && ids[1] === undefined)) {
    throw protocolError("a list of no snapshot");
  }
  if (typeof driver !== "string") throw protocolError("a request of nobody");
  if (typeof groupSize !== "number" || !Number.isInteger(groupSize) || groupSize < 1 || groupSize > MAX_EXTENTS) {
    throw protocolError("a list of groups of no size");
  }
  return { driver, target: ids[0], ...defined({ base: ids[1] }), from: parseBytes(from, 1n), groupSize };
}

/** Encodes the head of an answer that is no refusal. */
export function encodeListHead(): Bytes {
  return encodeJson({ version: VERSION });
}

/** Encodes the frame with the size of the snapshot, in bytes, and what identifies the snapshots of the list. */
export function encodeSize({ size, identity }: Omit<ExtentList, "extents">): Bytes {
  const bytes = new Uint8Array(SIZE_BYTES);
  new DataView(bytes.buffer).setBigUint64(0, size);
  return frame("size", concatenate(bytes, new TextEncoder().encode(identity)));
}

/** Decodes what {@linkcode encodeSize} encodes. @throws {StorageError} `Unavailable` */
export function decodeSize(bytes: Uint8Array): Omit<ExtentList, "extents"> {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0);
  if (size <= 0n || size >= MAX_BYTES) throw protocolError(`a snapshot of ${size} bytes`);
  return { size, identity: new TextDecoder().decode(bytes.subarray(SIZE_BYTES)) };
}

/** Encodes a frame of ranges, none of which says that the list is being made. */
export function encodeExtents(extents: readonly Extent[]): Bytes {
  const bytes = new Uint8Array(EXTENT_BYTES * extents.length);
  const view = new DataView(bytes.buffer);
  for (const [index, { offset, length }] of extents.entries()) {
    view.setBigUint64(EXTENT_BYTES * index, offset);
    view.setBigUint64(EXTENT_BYTES * index + 8, length);
  }
  return frame("extents", bytes);
}

/**
 * Decodes ranges.
 *
 * @param after the end of the range before, in bytes
 * @param size the size of the snapshot, in bytes
 * @throws {StorageError} `Unavailable` when they are not in order, or not in the snapshot
 */
export function decodeExtents(bytes: Uint8Array, { after, size }: { after: bigint; size: bigint }): Extent[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  let end = after;
  return Array.from({ length: bytes.length / EXTENT_BYTES }, (_, index) => {
    const [offset, length] = [0, 8].map((at) => view.getBigUint64(EXTENT_BYTES * index + at)) as [bigint, bigint];
    if (offset < end || length === 0n || offset + length > size) throw protocolError("a range that cannot be");
    end = offset + length;
    return { offset, length };
  });
}

/** Encodes the end of a list. */
export function encodeListEnd(): Bytes {
  return frame("end", new Uint8Array(0));
}

/** Encodes a failure after the head. */
export function encodeListFailure(error: StorageError): Bytes {
  return frame("failure", encodeFailureJson(error));
}

function frame(kind: keyof typeof FRAME_KINDS, bytes: Uint8Array): Bytes {
  return concatenate(encodeFrameHeader(FRAME_KINDS[kind], bytes.length), bytes);
}

/** Decodes the header of a frame. @throws {StorageError} `Unavailable` for one with a length that it must not have */
export function decodeListHeader(bytes: Uint8Array): FrameHeader<keyof typeof FRAME_KINDS> {
  return decodeFrameHeader(FRAME_KINDS, bytes);
}
