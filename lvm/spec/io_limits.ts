/**
 * Limits of a volume's IO: how they are said, recorded and scaled with its size.
 *
 * They are those of cgroup v2's io.max (Linux' admin-guide/cgroup-v2, "io.max"): reads and writes a second, and bytes a
 * second. What is not said of one leaves it to the defaults of its volume group; `max` says that there is none.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { formatQuantity, MAX_BYTES, parseQuantity } from "../size.ts";

/** The limits, by the names of their parameters. */
export const IO_LIMITS = ["readIops", "writeIops", "readBps", "writeBps"] as const;

/** One of the limits. */
export type IoLimitName = typeof IO_LIMITS[number];

/** A limit: a rate, as it is or for each GiB that the volume has; or none, whatever the defaults are. */
export type IoLimit = { readonly rate: bigint; readonly perGiB: boolean } | "max";

/** What is said of a volume's limits. */
export type IoLimits = Readonly<Partial<Record<IoLimitName, IoLimit>>>;

/** What a device is limited to: operations or bytes a second, or `max` for no limit. */
export type IoRates = Readonly<Partial<Record<IoLimitName, bigint | "max">>>;

/** What a limit's parameter has at its end when it counts for each GiB. */
const PER_GIB = "PerGiB";

/** The parameters that say limits. */
export const IO_LIMIT_PARAMETERS: readonly string[] = IO_LIMITS.flatMap((name) => [name, name + PER_GIB]);

/** The least that io.max takes; it refuses 1 as it refuses 0 (Linux, block/blk-throttle.c, tg_set_limit). */
const MIN_RATE = 2n;

/** The most operations a second: the kernel takes what is above for no limit (as above). */
const MAX_IOPS = (1n << 32n) - 2n;

const GiB = 1n << 30n;

/** How each limit begins in a tag. */
const TAG_PREFIXES = { readIops: "ri", writeIops: "wi", readBps: "rb", writeBps: "wb" } as const satisfies Record<
  IoLimitName,
  string
>;

/**
 * Reads the limits among some parameters; others are left alone.
 *
 * @throws {StorageError} `InvalidArgument` naming the parameter that is wrong, or the two that say the same limit.
 */
export function parseIoLimitParameters(parameters: ReadonlyMap<string, string>): IoLimits {
  const limits: Partial<Record<IoLimitName, IoLimit>> = {};
  for (const name of IO_LIMITS) {
    const [fixed, perGiB] = [parameters.get(name), parameters.get(name + PER_GIB)];
    if (fixed !== undefined && perGiB !== undefined) {
      throw new StorageError(
        "InvalidArgument",
        `parameters ${name} and ${name}${PER_GIB}: only one of them can be given`,
      );
    }
    const text = fixed ?? perGiB;
    if (text !== undefined) limits[name] = requireLimit(name, text, { perGiB: perGiB !== undefined });
  }
  return limits;
}

/** The limits as {@linkcode parseIoLimitParameters} reads them. */
export function formatIoLimitParameters(limits: IoLimits): Record<string, string> {
  return Object.fromEntries(
    definedLimits(limits).map(([name, limit]) =>
      limit === "max" ? [name, limit] : [limit.perGiB ? name + PER_GIB : name, formatRate(name, limit.rate)]
    ),
  );
}

/** The limits in a few characters, for a tag; empty when nothing is said. */
export function formatIoLimitTag(limits: IoLimits): string {
  return definedLimits(limits).map(([name, limit]) =>
    TAG_PREFIXES[name] + (limit === "max" ? limit : formatRate(name, limit.rate) + (limit.perGiB ? "/g" : ""))
  ).join(":");
}

/** Reads what {@linkcode formatIoLimitTag} wrote; `undefined` for anything else. */
export function parseIoLimitTag(text: string): IoLimits | undefined {
  if (text === "") return {};
  const limits: Partial<Record<IoLimitName, IoLimit>> = {};
  for (const part of text.split(":")) {
    const name = IO_LIMITS.find((name) => part.startsWith(TAG_PREFIXES[name]));
    if (name === undefined || limits[name] !== undefined) return undefined;
    const [, rate = "", perGiB] = /^..(.*?)(\/g)?$/.exec(part)!;
    const limit = parseLimit(name, rate, { perGiB: perGiB !== undefined });
    if (limit === undefined) return undefined;
    limits[name] = limit;
  }
  return limits;
}

/** Whether anything is said. */
export function hasLimits(limits: IoLimits): boolean {
  return definedLimits(limits).length > 0;
}

/** Whether both say the same. */
export function isSameLimits(a: IoLimits, b: IoLimits): boolean {
  return formatIoLimitTag(a) === formatIoLimitTag(b);
}

/** What a device of a size is limited to. A GiB that is begun counts as a whole one. */
export function ratesFor(limits: IoLimits, bytes: bigint): IoRates {
  const gib = (bytes + GiB - 1n) / GiB;
  return Object.fromEntries(
    definedLimits(limits).map(([name, limit]) => {
      if (limit === "max") return [name, limit];
      const rate = limit.perGiB ? limit.rate * gib : limit.rate;
      return [name, rate < MIN_RATE ? MIN_RATE : rate > maxRate(name) ? maxRate(name) : rate];
    }),
  );
}

/** The rates for people: `readIops 500, writeBps 4Mi`. */
export function describeRates(rates: IoRates): string {
  return IO_LIMITS.flatMap((name) => {
    const rate = rates[name];
    return rate === undefined ? [] : [`${name} ${rate === "max" ? rate : formatRate(name, rate)}`];
  }).join(", ");
}

/** A limit by its parameter's value. @throws {StorageError} `InvalidArgument` */
function requireLimit(name: IoLimitName, text: string, { perGiB }: { perGiB: boolean }): IoLimit {
  const limit = parseLimit(name, text, { perGiB });
  if (limit !== undefined) return limit;
  const parameter = perGiB ? name + PER_GIB : name;
  const quoted = JSON.stringify(text.length > 80 ? text.slice(0, 80) + "…" : text);
  const expected = isInBytes(name)
    ? "a quantity of bytes a second such as 4Mi"
    : `a number of operations a second up to ${MAX_IOPS}`;
  throw new StorageError(
    "InvalidArgument",
    `parameter ${parameter} ${quoted}: must be ${expected}, at least ${minRate(perGiB)}${perGiB ? "" : ", or max"}`,
  );
}

function parseLimit(name: IoLimitName, text: string, { perGiB }: { perGiB: boolean }): IoLimit | undefined {
  if (text === "max") return perGiB ? undefined : text;
  const rate = isInBytes(name) ? parseQuantity(text) : /^\d{1,10}$/.test(text) ? BigInt(text) : undefined;
  if (rate === undefined || rate < minRate(perGiB) || rate > maxRate(name)) return undefined;
  return { rate, perGiB };
}

/** The limits that are said, in the order of their names. */
function definedLimits(limits: IoLimits): [IoLimitName, IoLimit][] {
  return IO_LIMITS.flatMap((name) => limits[name] === undefined ? [] : [[name, limits[name]]]);
}

function isInBytes(name: IoLimitName): boolean {
  return name === "readBps" || name === "writeBps";
}

function minRate(perGiB: boolean): bigint {
  return perGiB ? 1n : MIN_RATE;
}

function maxRate(name: IoLimitName): bigint {
  return isInBytes(name) ? MAX_BYTES : MAX_IOPS;
}

function formatRate(name: IoLimitName, rate: bigint): string {
  return isInBytes(name) ? formatQuantity(rate) : `${rate}`;
}
