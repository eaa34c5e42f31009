/**
 * What differs between two copy-on-write snapshots of a volume.
 *
 * A chunk that was written between the two has an exception in the older one. So has a chunk that was written only after the
 * newer one, which then has an exception, too, and the same content. So a chunk with an exception in both is compared. One
 * with an exception in the older alone was written between them. The tables of the older are read first: a chunk that is
 * written for the first time meanwhile has an exception in the newer alone. It counts as different, too: LVM knows times of
 * creation in seconds, so of two snapshots that were created in one second, the older may be taken for the newer.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { requireHiddenDevice, verifyDevice } from "../host/device.ts";
import type { LocatedSnapshot } from "../inventory/snapshot_finder.ts";
import buffer from "node:buffer"; // as a whole: the bundle loads it when it is used
import { type ChunkRange, ChunkSet } from "./chunk_set.ts";
import { type CowHeader, ExceptionScanner, HEADER_BYTES, parseCowHeader } from "./cow_store.ts";
import { readBytes, readDevice } from "../host/device_bytes.ts";

/** The most bytes of COW space that one command reads. */
const MAX_PIECE_BYTES = 64 << 20;

/** The bytes that the first command reads: most COW space is almost empty. */
const FIRST_PIECE_BYTES = 1 << 20;

/** The bytes that are compared at a time: both are in memory. */
const COMPARED_BYTES = 4 << 20;

/** A snapshot with the device of its COW space. */
export interface CowSnapshot {
  /** The snapshot. */
  readonly located: LocatedSnapshot;
  /** The path of the device with its COW space. */
  readonly storePath: string;
  /** The header of its COW space. */
  readonly header: CowHeader;
}

/**
 * Makes sure that the devices of an active snapshot are its own, and reads the header of its COW space.
 *
 * @throws {StorageError} `FailedPrecondition` when it has overflowed
 */
export async function openCowSnapshot(exec: Exec, located: LocatedSnapshot): Promise<CowSnapshot> {
  await verifyDevice(exec, { ...located.lv, size: located.snapshot.size });
  const storePath = await requireHiddenDevice(exec, located, "-cow");
  const header = parseCowHeader(await readBytes(exec, storePath, { offset: 0, length: HEADER_BYTES }));
  if (!header.valid) throw overflowError(located);
  return { located, storePath, header };
}

/** Returns the error for a snapshot whose COW space has overflowed. */
export function overflowError({ snapshot: { id } }: LocatedSnapshot): StorageError {
  return new StorageError(
    "FailedPrecondition",
    `comparing snapshot ${id}: its COW space overflowed, and what it had is lost; make a full backup of another snapshot`,
  );
}

/** Chunks of a window. */
export interface Candidates {
  /** Chunks that differ. */
  readonly changed: ChunkSet;
  /** Chunks that may differ, and have to be compared. */
  readonly unsure: ChunkSet;
}

/**
 * Reads which chunks of a window differ, or may differ.
 *
 * @param chunkBytes the size of the chunks of the window, in bytes: the larger one of the two snapshots
 */
export async function readCandidates(
  exec: Exec,
  { older, newer }: { readonly older: CowSnapshot; readonly newer: CowSnapshot },
  window: ChunkRange,
  chunkBytes: number,
): Promise<Candidates> {
  const changed = await readExceptions(exec, older, window, chunkBytes);
  const unsure = await readExceptions(exec, newer, window, chunkBytes);
  changed.separate(unsure);
  return { changed, unsure };
}

async function readExceptions(
  exec: Exec,
  { located, storePath, header }: CowSnapshot,
  window: ChunkRange,
  chunkBytes: number,
): Promise<ChunkSet> {
  const chunks = new ChunkSet(window);
  const ratio = chunkBytes / header.chunkBytes;
  const originChunks = Math.ceil(Number(located.snapshot.size) / header.chunkBytes);
  const scanner = new ExceptionScanner(header.chunkBytes, originChunks, (chunk) => {
    const begin = Math.floor(chunk / ratio);
    chunks.add({ begin, end: begin + 1 });
  });
  const end = Number(located.lv.size);
  let pieceBytes = FIRST_PIECE_BYTES;
  for (let offset = header.chunkBytes; offset < end && !scanner.done;) {
    const length = Math.min(pieceBytes, end - offset);
    await readDevice(exec, storePath, { offset, length }, (bytes) => scanner.take(bytes));
    offset += length;
    pieceBytes = Math.min(2 * pieceBytes, MAX_PIECE_BYTES);
  }
  return chunks;
}

/** Two devices to compare, which have the same size. */
export interface ComparedDevices {
  /** The paths of the devices. */
  readonly paths: readonly [string, string];
  /** Their size in bytes. */
  readonly size: number;
  /** The size of their chunks in bytes. */
  readonly chunkBytes: number;
}

/** Compares the chunks that may differ within a range, and adds those that do to those that differ. */
export async function compareChunks(
  exec: Exec,
  { paths, size, chunkBytes }: ComparedDevices,
  { changed, unsure }: Candidates,
  within: ChunkRange,
): Promise<void> {
  for (const { begin, end } of comparisons(unsure.ranges(within), chunkBytes)) {
    const offset = begin * chunkBytes;
    const range = { offset, length: Math.min(end * chunkBytes, size) - offset };
    if (range.length <= 0) return;
    const [one, other] = await Promise.all(paths.map((path) => readBytes(exec, path, range))) as [
      Uint8Array,
      Uint8Array,
    ];
    for (let chunk = begin; chunk < end; chunk++) {
      const from = (chunk - begin) * chunkBytes;
      const to = from + chunkBytes;
      if (!unsure.has(chunk) || isSameBytes(one.subarray(from, to), other.subarray(from, to))) continue;
      changed.add({ begin: chunk, end: chunk + 1 });
    }
  }
}

/**
 * Yields the ranges that are read to compare chunks. What is between two chunks is read with them where that is quicker than
 * to start two more programs.
 */
export function* comparisons(ranges: Iterable<ChunkRange>, chunkBytes: number): Generator<ChunkRange, void> {
  const most = Math.max(1, Math.floor(COMPARED_BYTES / chunkBytes));
  let current: ChunkRange | undefined;
  for (const range of ranges) {
    for (let begin = range.begin; begin < range.end;) {
      if (current !== undefined && begin - current.begin >= most) {
        yield current;
        current = undefined;
      }
      const first: number = current?.begin ?? begin;
      const end = Math.min(range.end, first + most);
      current = { begin: first, end };
      begin = end;
    }
  }
  if (current !== undefined) yield current;
}

/**
 * Reports whether bytes are the same. A comparison in the language itself takes sixty times as long where V8 compiles
 * nothing, as in the driver.
 */
export function isSameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return buffer.Buffer.from(one.buffer, one.byteOffset, one.byteLength).equals(other);
}
