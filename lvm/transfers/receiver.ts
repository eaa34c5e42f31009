/**
 * Requests a range of a snapshot from another agent, writes it to a device, and reads it back.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Exec } from "../exec.ts";
import type { Bandwidth } from "./bandwidth.ts";
import { isZeros, RUN_BYTES } from "./blocks.ts";
import { type Connection, readAll, readJson } from "./connection.ts";
import { readRange, writeRange } from "./device_streams.ts";
import { digestOf, isSameDigest, RangeDigest } from "./digest.ts";
import {
  type Bytes,
  decodeFailure,
  decodeHead,
  decodeHeader,
  DIGEST_BYTES,
  encodeRequest,
  type FrameHeader,
  HEADER_BYTES,
  MAX_DATA_BYTES,
  MAX_JSON_BYTES,
  protocolError,
  type TransferHead,
  type TransferRequest,
} from "./protocol.ts";

/** The device that is filled. */
export interface DestinationDevice {
  /** The path of its node. */
  readonly path: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** Whether blocks that were never written read as zeros, so that zeros need not be written. */
  readonly skipsZeros: boolean;
}

/** Options of {@linkcode receiveRange}. */
export interface ReceiverOptions {
  /** Runs commands. */
  readonly exec: Exec;
  /** Bounds what is received. */
  readonly bandwidth: Bandwidth;
  /** The device that is filled. */
  readonly destination: DestinationDevice;
  /** Called after bytes of data were received. */
  readonly onReceived?: (bytes: number) => void;
}

/** A run of bytes, and what they must be. */
interface ExpectedRun {
  readonly length: number;
  /** The digest of data; absent for zeros. */
  readonly digest?: Bytes;
}

/** The outcome of a request. */
export interface ReceivedRange extends TransferHead {
  /** The offset up to which the device has the data of the snapshot. */
  readonly end: bigint;
}

const ZEROS = new Uint8Array(MAX_DATA_BYTES);

/**
 * Fills a range of a device with that of a snapshot, and closes the connection. Only what has its digest is written, and
 * afterwards the whole range is read from the device and compared with the digests.
 *
 * @throws {StorageError} the reason of a refusal; `OutOfRange` for a snapshot larger than the device; `CommandFailed` for
 * data without its digest; `Unavailable` when the connection breaks; those of the commands
 */
export async function receiveRange(
  connection: Connection,
  request: TransferRequest,
  options: ReceiverOptions,
): Promise<ReceivedRange> {
  const { exec, destination } = options;
  const { path, skipsZeros } = destination;
  const runs: ExpectedRun[] = [];
  let head: TransferHead;
  try {
    await connection.write(encodeRequest(request));
    head = decodeHead(await readJson(connection));
    if (head.size > destination.size) {
      const sizes = `the source has ${head.size} bytes, the new volume only ${destination.size}`;
      throw new StorageError("OutOfRange", `filling ${path}: ${sizes}`);
    }
    await writeRange(exec, path, request, receiveBlocks({ connection, request, head, runs }, options), { skipsZeros });
  } finally {
    connection.close();
  }
  const { offset } = request;
  const length = lengthOf(request, head);
  if (length > 0) {
    const check = new ReadBack(path, runs);
    await readRange(exec, path, { offset, length: BigInt(length) }, (part) => check.add(part));
    check.end();
  }
  return { ...head, end: offset + BigInt(length) };
}

/** Returns how many bytes of a snapshot a request is for. */
function lengthOf({ offset, length }: TransferRequest, { size }: TransferHead): number {
  const rest = size > offset ? size - offset : 0n;
  return Number(rest < length ? rest : length);
}

/** Yields the bytes of a range. Records which digests they had. */
async function* receiveBlocks(
  { connection, request, head, runs }: {
    readonly connection: Connection;
    readonly request: TransferRequest;
    readonly head: TransferHead;
    readonly runs: ExpectedRun[];
  },
  { bandwidth, onReceived = () => {} }: ReceiverOptions,
): AsyncGenerator<Bytes, void, undefined> {
  const digest = new RangeDigest(request, head);
  const [headerBuffer, data] = [new Uint8Array(HEADER_BYTES), new Uint8Array(MAX_DATA_BYTES)];
  const readDigest = () => readAll(connection, new Uint8Array(DIGEST_BYTES));
  let left = lengthOf(request, head);
  let partsLeft = Math.ceil(left / RUN_BYTES); // each is remembered until it was read back
  for (;;) {
    const header = decodeHeader(await readAll(connection, headerBuffer));
    if (header.kind === "failure") throw await readFailure(connection, header);
    if (header.kind === "end") {
      if (left > 0) throw protocolError(`the end, with ${left} bytes missing`);
      if (isSameDigest(await readDigest(), await digest.end())) return;
      throw digestError("the range", request);
    }
    left -= header.length;
    if (left < 0) throw protocolError("more than was requested");
    if (--partsLeft < 0) throw protocolError("the range in too many parts");
    if (header.kind === "zeros") {
      digest.addZeros(header.length);
      runs.push({ length: header.length });
      for (let rest = header.length; rest > 0; rest -= ZEROS.length) yield ZEROS.subarray(0, rest);
      continue;
    }
    await bandwidth.take(header.length);
    const expected = await readDigest();
    const bytes = await readAll(connection, data.subarray(0, header.length));
    if (!isSameDigest(await digestOf(bytes), expected)) throw digestError(`${header.length} bytes`, request);
    digest.addData(header.length, expected);
    runs.push({ length: header.length, digest: expected });
    onReceived(header.length);
    yield bytes;
  }
}

async function readFailure(
  connection: Connection,
  { length }: Extract<FrameHeader, { kind: "failure" }>,
): Promise<StorageError> {
  return decodeFailure(await readAll(connection, new Uint8Array(MAX_JSON_BYTES).subarray(0, length)));
}

function digestError(what: string, { snapshot, offset }: TransferRequest): StorageError {
  return new StorageError(
    "CommandFailed",
    `reading snapshot ${snapshot} from byte ${offset}: ${what} came without the right digest`,
  );
}

/** Compares what is read from a device with what was written to it. */
class ReadBack {
  readonly #path: string;
  readonly #runs: readonly ExpectedRun[];
  readonly #buffer = new Uint8Array(MAX_DATA_BYTES);
  #run = 0;
  /** The bytes of the run that were read. */
  #length = 0;

  constructor(path: string, runs: readonly ExpectedRun[]) {
    this.#path = path;
    this.#runs = runs;
  }

  /** Compares a part. What follows the range, up to the end of a block, is not compared. */
  async add(part: Bytes): Promise<void> {
    for (let at = 0; at < part.length && this.#run < this.#runs.length;) {
      const { length, digest } = this.#runs[this.#run]!;
      const bytes = part.subarray(at, at + length - this.#length);
      if (digest !== undefined) this.#buffer.set(bytes, this.#length);
      else if (!isZeros(bytes)) throw this.#error();
      at += bytes.length;
      this.#length += bytes.length;
      if (this.#length < length) return;
      if (digest !== undefined && !isSameDigest(await digestOf(this.#buffer.subarray(0, length)), digest)) {
        throw this.#error();
      }
      this.#run++;
      this.#length = 0;
    }
  }

  /** Requires that all of it was read. */
  end(): void {
    if (this.#run < this.#runs.length) throw this.#error();
  }

  #error(): StorageError {
    return new StorageError("CommandFailed", `reading ${this.#path} back: it has not what was written to it`);
  }
}
