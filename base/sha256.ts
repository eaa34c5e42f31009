/**
 * SHA-256 (FIPS 180-4) of little data, at once. Web Crypto answers later, and the module of Node.js takes 3 MB of memory
 * and a quarter of the time until the socket answers. Secrets are not hashed here.
 *
 * @module
 */

/** The first 64 prime numbers: the constants of the algorithm are the fractions of their roots. */
const PRIMES = primes(64);

const ROUND_CONSTANTS = PRIMES.map((prime) => fractionBits(Math.cbrt(prime)));

const INITIAL_STATE = PRIMES.slice(0, 8).map((prime) => fractionBits(Math.sqrt(prime)));

const BLOCK_BYTES = 64;

/** Returns the SHA-256 of a text in UTF-8, in hexadecimal. */
export function sha256Hex(text: string): string {
  const hash = new Sha256();
  hash.add(new TextEncoder().encode(text));
  return hash.end().toHex();
}

/** The SHA-256 of bytes that come in parts. It keeps one block of them, however many come. */
export class Sha256 {
  readonly #state = Uint32Array.from(INITIAL_STATE);
  readonly #block = new Uint8Array(BLOCK_BYTES);
  /** The number of bytes that have come. */
  #length = 0;

  /** Adds bytes. */
  add(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length;) {
      const filled = this.#length % BLOCK_BYTES;
      const part = bytes.subarray(at, at + BLOCK_BYTES - filled);
      this.#block.set(part, filled);
      at += part.length;
      this.#length += part.length;
      if (this.#length % BLOCK_BYTES === 0) addBlock(this.#state, new DataView(this.#block.buffer));
    }
  }

  /** Returns the digest. Nothing may be added afterwards. */
  end(): Uint8Array<ArrayBuffer> {
    const bits = BigInt(this.#length) * 8n;
    const filled = this.#length % BLOCK_BYTES;
    // a bit, zeros, and the length in bits, up to a whole number of blocks
    const padding = new Uint8Array((filled < BLOCK_BYTES - 8 ? BLOCK_BYTES : 2 * BLOCK_BYTES) - filled);
    padding[0] = 0x80;
    new DataView(padding.buffer).setBigUint64(padding.length - 8, bits);
    this.add(padding);
    const digest = new DataView(new ArrayBuffer(4 * this.#state.length));
    for (const [index, word] of this.#state.entries()) digest.setUint32(4 * index, word);
    return new Uint8Array(digest.buffer);
  }
}

/** Adds a block to the state. The names are those of the standard. */
function addBlock(state: Uint32Array, block: DataView): void {
  const w = new Uint32Array(64);
  for (let t = 0; t < 16; t++) w[t] = block.getUint32(4 * t);
  for (let t = 16; t < 64; t++) {
    const [early, late] = [w[t - 15]!, w[t - 2]!];
    const s0 = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
    const s1 = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
    w[t] = w[t - 16]! + s0 + w[t - 7]! + s1;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let t = 0; t < 64; t++) {
    const ch = (e & f) ^ (~e & g);
    const t1 = (h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ch + ROUND_CONSTANTS[t]! + w[t]!) | 0;
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const t2 = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + majority;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
  }
  for (const [index, value] of [a, b, c, d, e, f, g, h].entries()) state[index]! += value;
}

function rotated(word: number, bits: number): number {
  return (word >>> bits) | (word << (32 - bits));
}

/** Returns the first 32 bits of the fraction of a number. */
function fractionBits(value: number): number {
  return ((value - Math.floor(value)) * 2 ** 32) | 0;
}

function primes(count: number): number[] {
  const found: number[] = [];
  for (let number = 2; found.length < count; number++) {
    if (found.every((prime) => number % prime !== 0)) found.push(number);
  }
  return found;
}
