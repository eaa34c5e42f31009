/**
 * The digests of what is transferred: of the data of each frame, and of a whole range.
 *
 * @module
 */

import {
  type Bytes,
  encodeHead,
  encodeHeader,
  encodeRequest,
  type FrameHeader,
  type TransferHead,
  type TransferRequest,
} from "./protocol.ts";
import { Sha256 } from "../../base/sha256.ts";

/** Returns the digest of data. It is computed beside this thread. */
export async function digestOf(data: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

/**
 * The digest of a range: of its request, the head of the answer, and the header and the digest of each frame. So it covers
 * which bytes were requested, the data, its order, and where there are zeros, or what the reader has already.
 */
export class RangeDigest {
  readonly #hash = new Sha256();

  /** Begins with a request, and the head of the answer. */
  constructor(request: TransferRequest, head: TransferHead) {
    this.#hash.add(encodeRequest(request));
    this.#hash.add(encodeHead(head));
  }

  /** Adds the header of a frame, and the digest of its data, if it has any. */
  add(header: FrameHeader, digest?: Uint8Array): void {
    this.#hash.add(encodeHeader(header));
    if (digest !== undefined) this.#hash.add(digest);
  }

  /** Returns the digest. */
  end(): Bytes {
    return this.#hash.end();
  }
}

/** Reports whether two digests are the same. */
export function isSameDigest(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
