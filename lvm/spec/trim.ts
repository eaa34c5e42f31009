/**
 * How the disks are told of what a filesystem has freed: at once, by the mount option `discard`, now and then, by fstrim(8), or
 * not at all.
 *
 * @module
 */

import type { VolumeId } from "../ids.ts";

/** What is done for a volume. */
export interface TrimPolicy {
  /** Whether it is mounted with the option `discard`. */
  readonly discard: boolean;
  /** How often fstrim is run while it is staged, in milliseconds; absent: never. */
  readonly intervalMs?: number;
}

const UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000 } as const;

/** The shortest and the longest interval, in milliseconds. */
const MIN_INTERVAL_MS = 10 * UNITS_MS.m;
const MAX_INTERVAL_MS = 90 * UNITS_MS.d;

/** The interval that `24h` stands for, in milliseconds; `undefined` for what is none, or not from ten minutes to 90 days. */
export function parseInterval(text: string): number | undefined {
  const [, number, unit] = /^([1-9]\d{0,5})([dhm])$/.exec(text) ?? [];
  if (number === undefined) return undefined;
  const ms = Number(number) * UNITS_MS[unit as keyof typeof UNITS_MS];
  return ms >= MIN_INTERVAL_MS && ms <= MAX_INTERVAL_MS ? ms : undefined;
}

/** The interval as {@linkcode parseInterval} reads it. */
export function formatInterval(ms: number): string {
  const [unit, unitMs] = Object.entries(UNITS_MS).find(([, unitMs]) => ms % unitMs === 0)!;
  return `${ms / unitMs}${unit}`;
}

/** What is to be done, in few characters; `undefined` where nothing is. */
export function formatTrim({ discard, intervalMs }: TrimPolicy): string | undefined {
  const parts = [...(discard ? ["d"] : []), ...(intervalMs === undefined ? [] : [formatInterval(intervalMs)])];
  return parts.length === 0 ? undefined : parts.join("+");
}

/** Reads what {@linkcode formatTrim} writes; `undefined` for anything else. */
export function parseTrim(text: string): TrimPolicy | undefined {
  const parts = text.split("+");
  const discard = parts[0] === "d";
  const [interval, ...more] = discard ? parts.slice(1) : parts;
  const intervalMs = interval === undefined ? undefined : parseInterval(interval);
  if (more.length > 0 || (interval !== undefined && intervalMs === undefined)) return undefined;
  return { discard, ...(intervalMs === undefined ? {} : { intervalMs }) };
}

/** The flags of a mount of the volume: those that were asked for have priority. */
export function withDiscardFlag(policy: TrimPolicy | undefined, flags: readonly string[]): readonly string[] {
  const hasDiscardFlag = flags.some((flag) => /^(?:no)?discard(?:=|$)/.test(flag));
  return policy?.discard && !hasDiscardFlag ? [...flags, "discard"] : flags;
}

/**
 * When fstrim is run next for a volume, after `now`, in milliseconds since 1970: once in each interval, counted from 1970, at
 * a moment that follows from the volume's id and the interval.
 *
 * So the volumes of a machine, and of all machines, do not come together; a start of the driver neither repeats nor delays it,
 * though nothing is recorded; and a machine that is off at night has a volume's moment at day sooner or later.
 */
export function nextTrimTime(id: VolumeId, intervalMs: number, now: number): number {
  const interval = Math.floor(now / intervalMs);
  const time = trimTimeIn(interval, id, intervalMs);
  return time > now ? time : trimTimeIn(interval + 1, id, intervalMs);
}

/** From one interval to the next it moves on by the golden section, which comes to all parts of an interval soon. */
function trimTimeIn(interval: number, id: VolumeId, intervalMs: number): number {
  const share = BigInt.asUintN(ID_BITS, BigInt(`0x${id.slice("v1-".length)}`) + BigInt(interval) * GOLDEN_SECTION);
  return interval * intervalMs + Number(share * BigInt(intervalMs) >> BigInt(ID_BITS));
}

/** How many bits an id has. */
const ID_BITS = 128;

/** The golden section of all ids: 2¹²⁸ divided by 1.618…. */
const GOLDEN_SECTION = 0x9e3779b97f4a7c15f39cc0605cedc835n;
