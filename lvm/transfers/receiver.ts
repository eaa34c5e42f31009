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
  type Range,
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

/** What is written by one command, in bytes. It is read back while the next is received. */
const SEGMENT_BYTES = 16 * MAX_DATA_BYTES;

/**
 * Fills a range of a device with that of a snapshot, and closes the connection. Only what has its digest is written, and
 * afterwards all of it is read from the device and compared with the digests.
 *
 * @throws {StorageError} the reason of a refusal; `OutOfRange` for a snapshot larger than the device; `CommandFailed` for
 * data without its digest; `Unavailable` when the connection breaks; those of the commands
 */
export async function receiveRange(
  connection: Connection,
  request: TransferRequest,
  options: ReceiverOptions,
): Promise<ReceivedRange> {
  const { exec, destination: { path, size, skipsZeros } } = options;
  let check = Promise.resolve();
  try {
    await connection.write(encodeRequest(request));
    const head = decodeHead(await readJson(connection));
    if (head.size > size) {
      const sizes = `the source has ${head.size} bytes, the new volume only ${size}`;
      throw new StorageError("OutOfRange", `filling ${path}: ${sizes}`);
    }
    const range = new ReceivedParts({ connection, request, head }, options);
    const end = request.offset + BigInt(range.left);
    for (let offset = request.offset; !range.isOver; offset += BigInt(SEGMENT_BYTES)) {
      const segment = { offset, length: BigInt(Math.min(SEGMENT_BYTES, range.left)) };
      const runs: ExpectedRun[] = [];
      await writeRange(exec, path, segment, range.receive(Number(segment.length), runs), { skipsZeros });
      await check; // no more than one at a time
      check = readBack(exec, path, segment, runs);
      check.catch(() => {}); // thrown where it is waited for
    }
    await check;
    return { ...head, end };
  } finally {
    connection.close();
    await check.catch(() => {}); // nothing reads the device any more
  }
}

/** Requires that a device has what was written to it. */
async function readBack(exec: Exec, path: string, range: Range, runs: readonly ExpectedRun[]): Promise<void> {
  if (range.length === 0n) return;
  const check = new ReadBack(path, runs);
  await readRange(exec, path, range, (part) => check.add(part));
  check.end();
}

/** Returns how many bytes of a snapshot a request is for. */
function lengthOf({ offset, length }: TransferRequest, { size }: TransferHead): number {
  const rest = size > offset ? size - offset : 0n;
  return Number(rest < length ? rest : length);
}

/** The parts of a range, as they come. */
class ReceivedParts {
  readonly #connection: Connection;
  readonly #request: TransferRequest;
  readonly #options: ReceiverOptions;
  readonly #digest: RangeDigest;
  readonly #header = new Uint8Array(HEADER_BYTES);
  readonly #data = new Uint8Array(MAX_DATA_BYTES);
  /** The number of parts that may still come: each is remembered until it was read back. */
  #partsLeft: number;
  /** Zeros that have come, and belong to what follows. */
  #zeros = 0;

  /** The bytes that have not been received yet. */
  left: number;
  /** Whether all of it has been received, with its digest. */
  isOver = false;

  constructor(
    { connection, request, head }: {
      readonly connection: Connection;
      readonly request: TransferRequest;
      readonly head: TransferHead;
    },
    options: ReceiverOptions,
  ) {
    this.#connection = connection;
    this.#request = request;
    this.#options = options;
    this.#digest = new RangeDigest(request, head);
    this.left = lengthOf(request, head);
    this.#partsLeft = Math.ceil(this.left / RUN_BYTES);
  }

  /** Yields so many bytes of a range, the last ones with the end. Records which digests they had. */
  async *receive(length: number, runs: ExpectedRun[]): AsyncGenerator<Bytes, void, undefined> {
    for (let missing = length; missing > 0;) {
      const part = this.#zeros > 0 ? { length: this.#zeros } : await this.#next();
      const taken = Math.min(part.length, missing);
      if (part.bytes === undefined) this.#zeros = part.length - taken;
      else if (taken < part.length) throw protocolError("data across the end of a segment");
      runs.push({ length: taken, ...(part.digest && { digest: part.digest }) });
      missing -= taken;
      this.left -= taken;
      if (part.bytes !== undefined) yield part.bytes;
      else for (let rest = taken; rest > 0; rest -= ZEROS.length) yield ZEROS.subarray(0, rest);
    }
    if (this.left > 0) return;
    await this.#end();
    this.isOver = true;
  }

  /** Reads the next part. Its bytes are overwritten by the one after it; zeros have none. */
  async #next(): Promise<{ readonly length: number; readonly bytes?: Bytes; readonly digest?: Bytes }> {
    const { bandwidth, onReceived = () => {} } = this.#options;
    const header = await this.#readHeader();
    if (header.kind === "end") throw protocolError(`the end, with ${this.left} bytes missing`);
    const { length } = header;
    if (length > this.left) throw protocolError("more than was requested");
    if (--this.#partsLeft < 0) throw protocolError("the range in too many parts");
    if (header.kind === "zeros") {
      this.#digest.addZeros(length);
      return { length };
    }
    await bandwidth.take(length);
    const digest = await this.#readDigest();
    const bytes = await readAll(this.#connection, this.#data.subarray(0, length));
    if (!isSameDigest(await digestOf(bytes), digest)) throw this.#digestError(`${length} bytes`);
    this.#digest.addData(length, digest);
    onReceived(length);
    return { length, bytes, digest };
  }

  async #end(): Promise<void> {
    const { kind } = await this.#readHeader();
    if (kind !== "end") throw protocolError("more than was requested");
    if (!isSameDigest(await this.#readDigest(), await this.#digest.end())) throw this.#digestError("the range");
  }

  /** Reads a header. @throws {StorageError} the failure of the other end */
  async #readHeader(): Promise<Exclude<FrameHeader, { kind: "failure" }>> {
    const header = decodeHeader(await readAll(this.#connection, this.#header));
    if (header.kind === "failure") throw await readFailure(this.#connection, header);
    return header;
  }

  async #readDigest(): Promise<Bytes> {
    return await readAll(this.#connection, new Uint8Array(DIGEST_BYTES));
  }

  #digestError(what: string): StorageError {
    const { snapshot, offset } = this.#request;
    return new StorageError(
      "CommandFailed",
      `reading snapshot ${snapshot} from byte ${offset}: ${what} came without the right digest`,
    );
  }
}

async function readFailure(
  connection: Connection,
  { length }: Extract<FrameHeader, { kind: "failure" }>,
): Promise<StorageError> {
  return decodeFailure(await readAll(connection, new Uint8Array(MAX_JSON_BYTES).subarray(0, length)));
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
