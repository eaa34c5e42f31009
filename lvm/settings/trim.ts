/**
 * Discarding the freed blocks of a filesystem: at once by the mount option `discard`, from time to time by fstrim(8),
 * or not at all.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import { defined } from "../../base/defined.ts";

/** The policy for discarding the freed blocks of a volume. */
export interface TrimPolicy {
  /** True if the volume is mounted with the option `discard`. */
  readonly discard: boolean;
  /** Milliseconds between two runs of fstrim while the volume is staged; absent for none. */
  readonly intervalMs?: number;
}

const UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000 } as const;

/** Bounds of the interval, in milliseconds. */
const MIN_INTERVAL_MS = 10 * UNITS_MS.m;
const MAX_INTERVAL_MS = 90 * UNITS_MS.d;

/**
 * Parses an interval such as `24h`.
 *
 * @returns the interval in milliseconds; `undefined` for text that is no interval of ten minutes to 90 days
 */
export function parseInterval(text: string): number | undefined {
  const [, number, unit] = /^([1-9]\d{0,5})([dhm])$/.exec(text) ?? [];
  if (number === undefined) return undefined;
  const ms = Number(number) * UNITS_MS[unit as keyof typeof UNITS_MS];
  return ms >= MIN_INTERVAL_MS && ms <= MAX_INTERVAL_MS ? ms : undefined;
}

/** Formats an interval in milliseconds so that {@linkcode parseInterval} can parse it. */
export function formatInterval(ms: number): string {
  const [unit, unitMs] = Object.entries(UNITS_MS).find(([, unitMs]) => ms % unitMs === 0)!;
  return `${ms / unitMs}${unit}`;
}

/**
 * Formats a policy in a few characters, for a tag.
 *
 * @returns the text, or `undefined` when nothing is discarded
 */
export function formatTrim({ discard, intervalMs }: TrimPolicy): string | undefined {
  const parts = [...(discard ? ["d"] : []), ...(intervalMs === undefined ? [] : [formatInterval(intervalMs)])];
  return parts.length === 0 ? undefined : parts.join("+");
}

/**
 * Parses the text of {@linkcode formatTrim}.
 *
 * @returns the policy, or `undefined` for any other text
 */
export function parseTrim(text: string): TrimPolicy | undefined {
  const parts = text.split("+");
  const discard = parts[0] === "d";
  const [interval, ...more] = discard ? parts.slice(1) : parts;
  const intervalMs = interval === undefined ? undefined : parseInterval(interval);
  if (more.length > 0 || (interval !== undefined && intervalMs === undefined)) return undefined;
  return { discard, ...defined({ intervalMs }) };
}

/** Returns the flags for a mount of a volume. A requested flag takes precedence over the policy. */
export function withDiscardFlag(policy: TrimPolicy | undefined, flags: readonly string[]): readonly string[] {
  const hasDiscardFlag = flags.some((flag) => /^(?:no)?discard(?:=|$)/.test(flag));
  return policy?.discard && !hasDiscardFlag ? [...flags, "discard"] : flags;
}

/**
 * Returns when fstrim runs next for a volume: once in each interval, counted from 1970, at a time that depends on the
 * volume's id and the interval.
 *
 * So the volumes of a machine, and of all machines, are not trimmed at the same time. A restart of the driver neither
 * repeats nor delays a run, though nothing is recorded. And if a machine is off at night, a volume's time is during the
 * day sooner or later.
 *
 * @param intervalMs milliseconds
 * @param now milliseconds since 1970
 * @returns a time after `now`, in milliseconds since 1970
 */
export function nextTrimTime(id: VolumeId, intervalMs: number, now: number): number {
  const interval = Math.floor(now / intervalMs);
  const time = trimTimeIn(interval, id, intervalMs);
  return time > now ? time : trimTimeIn(interval + 1, id, intervalMs);
}

/**
 * Returns the time within an interval. From one interval to the next it moves by the golden ratio, so that it soon
 * reaches all parts of an interval.
 */
function trimTimeIn(interval: number, id: VolumeId, intervalMs: number): number {
  const share = BigInt.asUintN(ID_BITS, BigInt(`0x${id.slice("v1-".length)}`) + BigInt(interval) * GOLDEN_SECTION);
  return interval * intervalMs + Number(share * BigInt(intervalMs) >> BigInt(ID_BITS));
}

/** The number of bits of an id. */
const ID_BITS = 128;

/** The golden ratio of all ids: 2¹²⁸ divided by 1.618…. */
const GOLDEN_SECTION = 0x9e3779b97f4a7c15f39cc0605cedc835n;
