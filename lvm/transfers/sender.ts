/**
 * Answers the request of another agent for a range of a snapshot.
 *
 * @module
 */

import {
  type Bytes,
  decodeRequest,
  DIFFERENCE_UNIT,
  encodeFailure,
  encodeHead,
  encodeHeader,
  encodeRefusal,
  type FrameHeader,
  MAX_SAME_BYTES,
  type Range,
  type TransferRequest,
  unitOf,
} from "./protocol.ts";
import { max, min, roundUp } from "../../base/size.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { BlockBuffer, blockPair, runsOf } from "./blocks.ts";
import { asStorageError, type Bandwidth, type Connection, readJson, withPulse } from "./connection.ts";
import { readRange } from "./device_streams.ts";
import { digestOf, RangeDigest } from "./digest.ts";

/** The device of a snapshot that may be read. */
export interface SourceDevice {
  /** The path of its node. */
  readonly path: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** The UUID of its LV. */
  readonly uuid?: string;
  /** What differs from the base of the request, from the offset of its range on, in order; absent without a base. */
  readonly changed?: AsyncIterable<readonly Range[]>;
}

/** Options of {@linkcode serveTransfer}. */
export interface SenderOptions {
  /** Runs commands. */
  readonly exec: Exec;
  /** Bounds what is sent. */
  readonly bandwidth: Bandwidth;
  /** Returns the device for a request. @throws {StorageError} the reason why it is refused */
  readonly open: (request: TransferRequest) => Promise<SourceDevice>;
  /** Called after bytes of data were sent. */
  readonly onSent?: (bytes: number) => void;
  /**
   * The most bytes of a difference that one answer has, so that what was received is recorded now and then; 256 MiB by
   * default.
   */
  readonly differenceBytes?: bigint;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** The most bytes of a difference that one answer has. */
const DIFFERENCE_BYTES = 256n << 20n;

/**
 * Answers one request, and closes the connection.
 *
 * @param received the JSON of the request, if it was read already
 * @throws {StorageError} what was sent to the other end, or that it is gone
 */
export async function serveTransfer(
  connection: Connection,
  options: SenderOptions,
  received?: Uint8Array,
): Promise<void> {
  let encode = encodeRefusal;
  try {
    const request = decodeRequest(received ?? await readJson(connection, options.clock));
    const device = await options.open(request);
    await connection.write(encodeHead(device));
    encode = encodeFailure;
    const frames = new FrameSender(connection, request, device, options);
    const range = rangeIn(request, device);
    if (device.changed === undefined) await frames.sendRange(range);
    else await sendDifference(frames, range, device.changed, options);
    await frames.sendEnd();
  } catch (error) {
    const failure = asStorageError(error);
    await connection.write(encode(failure)).catch(() => {}); // the other end may be gone
    throw failure;
  } finally {
    connection.close();
  }
}

/** Sends the frames of an answer. */
class FrameSender {
  readonly #connection: Connection;
  readonly #device: SourceDevice;
  readonly #options: SenderOptions;
  readonly #digest: RangeDigest;
  readonly #unit: bigint;
  /** Of all ranges: a difference may have thousands. */
  readonly #buffers = blockPair();

  constructor(connection: Connection, request: TransferRequest, device: SourceDevice, options: SenderOptions) {
    this.#connection = connection;
    this.#device = device;
    this.#options = options;
    this.#digest = new RangeDigest(request, device);
    this.#unit = unitOf(request);
  }

