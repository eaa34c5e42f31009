/** The result of {@linkcode EndMark.push}. */
export interface ScanResult {
  /** The bytes that belong to the output. */
  output: Uint8Array;
  /** True if the mark was reached. What follows it is dropped. */
  isEnded: boolean;
}

/** Finds a mark in a stream of chunks of any size, and passes on the output before it without delay. */
export class EndMark {
  readonly #mark: Uint8Array;
  #held: Uint8Array = new Uint8Array();

  /** @param mark its first byte must not occur in it again: then it is enough to look back once */
  constructor(mark: Uint8Array) {
    this.#mark = mark;
  }

  /** Takes the next chunk. Of output that could be the beginning of the mark, it holds back until the next chunk decides. */
  push(chunk: Uint8Array): ScanResult {
    const bytes = new Uint8Array(this.#held.length + chunk.length);
    bytes.set(this.#held);
    bytes.set(chunk, this.#held.length);
    const first = this.#mark[0] ?? 0;
    for (let at = bytes.indexOf(first); at >= 0; at = bytes.indexOf(first, at + 1)) {
      const candidate = bytes.subarray(at, at + this.#mark.length);
      if (!candidate.every((byte, i) => byte === this.#mark[i])) continue;
      this.#held = candidate;
      return { output: bytes.subarray(0, at), isEnded: candidate.length === this.#mark.length };
    }
    this.#held = new Uint8Array();
    return { output: bytes, isEnded: false };
  }
}
