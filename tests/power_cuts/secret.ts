/**
 * The content of the files that pods write: each sector names the file, and begins with a mark by which it is found on a
 * disk.
 *
 * @module
 */

const SECTOR_BYTES = 512;

const FILE_BYTES = 64 << 10;

/** The first eight bytes of each sector. */
const MARK = new TextEncoder().encode("\xb5secret");

/** The first eight bytes of both copies of a LUKS2 header, whose key slots follow. */
const HEADERS = ["LUKS\xba\xbe\0\x02", "SKUL\xba\xbe\0\x02"].map((text) =>
  Uint8Array.from(text, (character) => character.charCodeAt(0))
);

/** Returns the content of a file. */
export function contentOf(file: string): Uint8Array {
  const content = new Uint8Array(FILE_BYTES);
  for (let offset = 0; offset < FILE_BYTES; offset += SECTOR_BYTES) {
    content.set(MARK, offset);
    new TextEncoder().encodeInto(`${file} ${offset}`, content.subarray(offset + MARK.length));
  }
  return content;
}

/** Returns the offsets of the sectors that are part of a file, or with which a LUKS header begins, at most ten. */
export function findSecrets(bytes: Uint8Array): number[] {
  const words = new BigUint64Array(bytes.buffer, bytes.byteOffset, bytes.length / 8);
  const marks = [MARK, ...HEADERS].map((mark) => new BigUint64Array(mark.slice().buffer)[0]!);
  const found: number[] = [];
  for (let word = 0; word < words.length && found.length < 10; word += SECTOR_BYTES / 8) {
    if (marks.includes(words[word]!)) found.push(word * 8);
  }
  return found;
}
