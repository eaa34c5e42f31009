/**
 * Requests a range of a snapshot from another agent, writes it to a device, and reads it back.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { max, min } from "../../base/size.ts";
import type { Clock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { isZeros, RUN_BYTES } from "./blocks.ts";
import { type Bandwidth, type Connection, PulseLimit, readAll, readJson } from "./connection.ts";
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
  unitOf,
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
  /** Time. */
  readonly clock?: Clock | undefined;
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
  /** The bytes of data that were received. */
  readonly received: number;
}

/** A part that has come. */
interface ReceivedPart extends ExpectedRun {
  /** Its data; absent for zeros. */
  readonly bytes?: Bytes;
}

const ZEROS = new Uint8Array(MAX_DATA_BYTES);

/** What is written by one command, in bytes. It is read back while the next is received. */
const SEGMENT_BYTES = 16 * MAX_DATA_BYTES;

/**
 * Fills a range of a device with that of a snapshot, and closes the connection. Only what has its digest is written, and
 * afterwards all of it is read from the device and compared with the digests. With a base, whose data the device must have,
 * only what differs from it is written; it may end before the range does.
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
    const head = decodeHead(await readJson(connection, options.clock));
    if (head.size > size) {
      const sizes = `the source has ${head.size} bytes, the new volume only ${size}`;
      throw new StorageError("OutOfRange", `filling ${path}: ${sizes}`);
    }
    const range = new ReceivedParts({ connection, request, head }, options);
    const unit = unitOf(request);
    const writing = { skipsZeros: skipsZeros && request.base === undefined, unit };
    let offset = request.offset;
    for (;;) {
      offset += BigInt(await range.skip());
      if (range.isOver) break;
      const runs: ExpectedRun[] = [];
      await writeRange(exec, path, { offset }, range.receive(Math.min(SEGMENT_BYTES, range.left), runs), writing);
      await check; // no more than one at a time
      const segment = { offset, length: BigInt(runs.reduce((sum, { length }) => sum + length, 0)) };
      check = readBack(exec, path, segment, { runs, unit });
      check.catch(() => {}); // thrown where it is waited for
      offset += segment.length;
    }
    await check;
    return { ...head, end: offset, received: range.received };
  } finally {
    connection.close();
    await check.catch(() => {}); // nothing reads the device any more
  }
}

/** Requires that a device has what was written to it. */
async function readBack(
  exec: Exec,
  path: string,
  range: Range,
  { runs, unit }: { readonly runs: readonly ExpectedRun[]; readonly unit: bigint },
): Promise<void> {
  const check = new ReadBack(path, runs);
  await readRange(exec, path, range, (part) => check.add(part), unit);
  check.end();
}

/** Returns how many bytes of a snapshot a request is for. */
function lengthOf({ offset, length }: TransferRequest, { size }: TransferHead): number {
  return Number(min(max(size - offset, 0n), length));
}

/** The parts of a range, as they come. */
class ReceivedParts {
  readonly #connection: Connection;
  readonly #request: TransferRequest;
  readonly #options: ReceiverOptions;
  readonly #digest: RangeDigest;
  readonly #header = new Uint8Array(HEADER_BYTES);
  /** Two buffers: the next data is received while the one before is written. */
  readonly #buffers = [new Uint8Array(MAX_DATA_BYTES), new Uint8Array(MAX_DATA_BYTES)] as [Bytes, Bytes];
  /** Zeros that have come, and belong to what follows. */
  #zeros = 0;
  /** The header that was read, and not taken yet. */
  #pending: FrameHeader | undefined;
  /** The bytes of the range. */
  readonly #length: number;

