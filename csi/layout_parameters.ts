/**
 * The parameters of a StorageClass that say how its volumes are laid out on disks.
 *
 * @module
 */

import { DEFAULT_STRIPE_SIZE, type Layout, LAYOUT_NAMES, LINEAR } from "../lvm/model/layout.ts";
import { formatQuantity, parseQuantity } from "../lvm/size.ts";
import { invalid, quote } from "./request.ts";

/** Their names. */
export const LAYOUT_PARAMETERS = ["layout", "stripes", "stripeSize", "mirrors"] as const;

/** How many stripes with data a layout has: what LVM requires at least, which is the default, and what is sane at most. */
const STRIPES = {
  striped: { least: 2, most: 32 },
  raid10: { least: 2, most: 16 },
  raid5: { least: 2, most: 32 },
  raid6: { least: 3, most: 32 },
} as const;

/** How many copies beyond the first a `raid1` has; LVM's own limit is 10 copies. */
const MIRRORS = { least: 1, most: 9 } as const;

/** LVM takes powers of two from a page on (lvcreate(8), `--stripesize`). */
const STRIPE_SIZE = { least: 4n << 10n, most: 4n << 20n } as const;

/** The layout that the parameters ask for. @throws {StorageError} `InvalidArgument` naming the one that is wrong. */
export function parseLayout(given: ReadonlyMap<string, string>): Layout {
  const name = given.get("layout") ?? LINEAR.type;
  const type = LAYOUT_NAMES.find((known) => known === name);
  if (type === undefined) {
    throw invalid(`parameter layout ${quote(name)}: must be ${LAYOUT_NAMES.join(" or ")}`);
  }
  if (type === "linear") {
    refuse(given, type, ["stripes", "stripeSize", "mirrors"]);
    return LINEAR;
  }
  if (type === "raid1") {
    refuse(given, type, ["stripes", "stripeSize"]);
    return { type, mirrors: count(given, "mirrors", MIRRORS, type) };
  }
  if (type === "raid10") count(given, "mirrors", { least: 1, most: 1 }, type); // LVM has none with more (lvmraid(7))
  else refuse(given, type, ["mirrors"]);
  return { type, stripes: count(given, "stripes", STRIPES[type], type), stripeSize: stripeSize(given) };
}

function refuse(given: ReadonlyMap<string, string>, type: string, names: readonly string[]): void {
  const name = names.find((name) => given.has(name));
  if (name !== undefined) throw invalid(`parameter ${name}: the layout ${type} has none`);
}

function count(
  given: ReadonlyMap<string, string>,
  name: string,
  { least, most }: { least: number; most: number },
  type: string,
): number {
  const text = given.get(name);
  if (text === undefined) return least;
  const value = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
  if (value >= least && value <= most) return value;
  const range = least === most ? `${least}` : `from ${least} to ${most}`;
  throw invalid(`parameter ${name} ${quote(text)}: must be ${range} for the layout ${type}`);
}

function stripeSize(given: ReadonlyMap<string, string>): bigint {
  const text = given.get("stripeSize");
  if (text === undefined) return DEFAULT_STRIPE_SIZE;
  const { least, most } = STRIPE_SIZE;
  const size = parseQuantity(text) ?? 0n;
  if (size >= least && size <= most && (size & (size - 1n)) === 0n) return size;
  const range = `${formatQuantity(least)} to ${formatQuantity(most)}`;
  throw invalid(`parameter stripeSize ${quote(text)}: must be a power of two from ${range}, such as 128Ki`);
}
