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

import { type Clock, systemClock } from "../clock.ts";
import { activationArguments } from "../pools/activation.ts";
import { StorageError } from "../error.ts";
import { derivedReport, type FreshReport, type Lvm } from "../client/client.ts";
import { DELETED, OWNER, SNAPSHOT, VOLUME } from "../model/tag_text.ts";
import { changeIgnoring, splitSnapshot } from "./snapshot_split.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { isIncompletePool, monitoringOptions, removeIncompletePool, removePool } from "../pools/pool_commands.ts";
import { removeUsedTags, usedTagsOf } from "../client/used_tags.ts";
import { type LocatedLv, type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { isOwned, markSnapshotDeleted, ownedSnapshotId } from "../model/tags.ts";
import { type DeletedLv, deletedLvs, incompleteVolumes, isIncompleteSnapshot } from "../inventory/leftovers.ts";
import { findPool, isCowSnapshot, isDriverPool, isThin, lvsInPool } from "../pools/pool.ts";
import { BackgroundWorker } from "../worker.ts";
import { requireNoDependents } from "./cow_origin.ts";
import { Eraser, requireErasable } from "./eraser.ts";
import { isMissingThin, mayHavePendingThin, removeMissing } from "./missing_thin.ts";
import { completeTransactions, poolsWithLastSnapshot, sendMessages } from "./pool_messages.ts";
import { lvchange, lvchangeTags, lvextend, lvremove, type Selection, vgchange } from "../model/commands.ts";

/** Options of {@linkcode Reaper}. */
export interface ReaperOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Called with each error. The reaper tries again later. */
  readonly onError: (error: unknown) => void;
  /** Called after suspended devices were resumed at the start, with the report of the groups that have none left. */
  readonly onResumed?: (groups: readonly VolumeGroup[]) => void;
  /** Called after an LV was removed, so that its space is free. */
  readonly onRemoved?: () => void;
  /** The delay until a failed pass is repeated, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
  /** Called with each report that the reaper reads, without unresponsive groups. */
  readonly onReport?: (groups: readonly VolumeGroup[]) => void;
  /** Reserves space in the machine's thin pools. All who allocate from them share one reservation. */
  readonly reservation: PoolReservation;
  /** Whether the driver's thin pools are removed with their last volume; by default they stay. */
  readonly removeEmptyPools?: boolean;
}

/** The delay until a failed pass is repeated, in milliseconds. */
const RETRY_MS = 60_000;

/** The delay until what a killed command left is repaired, in milliseconds: each command may be killed, those of a repair, too. */
const REPAIR_MS = 5_000;

/** The time since a report in which an LV is removed without another one, in milliseconds: later, a disk may hang. */
const RECENT_MS = 10_000;

/**
 * Reports whether the data of a deleted LV has to be erased. A thin LV is not overwritten: its pool zeroes blocks
 * before it provides them to another LV, and overwriting would allocate all of the LV's virtual size.
 */
function needsErasure({ lv, tags: { erase } }: DeletedLv): boolean {
  return erase === "discard" || (erase === "zero" && !isThin(lv));
}

/** Runs a step of a pass, and reports its error. The steps after it run, and another pass follows later. */
type Attempt = (step: () => Promise<void>) => Promise<void>;

/** A thin pool whose last LV is deleted. */
interface EmptiedPool {
  /** The pool. */
  readonly pool: LogicalVolume;
  /** Its last LV, which is as large as the pool, and overwrites it. */
  readonly wiper: DeletedLv;
}

/** The background worker that removes the deleted LVs of one driver on this machine. */
export class Reaper {
  readonly #lvm: Lvm;
  readonly #driver: string;
  readonly #worker: BackgroundWorker;
  readonly #onError: (error: unknown) => void;
  readonly #onResumed: (groups: readonly VolumeGroup[]) => void;
  readonly #onRemoved: () => void;
  readonly #retryMs: number;
  readonly #clock: Clock;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  readonly #reservation: PoolReservation;
  readonly #removesEmptyPools: boolean;
  readonly #eraser: Eraser;
  #resumeDue = false;
  /** The UUIDs of the LVs that LVM split from their origins, until a report shows that. */
  readonly #splitUuids = new Set<string>();