  /** The bytes that have not been received yet. */
  left: number;
  /** The bytes of data that were received. */
  received = 0;
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
    this.left = this.#length = lengthOf(request, head);
  }

  /**
   * Skips what is the same as in the base, up to the next bytes or the end, which is read.
   *
   * @returns the bytes that are skipped
   */
  async skip(): Promise<number> {
    if (this.#zeros > 0) return 0;
    let skipped = 0;
    const pulses = new PulseLimit();
    for (;;) {
      const { kind, length } = await this.#peek();
      if (kind === "end") break;
      if (kind !== "same") {
        if (this.left > 0) return skipped;
        throw protocolError("more than was requested");
      }
      this.#takeHeader();
      if (length === 0) pulses.add();
      else this.#requireExpected(length);
      this.#digest.add({ kind, length });
      this.left -= length;
      skipped += length;
    }
    // with a base, the other end may end it before
    if (this.left > 0 && (this.#request.base === undefined || this.left === this.#length)) {
      throw protocolError(`the end, with ${this.left} bytes missing`);
    }
    await this.#end();
    return skipped;
  }

  /** Yields at most so many bytes of a range, up to what is the same as in the base. Records which digests they had. */
  async *receive(length: number, runs: ExpectedRun[]): AsyncGenerator<Bytes, void, undefined> {
    let next: Promise<ReceivedPart | undefined> | undefined;
    for (let missing = length; missing > 0;) {
      const part = this.#zeros > 0 ? { length: this.#zeros } : await (next ?? this.#next());
      if (part === undefined) return;
      const taken = Math.min(part.length, missing);
      if (part.bytes === undefined) this.#zeros = part.length - taken;
      else if (taken < part.length) throw protocolError("data across the end of a segment");
      runs.push({ length: taken, ...defined({ digest: part.digest }) });
      missing -= taken;
      this.left -= taken;
      if (missing > 0) {
        next = this.#next(); // meanwhile, this one is written
        next.catch(() => {}); // thrown above, unless it is not requested
      }
      if (part.bytes !== undefined) yield part.bytes;
      else for (let rest = taken; rest > 0; rest -= ZEROS.length) yield ZEROS.subarray(0, rest);
    }
  }

  /**
   * Reads the next part. Its bytes are overwritten by the second one after it; zeros have none.
   *
   * @returns `undefined` when none follows, or what is the same as in the base
   */
  async #next(): Promise<ReceivedPart | undefined> {
    const { bandwidth, onReceived = () => {} } = this.#options;
    const header = await this.#peek();
    if (header.kind === "same" || header.kind === "end") return undefined;
    this.#takeHeader();
    const { length } = header;
    this.#requireExpected(length);
    if (header.kind === "zeros") {
      this.#digest.add(header);
      return { length };
    }
    await bandwidth.take(length);
    const digest = await this.#readDigest();
    const bytes = await readAll(this.#connection, this.#buffers[0].subarray(0, length));
    this.#buffers.reverse();
    if (!isSameDigest(await digestOf(bytes), digest)) throw this.#digestError(`${length} bytes`);
    this.#digest.add(header, digest);
    this.received += length;
    onReceived(length);
    return { length, bytes, digest };
  }

  /** Requires that a part is of the range, and has whole runs: each is remembered until it was read back. */
  #requireExpected(length: number): void {
    if (length > this.left) throw protocolError("more than was requested");
    if (length % RUN_BYTES !== 0 && length < this.left) throw protocolError(`a part of ${length} bytes within a range`);
  }

  async #end(): Promise<void> {
    this.#takeHeader();
    if (!isSameDigest(await this.#readDigest(), this.#digest.end())) throw this.#digestError("the range");
    this.isOver = true;
  }

  /** Reads a header, unless one was read and not taken yet. @throws {StorageError} the failure of the other end */
  async #peek(): Promise<FrameHeader> {
    if (this.#pending !== undefined) return this.#pending;
    const header = decodeHeader(await readAll(this.#connection, this.#header));
    if (header.kind === "failure") throw await readFailure(this.#connection, header);
    if (header.kind === "same" && this.#request.base === undefined) {
      throw protocolError("what is the same as in no base");
    }
    return this.#pending = header;
  }

  #takeHeader(): void {
    this.#pending = undefined;
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
  { length }: FrameHeader,
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
