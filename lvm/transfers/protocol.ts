/**
 * The protocol by which one agent reads a range of a snapshot of another one, in a connection of its own.
 *
 * The reader sends one request: a length in four bytes, and JSON. The answer begins with a head in the same form, with the
 * size of the snapshot, or with the reason of a refusal. Then come frames: data with its digest, the number of zeros that
 * are left out, the end with the digest of the range, or a failure. Numbers are big-endian. Each part has a limit, and a
 * whole number of runs of 64 KiB up to the end of the range. So the reader needs no more memory than for two
 * frames and the digests of what one command writes, whatever it receives.
 *
 * A reader that has the data of an older snapshot of the volume names it as the base. What is the same in both is left out
 * then, and the sender may end before the end of the range.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import {
  ERROR_KINDS,
  type ErrorKind,
  firstReason,
  quote,
  type Reason,
  StorageError,
  truncate,
} from "../../base/error.ts";
import { parseSnapshotId, parseVolumeId, type SnapshotId, type VolumeId } from "../../base/ids.ts";

/** The version of the protocol. Another one is refused. */
export const VERSION = 1;

/** The maximum length of the JSON of a request, a head or a failure, in bytes. */
export const MAX_JSON_BYTES = 4096;

/** The maximum length of the data of a frame, in bytes. */
export const MAX_DATA_BYTES = 4 << 20;

/** The length of a digest, SHA-256, in bytes. */
export const DIGEST_BYTES = 32;

/** The maximum length of a header of a frame, in bytes. */
export const HEADER_BYTES = 5;

/** The unit of sizes, and of the data of a frame, in bytes: the smallest block of a device. */
const UNIT = 512n;

/** The unit of the offset and the length of a range for which a base is named, in bytes, and of what differs. */
export const DIFFERENCE_UNIT: bigint = 64n << 10n;

/** The most that one frame leaves out because it is the same, in bytes. */
export const MAX_SAME_BYTES: bigint = 1n << 31n;

/** The unit of the offset and the length of a range, in bytes. */
export const RANGE_UNIT: bigint = BigInt(MAX_DATA_BYTES);

/** The maximum number of a byte offset: the size of the largest LV. */
export const MAX_BYTES: bigint = 1n << 63n;

/** The maximum length of the message of a refusal or a failure, in characters, each of which may take six bytes in JSON. */
const MAX_MESSAGE_LENGTH = 600;

/** A range of a device, in bytes. */
export interface Range {
  /** The offset of its first byte. */
  readonly offset: bigint;
  /** Its length. */
  readonly length: bigint;
}

/** A snapshot whose data a reader has. */
export interface KnownSnapshot {
  /** Its id. */
  readonly id: SnapshotId;
  /** The UUID of its LV: another snapshot of the same id has other data. */
  readonly uuid: string;
}

/** What a reader requests. The range ends at the end of the snapshot if it reaches further. */
export interface TransferRequest extends Range {
  /** The driver's name. */
  readonly driver: string;
  /** The node that requests it. */
  readonly node: string;
  /** The snapshot to read. */
  readonly snapshot: SnapshotId;
  /** The volume that is filled from it. */
  readonly volume: VolumeId;
  /** The older snapshot whose data the reader has; absent to read all of the range. */
  readonly base?: KnownSnapshot;
}

/** The answer to a request that is not refused. */
export interface TransferHead {
  /** The size of the snapshot, in bytes. */
  readonly size: bigint;
  /** The UUID of its LV; absent for an agent that does not say it. */
  readonly uuid?: string;
}

/** A kind of frames. */
export interface FrameKind {
  /** The number that stands for it. */
  readonly type: number;
  /** Reports whether a frame may have a length. */
  readonly allows: (length: number) => boolean;
}

function isBlocks(length: number): boolean {
  return length > 0 && length % Number(UNIT) === 0;
}

/** The frame that ends an answer; what follows it in an answer with a range is the digest of that. */
export const END: FrameKind = { type: 3, allows: (length) => length === 0 };

/** A failure of the sender: its JSON follows. */
export const FAILURE: FrameKind = { type: 4, allows: (length) => length > 0 && length <= MAX_JSON_BYTES };

const FRAME_KINDS = {
  /** Data: its digest follows, and then the data. */
  data: { type: 1, allows: (length) => isBlocks(length) && length <= MAX_DATA_BYTES },
  /** Zeros, which are left out. */
  zeros: { type: 2, allows: isBlocks },
  /** What is the same as in the base; of length 0 while the sender only looks for what differs. */
  same: { type: 5, allows: (length) => length === 0 || isBlocks(length) },
  end: END,
  failure: FAILURE,
} as const satisfies Record<string, FrameKind>;

