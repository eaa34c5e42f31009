/**
 * How large the store of a copy-on-write snapshot is: the room for blocks of the volume that change after the cut.
 *
 * @module
 */

import { formatQuantity, parseQuantity, roundUp } from "../size.ts";

/** How large the store is: bytes, or a percentage of the volume. */
export type SizeOrPercent = { readonly bytes: bigint } | { readonly percent: bigint };

/** A store that cannot overflow, whatever is written to the volume. */
export const FULL_COW: SizeOrPercent = { percent: 100n };

/** The size that `20%` or `10Gi` stands for; `undefined` for what is neither 1% to 100% nor a quantity of some bytes. */
export function parseSizeOrPercent(text: string): SizeOrPercent | undefined {
  const percent = /^(\d{1,3})%$/.exec(text)?.[1];
  if (percent !== undefined) {
    return Number(percent) >= 1 && Number(percent) <= 100 ? { percent: BigInt(percent) } : undefined;
  }
  const bytes = parseQuantity(text);
  return bytes !== undefined && bytes > 0n ? { bytes } : undefined;
}

/** The size as {@linkcode parseSizeOrPercent} reads it. */
export function formatSizeOrPercent(size: SizeOrPercent): string {
  return "bytes" in size ? formatQuantity(size.bytes) : `${size.percent}%`;
}

/** The size of the store in whole extents, for a volume of `origin` bytes. */
export function cowBytes(size: SizeOrPercent, origin: bigint, extentSize: bigint): bigint {
  if ("bytes" in size) return roundUp(size.bytes, extentSize);
  if (size.percent >= 100n) return fullCowBytes(origin, extentSize);
  return roundUp(origin * size.percent / 100n, extentSize);
}

/** How much LVM keeps together in a store unless it is told otherwise (lvcreate(8), --chunksize), in bytes. */
const CHUNK_BYTES = 4096n;

/** How many chunks a chunk of the store's own table describes: each with two numbers of eight bytes (dm-snap-persistent). */
const CHUNKS_PER_TABLE = CHUNK_BYTES / 16n;

/**
 * The size of a store in which a whole volume of `origin` bytes has room: such a one cannot overflow, and LVM makes none
 * larger (lvm's cow_max_extents): a header, every chunk, and the tables that describe them, of which the last may be empty.
 */
export function fullCowBytes(origin: bigint, extentSize: bigint): bigint {
  const chunks = roundUp(origin, CHUNK_BYTES) / CHUNK_BYTES;
  return roundUp((1n + chunks + chunks / CHUNKS_PER_TABLE + 1n) * CHUNK_BYTES, extentSize);
}
