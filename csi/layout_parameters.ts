/**
 * The parameters of a StorageClass for the layout of volumes over physical volumes.
 *
 * @module
 */

import { type Integrity, type Layout, LINEAR } from "../lvm/model/layout.ts";
import { formatQuantity, parseQuantity } from "../base/size.ts";
import {
  type Bounds,
  DEFAULT_CACHE_SIZE,
  DEFAULT_STRIPE_SIZE,
  isCachedLayoutName,
  LAYOUT_NAMES,
  LAYOUTS,
  MIN_CACHE_SIZE,
  STRIPE_SIZE,
} from "../lvm/settings/layouts.ts";
import { SETTINGS } from "../lvm/settings/settings.ts";
import { quote } from "../base/error.ts";
import { wrongParameter } from "./request.ts";

/** The layouts of LVM that the driver does not create, each with the reason. */
const REFUSED_LAYOUTS: ReadonlyMap<string, string> = new Map([
  [
    "vdo",
    "the driver creates no VDO volumes: how much fits depends on the data, and a VDO pool that is full loses writes",
  ],
  ["mirror", "raid1 replaced it in LVM"],
]);

/** Parses the layout. @throws {StorageError} `InvalidArgument` with the invalid parameter */
export function parseLayout(given: ReadonlyMap<string, string>): Layout {
  const name = given.get("layout") ?? LINEAR.type;
  const type = LAYOUT_NAMES.find((known) => known === name);
  if (type === undefined) {
    const reason = REFUSED_LAYOUTS.get(name);
    throw wrongParameter(
      `parameter layout ${quote(name)}: must be ${LAYOUT_NAMES.join(" or ")}${
        reason === undefined ? "" : `; ${reason}`
      }`,
    );
  }
  if (isCachedLayoutName(type)) {
    rejectParameters(given, type, ["stripes", "stripeSize", "mirrors", "raidIntegrity"]);
    return { type, cacheSize: parseCacheSize(given) };
  }
  rejectParameters(given, type, ["cacheSize"]);
  if (type === "linear") {
    rejectParameters(given, type, ["stripes", "stripeSize", "mirrors", "raidIntegrity"]);
    return LINEAR;
  }
  if (type === "raid1") {
    rejectParameters(given, type, ["stripes", "stripeSize"]);
    return { type, mirrors: parseCount(given, "mirrors", LAYOUTS[type].mirrors, type), ...parseIntegrity(given) };
  }
  if (type === "raid10") parseCount(given, "mirrors", LAYOUTS[type].mirrors, type); // there is only one value
  else rejectParameters(given, type, ["mirrors"]);
  if (type === "striped") rejectParameters(given, type, ["raidIntegrity"]);
  const stripes = parseCount(given, "stripes", LAYOUTS[type].stripes, type);
  const stripeSize = parseStripeSize(given);
  return type === "striped" ? { type, stripes, stripeSize } : { type, stripes, stripeSize, ...parseIntegrity(given) };
}

function parseCacheSize(given: ReadonlyMap<string, string>): bigint {
  const text = given.get("cacheSize");
  if (text === undefined) return DEFAULT_CACHE_SIZE;
  const size = parseQuantity(text) ?? 0n;
  if (size >= MIN_CACHE_SIZE) return size;
  throw wrongParameter(
    `parameter cacheSize ${quote(text)}: must be a quantity of ${formatQuantity(MIN_CACHE_SIZE)} or more, such as 10Gi`,
  );
}

function parseIntegrity(given: ReadonlyMap<string, string>): Integrity {
  const text = given.get("raidIntegrity") ?? SETTINGS.raidIntegrity.default;
  if (text === "yes") return { integrity: true };
  if (text === "no") return {};
  throw wrongParameter(
    `parameter raidIntegrity ${quote(text)}: must be ${SETTINGS.raidIntegrity.values.join(" or ")}`,
  );
}

function rejectParameters(given: ReadonlyMap<string, string>, type: string, names: readonly string[]): void {
  const name = names.find((name) => given.has(name));
  if (name !== undefined) throw wrongParameter(`parameter ${name}: the layout ${type} has none`);
}

function parseCount(
  given: ReadonlyMap<string, string>,
  name: string,
  { min, max }: Bounds,
  type: string,
): number {
  const text = given.get(name);
  if (text === undefined) return min;
  const value = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
  if (value >= min && value <= max) return value;
  const range = min === max ? `${min}` : `from ${min} to ${max}`;
  throw wrongParameter(`parameter ${name} ${quote(text)}: must be ${range} for the layout ${type}`);
}

function parseStripeSize(given: ReadonlyMap<string, string>): bigint {
  const text = given.get("stripeSize");
  if (text === undefined) return DEFAULT_STRIPE_SIZE;
  const { min, max } = STRIPE_SIZE;
  const size = parseQuantity(text) ?? 0n;
  if (size >= min && size <= max && (size & (size - 1n)) === 0n) return size;
  const range = `${formatQuantity(min)} to ${formatQuantity(max)}`;
  throw wrongParameter(`parameter stripeSize ${quote(text)}: must be a power of two from ${range}, such as 128Ki`);
}
