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

import { activation } from "./activation.ts";
import type { Place } from "../copies/rules.ts";
import { verifyDevice } from "../host/device.ts";
import { type ErrorKind, StorageError } from "../error.ts";
import { type Exec, runOk } from "../exec.ts";
import { type Lvm, requireDisks } from "../model/client.ts";
import type { PoolGate } from "../pools/pool_reservation.ts";
import { isUnfinishedPool, monitoringOf, removePool, removeUnfinishedPool } from "../pools/pool_commands.ts";
import { recordsOf, removeRecords } from "../model/records.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import {
  type DeletedTags,
  hasSourceData,
  isOwned,
  markErased,
  markSnapshotDeleted,
  ownedSnapshotId,
  ownedVolumeId,
  parseDeletedTags,
  usedLvUuids,
} from "../model/tags.ts";
import { isOurPool, isThin, lvsIn, poolOf } from "../pools/pool.ts";

/** An LV that is only to be removed. */
export interface Doomed {
  /** The LV. */
  readonly lv: LogicalVolume;
  /** Its group. */
  readonly group: VolumeGroup;
  /** What its tags say. */
  readonly tags: DeletedTags;
}

/** What {@linkcode Upkeep} needs. */
export interface UpkeepOptions {
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
  /** When what failed is tried again, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** Is given each report; nobody by default. */
  readonly onReport?: (groups: readonly VolumeGroup[]) => void;
  /** The gate of the machine's thin pools, if those of the driver are to be removed with their last volume. */
  readonly emptyPools?: PoolGate;
}

/** How much is overwritten by one command, in bytes: a few seconds' work, so that stopping need not wait for long. */
const CHUNK_BYTES = 1n << 30n;

/** After how many bytes the progress is recorded: what a crash costs at most. */
const RECORDED_BYTES = 32n * CHUNK_BYTES;

/** When what failed is tried again, in milliseconds. */
const RETRY_MS = 60_000;

/** The LVs of the driver that are only to be removed. */
export function doomedLvs(driver: string, groups: readonly VolumeGroup[]): Doomed[] {
  return groups.flatMap((group) =>
    group.lvs.flatMap((lv) => {
      const tags = parseDeletedTags(driver, lv.tags);
      return tags === undefined ? [] : [{ lv, group, tags }];
    })
  );
}

/**
 * The LVs of the driver that are no volumes, because the lvcreate that made them died before they were whole. One that was
 * handed out, or has data of what it is a copy of, is a volume in any case: somebody converts it, and LVM does that in steps,
 * too.
 */
export function halfMadeVolumes(driver: string, groups: readonly VolumeGroup[]): Place[] {
  return groups.flatMap((group) =>
    group.lvs.flatMap((lv) => {
      const id = lv.halfMade && !hasSourceData(lv.tags) ? ownedVolumeId(driver, lv.tags) : undefined;
      return id === undefined || usedLvUuids(driver, id, group.tags).includes(lv.uuid) ? [] : [{ lv, group }];
    })
  );
}

/**
 * Whether a snapshot's LV was made, but never became a snapshot: LVM makes a store first and a snapshot of it in a second
 * step, under one lock, so that a report shows what is between them only when the lvcreate is dead.
 */
export function isHalfMade(lv: LogicalVolume): boolean {
  return lv.origin === undefined && !lv.layout.includes("thin");
}

/**
 * Whether something has to be done about the data of a deleted LV. The blocks that a thin one had are zeros for whoever has
 * them next; to overwrite it would take all the space that it was promised.
 */
function needsErasure({ lv, tags: { erase } }: Doomed): boolean {
  return erase === "discard" || (erase === "zero" && !isThin(lv));
}

/**
 * Separates a copy-on-write snapshot from its origin, which then is free of it. Its store stays, as an LV with the same
 * tags (lvconvert(8), --splitsnapshot). One that somebody separated or removed meanwhile is separate already.
 *
 * @throws {StorageError} `FailedPrecondition` while disks of the group are missing.
 */
export async function splitSnapshot(lvm: Lvm, group: VolumeGroup, lv: LogicalVolume): Promise<void> {
  requireDisks(`separating ${group.name}/${lv.name} from its origin`, group);
  await changeUnless(["NotFound", "FailedPrecondition"], lvm, group, [
    "lvconvert",
    "--yes",
    "--splitsnapshot",
    `${group.name}/${lv.name}`,
  ]);
}

