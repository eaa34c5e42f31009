/**
 * Limits of a volume's IO: how they are parsed, recorded and scaled with its size.
 *
 * They are those of cgroup v2's io.max (Linux' admin-guide/cgroup-v2, "io.max"): reads and writes per second, and bytes
 * per second. A limit that a volume does not set is the default of its volume group; `max` sets no limit.
 *
 * @module
 */

import { formatQuantity, max, MAX_BYTES, min, parseQuantity } from "../../base/size.ts";
import { quote, StorageError } from "../../base/error.ts";

/** The limits, by the names of their parameters. */
export const IO_LIMITS = ["readIops", "writeIops", "readBps", "writeBps"] as const;

/** The name of a limit. */
export type IoLimitName = typeof IO_LIMITS[number];

/** A limit: a rate, fixed or for each GiB of the volume; or `max` for none, whatever the defaults are. */
export type IoLimit = { readonly rate: bigint; readonly perGiB: boolean } | "max";

/** Limits that are set for a volume. */
export type IoLimits = Readonly<Partial<Record<IoLimitName, IoLimit>>>;

/** Limits of a device: operations or bytes per second, or `max` for no limit. */
export type IoRates = Readonly<Partial<Record<IoLimitName, bigint | "max">>>;

/** The suffix of a parameter for a limit per GiB. */
const PER_GIB = "PerGiB";

/** The parameters that set limits. */
export const IO_LIMIT_PARAMETERS: readonly string[] = IO_LIMITS.flatMap((name) => [name, name + PER_GIB]);

/** The smallest rate that io.max accepts; it refuses 1 as it refuses 0 (Linux, block/blk-throttle.c, tg_set_limit). */
const MIN_RATE = 2n;

/** The highest rate in operations per second: to the kernel, a higher one means no limit (as above). */
const MAX_IOPS = (1n << 32n) - 2n;

const GiB = 1n << 30n;

/** The values of the parameters that set limits, in Markdown. */
export const IO_LIMIT_VALUES = [
  valuesOf(["readIops", "writeIops"], { perGiB: false }),
  valuesOf(["readBps", "writeBps"], { perGiB: false }),
  valuesOf(["readIops", "writeIops"], { perGiB: true }),
  valuesOf(["readBps", "writeBps"], { perGiB: true }),
];

/** The prefixes of limits in a tag. */
const TAG_PREFIXES = { readIops: "ri", writeIops: "wi", readBps: "rb", writeBps: "wb" } as const satisfies Record<
  IoLimitName,
  string
>;

/**
 * Parses the limits among parameters; other parameters are ignored.
 *
 * @throws {StorageError} `InvalidArgument` that names the wrong parameter, or the two that set the same limit
 */
export function parseIoLimitParameters(parameters: ReadonlyMap<string, string>): IoLimits {
  const limits: Partial<Record<IoLimitName, IoLimit>> = {};
  for (const name of IO_LIMITS) {
    const fixed = parameters.get(name);
    const perGiB = parameters.get(name + PER_GIB);
    if (fixed !== undefined && perGiB !== undefined) {
      throw new StorageError(
        "InvalidArgument",
        `parameters ${name} and ${name}${PER_GIB}: only one of them can be given`,
        { reason: "WrongParameter" },
      );
    }
    const text = fixed ?? perGiB;
    if (text !== undefined) limits[name] = requireLimit(name, text, { perGiB: perGiB !== undefined });
  }
  return limits;
}

/** Formats limits as parameters that {@linkcode parseIoLimitParameters} can parse. */
export function formatIoLimitParameters(limits: IoLimits): Record<string, string> {
  return Object.fromEntries(
    definedLimits(limits).map(([name, limit]) =>
      limit === "max" ? [name, limit] : [limit.perGiB ? name + PER_GIB : name, formatRate(name, limit.rate)]
    ),
  );
}

/**
 * Formats limits in a few characters, for a tag.
 *
 * @returns the text; empty when no limit is set
 */
export function formatIoLimitTag(limits: IoLimits): string {
  return definedLimits(limits).map(([name, limit]) =>
    TAG_PREFIXES[name] + (limit === "max" ? limit : formatRate(name, limit.rate) + (limit.perGiB ? "/g" : ""))
  ).join(":");
}