  /** Sends what the device has in a range. */
  async sendRange({ offset, length }: Range): Promise<void> {
    if (length === 0n) return;
    const { path, size } = this.#device;
    let left = Number(length);
    const blocks = new BlockBuffer(async (block) => {
      // the last unit that is read may reach beyond the range
      if (block.length > left && offset + length === size) {
        throw new StorageError("CommandFailed", `reading ${path}: it has more than its ${size} bytes`);
      }
      const part = block.subarray(0, left);
      left -= part.length;
      await this.#sendBlock(part);
    }, this.#buffers);
    try {
      await readRange(this.#options.exec, path, { offset, length }, (part) => blocks.add(part), this.#unit);
      await blocks.end();
    } finally {
      await blocks.settle(); // nothing else is sent between the frames of a block
    }
    if (left > 0) throw new StorageError("CommandFailed", `reading ${path}: ${left} bytes of ${length} are missing`);
  }

  /** Says that a part is the same as in the base. */
  async sendSame(length: bigint): Promise<void> {
    let left = length;
    do {
      const part = Number(min(left, MAX_SAME_BYTES));
      await this.#sendHeader({ kind: "same", length: part });
      left -= BigInt(part);
    } while (left > 0n);
  }

  /** Sends the end. */
  async sendEnd(): Promise<void> {
    await this.#connection.write(encodeHeader({ kind: "end" }));
    await this.#connection.write(this.#digest.end());
  }

  async #sendHeader(header: FrameHeader, digest?: Uint8Array): Promise<void> {
    this.#digest.add(header, digest);
    await this.#connection.write(encodeHeader(header));
  }

  async #sendBlock(block: Bytes): Promise<void> {
    const { bandwidth, onSent = () => {} } = this.#options;
    for (const { isZero, offset, length } of runsOf(block)) {
      if (isZero) {
        await this.#sendHeader({ kind: "zeros", length });
        continue;
      }
      await bandwidth.take(length);
      const data = block.subarray(offset, offset + length);
      const dataDigest = await digestOf(data);
      await this.#sendHeader({ kind: "data", length }, dataDigest);
      await this.#connection.write(dataDigest);
      await this.#connection.write(data);
      onSent(length);
    }
  }
}

/** Sends what differs from the base in a range, up to a bound. Says that it is still looking while nothing is found. */
async function sendDifference(
  frames: FrameSender,
  range: Range,
  changed: AsyncIterable<readonly Range[]>,
  { differenceBytes = DIFFERENCE_BYTES, clock = systemClock }: SenderOptions,
): Promise<void> {
  const end = range.offset + range.length;
  let [at, left] = [range.offset, differenceBytes];
  const ranges = mergeNear(changed, range);
  try {
    for (;;) {
      const next = await withPulse(ranges.next(), () => frames.sendSame(0n), clock);
      if (next.done) break;
      const { offset, length } = next.value;
      const part = min(length, left);
      if (offset > at) await frames.sendSame(offset - at);
      await frames.sendRange({ offset, length: part });
      at = offset + part;
      left -= part;
      if (left === 0n) return;
    }
    if (end > at) await frames.sendSame(end - at);
  } finally {
    await ranges.return();
  }
}

/** Returns the part of the range of a request that the device has. */
function rangeIn({ offset, length }: TransferRequest, { size }: SourceDevice): Range {
  return { offset, length: min(max(size - offset, 0n), length) };
}

/**
 * What is between two ranges that differ is sent with them up to this length, in bytes: to read it, send it and write it is
 * quicker than to start two more programs.
 */
const NEAR_BYTES = 1n << 20n;

/**
 * Yields ranges that have whole units, and are not near each other.
 *
 * @param groups ranges in order, in groups
 * @param within the range that is of interest, of whole units, or up to the end of the device
 */
async function* mergeNear(
  groups: AsyncIterable<readonly Range[]>,
  within: Range,
): AsyncGenerator<Range, void> {
  const last = within.offset + within.length;
  let current: { begin: bigint; end: bigint } | undefined;
  for await (const group of groups) {
    for (const { offset, length } of group) {
      const begin = max(offset - offset % DIFFERENCE_UNIT, within.offset);
      const end = min(roundUp(offset + length, DIFFERENCE_UNIT), last);
      if (begin >= end) continue;
      if (current !== undefined && begin - current.end <= NEAR_BYTES) current.end = max(current.end, end);
      else {
        if (current !== undefined) yield rangeOf(current);
        current = { begin, end };
      }
    }
  }
  if (current !== undefined) yield rangeOf(current);
}

function rangeOf({ begin, end }: { readonly begin: bigint; readonly end: bigint }): Range {
  return { offset: begin, length: end - begin };
}
