/**
 * Compares bytes of devices.
 *
 * @module
 */

import buffer from "node:buffer"; // as a whole: the bundle loads it when it is used

/**
 * Reports whether bytes are the same. A comparison in the language itself takes sixty times as long where V8 compiles
 * nothing, as in the driver.
 */
export function isSameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return buffer.Buffer.from(one.buffer, one.byteOffset, one.byteLength).equals(other);
}
