/**
 * Sets of chunks, a bit for each. However many chunks differ, a set takes the same memory.
 *
 * @module
 */

/** Chunks that follow each other. */
export interface ChunkRange {
  /** The number of the first one. */
  readonly begin: number;
  /** The number after the last one. */
  readonly end: number;
}

/**
 * The chunks of a window: 8 MiB of memory for a set. Larger devices are worked through window by window. With LVM's smallest
 * chunks, of 4 KiB, a window is 256 GiB.
 */
export const WINDOW_CHUNKS = 1 << 26;

/** Returns a window of a device. @param within the chunks that are of interest @param index 0 for the first window */
export function windowAt(within: ChunkRange, index: number): ChunkRange {
  const begin = Math.min(within.begin + index * WINDOW_CHUNKS, within.end);
  return { begin, end: Math.min(begin + WINDOW_CHUNKS, within.end) };
}

/** A set of chunks within a window. */
export class ChunkSet {
  /** The chunks that can be in it. */
  readonly window: ChunkRange;
  readonly #bits: Uint8Array;

  /** Creates an empty set. */
  constructor(window: ChunkRange) {
    this.window = window;
    this.#bits = new Uint8Array(Math.ceil((window.end - window.begin) / 8));
  }

  /** Adds chunks. Those outside the window are left out. */
  add({ begin, end }: ChunkRange): void {
    const first = Math.max(begin, this.window.begin) - this.window.begin;
    const after = Math.min(end, this.window.end) - this.window.begin;
    for (let at = first; at < after;) {
      if (at % 8 === 0 && after - at >= 8) {
        const bytes = Math.floor((after - at) / 8);
        this.#bits.fill(0xff, at / 8, at / 8 + bytes);
        at += bytes * 8;
      } else {
        this.#bits[at >> 3]! |= 1 << (at & 7);
        at++;
      }
    }
  }

  /** Reports whether a chunk of the window is in it. */
  has(chunk: number): boolean {
    const at = chunk - this.window.begin;
    return (this.#bits[at >> 3]! & 1 << (at & 7)) !== 0;
  }

  /**
   * Splits what is in this set or in another one of the same window: this set keeps what is in one of them, the other one
   * what is in both.
   */
  separate(other: ChunkSet): void {
    for (let at = 0; at < this.#bits.length; at++) {
      const own = this.#bits[at]!;
      const others = other.#bits[at]!;
      this.#bits[at] = own ^ others;
      other.#bits[at] = own & others;
    }
  }

  /** Yields its chunks in order, in ranges that do not touch each other. @param from the first chunk that is of interest */
  *ranges({ begin: from, end: until }: ChunkRange = this.window): Generator<ChunkRange, void> {
    const end = Math.min(until, this.window.end);
    let begin = this.#next(true, Math.max(from, this.window.begin), end);
    while (begin < end) {
      const after = this.#next(false, begin, end);
      yield { begin, end: after };
      begin = this.#next(true, after, end);
    }
  }

  /** Returns the first chunk from one on that is in the set, or is not; `end` when there is none before it. */
  #next(isIn: boolean, from: number, end: number): number {
    const uniform = isIn ? 0 : 0xff; // bytes without such a chunk
    let chunk = from;
    while (chunk < end) {
      const at = chunk - this.window.begin;
      if ((at & 7) === 0 && this.#bits[at >> 3] === uniform) chunk += 8;
      else if (this.has(chunk) === isIn) return chunk;
      else chunk++;
    }
    return end;
  }
}