/**
 * Parses the text of {@linkcode formatIoLimitTag}.
 *
 * @returns the limits, or `undefined` for any other text
 */
export function parseIoLimitTag(text: string): IoLimits | undefined {
  if (text === "") return {};
  const limits: Partial<Record<IoLimitName, IoLimit>> = {};
  for (const part of text.split(":")) {
    const name = IO_LIMITS.find((name) => part.startsWith(TAG_PREFIXES[name]));
    if (name === undefined || limits[name] !== undefined) return undefined;
    const [, rate = "", perGiB] = /^..([^]*?)(\/g)?$/.exec(part)!;
    const limit = parseLimit(name, rate, { perGiB: perGiB !== undefined });
    if (limit === undefined) return undefined;
    limits[name] = limit;
  }
  return limits;
}

/** Reports whether any limit is set. */
export function hasLimits(limits: IoLimits): boolean {
  return definedLimits(limits).length > 0;
}

/** Reports whether two sets of limits are equal. */
export function isSameLimits(a: IoLimits, b: IoLimits): boolean {
  return formatIoLimitTag(a) === formatIoLimitTag(b);
}

/** Returns the limits of a device with a size in bytes. A part of a GiB counts as a whole GiB. */
export function ratesFor(limits: IoLimits, bytes: bigint): IoRates {
  const gib = (bytes + GiB - 1n) / GiB;
  return Object.fromEntries(
    definedLimits(limits).map(([name, limit]) => {
      if (limit === "max") return [name, limit];
      const rate = limit.perGiB ? limit.rate * gib : limit.rate;
      return [name, max(MIN_RATE, min(rate, maxRate(name)))];
    }),
  );
}

/** Formats rates for users: `readIops 500, writeBps 4Mi`. */
export function describeRates(rates: IoRates): string {
  return IO_LIMITS.flatMap((name) => {
    const rate = rates[name];
    return rate === undefined ? [] : [`${name} ${rate === "max" ? rate : formatRate(name, rate)}`];
  }).join(", ");
}

/** Parses the value of a parameter. @throws {StorageError} `InvalidArgument` when it is not a limit */
function requireLimit(name: IoLimitName, text: string, { perGiB }: { perGiB: boolean }): IoLimit {
  const limit = parseLimit(name, text, { perGiB });
  if (limit !== undefined) return limit;
  const parameter = perGiB ? name + PER_GIB : name;
  const expected = isInBytes(name)
    ? "a quantity of bytes a second such as 4Mi"
    : `a number of operations a second up to ${MAX_IOPS}`;
  throw new StorageError(
    "InvalidArgument",
    `parameter ${parameter} ${quote(text)}: must be ${expected}, at least ${minRate(perGiB)}${
      perGiB ? "" : ", or max"
    }`,
    { reason: "WrongParameter" },
  );
}

/** Returns the parameters that set limits of one unit, and their values in Markdown. */
function valuesOf(names: readonly [IoLimitName, ...IoLimitName[]], { perGiB }: { perGiB: boolean }) {
  const unit = `${isInBytes(names[0]) ? "bytes" : "operations"} per second${
    perGiB ? " for each GiB of the volume" : ""
  }`;
  const min = `\`${minRate(perGiB)}\``;
  const range = isInBytes(names[0]) ? `a quantity such as \`4Mi\`, at least ${min}` : `${min} to \`${MAX_IOPS}\``;
  return {
    parameters: names.map((name) => perGiB ? name + PER_GIB : name),
    values: `${unit}, ${range}${perGiB ? "" : "; `max`: no limit"}`,
  };
}

function parseLimit(name: IoLimitName, text: string, { perGiB }: { perGiB: boolean }): IoLimit | undefined {
  if (text === "max") return perGiB ? undefined : text;
  const rate = isInBytes(name) ? parseQuantity(text) : /^\d{1,10}$/.test(text) ? BigInt(text) : undefined;
  if (rate === undefined || rate < minRate(perGiB) || rate > maxRate(name)) return undefined;
  return { rate, perGiB };
}

/** Returns the limits that are set, in the order of {@linkcode IO_LIMITS}. */
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