  /** Creates the reaper. It does nothing before {@linkcode start} or {@linkcode wake}. */
  constructor(options: ReaperOptions) {
    this.#lvm = options.lvm;
    this.#driver = options.driver;
    this.#onError = options.onError;
    this.#onResumed = options.onResumed ?? (() => {});
    this.#onRemoved = options.onRemoved ?? (() => {});
    this.#onReport = options.onReport ?? (() => {});
    this.#reservation = options.reservation;
    this.#removesEmptyPools = options.removeEmptyPools ?? false;
    this.#retryMs = options.retryMs ?? RETRY_MS;
    const { lvm, onError, clock = systemClock } = options;
    this.#clock = clock;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError, retryMs: this.#retryMs, clock });
    const isStopped = () => this.#worker.stopped;
    this.#eraser = new Eraser({ lvm, isStopped, onError, onLateEnd: () => this.wake() });
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
   * Repairs soon what a command of LVM left that was killed while this process lives, as where memory is short: a suspended
   * device blocks every program that uses it.
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
    const isDue = this.#resumeDue;
    this.#resumeDue = false; // a command that is killed meanwhile sets it again
    try {
      if (isDue) groups = await this.#repairPools(groups, attempt);
      this.#onReport(groups);
      if (isDue) await this.#resume(groups, attempt);
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      if (isDue && failed) this.#resumeDue = true;
    }
    let isFresh = !isDue;
    const deleted = deletedLvs(this.#driver, groups);
    const deletedUuids = new Set(deleted.map(({ lv }) => lv.uuid));
    this.#eraser.forget(
      groups.flatMap(({ lvs }) => lvs.map(({ uuid }) => uuid)).filter((uuid) => !deletedUuids.has(uuid)),
    );
    const snapshotUuids = deleted.filter(({ lv }) => isCowSnapshot(lv)).map(({ lv }) => lv.uuid);
    for (const uuid of this.#splitUuids) if (!snapshotUuids.includes(uuid)) this.#splitUuids.delete(uuid);
    for (const each of deleted) {
      if (!this.#worker.stopped) await attempt(() => this.#remove(each, isFresh));
      isFresh = false; // an erasure takes up to hours
    }
    if (failed) this.#worker.wakeAfter(this.#retryMs);
  }

  /** Reads a report, without unresponsive groups. */
  async #report(): Promise<FreshReport> {
    const report = await this.#lvm.report();
    return derivedReport(report, report.filter(({ responsive }) => responsive));
  }

  /** Finds an LV in a new report; `undefined` when it is gone, or not deleted any more. */
  async #findAgain({ lv: { uuid } }: DeletedLv): Promise<DeletedLv | undefined> {
    return deletedLvs(this.#driver, await this.#report()).find(({ lv }) => lv.uuid === uuid);
  }

  /**
   * Removes what interrupted creations left in thin pools, before anything changes the pools: LVM would complete it then,
   * with another content. The reservation does that before each allocation. Then completes the transactions of the pools.
   *
   * @returns the report, or a new one after a removal
   */
  async #repairPools(report: FreshReport, attempt: Attempt): Promise<FreshReport> {
    const unsure = report.filter((group) => mayHavePendingThin(this.#driver, group));
    for (const group of unsure) {
      await attempt(() => this.#reservation.runExclusive([group], group, () => Promise.resolve()));
    }
    const groups = unsure.length > 0 ? await this.#report() : report;
    await attempt(() => completeTransactions(this.#lvm, groups.flatMap(poolsWithLastSnapshot)));
    return groups;
  }

  /**
   * Repairs what killed commands of LVM left. Suspended devices are resumed by a refresh, which also loads the right
   * tables. Incomplete RAID LVs and incomplete pools are removed. COW space that never became a snapshot is marked as
   * deleted. What fails for one LV does not keep the others from being repaired, and is repeated by the next pass.
   */
  async #resume(groups: FreshReport, attempt: Attempt): Promise<void> {
    for (const { group, lv } of incompleteVolumes(this.#driver, groups)) {
      await attempt(() => this.#lvm.change(group, lvremove({ yes: true, uuid: lv.uuid }, lvPath({ group, lv }))));
    }
    const suspended = this.#ownLvs(groups).filter(({ lv }) => lv.suspended);
    for (const located of suspended) {
      await attempt(() => this.#lvm.change(located.group, lvchange({ refresh: true }, lvPath(located))));
    }
    const current = suspended.length > 0 ? await this.#report() : groups; // a refresh takes up to minutes
    for (const located of this.#ownLvs(current)) await attempt(() => this.#removeIncomplete(located));
    const stuck = new Set(this.#ownLvs(current).filter(({ lv }) => lv.suspended).map(({ group }) => group.uuid));
    this.#onResumed(current.filter(({ uuid }) => !stuck.has(uuid)));
  }

  /** Removes what an interrupted `lvcreate` left of a pool or a snapshot. */
  async #removeIncomplete({ group, lv }: LocatedLv): Promise<void> {
    if (isIncompletePool(this.#driver, lv)) return await this.#removeIncompletePool(group, lv);
    const snapshot = ownedSnapshotId(this.#driver, lv.tags);
    if (snapshot === undefined || !isIncompleteSnapshot(lv)) return;
    await this.#lvm.change(group, lvchangeTags(markSnapshotDeleted(snapshot), lvPath({ group, lv })));
    this.wake();
  }

  /** Returns the driver's LVs in a report. */
  #ownLvs(groups: FreshReport): LocatedLv[] {
    return groups.flatMap((group) =>
      group.lvs.filter(({ tags }) => isOwned(this.#driver, tags)).map((lv) => ({ group, lv }))
    );
  }

  /** Removes what an interrupted `lvcreate` left of a pool, unless a volume that needed the pool has removed it. */
  async #removeIncompletePool(group: VolumeGroup, { uuid }: LogicalVolume): Promise<void> {
    await this.#reservation.runExclusive([group], group, async (current) => {
      const lv = current.lvs.find((lv) => lv.uuid === uuid);
      if (lv !== undefined && isIncompletePool(this.#driver, lv)) await removeIncompletePool(this.#lvm, current, lv);
    });
  }

  /**
   * Erases and removes a deleted LV.
   *
   * @param isFresh whether nothing took time since the report. After that, another one is read: an erasure takes up to
   * hours, and an administrator may have rescued the LV, or created a snapshot of it
   * @throws {StorageError} `InUse` while other LVs depend on the LV: LVM would remove these with it
   */
  async #remove(listed: DeletedLv, isFresh: boolean): Promise<void> {
    if (this.#eraser.isBusy(listed.lv.uuid)) return; // its end wakes the reaper
    const deleted = isFresh ? listed : await this.#findAgain(listed);
    if (deleted === undefined) return;
    if (isCowSnapshot(deleted.lv)) {
      await splitSnapshot(this.#lvm, deleted.group, deleted.lv);
      if (this.#splitUuids.delete(deleted.lv.uuid)) {
        throw new StorageError(
          "CommandFailed",
          `separating ${lvPath(deleted)} from its origin: LVM reports it as a snapshot after it was separated`,
        );
      }
      this.#splitUuids.add(deleted.lv.uuid);
      this.wake(); // The LV has another device now, so another report is needed.
      return;
    }
    await this.#sendMessages(deleted);
    const listedAt = this.#clock.now();
    requireNoDependents(deleted); // an erasure would fill their COW space
    const emptied = await this.#extendLastOfPool(deleted);
    const isErased = emptied !== undefined || needsErasure(deleted);
    if (isErased && await this.#removeMissing(deleted)) return this.#onRemoved();
    if (isErased) await this.#erase(deleted, emptied);
    if (this.#worker.stopped) return;
    const isRecent = this.#clock.now() - listedAt <= RECENT_MS;
    if (isRecent && await this.#removeUnchanged(deleted, isErased)) return this.#onRemoved();
    const removable = await this.#findAgain(deleted);
    if (removable === undefined) return;
    if (isErased) requireErasable(removable);
    requireNoDependents(removable);
    const { lv, group, tags } = removable;
    const records = usedTagsOf(this.#driver, group, tags.id, lv.uuid);
    if (records.length > 0) await removeUsedTags(this.#lvm, group, records);
    const command = lvremove({ yes: true, uuid: lv.uuid }, lvPath({ group, lv }));
    await changeIgnoring(["NotFound"], this.#lvm, group, command);
    if (emptied !== undefined) await this.#removePool(group, emptied.pool);
    this.#onRemoved();
  }

  /** Sends the pool of an LV what LVM has for it ({@linkcode sendMessages}). A full pool refuses, and needs the removal. */
  async #sendMessages(deleted: DeletedLv): Promise<void> {
    const context = { lvm: this.#lvm, driver: this.#driver, reservation: this.#reservation };
    const isCreated = await sendMessages(context, deleted).catch((error) => {
      if (!(error instanceof StorageError && error.kind === "NoSpace")) throw error; // it may have left a message itself
      this.#onError(error);
      return false;
    });
    if (isCreated) this.wake();
  }

  /**
   * Removes a deleted LV, and its records, if it is still deleted, no other LV depends on it, and none of its disks is missing
   * if it was erased. LVM decides that when it removes them, so no report is needed.
   *
   * @param deleted the LV in a report, which may be older than an erasure
   * @returns whether the LV was removed; if not, a report shows why
   */
  async #removeUnchanged({ lv, group, tags }: DeletedLv, isErased: boolean): Promise<boolean> {
    // the removal of a thin LV may be that of its pool; whether a RAID LV is erased depends on more than a selection can say
    if (lv.layout.some((layout) => ["thin", "raid"].includes(layout))) return false;
    const selection: Selection = {
      uuid: lv.uuid,
      tags: [OWNER + this.#driver, DELETED + tags.id],
      withoutTags: [VOLUME + tags.id, SNAPSHOT + tags.id],
      withoutDependents: true,
      ...(isErased && { healthy: true }),
    };
    const deltag = usedTagsOf(this.#driver, group, tags.id, lv.uuid);
    if (deltag.length > 0) {
      const removeRecords = vgchange({ deltag, select: selection }, group.name);
      if (!await this.#lvm.changeSelected(group, removeRecords, { isLast: false })) return false;
    }
    return await this.#lvm.remove(group, { yes: true, ...selection }, lvPath({ lv, group }));
  }

  /** Removes a thin LV that its pool lacks, and so cannot be erased; its pool stays. Returns whether it was removed. */
  async #removeMissing({ lv, group, tags }: DeletedLv): Promise<boolean> {
    if (usedTagsOf(this.#driver, group, tags.id, lv.uuid).length > 0) return false;
    if (!await isMissingThin(this.#lvm, this.#driver, { lv, group })) return false;
    await removeMissing(this.#lvm, { lv, group });
    return true;
  }

  /**
   * Erases a deleted LV, or by it the whole pool.
   *
   * @throws {StorageError} `FailedPrecondition` when a disk of it was missing before the erasure
   */
  async #erase(deleted: DeletedLv, emptied: EmptiedPool | undefined): Promise<void> {
    requireErasable(deleted);
    const active = await this.#ensureActive(emptied?.wiper ?? deleted);
    requireErasable({ ...active, tags: deleted.tags });
    await this.#eraser.erase(active, emptied?.pool.size);
  }

  /**
   * Extends an LV to the size of its pool, if it is the last LV of a pool that is to be removed. Deleted LVs of the
   * pool were not overwritten, and their data could be read from the extents of the removed pool. So the last LV
   * overwrites the whole pool.
   *
   * @returns the pool, and the LV that overwrites it; `undefined` when the pool stays
   */
  async #extendLastOfPool({ lv, tags, ...located }: DeletedLv): Promise<EmptiedPool | undefined> {
    if (!this.#removesEmptyPools || !isThin(lv)) return undefined;
    return await this.#reservation.runExclusive([located.group], located.group, async (group) => {
      const pool = findPool(group, lv.pool);
      if (pool === undefined || !isDriverPool(this.#driver, pool)) return undefined;
      const lvs = lvsInPool(group, pool);
      if (lvs.length !== 1 || lvs[0]!.uuid !== lv.uuid) return undefined;
      const size = lv.size > pool.size ? lv.size : pool.size;
      if (lv.size < size) {
        const options = { size, ...monitoringOptions(this.#driver, group, lv) };
        await this.#lvm.change(group, lvextend(options, `${group.name}/${lv.name}`));
      }
      return { pool, wiper: { lv: { ...lv, size }, group, tags: { ...tags, erase: "zero" } } };
    });
  }

  async #removePool(group: VolumeGroup, { uuid }: LogicalVolume): Promise<void> {
    await this.#reservation.runExclusive([group], group, async (current) => {
      const pool = current.lvs.find((lv) => lv.uuid === uuid);
      if (pool !== undefined && lvsInPool(current, pool).length === 0) await removePool(this.#lvm, current, pool);
    });
  }

  async #ensureActive(deleted: DeletedLv): Promise<DeletedLv> {
    const { lv, group, tags } = deleted;
    if (lv.active) return deleted;
    await this.#lvm.change(group, activationArguments(this.#driver, group, lv));
    const active = await this.#findAgain(deleted);
    if (active?.lv.active) return { ...active, tags };
    throw new StorageError("FailedPrecondition", `erasing ${group.name}/${lv.name}: it cannot be activated`);
  }
}