/** The background work of one driver on this machine. */
export class Upkeep {
  readonly #lvm: Lvm;
  readonly #exec: Exec;
  readonly #driver: string;
  readonly #onError: (error: unknown) => void;
  readonly #onResumed: (groups: readonly VolumeGroup[]) => void;
  readonly #onRemoved: () => void;
  readonly #retryMs: number;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  readonly #emptyPools: PoolGate | undefined;
  #pass: Promise<void> | undefined;
  #wanted = false;
  #resumeDue = false;
  #stopped = false;
  #retry: ReturnType<typeof setTimeout> | undefined;

  /** Makes it; nothing is done until {@linkcode start}. */
  constructor(options: UpkeepOptions) {
    this.#lvm = options.lvm;
    this.#exec = options.lvm.exec;
    this.#driver = options.driver;
    this.#onError = options.onError;
    this.#onResumed = options.onResumed ?? (() => {});
    this.#onRemoved = options.onRemoved ?? (() => {});
    this.#onReport = options.onReport ?? (() => {});
    this.#emptyPools = options.emptyPools;
    this.#retryMs = options.retryMs ?? RETRY_MS;
  }

  /** Resumes what a crash left suspended, then does what is left to do. */
  start(): void {
    this.#resumeDue = true;
    this.look();
  }

