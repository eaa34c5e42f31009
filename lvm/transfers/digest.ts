/**
 * The digests of what is transferred: of the data of each frame, and of a whole range.
 *
 * @module
 */

import { createHash } from "node:crypto";
import {
  type Bytes,
  encodeHead,
  encodeHeader,
  encodeRequest,
  type TransferHead,
  type TransferRequest,
} from "./protocol.ts";

/** Returns the digest of data. It is computed beside this thread. */
export async function digestOf(data: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

/**
 * The digest of a range: of its request, the head of the answer, and the header and the digest of each frame. So it covers
 * which bytes were requested, the data, its order, and where there are zeros.
 */
export class RangeDigest {
  readonly #hash = createHash("sha256");

  /** Begins with a request, and the head of the answer. */
  constructor(request: TransferRequest, head: TransferHead) {
    this.#hash.update(encodeRequest(request)).update(encodeHead(head));
  }

  /** Adds a frame of data. */
  addData(length: number, digest: Uint8Array): void {
    this.#hash.update(encodeHeader({ kind: "data", length })).update(digest);
  }

  /** Adds a frame of zeros. */
  addZeros(length: number): void {
    this.#hash.update(encodeHeader({ kind: "zeros", length }));
  }

  /** Returns the digest. */
  end(): Bytes {
    return new Uint8Array(this.#hash.digest());
  }
}

/** Reports whether two digests are the same. */
export function isSameDigest(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
