/**
 * Answers the request of another agent for a range of a snapshot.
 *
 * @module
 */

import { max, min } from "../../base/size.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { BlockBuffer, blockPair, runsOf } from "./blocks.ts";
import { asStorageError, type Bandwidth, type Connection, readJson, withPulse } from "./connection.ts";
import { readRange } from "./device_streams.ts";
import { digestOf, RangeDigest } from "./digest.ts";
import { mergeNear } from "./near_ranges.ts";
import {
  type Bytes,
  decodeRequest,
  encodeFailure,
  encodeHead,
  encodeHeader,
  encodeRefusal,
  MAX_SAME_BYTES,
  type Range,
  type TransferRequest,
  unitOf,
} from "./protocol.ts";

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
      this.#digest.addSame(part);
      await this.#connection.write(encodeHeader({ kind: "same", length: part }));
      left -= BigInt(part);
    } while (left > 0n);
  }

  /** Sends the end. */
  async sendEnd(): Promise<void> {
    await this.#connection.write(encodeHeader({ kind: "end" }));
    await this.#connection.write(this.#digest.end());
  }

  async #sendBlock(block: Bytes): Promise<void> {
    const { bandwidth, onSent = () => {} } = this.#options;
    for (const { isZero, offset, length } of runsOf(block)) {
      if (isZero) {
        this.#digest.addZeros(length);
        await this.#connection.write(encodeHeader({ kind: "zeros", length }));
        continue;
      }
      await bandwidth.take(length);
      const data = block.subarray(offset, offset + length);
      const dataDigest = await digestOf(data);
      this.#digest.addData(length, dataDigest);
      await this.#connection.write(encodeHeader({ kind: "data", length }));
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
