/**
 * UUIDs of physical volumes.
 *
 * @module
 */

/** The letters of LVM's UUIDs, but for `!` and `#`, which some tools do not print as they are. */
const LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** Returns a new UUID as LVM writes them (pvcreate(8), `--uuid`): 32 letters, each of 62. */
export function newPvUuid(): string {
  let text = "";
  while (text.length < 32) {
    // the values beyond the last multiple of 62 would make some letters more likely
    for (const byte of crypto.getRandomValues(new Uint8Array(32))) if (byte < 248) text += LETTERS[byte % 62];
  }
  return text.slice(0, 32).replace(/^(.{6})(.{4})(.{4})(.{4})(.{4})(.{4})(.{6})$/, "$1-$2-$3-$4-$5-$6-$7");
}
