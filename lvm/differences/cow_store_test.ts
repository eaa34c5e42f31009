import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { ExceptionScanner, parseCowHeader } from "./cow_store.ts";

const CHUNK_BYTES = 4096;
const VOLUME_CHUNKS = 16_384;

function fixture(name: string): Uint8Array {
  return Deno.readFileSync(new URL(`../../tests/fixtures/differences/${name}`, import.meta.url));
}

/** Returns the header of a real store, and what follows: two tables, and the chunks of the first one as zeros. */
function realStore(): { header: Uint8Array; rest: Uint8Array } {
  const first = fixture("cow_first_chunks.bin");
  const rest = new Uint8Array(258 * CHUNK_BYTES);
  rest.set(first.subarray(CHUNK_BYTES));
  rest.set(fixture("cow_second_table.bin"), 257 * CHUNK_BYTES);
  return { header: first.subarray(0, CHUNK_BYTES), rest };
}

/** Returns a header of four numbers. */
function headerOf(...numbers: readonly number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(numbers).buffer);
}

/** Returns a table of exceptions. */
function tableOf(exceptions: readonly (readonly [chunk: bigint, place: bigint])[]): Uint8Array {
  const table = new BigUint64Array(CHUNK_BYTES / 8);
  table.set(exceptions.flat());
  return new Uint8Array(table.buffer);
}

function scan(pieces: Iterable<Uint8Array>, originChunks = VOLUME_CHUNKS): { chunks: number[]; done: boolean } {
  const chunks: number[] = [];
  const scanner = new ExceptionScanner(CHUNK_BYTES, originChunks, (chunk) => void chunks.push(chunk));
  for (const piece of pieces) scanner.take(piece);
  return { chunks, done: scanner.done };
}

function* piecesOf(bytes: Uint8Array, length: number): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

Deno.test("parseCowHeader() reads the header of a store that LVM made", () => {
  assertEquals(parseCowHeader(realStore().header), { valid: true, chunkBytes: CHUNK_BYTES });
  assertEquals(parseCowHeader(headerOf(0x70416e53, 0, 1, 1024)), { valid: false, chunkBytes: 524_288 });
});

const WRONG_HEADERS: readonly (readonly [string, Uint8Array, RegExp])[] = [
  ["zeros", new Uint8Array(CHUNK_BYTES), /no exception store/],
  ["another version", headerOf(0x70416e53, 1, 2, 8), /version 2/],
  ["chunks that are no power of two", headerOf(0x70416e53, 1, 1, 24), /12288 bytes/],
  ["chunks of nothing", headerOf(0x70416e53, 1, 1, 0), /0 bytes/],
  ["a part", headerOf(0x70416e53), /it has 4 bytes/],
];

for (const [name, bytes, message] of WRONG_HEADERS) {
  Deno.test(`parseCowHeader() refuses ${name}`, () => {
    const error = assertThrows(() => parseCowHeader(bytes), StorageError);
    assertEquals([error.kind, message.test(error.message)], ["CommandFailed", true], error.message);
  });
}

Deno.test("ExceptionScanner finds the chunks that a real store has, in the order of time, whatever the pieces are", () => {
  const { rest } = realStore();
  const written = [10, 11, 12, 1000, ...Array.from({ length: 300 }, (_, index) => 5000 + index), 2000, 2001];
  for (const length of [7, 16, 4096, 5000, 65_536, rest.length]) {
    assertEquals(scan(piecesOf(rest, length)), { chunks: written, done: true });
  }
});

Deno.test("ExceptionScanner is not done before the end of the tables", () => {
  const { rest } = realStore();
  assertEquals(scan([rest.subarray(0, 257 * CHUNK_BYTES)]), {
    chunks: [10, 11, 12, 1000, ...Array.from({ length: 252 }, (_, index) => 5000 + index)],
    done: false,
  });
});

Deno.test("ExceptionScanner does not take what follows the end of the tables", () => {
  assertEquals(scan([tableOf([[1n, 2n], [2n, 0n], [3n, 4n]])]), { chunks: [1], done: true });
});

for (
  const [name, exception] of [
    ["a chunk that the volume does not have", [16_384n, 2n]],
    ["a place that has a table", [1n, 258n]],
    ["a number that no place has", [2n ** 63n, 2n ** 63n + 2n]],
  ] as const
) {
  Deno.test(`ExceptionScanner refuses ${name}`, () => {
    assertThrows(() => scan([tableOf([[1n, 2n], exception])]), StorageError, "cannot be in place");
  });
}
