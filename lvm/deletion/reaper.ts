/**
 * Erases and removes the LVs of deleted volumes and snapshots in the background. At the start it repairs what a crash
 * left.
 *
 * A deletion only marks an LV, in one change. From then on the LV belongs to no volume and no snapshot. Each pass reads
 * a report and processes the deleted LVs in it. No other state is needed: whenever the driver dies, the next start
 * continues. The record that the volume was in use is removed before its LV, because a record without its LV means that
 * the volume is Lost.
 *
 * @module
 */

import { lvsOf, type VolumeGroup } from "../model/report.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { derivedReport, type FreshReport, type Lvm, requireReadable } from "../client/client.ts";
import { type DeletedLv, deletedLvs } from "../inventory/leftovers.ts";
import type { PoolContext } from "../pools/pool_reservation.ts";
import { BackgroundWorker } from "../../base/worker.ts";
import { Eraser } from "./eraser.ts";
import { type RemovableLv, Removal } from "./removal.ts";
import { type Attempt, Repair } from "./repair.ts";

/** Options of {@linkcode Reaper}. */
export interface ReaperOptions extends PoolContext {
  /** Called with each error. The reaper tries again later. */
  readonly onError: (error: unknown) => void;
  /** Called after suspended devices were resumed at the start, with the report of the groups that have none left; awaited. */
  readonly onResumed?: (groups: readonly VolumeGroup[]) => unknown;
  /** Called after an LV was removed, so that its space is free. */
  readonly onRemoved?: () => void;
  /** The delay until a failed pass is repeated, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
  /** Called with each report that the reaper reads, without unresponsive groups. */
  readonly onReport?: (groups: readonly VolumeGroup[]) => void;
  /** Whether the driver's thin pools are removed with their last volume; by default they stay. */
  readonly removeEmptyPools?: boolean;
}

/** The delay until a failed pass is repeated, in milliseconds. */
const RETRY_MS = 60_000;

/** The delay until what a killed command left is repaired, in milliseconds: each command may be killed, those of a repair, too. */
const REPAIR_MS = 5_000;

/** The time since a report in which an LV is erased without another one, in milliseconds. */
const FRESH_MS = 2_000;

/** The number of LVs that are removed together at most. */
const MAX_TOGETHER = 16;

/** The size from which the erasure of an LV takes long, in bytes. LVs that are erased already do not wait for it. */
const LARGE_BYTES = 1n << 30n;

/** The background worker that removes the deleted LVs of one driver on this machine. */
export class Reaper {
  readonly #lvm: Lvm;
  readonly #driver: string;
  readonly #worker: BackgroundWorker;
  readonly #onError: (error: unknown) => void;
  readonly #retryMs: number;
  readonly #clock: Clock;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  readonly #eraser: Eraser;
  readonly #repair: Repair;
  readonly #removal: Removal;
  #resumeDue = false;

