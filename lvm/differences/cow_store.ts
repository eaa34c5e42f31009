/**
 * The format of COW space: the kernel's persistent exception store (dm-snap-persistent). All numbers are little-endian.
 *
 * The first chunk has a header. Then come areas: a chunk with a table of exceptions, and the chunks that the table describes.
 * An exception is a pair of chunk numbers, of the volume and of the store, for a chunk of the volume that was copied before
 * it was written for the first time after the snapshot. They are in the order of time. A pair without a place in the store
 * ends the tables.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";

/** The bytes of a store that have its header. It is read without the page cache, so these are whole blocks of any disk. */
export const HEADER_BYTES = 4096;

/** `SnAp`, as a number. */
const MAGIC = 0x70416e53;

/** The only version of the format. */
const VERSION = 1;

/** The bytes of an exception. */
const EXCEPTION_BYTES = 16;

/** The header of a store. */
export interface CowHeader {
  /** False once it has overflowed: then what was copied is worth nothing. */
  readonly valid: boolean;
  /** The size of its chunks, in bytes. */
  readonly chunkBytes: number;
}

/**
 * Parses the header of a store.
 *
 * @throws {StorageError} `CommandFailed` when it is none, or of another version
 */
export function parseCowHeader(bytes: Uint8Array): CowHeader {
  const fail = (reason: string) => new StorageError("CommandFailed", `reading the header of COW space: ${reason}`);
  if (bytes.length < EXCEPTION_BYTES) throw fail(`it has ${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const number = (index: number) => view.getUint32(4 * index, true);
  const version = number(2);
  const sectors = number(3);
  if (number(0) !== MAGIC) throw fail("it has no exception store");
  if (version !== VERSION) throw fail(`version ${version} of the format is not known`);
  const chunkBytes = sectors * 512;
  // a power of two (lvcreate(8), --chunksize)
  if (sectors < 8 || sectors > 1 << 20 || (sectors & (sectors - 1)) !== 0) {
    throw fail(`its chunks have ${chunkBytes} bytes`);
  }
  return { valid: number(1) !== 0, chunkBytes };
}

/**
 * Finds the exceptions in a store. It is given the bytes of the store after the header's chunk, in pieces of any length, and
 * keeps none of them.
 */
export class ExceptionScanner {
  readonly #chunkBytes: number;
  readonly #areaBytes: number;
  readonly #originChunks: number;
  readonly #onChunk: (chunk: number) => void;
  /** The begin of an exception whose end is in the next piece. */
  readonly #part = new Uint8Array(EXCEPTION_BYTES);
  #position = 0;
  #isDone = false;

  /**
   * Creates a scanner.
   *
   * @param originChunks the number of chunks of the volume
   * @param onChunk called with the number of each chunk of the volume that has an exception
   */
  constructor(chunkBytes: number, originChunks: number, onChunk: (chunk: number) => void) {
    this.#chunkBytes = chunkBytes;
    this.#areaBytes = (chunkBytes / EXCEPTION_BYTES + 1) * chunkBytes;
    this.#originChunks = originChunks;
    this.#onChunk = onChunk;
  }

  /** True once the end of the tables was found: what follows is of no interest. */
  get done(): boolean {
    return this.#isDone;
  }

  /**
   * Takes the next bytes.
   *
   * @throws {StorageError} `CommandFailed` for what cannot be a table, as that of a store which another snapshot has by now
   */
  take(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && !this.#isDone;) {
      const inArea = this.#position % this.#areaBytes;
      const left = bytes.length - at;
      const length = Math.min(left, inArea < this.#chunkBytes ? this.#chunkBytes - inArea : this.#areaBytes - inArea);
      if (inArea < this.#chunkBytes) this.#takeTable(bytes.subarray(at, at + length));
      this.#position += length;
      at += length;
    }
  }

  /** Takes bytes of one table. A table has whole exceptions, so none is in two of them. */
  #takeTable(bytes: Uint8Array): void {
    let at = 0;
    const begun = this.#position % EXCEPTION_BYTES;
    if (begun > 0) {
      const rest = bytes.subarray(0, EXCEPTION_BYTES - begun);
      this.#part.set(rest, begun);
      at = rest.length;
      if (begun + rest.length < EXCEPTION_BYTES) return;
      this.#takeException(new DataView(this.#part.buffer), 0);
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    for (; at + EXCEPTION_BYTES <= bytes.length && !this.#isDone; at += EXCEPTION_BYTES) this.#takeException(view, at);
    if (!this.#isDone) this.#part.set(bytes.subarray(at));
  }

  #takeException(view: DataView, at: number): void {
    const chunk = view.getBigUint64(at, true);
    const place = view.getBigUint64(at + 8, true);
    if (place === 0n) {
      this.#isDone = true;
      return;
    }
    const isTable = place % BigInt(this.#areaBytes / this.#chunkBytes) === 1n;
    if (chunk >= BigInt(this.#originChunks) || isTable) {
      throw new StorageError(
        "CommandFailed",
        `reading the tables of COW space: chunk ${chunk} of ${this.#originChunks} cannot be in place ${place}`,
      );
    }
    this.#onChunk(Number(chunk));
  }
}