  /** Does what is left to do; to be called after something was marked. */
  look(): void {
    this.#wanted = true;
    if (!this.#stopped) this.#pass ??= this.#passes();
  }

  /** Resolves when nothing is being done. */
  async settled(): Promise<void> {
    while (this.#pass !== undefined) await this.#pass;
  }

  /** Ends after the command that is under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#retry);
    await this.#pass;
  }

  async #passes(): Promise<void> {
    clearTimeout(this.#retry);
    let failed = false;
    const attempt = async (step: () => Promise<void>) => {
      try {
        await step();
      } catch (error) {
        failed = true;
        this.#onError(error);
      }
    };
    await attempt(async () => {
      do {
        this.#wanted = false;
        const groups = (await this.#lvm.report()).filter(({ answers }) => answers);
        this.#onReport(groups);
        if (this.#resumeDue) await attempt(() => this.#resume(groups));
        for (const each of doomedLvs(this.#driver, groups)) {
          if (!this.#stopped) await attempt(() => this.#remove(each));
        }
      } while (this.#wanted && !this.#stopped);
    });
    this.#pass = undefined;
    if (this.#stopped) return;
    if (this.#wanted) this.look(); // it was asked for when the last report had been read
    else if (failed) this.#retry = setTimeout(() => this.look(), this.#retryMs);
  }

  /**
   * Mends what LVM's commands leave that were killed: devices that are suspended, which a refresh resumes with the right
   * tables, and stores that never became snapshots and RAID LVs that never became whole, of which nobody knows.
   */
  async #resume(groups: readonly VolumeGroup[]): Promise<void> {
    for (const { group, lv } of halfMadeVolumes(this.#driver, groups)) {
      await this.#lvm.change(group, ["lvremove", "--yes", `${group.name}/${lv.name}`]);
    }
    for (const group of groups) {
      for (const lv of group.lvs.filter(({ tags }) => isOwned(this.#driver, tags))) {
        const path = `${group.name}/${lv.name}`;
        if (lv.suspended) await this.#lvm.change(group, ["lvchange", "--refresh", path]);
        if (isUnfinishedPool(this.#driver, lv)) {
          await removeUnfinishedPool(this.#lvm, group, lv);
          continue;
        }
        const snapshot = ownedSnapshotId(this.#driver, lv.tags);
        if (snapshot === undefined || !isHalfMade(lv)) continue;
        await this.#lvm.change(group, ["lvchange", ...markSnapshotDeleted(snapshot), path]);
        this.#wanted = true;
      }
    }
    this.#resumeDue = false;
    this.#onResumed(groups);
  }

  async #remove(doomed: Doomed): Promise<void> {
    const { lv, group, tags } = doomed;
    if (lv.origin !== undefined && !isThin(lv)) {
      await splitSnapshot(this.#lvm, group, lv);
      this.#wanted = true; // its device is another now: look again
      return;
    }
    const emptied = await this.#lastOfPool(doomed);
    if (emptied !== undefined) await this.#erase(await this.#activated(emptied.wiper), emptied.pool.size);
    else if (needsErasure(doomed)) await this.#erase(await this.#activated(doomed));
    if (this.#stopped) return;
    const records = recordsOf(this.#driver, group, tags.id, lv.uuid);
    if (records.length > 0) await removeRecords(this.#lvm, group, records);
    await changeUnless(["NotFound"], this.#lvm, group, ["lvremove", "--yes", `${group.name}/${lv.name}`]);
    if (emptied !== undefined) await this.#removePool(group, emptied.pool);
    this.#onRemoved();
  }

  /**
   * The pool of the driver that an LV is the last one of, if such pools are to be removed. What was deleted in it before was
   * not overwritten, and could be read from where the pool was: so the last LV grows to the pool's size, and overwrites it all.
   */
  async #lastOfPool({ lv, tags, ...at }: Doomed): Promise<{ pool: LogicalVolume; wiper: Doomed } | undefined> {
    return await this.#emptyPools?.inTurn([at.group], at.group, async (group) => {
      const pool = poolOf(group, lv.pool);
      if (pool === undefined || !isOurPool(this.#driver, pool)) return undefined;
      const lvs = lvsIn(group, pool);
      if (lvs.some(({ uuid }) => uuid !== lv.uuid)) return undefined;
      const size = lv.size > pool.size ? lv.size : pool.size;
      if (lv.size < size) {
        const args = ["lvextend", "--size", `${size}b`, ...monitoringOf(this.#driver, group, lv)];
        await this.#lvm.change(group, [...args, `${group.name}/${lv.name}`]);
      }
      return { pool, wiper: { lv: { ...lv, size }, group, tags: { ...tags, erase: "zero" } } };
    });
  }

  async #removePool(group: VolumeGroup, { uuid }: LogicalVolume): Promise<void> {
    await this.#emptyPools?.inTurn([group], group, async (now) => {
      const pool = now.lvs.find((lv) => lv.uuid === uuid);
      if (pool !== undefined && lvsIn(now, pool).length === 0) await removePool(this.#lvm, now, pool);
    });
  }

  async #activated(doomed: Doomed): Promise<Doomed> {
    const { lv, group, tags } = doomed;
    if (lv.active) return doomed;
    await this.#lvm.change(group, activation(this.#driver, group, lv));
    const active = doomedLvs(this.#driver, await this.#lvm.report()).find((other) => other.lv.uuid === lv.uuid);
    if (active?.lv.active) return { ...active, tags };
    throw new StorageError("FailedPrecondition", `erasing ${group.name}/${lv.name}: it cannot be activated`);
  }

  /** Does with the first bytes of an LV, by default with all, what its tags say. */
  async #erase({ lv, group, tags }: Doomed, bytes = lv.size): Promise<void> {
    const { readOnly } = await verifyDevice(this.#exec, lv);
    if (readOnly) await this.#lvm.change(group, ["lvchange", "--permission", "rw", `${group.name}/${lv.name}`]);
    if (tags.erase === "discard") {
      const discard = { program: "blkdiscard", args: [lv.devicePath], mutates: true } as const;
      // best effort: not every disk can
      return await runOk(this.#exec, discard).then(() => {}, this.#onError);
    }
    let recorded = tags.erased;
    for (let offset = recorded; offset < bytes && !this.#stopped; offset += CHUNK_BYTES) {
      if (offset - recorded >= RECORDED_BYTES) {
        await this.#lvm.change(group, ["lvchange", ...markErased(recorded, offset), `${group.name}/${lv.name}`]);
        recorded = offset;
      }
      const length = bytes - offset < CHUNK_BYTES ? bytes - offset : CHUNK_BYTES;
      const args = ["--zeroout", "--offset", `${offset}`, "--length", `${length}`, lv.devicePath];
      await runOk(this.#exec, { program: "blkdiscard", args, mutates: true });
    }
  }
}

/** Runs a change that one of the refusals shows to be done already. */
async function changeUnless(
  done: readonly ErrorKind[],
  lvm: Lvm,
  group: VolumeGroup,
  args: readonly string[],
): Promise<void> {
  try {
    await lvm.change(group, args);
  } catch (error) {
    if (!(error instanceof StorageError && done.includes(error.kind))) throw error;
  }
}
