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

import type { Clock } from "../clock.ts";
import { activationArguments } from "./activation.ts";
import { allowWrites, verifyDevice } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { type Exec, runOk } from "../exec.ts";
import { derivedReport, type FreshReport, type Lvm } from "../model/client.ts";
import { changeIgnoring, splitSnapshot } from "../model/snapshot_split.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { isIncompletePool, monitoringOptions, removeIncompletePool, removePool } from "../pools/pool_commands.ts";
import { removeUsedTags, usedTagsOf } from "../model/used_tags.ts";
import type { LocatedLv, LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isOwned, markErased, markSnapshotDeleted, ownedSnapshotId } from "../model/tags.ts";
import { type DeletedLv, deletedLvs, incompleteVolumes, isIncompleteSnapshot } from "../inventory/leftovers.ts";
import { findPool, isDriverPool, isThin, lvsInPool } from "../pools/pool.ts";
import { BackgroundWorker } from "../worker.ts";
import { lvchange, lvchangeTags, lvextend, lvremove } from "../model/commands.ts";

/** Options of {@linkcode Reaper}. */
export interface ReaperOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Called with each error. The reaper tries again later. */
  readonly onError: (error: unknown) => void;
  /** Called with the report of the start, after suspended devices were resumed. */
  readonly onResumed?: (groups: readonly VolumeGroup[]) => void;
  /** Called after an LV was removed, so that its space is free. */
  readonly onRemoved?: () => void;
  /** The delay until a failed pass is repeated, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
  /** Called with each report that the reaper reads, without unresponsive groups. */
  readonly onReport?: (groups: readonly VolumeGroup[]) => void;
  /**
   * The pool reservation, if the driver's thin pools are removed with their last volume; without it, empty pools stay.
   */
  readonly emptyPoolReservation?: PoolReservation;
}

/** The bytes that one command overwrites. It takes a few seconds, so that the driver stops soon. */
const CHUNK_BYTES = 1n << 30n;

/** The bytes after which the progress is recorded. After a crash at most this much is overwritten again. */
const RECORD_INTERVAL_BYTES = 32n * CHUNK_BYTES;

/** The delay until a failed pass is repeated, in milliseconds. */
const RETRY_MS = 60_000;

/**
 * Reports whether the data of a deleted LV has to be erased. A thin LV is not overwritten: its pool zeroes blocks
 * before it provides them to another LV, and overwriting would allocate all of the LV's virtual size.
 */
function needsErasure({ lv, tags: { erase } }: DeletedLv): boolean {
  return erase === "discard" || (erase === "zero" && !isThin(lv));
}

function isCowSnapshot(lv: LogicalVolume): boolean {
  return lv.origin !== undefined && !isThin(lv);
}

/** The background worker that removes the deleted LVs of one driver on this machine. */
export class Reaper {
  readonly #lvm: Lvm;
  readonly #exec: Exec;
  readonly #driver: string;
  readonly #worker: BackgroundWorker;
  readonly #onError: (error: unknown) => void;
  readonly #onResumed: (groups: readonly VolumeGroup[]) => void;
  readonly #onRemoved: () => void;
  readonly #retryMs: number;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  readonly #emptyPoolReservation: PoolReservation | undefined;
  #resumeDue = false;
  /** The UUIDs of the LVs that LVM split from their origins, until a report shows that. */
  readonly #splitUuids = new Set<string>();

