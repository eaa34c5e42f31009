/**
 * The state of a copy in this process: how far it is, and when it is tried again after a failure.
 *
 * @module
 */

import { type ErrorKind, StorageError } from "../../base/error.ts";
import type { VolumeGroup } from "../model/report.ts";
import type { CopyGoal } from "../model/remote_source.ts";
import { isSameGoal } from "./goal.ts";
import type { CopyWork } from "./work_state.ts";

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