  /** Creates the reaper. It does nothing before {@linkcode start} or {@linkcode wake}. */
  constructor({ onResumed = () => {}, onRemoved = () => {}, clock = systemClock, ...options }: ReaperOptions) {
    const { lvm, driver, onError, reservation } = options;
    this.#lvm = lvm;
    this.#driver = driver;
    this.#onError = onError;
    this.#onReport = options.onReport ?? (() => {});
    this.#retryMs = options.retryMs ?? RETRY_MS;
    this.#clock = clock;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError, retryMs: this.#retryMs, clock });
    const onChanged = () => this.wake();
    const isStopped = () => this.#worker.stopped;
    const context = { lvm, driver, reservation, report: () => this.#report() };
    const isInterrupted = () => this.#worker.stopped || this.#worker.woken;
    this.#eraser = new Eraser({ lvm, isInterrupted, onError, onLateEnd: onChanged });
    this.#repair = new Repair({ ...context, onResumed, onDeleted: onChanged });
    this.#removal = new Removal({
      ...context,
      isStopped,
      onError,
      onChanged,
      onRemoved,
      clock,
      eraser: this.#eraser,
      onUnfinished: () => this.repairSoon(),
      removesEmptyPools: options.removeEmptyPools ?? false,
    });
  }

  /** Repairs what a crash left, and starts a pass. */
  start(): void {
    this.#resumeDue = true;
    this.wake();
  }

  /** Starts a pass over all deleted LVs. Called after an LV was marked as deleted. */
  wake(): void {
    this.#worker.wake();
  }

  /**
   * Repairs soon what was left while this process lives: by a command of LVM that was killed, as where memory is short, since a
   * suspended device blocks every program that uses it; or by a change that could not be undone.
   */
  repairSoon(): void {
    if (this.#resumeDue) return;
    this.#resumeDue = true;
    this.#worker.wakeAfter(REPAIR_MS);
  }

  /** Waits until no pass is running. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work after the command that is running. */
  stop(): Promise<void> {
    return this.#worker.stop();
  }

  async #pass(): Promise<void> {
    let failed = false;
    const attempt: Attempt = async (step) => {
      try {
        await step();
      } catch (error) {
        failed = true;
        this.#onError(error);
      }
    };
    let groups = await this.#report();
    const reportedAt = this.#clock.now();
    const isDue = this.#resumeDue;
    this.#resumeDue = false; // a command that is killed meanwhile sets it again
    try {
      if (isDue) groups = await this.#repair.repairPools(groups, attempt);
      this.#onReport(groups);
      if (isDue) await this.#repair.resume(groups, attempt);
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      if (isDue && failed) this.#resumeDue = true;
    }
    await this.#repair.markHeaderBackups(groups, attempt);
    const deleted = deletedLvs(this.#driver, groups);
    const deletedLv = new Set(deleted.map(({ lv }) => lv));
    this.#eraser.forget(lvsOf(groups).filter(({ lv }) => !deletedLv.has(lv)));
    this.#removal.forgetOthers(deleted);
    await this.#removeAll(deleted, isDue ? undefined : reportedAt, attempt);
    // a command of this pass may have been killed, or one of another call meanwhile
    const isRepairDue = this.#resumeDue && !isDue;
    if (failed) this.#worker.wakeAfter(isRepairDue ? Math.min(REPAIR_MS, this.#retryMs) : this.#retryMs);
  }

  /**
   * Erases and removes deleted LVs: first those that take little time, and then, in each group at the same time, the others by
   * their sizes. What is to be erased waits for what comes meanwhile, such as a deletion or a repair: another pass continues.
   *
   * @param reportedAt when the report was read in which they are; `undefined` if something has changed since
   */
  async #removeAll(deleted: readonly DeletedLv[], reportedAt: number | undefined, attempt: Attempt): Promise<void> {
    const { quick = [], slow = [] } = Object.groupBy(
      deleted,
      (each) => this.#removal.isQuick(each) ? "quick" : "slow",
    );
    await this.#removeEach(quick, reportedAt, attempt);
    const bySize = slow.toSorted((a, b) => Number(a.lv.size - b.lv.size));
    const groups = [...Map.groupBy(bySize, ({ group }) => group.uuid).values()];
    await Promise.all(groups.map((ofGroup) => this.#removeEach(ofGroup, reportedAt, attempt)));
  }

  async #removeEach(deleted: readonly DeletedLv[], reportedAt: number | undefined, attempt: Attempt): Promise<void> {
    const erased: RemovableLv[] = [];
    const removeErased = () => this.#removal.removeTogether(erased.splice(0), attempt);
    for (const [index, each] of deleted.entries()) {
      if (this.#worker.stopped) return;
      const isQuick = this.#removal.isQuick(each);
      if (index > 0 && this.#worker.woken && (this.#resumeDue || !isQuick)) break;
      if (!isQuick && this.#eraser.isBusy(each)) continue; // the end of its command wakes the reaper
      if (erased.length === MAX_TOGETHER || (!isQuick && each.lv.size > LARGE_BYTES)) await removeErased();
      await attempt(async () => {
        requireReadable("erasing", each);
        const isFresh = reportedAt !== undefined && this.#clock.now() - reportedAt <= FRESH_MS;
        const removable = await this.#removal.erase(each, isFresh);
        if (removable !== undefined) erased.push(removable);
      });
    }
    await removeErased();
  }

  /** Reads a report, without unresponsive groups. */
  async #report(): Promise<FreshReport> {
    const report = await this.#lvm.report();
    return derivedReport(report, report.filter(({ responsive }) => responsive));
  }
}