/** The header of a frame. */
export interface FrameHeader<Kind extends string = keyof typeof FRAME_KINDS> {
  /** What follows. */
  readonly kind: Kind;
  /** Its length in bytes; that of zeros, or of what is the same, though it is left out. */
  readonly length: number;
}

/** Encodes a request. */
export function encodeRequest({ driver, node, snapshot, volume, offset, length, base }: TransferRequest): Bytes {
  const range = { offset: `${offset}`, length: `${length}` };
  return encodeJson({ version: VERSION, driver, node, snapshot, volume, ...range, ...defined({ base }) });
}

/**
 * Decodes the JSON of a request.
 *
 * @throws {StorageError} `Unavailable`
 */
export function decodeRequest(bytes: Uint8Array): TransferRequest {
  const { driver, node, snapshot, volume, offset, length, base: known, version } = decodeJson(bytes);
  requireVersion(version);
  const ids = {
    snapshot: typeof snapshot === "string" ? parseSnapshotId(snapshot) : undefined,
    volume: typeof volume === "string" ? parseVolumeId(volume) : undefined,
  };
  if (ids.snapshot === undefined || ids.volume === undefined) throw protocolError("a request without ids");
  if (typeof driver !== "string" || typeof node !== "string") throw protocolError("a request of nobody");
  const base = defined({ base: known === undefined ? undefined : parseBase(known) });
  const unit = unitOf(base);
  const range = { offset: parseBytes(offset, unit), length: parseBytes(length, unit) };
  if (range.length === 0n) throw protocolError("a request for nothing");
  return { driver, node, snapshot: ids.snapshot, volume: ids.volume, ...range, ...base };
}

/** Returns the unit of the range of a request, in bytes, in which the devices are read and written. */
export function unitOf({ base }: Pick<TransferRequest, "base">): bigint {
  return base === undefined ? RANGE_UNIT : DIFFERENCE_UNIT;
}

/** Encodes the head of an answer. */
export function encodeHead({ size, uuid }: TransferHead): Bytes {
  return encodeJson({ version: VERSION, size: `${size}`, ...defined({ uuid }) });
}

/** Encodes a refusal, in place of a head. */
export function encodeRefusal(error: StorageError): Bytes {
  return encodeJson({ version: VERSION, error: failureOf(error) });
}

/**
 * Decodes the JSON of a head or a refusal.
 *
 * @throws {StorageError} the reason of a refusal; `Unavailable` for what is neither
 */
export function decodeHead(bytes: Uint8Array): TransferHead {
  const { size: bytesText, uuid } = decodeHeadJson(bytes);
  const size = parseBytes(bytesText, UNIT);
  if (size === 0n) throw protocolError("a snapshot without a size");
  return { size, ...defined({ uuid: uuid === undefined ? undefined : parseUuid(uuid) }) };
}

/**
 * Decodes the JSON of any head or a refusal.
 *
 * @returns its fields
 * @throws {StorageError} the reason of a refusal; `Unavailable` for what is neither
 */
export function decodeHeadJson(bytes: Uint8Array): Record<string, unknown> {
  const fields = decodeJson(bytes);
  requireVersion(fields["version"]);
  if (fields["error"] !== undefined) throw parseFailure(fields["error"]);
  return fields;
}

/** Encodes the JSON of a failure of the sender. */
export function encodeFailureJson(error: StorageError): Bytes {
  return new TextEncoder().encode(JSON.stringify(failureOf(error)));
}

/** Encodes a failure of the sender, with its header. */
export function encodeFailure(error: StorageError): Bytes {
  const json = encodeFailureJson(error);
  const header = encodeHeader({ kind: "failure", length: json.length });
  return concatenate(header, json);
}

/** Decodes the JSON of a failure. */
export function decodeFailure(bytes: Uint8Array): StorageError {
  try {
    return parseFailure(decodeJson(bytes));
  } catch (error) {
    return error as StorageError;
  }
}

/** Encodes the header of a frame: the number of its kind, and its length. */
export function encodeFrameHeader({ type }: FrameKind, length: number): Bytes {
  const bytes = new Uint8Array(HEADER_BYTES);
  bytes[0] = type;
  new DataView(bytes.buffer).setUint32(1, length);
  return bytes;
}

/** Encodes the header of a frame of an answer with a range. */
export function encodeHeader({ kind, length = 0 }: Pick<FrameHeader, "kind"> & { readonly length?: number }): Bytes {
  return encodeFrameHeader(FRAME_KINDS[kind], length);
}

