/**
 * Sizes of the COW space of snapshots: the space for the blocks of a volume that change after the snapshot was created.
 *
 * @module
 */

import { formatQuantity, min, parseQuantity, roundUp } from "../../base/size.ts";

/** A size in bytes, or in percent of a volume or of free space. */
export type SizeOrPercent = { readonly bytes: bigint } | { readonly percent: bigint };

/** Bounds of a size in percent. */
export const PERCENT = { min: 1, max: 100 } as const;

/** A COW space that cannot overflow, whatever is written to the volume. */
export const FULL_COW: SizeOrPercent = { percent: 100n };

/**
 * Parses a size such as `20%` or `10Gi`.
 *
 * @returns the size; `undefined` for text that is neither 1% to 100% nor a quantity above zero
 */
export function parseSizeOrPercent(text: string): SizeOrPercent | undefined {
  const percent = /^(\d{1,3})%$/.exec(text)?.[1];
  if (percent !== undefined) {
    return Number(percent) >= PERCENT.min && Number(percent) <= PERCENT.max ? { percent: BigInt(percent) } : undefined;
  }
  const bytes = parseQuantity(text);
  return bytes !== undefined && bytes > 0n ? { bytes } : undefined;
}

/** Formats a size so that {@linkcode parseSizeOrPercent} can parse it. */
export function formatSizeOrPercent(size: SizeOrPercent): string {
  return "bytes" in size ? formatQuantity(size.bytes) : `${size.percent}%`;
}

/**
 * Returns the size of the COW space in bytes, in whole extents: at most what LVM creates ({@linkcode fullCowBytes}).
 *
 * @param origin size of the volume, in bytes
 */
export function cowBytes(size: SizeOrPercent, origin: bigint, extentSize: bigint): bigint {
  const full = fullCowBytes(origin, extentSize);
  if ("percent" in size && size.percent >= 100n) return full;
  const bytes = roundUp("bytes" in size ? size.bytes : origin * size.percent / 100n, extentSize);
  return min(bytes, full);
}

/** The default chunk size of LVM's snapshots, in bytes (lvcreate(8), --chunksize). */
const CHUNK_BYTES = 4096n;

/**
 * The chunks that one chunk of the exception table describes, each with two numbers of eight bytes
 * (dm-snap-persistent).
 */
const CHUNKS_PER_TABLE = CHUNK_BYTES / 16n;

/**
 * Returns the size in bytes of a COW space that has space for a whole volume. Such a COW space cannot overflow, and LVM
 * creates none that is larger (lvm's cow_max_extents). It has a header, every chunk, and the tables that describe them,
 * of which the last may be empty.
 *
 * @param origin size of the volume, in bytes
 */
export function fullCowBytes(origin: bigint, extentSize: bigint): bigint {
  const chunks = roundUp(origin, CHUNK_BYTES) / CHUNK_BYTES;
  return roundUp((1n + chunks + chunks / CHUNKS_PER_TABLE + 1n) * CHUNK_BYTES, extentSize);
}
