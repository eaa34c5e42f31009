/**
 * The parameters of a StorageClass for the layout of volumes over physical volumes.
 *
 * @module
 */

import { DEFAULT_STRIPE_SIZE, type Layout, LAYOUT_NAMES, LINEAR } from "../lvm/model/layout.ts";
import { formatQuantity, parseQuantity } from "../lvm/size.ts";
import { invalidArgument, quote } from "./request.ts";

/** Bounds of the number of data stripes by layout. The minimum is that of LVM, and the default. */
const STRIPES = {
  striped: { min: 2, max: 32 },
  raid10: { min: 2, max: 16 },
  raid5: { min: 2, max: 32 },
  raid6: { min: 3, max: 32 },
} as const;

/** Bounds of the number of additional mirrors of `raid1`; LVM allows 10 copies in all. */
const MIRRORS = { min: 1, max: 9 } as const;

/** Bounds of the stripe size in bytes: a power of two of at least a page (lvcreate(8), `--stripesize`). */
const STRIPE_SIZE = { min: 4n << 10n, max: 4n << 20n } as const;

/** Parses the layout. @throws {StorageError} `InvalidArgument` with the invalid parameter */
export function parseLayout(given: ReadonlyMap<string, string>): Layout {
  const name = given.get("layout") ?? LINEAR.type;
  const type = LAYOUT_NAMES.find((known) => known === name);
  if (type === undefined) {
    throw invalidArgument(`parameter layout ${quote(name)}: must be ${LAYOUT_NAMES.join(" or ")}`);
  }
  if (type === "linear") {
    rejectParameters(given, type, ["stripes", "stripeSize", "mirrors"]);
    return LINEAR;
  }
  if (type === "raid1") {
    rejectParameters(given, type, ["stripes", "stripeSize"]);
    return { type, mirrors: parseCount(given, "mirrors", MIRRORS, type) };
  }
  if (type === "raid10") parseCount(given, "mirrors", { min: 1, max: 1 }, type); // lvmraid(7): raid10 has two copies
  else rejectParameters(given, type, ["mirrors"]);
  return { type, stripes: parseCount(given, "stripes", STRIPES[type], type), stripeSize: parseStripeSize(given) };
}

function rejectParameters(given: ReadonlyMap<string, string>, type: string, names: readonly string[]): void {
  const name = names.find((name) => given.has(name));
  if (name !== undefined) throw invalidArgument(`parameter ${name}: the layout ${type} has none`);
}

function parseCount(
  given: ReadonlyMap<string, string>,
  name: string,
  { min, max }: { min: number; max: number },
  type: string,
): number {
  const text = given.get(name);
  if (text === undefined) return min;
  const value = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
  if (value >= min && value <= max) return value;
  const range = min === max ? `${min}` : `from ${min} to ${max}`;
  throw invalidArgument(`parameter ${name} ${quote(text)}: must be ${range} for the layout ${type}`);
}

function parseStripeSize(given: ReadonlyMap<string, string>): bigint {
  const text = given.get("stripeSize");
  if (text === undefined) return DEFAULT_STRIPE_SIZE;
  const { min, max } = STRIPE_SIZE;
  const size = parseQuantity(text) ?? 0n;
  if (size >= min && size <= max && (size & (size - 1n)) === 0n) return size;
  const range = `${formatQuantity(min)} to ${formatQuantity(max)}`;
  throw invalidArgument(`parameter stripeSize ${quote(text)}: must be a power of two from ${range}, such as 128Ki`);
}
