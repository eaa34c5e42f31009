/**
 * The state of a copy in this process: what it should have, how far it is, and when it is tried again after a failure.
 *
 * @module
 */

import { type ErrorKind, StorageError } from "../../base/error.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { copyBaseOf, type CopyGoal, type VolumeTags } from "../model/tags.ts";
import { defined } from "../../base/defined.ts";
import type { CopyProgress } from "../inventory/copying.ts";
import type { Volume } from "../inventory/volume.ts";

/** The size of a range that is fetched from another node, in bytes: a few seconds, too, and written and read in between. */
export const FETCH_BYTES = 256n << 20n;

/** The longest time until a failed step is tried again, in milliseconds. */
export const RETRY_MS = 60_000;

/**
 * The time until a device is tried again that something else has open, in milliseconds: udev opens each that was
 * written to.
 */
const OPEN_RETRY_MS = 500;

/** The number of failed attempts in a row after which the copy fails. */
const MAX_ATTEMPTS = 8;

/** The kinds of failures that may pass by themselves: the copy continues later. */
const TRANSIENT_KINDS: readonly ErrorKind[] = ["Busy", "InUse", "StillRunning", "Unavailable", "CommandFailed"];

/** The progress of a copy in this process; sizes in bytes. */
export interface CopyWork {
  /** The bytes that this process has copied; `undefined` before its first step. */
  offset?: bigint;
  /** The bytes to copy in all; `undefined` before that is known. */
  total?: bigint;
  /** The UUID of the LV of the snapshot that it is fetched from: another one of the same id has other data. */
  uuid?: string;
  /** Ends what is being fetched from another node. */
  cancel?: () => void;
  /** What a volume that is filled from several snapshots should have next. */
  goal?: CopyGoal;
  /** The offset up to which the difference to that is applied. */
  differenceOffset?: bigint;
  /** The number of answers in a row that the difference cannot be had. */
  differenceRefusals?: number;
  /** The bytes of data that were received for that. */
  received?: number;
}

/** The state of a copy in this process. */
export interface Work extends CopyWork {
  /** The message of the last failed attempt; absent after a successful step. */
  lastError?: string;
  /** The reason why it cannot be made. */
  failure?: StorageError;
  /** True if its volume is being deleted. */
  abandoned: boolean;
  /** The number of failed attempts in a row. */
  failures: number;
  /** True if its source is on another node, which may be away for long. */
  isRemote?: boolean;
  /** True if a new copy is faster than a further attempt. */
  unrecoverable?: boolean;
  /** The time of the next attempt, by the clock's `now()`. */
  notBefore: number;
  /** The number of its last run. The copy of a group with the lowest number is next. */
  lastRun: number;
}

/** Returns the state of a copy that was not tried yet. */
export function newWork(): Work {
  return { abandoned: false, failures: 0, notBefore: 0, lastRun: 0 };
}

/** Records that a step of the copy succeeded. */
export function recordSuccess(work: Work): void {
  work.failures = 0;
  delete work.lastError;
  delete work.differenceRefusals;
}

/** Reports whether two goals are the same. */
function isSameGoal(a: CopyGoal | undefined, b: CopyGoal): boolean {
  return a?.snapshot === b.snapshot && a.base === b.base && a.last === b.last;
}

/** Records what a volume should have next. An earlier failure does not count any more. */
export function recordGoal(work: Work, goal: CopyGoal): void {
  if (isSameGoal(work.goal, goal)) return;
  Object.assign(work, { goal, failures: 0, notBefore: 0, received: 0 });
  for (const name of ["failure", "lastError", "differenceOffset", "differenceRefusals"] as const) delete work[name];
}

/**
 * Records that a step of the copy has to wait, because something else has a device open.
 *
 * @param now the time, by the clock's `now()`
 */
export function recordBusy(work: Work, now: number): void {
  work.notBefore = now + OPEN_RETRY_MS;
}

/**
 * Records that a step of the copy failed, and decides whether it is tried again.
 *
 * @param now the time, by the clock's `now()`
 * @param retryMs the longest time until it is tried again, in milliseconds
 */
export function recordFailure(work: Work, error: unknown, now: number, retryMs: number): void {
  const transient = !(error instanceof StorageError) || TRANSIENT_KINDS.includes(error.kind);
  const failure = error instanceof StorageError ? error : new StorageError("CommandFailed", String(error));
  work.failures++;
  const isAway = work.isRemote === true && failure.kind === "Unavailable";
  work.notBefore = now + Math.min(retryMs, OPEN_RETRY_MS * 2 ** work.failures); // of a removal, which never fails for good
  if (!transient || work.unrecoverable || (work.failures >= MAX_ATTEMPTS && !isAway)) work.failure = failure;
  else work.lastError = failure.message;
}

/** The state of each copy, by the UUID of its destination LV, or of the copy snapshot that has to be removed. */
export class AllWork {
  readonly #work = new Map<string, Work>();

  /** Returns the state of an LV. */
  of(lvUuid: string): Work {
    const known = this.#work.get(lvUuid);
    if (known !== undefined) return known;
    const work = newWork();
    this.#work.set(lvUuid, work);
    return work;
  }

  /** Ends all that is being fetched from other nodes. */
  cancel(): void {
    for (const { cancel } of this.#work.values()) cancel?.();
  }

  /** Forgets LVs that do not exist any more. LVM never uses a UUID again. */
  forgetRemoved(groups: readonly VolumeGroup[]): void {
    const there = new Set(groups.flatMap(({ lvs }) => lvs.map(({ uuid }) => uuid)));
    for (const uuid of this.#work.keys()) if (!there.has(uuid)) this.#work.delete(uuid);
  }
}

/** Reports whether a volume has all data of the snapshot that its tag names. */
export function hasBase({ size }: Pick<LogicalVolume, "size">, copied: VolumeTags["copied"]): boolean {
  return copied !== undefined && copied !== "all" && copied >= size;
}

/** Returns how far the copy of a volume is. @param work what this process knows of it */
export function progressOf(
  { lv, tags: { copied } }: Pick<Volume, "lv" | "tags">,
  { offset, total, lastError, received }: Work,
): CopyProgress {
  const base = copyBaseOf(lv.tags);
  return {
    copied: offset ?? (copied === "all" ? lv.size : copied ?? 0n),
    ...defined({ total, lastError }),
    ...defined({ snapshot: base && hasBase(lv, copied) ? base.id : undefined }),
    ...defined({ received: received === undefined ? undefined : BigInt(received) }),
  };
}
