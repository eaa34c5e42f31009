/**
 * What is done in the background: erasing and removing the LVs of deleted volumes and snapshots, and at the start resuming
 * what a crash left suspended.
 *
 * Deleting only marks an LV, in one change; from then on it is nobody's. Each pass here reads a report and does what it
 * shows, so there is nothing to remember: whatever instruction the driver dies at, the next start goes on. The record that
 * the volume was handed out goes before the LV does, for an LV that is gone while its record stands is a loss.
 *
 * @module
 */

import type { Clock } from "../clock.ts";
import { activationArguments } from "./activation.ts";
import { verifyDevice } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { type Exec, runOk } from "../exec.ts";
import { derivedReport, type FreshReport, type Lvm } from "../model/client.ts";
import { changeIgnoring, splitSnapshot } from "../model/snapshot_split.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { isIncompletePool, monitoringOptions, removeIncompletePool, removePool } from "../pools/pool_commands.ts";
import { removeUsedTags, usedTagsOf } from "../model/used_tags.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isOwned, markErased, markSnapshotDeleted, ownedSnapshotId } from "../model/tags.ts";
import { type DeletedLv, deletedLvs, incompleteVolumes, isIncompleteSnapshot } from "../inventory/leftovers.ts";
import { findPool, isDriverPool, isThin, lvsInPool } from "../pools/pool.ts";
import { BackgroundWorker } from "../worker.ts";

/** What {@linkcode Reaper} needs. */
export interface ReaperOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Is told what failed; it is tried again later. */
  readonly onError: (error: unknown) => void;
  /** Is given the report of the start, when what a crash left suspended goes on again; nobody by default. */
  readonly onResumed?: (groups: readonly VolumeGroup[]) => void;
  /** Is told when an LV was removed, so that its space is free; nobody by default. */
  readonly onRemoved?: () => void;
  /** The delay after which what failed is tried again, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
  /** Is given each report; nobody by default. */
  readonly onReport?: (groups: readonly VolumeGroup[]) => void;
  /** The gate of the machine's thin pools, if those of the driver are to be removed with their last volume. */
  readonly emptyPoolReservation?: PoolReservation;
}

/** How much is overwritten by one command, in bytes: a few seconds' work, so that stopping need not wait for long. */
const CHUNK_BYTES = 1n << 30n;

/** After how many bytes the progress is recorded: what a crash costs at most. */
const RECORD_INTERVAL_BYTES = 32n * CHUNK_BYTES;

/** When what failed is tried again, in milliseconds. */
const RETRY_MS = 60_000;

/**
 * Whether something has to be done about the data of a deleted LV. The blocks that a thin one had are zeros for whoever has
 * them next; to overwrite it would take all the space that it was promised.
 */
function needsErasure({ lv, tags: { erase } }: DeletedLv): boolean {
  return erase === "discard" || (erase === "zero" && !isThin(lv));
}

/** The background work of one driver on this machine. */
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

  /** Makes it; nothing is done until {@linkcode start}. */
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

  /** Resumes what a crash left suspended, then does what is left to do. */
  start(): void {
    this.#resumeDue = true;
    this.wake();
  }

  /** Starts a pass over all that is left to do. Called after something was marked. */
  wake(): void {
    this.#worker.wake();
  }

  /** Waits until nothing is being done. */
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
    for (const each of deletedLvs(this.#driver, groups)) {
      if (!this.#worker.stopped) await attempt(() => this.#remove(each));
    }
    if (failed) this.#worker.wakeAfter(this.#retryMs);
  }

  /**
   * Mends what LVM's commands leave that were killed: devices that are suspended, which a refresh resumes with the right
   * tables, and stores that never became snapshots and RAID LVs that never became whole, of which nobody knows.
   */
  async #resume(groups: FreshReport): Promise<void> {
    for (const { group, lv } of incompleteVolumes(this.#driver, groups)) {
      await this.#lvm.change(group, ["lvremove", "--yes", `${group.name}/${lv.name}`]);
    }
    for (const group of groups) {
      for (const lv of group.lvs.filter(({ tags }) => isOwned(this.#driver, tags))) {
        const path = `${group.name}/${lv.name}`;
        if (lv.suspended) await this.#lvm.change(group, ["lvchange", "--refresh", path]);
        if (isIncompletePool(this.#driver, lv)) {
          await removeIncompletePool(this.#lvm, group, lv);
          continue;
        }
        const snapshot = ownedSnapshotId(this.#driver, lv.tags);
        if (snapshot === undefined || !isIncompleteSnapshot(lv)) continue;
        await this.#lvm.change(group, ["lvchange", ...markSnapshotDeleted(snapshot), path]);
        this.wake();
      }
    }
    this.#resumeDue = false;
    this.#onResumed(groups);
  }

  async #remove(deleted: DeletedLv): Promise<void> {
    const { lv, group, tags } = deleted;
    if (lv.origin !== undefined && !isThin(lv)) {
      await splitSnapshot(this.#lvm, group, lv);
      this.wake(); // its device is another now: look again
      return;
    }
    const emptied = await this.#extendLastOfPool(deleted);
    if (emptied !== undefined) await this.#erase(await this.#ensureActive(emptied.wiper), emptied.pool.size);
    else if (needsErasure(deleted)) await this.#erase(await this.#ensureActive(deleted));
    if (this.#worker.stopped) return;
    const records = usedTagsOf(this.#driver, group, tags.id, lv.uuid);
    if (records.length > 0) await removeUsedTags(this.#lvm, group, records);
    await changeIgnoring(["NotFound"], this.#lvm, group, ["lvremove", "--yes", `${group.name}/${lv.name}`]);
    if (emptied !== undefined) await this.#removePool(group, emptied.pool);
    this.#onRemoved();
  }

  /**
   * The pool of the driver that an LV is the last one of, if such pools are to be removed. What was deleted in it before was
   * not overwritten, and could be read from where the pool was: so the last LV grows to the pool's size, and overwrites it all.
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
        const args = ["lvextend", "--size", `${size}b`, ...monitoringOptions(this.#driver, group, lv)];
        await this.#lvm.change(group, [...args, `${group.name}/${lv.name}`]);
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

  /** Does with the first bytes of an LV, by default with all, what its tags say. */
  async #erase({ lv, group, tags }: DeletedLv, bytes = lv.size): Promise<void> {
    const { readOnly } = await verifyDevice(this.#exec, lv);
    if (readOnly) await this.#lvm.change(group, ["lvchange", "--permission", "rw", `${group.name}/${lv.name}`]);
    if (tags.erase === "discard") {
      const discard = { program: "blkdiscard", args: [lv.devicePath], mutates: true } as const;
      // best effort: not every disk can
      return await runOk(this.#exec, discard).then(() => {}, this.#onError);
    }
    let recorded = tags.erased;
    for (let offset = recorded; offset < bytes && !this.#worker.stopped; offset += CHUNK_BYTES) {
      if (offset - recorded >= RECORD_INTERVAL_BYTES) {
        await this.#lvm.change(group, ["lvchange", ...markErased(recorded, offset), `${group.name}/${lv.name}`]);
        recorded = offset;
      }
      const length = bytes - offset < CHUNK_BYTES ? bytes - offset : CHUNK_BYTES;
      const args = ["--zeroout", "--offset", `${offset}`, "--length", `${length}`, lv.devicePath];
      await runOk(this.#exec, { program: "blkdiscard", args, mutates: true });
    }
  }
}