  /** Creates the reaper. It does nothing before {@linkcode start} or {@linkcode wake}. */
  constructor(options: ReaperOptions) {
    this.#lvm = options.lvm;
    this.#exec = options.lvm.exec;
    this.#driver = options.driver;
    this.#onError = options.onError;
    this.#onResumed = options.onResumed ?? (() => {});
    this.#onRemoved = options.onRemoved ?? (() => {});
    this.#onReport = options.onReport ?? (() => {});
    this.#emptyPoolReservation = options.emptyPoolReservation;
    this.#retryMs = options.retryMs ?? RETRY_MS;
    const { onError, clock } = options;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError, retryMs: this.#retryMs, clock });
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
    const attempt = async (step: () => Promise<void>) => {
      try {
        await step();
      } catch (error) {
        failed = true;
        this.#onError(error);
      }
    };
    const report = await this.#lvm.report();
    const groups = derivedReport(report, report.filter(({ responsive }) => responsive));
    this.#onReport(groups);
    if (this.#resumeDue) await attempt(() => this.#resume(groups));
    const deleted = deletedLvs(this.#driver, groups);
    const snapshotUuids = deleted.filter(({ lv }) => isCowSnapshot(lv)).map(({ lv }) => lv.uuid);
    for (const uuid of this.#splitUuids) if (!snapshotUuids.includes(uuid)) this.#splitUuids.delete(uuid);
    for (const each of deleted) {
      if (!this.#worker.stopped) await attempt(() => this.#remove(each));
    }
    if (failed) this.#worker.wakeAfter(this.#retryMs);
  }

  /**
   * Repairs what killed commands of LVM left. Suspended devices are resumed by a refresh, which also loads the right
   * tables. Incomplete RAID LVs and incomplete pools are removed. COW space that never became a snapshot is marked as
   * deleted.
   */
  async #resume(groups: FreshReport): Promise<void> {
    for (const { group, lv } of incompleteVolumes(this.#driver, groups)) {
      await this.#lvm.change(group, lvremove({ yes: true }, `${group.name}/${lv.name}`));
    }
    for (const group of groups) {
      for (const lv of group.lvs.filter(({ tags }) => isOwned(this.#driver, tags))) {
        const path = `${group.name}/${lv.name}`;
        if (lv.suspended) await this.#lvm.change(group, lvchange({ refresh: true }, path));
        if (isIncompletePool(this.#driver, lv)) {
          await removeIncompletePool(this.#lvm, group, lv);
          continue;
        }
        const snapshot = ownedSnapshotId(this.#driver, lv.tags);
        if (snapshot === undefined || !isIncompleteSnapshot(lv)) continue;
        await this.#lvm.change(group, lvchangeTags(markSnapshotDeleted(snapshot), path));
        this.wake();
      }
    }
    this.#resumeDue = false;
    this.#onResumed(groups);
  }

  async #remove(deleted: DeletedLv): Promise<void> {
    const { lv, group, tags } = deleted;
    if (isCowSnapshot(lv)) {
      await splitSnapshot(this.#lvm, group, lv);
      if (this.#splitUuids.delete(lv.uuid)) {
        throw new StorageError(
          "CommandFailed",
          `separating ${group.name}/${lv.name} from its origin: LVM reports it as a snapshot after it was separated`,
        );
      }
      this.#splitUuids.add(lv.uuid);
      this.wake(); // The LV has another device now, so another report is needed.
      return;
    }
    const emptied = await this.#extendLastOfPool(deleted);
    if (emptied !== undefined) await this.#erase(await this.#ensureActive(emptied.wiper), emptied.pool.size);
    else if (needsErasure(deleted)) await this.#erase(await this.#ensureActive(deleted));
    if (this.#worker.stopped) return;
    const records = usedTagsOf(this.#driver, group, tags.id, lv.uuid);
    if (records.length > 0) await removeUsedTags(this.#lvm, group, records);
    await changeIgnoring(["NotFound"], this.#lvm, group, lvremove({ yes: true }, `${group.name}/${lv.name}`));
    if (emptied !== undefined) await this.#removePool(group, emptied.pool);
    this.#onRemoved();
  }

  /**
   * Extends an LV to the size of its pool, if it is the last LV of a pool that is to be removed. Deleted LVs of the
   * pool were not overwritten, and their data could be read from the extents of the removed pool. So the last LV
   * overwrites the whole pool.
   *
   * @returns the pool, and the LV that overwrites it; `undefined` when the pool stays
   */
  async #extendLastOfPool(
    { lv, tags, ...located }: DeletedLv,
  ): Promise<{ pool: LogicalVolume; wiper: DeletedLv } | undefined> {
    return await this.#emptyPoolReservation?.runExclusive([located.group], located.group, async (group) => {
      const pool = findPool(group, lv.pool);
      if (pool === undefined || !isDriverPool(this.#driver, pool)) return undefined;
      const lvs = lvsInPool(group, pool);
      if (lvs.some(({ uuid }) => uuid !== lv.uuid)) return undefined;
      const size = lv.size > pool.size ? lv.size : pool.size;
      if (lv.size < size) {
        const options = { size, ...monitoringOptions(this.#driver, group, lv) };
        await this.#lvm.change(group, lvextend(options, `${group.name}/${lv.name}`));
      }
      return { pool, wiper: { lv: { ...lv, size }, group, tags: { ...tags, erase: "zero" } } };
    });
  }

  async #removePool(group: VolumeGroup, { uuid }: LogicalVolume): Promise<void> {
    await this.#emptyPoolReservation?.runExclusive([group], group, async (current) => {
      const pool = current.lvs.find((lv) => lv.uuid === uuid);
      if (pool !== undefined && lvsInPool(current, pool).length === 0) await removePool(this.#lvm, current, pool);
    });
  }

  async #ensureActive(deleted: DeletedLv): Promise<DeletedLv> {
    const { lv, group, tags } = deleted;
    if (lv.active) return deleted;
    await this.#lvm.change(group, activationArguments(this.#driver, group, lv));
    const active = deletedLvs(this.#driver, await this.#lvm.report()).find((other) => other.lv.uuid === lv.uuid);
    if (active?.lv.active) return { ...active, tags };
    throw new StorageError("FailedPrecondition", `erasing ${group.name}/${lv.name}: it cannot be activated`);
  }

  /** Makes the device of an LV writable. A device is read-only by its permission in LVM, or by blockdev(8), or by both. */
  async #allowWrites({ lv, group }: LocatedLv): Promise<void> {
    if (!(await verifyDevice(this.#exec, lv)).readOnly) return;
    await allowWrites(this.#exec, lv.devicePath);
    if (!(await verifyDevice(this.#exec, lv)).readOnly) return;
    await this.#lvm.change(group, lvchange({ permission: "rw" }, `${group.name}/${lv.name}`));
  }

  /** Erases the first bytes of an LV, by default all, in the way that its tags name. */
  async #erase({ lv, group, tags }: DeletedLv, bytes = lv.size): Promise<void> {
    await this.#allowWrites({ lv, group });
    if (tags.erase === "discard") {
      const discard = { program: "blkdiscard", args: [lv.devicePath], mutates: true } as const;
      // Not every physical volume supports discards, and a failure is only reported.
      return await runOk(this.#exec, discard).then(() => {}, this.#onError);
    }
    let recorded = tags.erased;
    for (let offset = recorded; offset < bytes && !this.#worker.stopped; offset += CHUNK_BYTES) {
      if (offset - recorded >= RECORD_INTERVAL_BYTES) {
        await this.#lvm.change(group, lvchangeTags(markErased(recorded, offset), `${group.name}/${lv.name}`));
        recorded = offset;
      }
      const length = bytes - offset < CHUNK_BYTES ? bytes - offset : CHUNK_BYTES;
      const args = ["--zeroout", "--offset", `${offset}`, "--length", `${length}`, lv.devicePath];
      await runOk(this.#exec, { program: "blkdiscard", args, mutates: true });
    }
  }
}