/**
 * Decodes the header of a frame.
 *
 * @throws {StorageError} `Unavailable` for an unknown one, or one with a length that it must not have
 */
export function decodeFrameHeader<Kind extends string>(
  kinds: Readonly<Record<Kind, FrameKind>>,
  bytes: Uint8Array,
): FrameHeader<Kind> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  const type = view.getUint8(0);
  const length = view.getUint32(1);
  const kind = (Object.keys(kinds) as Kind[]).find((kind) => kinds[kind].type === type);
  if (kind !== undefined && kinds[kind].allows(length)) return { kind, length };
  throw protocolError(`a frame of type ${type} and length ${length}`);
}

/** Decodes the header of a frame of an answer with a range. @throws {StorageError} as {@linkcode decodeFrameHeader} */
export function decodeHeader(bytes: Uint8Array): FrameHeader {
  return decodeFrameHeader(FRAME_KINDS, bytes);
}

/** Decodes the length of the JSON that follows. @throws {StorageError} `Unavailable` for none, or too much */
export function decodeLength(bytes: Uint8Array): number {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0);
  if (length > 0 && length <= MAX_JSON_BYTES) return length;
  throw protocolError(`a message of ${length} bytes`);
}

/** Returns the error for what breaks the protocol: another version may, until both agents are updated. @param what what was received */
export function protocolError(what: string): StorageError {
  return new StorageError("Unavailable", `reading from another agent: ${what}`);
}

/** Bytes that may be written to a stream. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Joins parts. */
export function concatenate(...parts: readonly Uint8Array[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Encodes JSON, after its length. */
export function encodeJson(value: unknown): Bytes {
  const json = new TextEncoder().encode(JSON.stringify(value));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, json.length);
  return concatenate(length, json);
}

/** Decodes JSON without its length. @throws {StorageError} `Unavailable` for what is no object */
export function decodeJson(bytes: Uint8Array): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw protocolError("a message that is no JSON");
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw protocolError("a message that is no object");
}

/** Requires this version of the protocol. @throws {StorageError} `Unavailable` */
export function requireVersion(version: unknown): void {
  if (version === VERSION) return;
  const other = quote(JSON.stringify(version) ?? "nothing");
  throw protocolError(`version ${other} of the protocol, and this agent has version ${VERSION}`);
}

/** Parses a number of bytes. @param unit what it is a multiple of @throws {StorageError} `Unavailable` */
export function parseBytes(value: unknown, unit: bigint): bigint {
  if (typeof value === "string" && /^(?:0|[1-9]\d{0,18})$/.test(value)) {
    const bytes = BigInt(value);
    if (bytes < MAX_BYTES && bytes % unit === 0n) return bytes;
  }
  throw protocolError("a number that is no number of blocks");
}

function parseBase(value: unknown): KnownSnapshot {
  const { id, uuid } = typeof value === "object" && value !== null ? value as Record<string, unknown> : {};
  const parsed = typeof id === "string" ? parseSnapshotId(id) : undefined;
  if (parsed === undefined) throw protocolError("a base without an id");
  return { id: parsed, uuid: parseUuid(uuid) };
}

/** Parses the UUID of an LV: letters, digits and hyphens. */
function parseUuid(value: unknown): string {
  if (typeof value === "string" && /^[A-Za-z0-9-]{1,64}$/.test(value)) return value;
  throw protocolError("an invalid UUID");
}

function failureOf({ kind, reason, message }: StorageError): { code: ErrorKind; reason: Reason; message: string } {
  return { code: kind, reason, message: truncate(message, MAX_MESSAGE_LENGTH) };
}

/** The kinds of failures that are about objects of this machine: what another one says of its own is none of them. */
const OWN_KINDS: readonly ErrorKind[] = ["AlreadyExists", "Lost", "ForeignData", "NoSpace", "Unauthenticated"];

/**
 * Returns the error of a failure. One of a kind that only a newer agent knows may pass by itself. Its text gets into statuses,
 * events and logs: it has no character that a terminal acts on.
 */
function parseFailure(value: unknown): StorageError {
  const failure = typeof value === "object" && value !== null ? value as Record<string, unknown> : {};
  const { code, reason, message } = failure;
  if (typeof message !== "string") throw protocolError("a failure without a message");
  const kind = ERROR_KINDS.find((known) => known === code) ?? "CommandFailed";
  const text = truncate(message, MAX_MESSAGE_LENGTH).replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ");
  if (OWN_KINDS.includes(kind)) return new StorageError("FailedPrecondition", text);
  return new StorageError(kind, text, { reason: firstReason([reason as Reason]) });
}
