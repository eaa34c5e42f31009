/**
 * Sizes in bytes, as `bigint`.
 *
 * @module
 */

import { StorageError } from "./error.ts";

/** 2^63 - 1: the largest size that CSI can express, in bytes. */
export const MAX_BYTES = (1n << 63n) - 1n;

const SUFFIXES: Record<string, bigint> = {
  "": 1n,
  k: 10n ** 3n,
  M: 10n ** 6n,
  G: 10n ** 9n,
  T: 10n ** 12n,
  P: 10n ** 15n,
  E: 10n ** 18n,
  Ki: 1n << 10n,
  Mi: 1n << 20n,
  Gi: 1n << 30n,
  Ti: 1n << 40n,
  Pi: 1n << 50n,
  Ei: 1n << 60n,
};

const QUANTITY = /^(\d{1,19})(?:\.(\d{1,18}))?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/;

/**
 * Parses a Kubernetes quantity (`1.5Gi`, `100M`, `4096`). Signs and exponents are not accepted.
 *
 * @returns the size in bytes, rounded up to a whole byte; `undefined` when the text is no quantity, or one beyond
 * {@linkcode MAX_BYTES}
 */
export function parseQuantity(text: string): bigint | undefined {
  const match = QUANTITY.exec(text);
  if (match === null) return undefined;
  const [, whole = "0", fraction = "", suffix = ""] = match;
  const unit = SUFFIXES[suffix] ?? 1n;
  const scale = 10n ** BigInt(fraction.length);
  const bytes = (BigInt(whole + fraction) * unit + scale - 1n) / scale;
  return bytes <= MAX_BYTES ? bytes : undefined;
}

/** Formats bytes as a Kubernetes quantity, in the largest binary unit that needs no fraction: `10Gi`. */
export function formatQuantity(bytes: bigint): string {
  const units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
  let power = 0;
  while (bytes > 0n && power < units.length - 1 && bytes % 1024n === 0n) {
    bytes /= 1024n;
    power++;
  }
  return `${bytes}${units[power]}`;
}

/** Rounds bytes up to a multiple, such as the extent size. */
export function roundUp(bytes: bigint, multiple: bigint): bigint {
  return (bytes + multiple - 1n) / multiple * multiple;
}

/** Returns the sum of sizes; 0 for none. */
export function sum(sizes: Iterable<bigint>): bigint {
  let all = 0n;
  for (const size of sizes) all += size;
  return all;
}

/** Returns the smallest of sizes. */
export function min(first: bigint, ...others: readonly bigint[]): bigint {
  return others.reduce((least, each) => each < least ? each : least, first);
}

/** Returns the largest of sizes. */
export function max(first: bigint, ...others: readonly bigint[]): bigint {
  return others.reduce((most, each) => each > most ? each : most, first);
}

/** Bounds of a requested size, in bytes. */
export interface SizeRange {
  /** The minimum. Zero only for a copy: the size of its source. */
  readonly required: bigint;
  /** The maximum; `undefined` for none. */
  readonly limit?: bigint;
}

/**
 * Returns the smallest size within the range that is a multiple of the extent size, in bytes.
 *
 * @returns `undefined` when the range contains no such size
 */
export function fitToExtents({ required, limit = MAX_BYTES }: SizeRange, extentSize: bigint): bigint | undefined {
  const bytes = roundUp(required, extentSize);
  return bytes > limit ? undefined : bytes;
}

/**
 * Returns the same as {@linkcode fitToExtents}, or fails.
 *
 * @throws {StorageError} `OutOfRange` when the range contains no such size
 */
export function roundToExtents(range: SizeRange, extentSize: bigint): bigint {
  const bytes = fitToExtents(range, extentSize);
  if (bytes !== undefined) return bytes;
  const { required, limit } = range;
  throw new StorageError(
    "OutOfRange",
    `size ${required}: rounded up to extents of ${extentSize} bytes it is ${roundUp(required, extentSize)}, above ` +
      (limit === undefined ? `the largest size of a volume, ${MAX_BYTES} (8Ei)` : `the limit of ${limit}`),
    { reason: "SizeUnsuitable" },
  );
}

/** Formats bytes for users: `1.5 GiB`. */
export function formatBytes(bytes: bigint): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let power = 0;
  while (power < units.length - 1 && bytes >= 1n << BigInt(10 * (power + 1))) power++;
  const value = Number(bytes * 100n >> BigInt(10 * power)) / 100;
  return `${Number.isInteger(value) ? value : value.toFixed(value < 10 ? 2 : 1)} ${units[power]}`;
}
