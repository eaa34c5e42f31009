/**
 * The output of thin_delta(8), as XML: ranges of blocks of two thin LVs, which have the same block of the pool there,
 * different ones, or one of them has none.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { ChunkRange } from "./chunk_set.ts";

/** What two thin LVs have in a range of blocks, by the names of thin_delta; `left_only` is what the second one has lost. */
export type DeltaKind = "same" | "different" | "left_only" | "right_only";

/** The length of the longest tag of an output, in characters, with room to spare. */
const MAX_TAG_LENGTH = 4096;

/**
 * A range, as thin_delta writes it. An output may have millions of them, and where V8 compiles nothing, as in the driver, each
 * further expression or function takes as long again.
 */
const RANGE = /\s*<(same|different|left_only|right_only) begin="(\d{1,15})" length="(\d{1,15})"\/>/y;

/** The number after the last block that an LV can have: an LV has at most 8 EiB, and a block 64 KiB or more. */
const MAX_BLOCKS = 2 ** 47;

/** Reads the output of thin_delta, in pieces of any length. It keeps at most a part of a tag. */
export class ThinDeltaReader {
  readonly #decoder = new TextDecoder();
  readonly #onRange: (kind: DeltaKind, range: ChunkRange) => void;
  #rest = "";
  #blockBytes: number | undefined;
  #isComplete = false;

  /**
   * Creates a reader.
   *
   * @param onRange called with each range of blocks
   */
  constructor(onRange: (kind: DeltaKind, range: ChunkRange) => void) {
    this.#onRange = onRange;
  }

  /**
   * Takes the next bytes.
   *
   * @throws {StorageError} `CommandFailed` for what thin_delta does not write
   */
  take(bytes: Uint8Array): void {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    let at = 0;
    for (;;) {
      RANGE.lastIndex = at;
      const [range, kind, begin, length] = RANGE.exec(text) ?? [];
      const end = range === undefined ? text.indexOf(">", at) + 1 : at + range.length;
      if (end === 0) break;
      if (range === undefined) this.#takeTag(text.slice(at, end));
      else this.#takeRange(range, kind as DeltaKind, Number(begin), Number(length));
      at = end;
    }
    this.#rest = text.slice(at);
    if (this.#rest.length > MAX_TAG_LENGTH) throw unexpected(this.#rest.slice(0, 80));
  }

  /** The size of a block in bytes, which comes before all ranges; `undefined` before that. */
  get blockBytes(): number | undefined {
    return this.#blockBytes;
  }

  /** Returns the size of a block in bytes, after the end of the output. @throws {StorageError} `CommandFailed` if it is cut off */
  end(): number {
    if (this.#blockBytes === undefined || !this.#isComplete) throw unexpected("the end of an incomplete output");
    return this.#blockBytes;
  }

  #takeTag(text: string): void {
    const [, tag, attributes] = /^\s*<(\/?\w+)((?:\s+\w+="[^"<>]*")*)\s*\/?>$/.exec(text) ?? [];
    if (tag === undefined) throw unexpected(text);
    const number = (name: string) => {
      const digits = new RegExp(`\\s${name}="(\\d{1,15})"`).exec(attributes!)?.[1];
      if (digits === undefined) throw unexpected(text);
      return Number(digits);
    };
    switch (tag) {
      case "superblock":
        this.#blockBytes = number("data_block_size") * 512;
        if (this.#blockBytes < 65536 || this.#blockBytes > 1 << 30) throw unexpected(text);
        return;
      case "/superblock":
        this.#isComplete = true;
        return;
      case "same":
      case "different":
      case "left_only":
      case "right_only":
        return this.#takeRange(text, tag, number("begin"), number("length"));
      case "diff":
      case "/diff":
        return;
      default:
        throw unexpected(text);
    }
  }

  #takeRange(text: string, kind: DeltaKind, begin: number, length: number): void {
    if (this.#blockBytes === undefined || length === 0 || begin + length > MAX_BLOCKS) throw unexpected(text);
    this.#onRange(kind, { begin, end: begin + length });
  }
}

function unexpected(text: string): StorageError {
  return new StorageError(
    "CommandFailed",
    `reading the output of thin_delta: unexpected: ${text.trim().slice(0, 200)}`,
  );
}
