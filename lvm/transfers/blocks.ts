/**
 * The blocks of a range: where there is data, and where there are zeros.
 *
 * @module
 */

import buffer from "node:buffer"; // as a whole: the bundle loads it when it is used
import { type Bytes, MAX_DATA_BYTES } from "./protocol.ts";

/** The length of the runs of zeros that are left out, in bytes, and a unit of them. */
export const RUN_BYTES = 64 << 10;

const ZEROS = new Uint8Array(RUN_BYTES);

/** A run of a block: data, or zeros alone. */
export interface Run {
  /** Whether it has zeros alone. */
  readonly isZero: boolean;
  /** The offset of its first byte in the block. */
  readonly offset: number;
  /** Its length in bytes. */
  readonly length: number;
}

/** Divides a block into runs of data and of zeros, each as long as possible. */
export function runsOf(block: Bytes): Run[] {
  const runs: { isZero: boolean; offset: number; length: number }[] = [];
  for (let offset = 0; offset < block.length; offset += RUN_BYTES) {
    const part = block.subarray(offset, offset + RUN_BYTES);
    const isZero = isZeros(part);
    const last = runs.at(-1);
    if (last?.isZero === isZero) last.length += part.length;
    else runs.push({ isZero, offset, length: part.length });
  }
  return runs;
}

/** Reports whether all bytes are zeros. */
export function isZeros(bytes: Bytes): boolean {
  for (let at = 0; at < bytes.length; at += RUN_BYTES) {
    const { byteOffset, length } = bytes.subarray(at, at + RUN_BYTES);
    // a comparison in the language itself takes sixty times as long where V8 compiles nothing, as in the driver
    if (!buffer.Buffer.from(bytes.buffer, byteOffset, length).equals(ZEROS.subarray(0, length))) return false;
  }
  return true;
}

/** Two buffers of the maximum length of a frame. */
export type BlockPair = readonly [Bytes, Bytes];

/** Allocates two buffers. */
export function blockPair(): BlockPair {
  return [new Uint8Array(MAX_DATA_BYTES), new Uint8Array(MAX_DATA_BYTES)];
}

/**
 * Collects bytes into blocks of the maximum length of a frame, in two buffers: one is filled while a receiver has the other.
 */
export class BlockBuffer {
  #block: Bytes;
  #other: Bytes;
  #length = 0;
  readonly #receive: (block: Bytes) => Promise<void>;
  #received = Promise.resolve();

  /**
   * Creates it.
   *
   * @param receive called with one block after the other, each of which is overwritten afterwards
   * @param buffers those that it fills; nobody else uses them meanwhile
   */
  constructor(receive: (block: Bytes) => Promise<void>, buffers: BlockPair = blockPair()) {
    this.#receive = receive;
    [this.#block, this.#other] = buffers;
  }

  /** Adds bytes. @throws {unknown} what the receiver of an earlier block failed with */
  async add(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      const part = bytes.subarray(at, at + this.#block.length - this.#length);
      this.#block.set(part, this.#length);
      this.#length += part.length;
      at += part.length;
      if (this.#length === this.#block.length) await this.#give();
    }
  }

  /** Gives what is left to the receiver, and waits until that has all. @throws {unknown} what the receiver failed with */
  async end(): Promise<void> {
    if (this.#length > 0) await this.#give();
    await this.#received;
  }

  /** Waits until the receiver has what was given to it, also when it failed. */
  async settle(): Promise<void> {
    await this.#received.catch(() => {});
  }

  /** Gives the block to the receiver when that has the one before. */
  async #give(): Promise<void> {
    await this.#received;
    this.#received = this.#receive(this.#block.subarray(0, this.#length));
    this.#received.catch(() => {}); // thrown at the next block, or at the end
    [this.#block, this.#other] = [this.#other, this.#block];
    this.#length = 0;
  }
}
