/**
 * Repairs what a crash, or the death of an lvm command, left: incomplete LVs, suspended devices, and unfinished transactions of
 * thin pools.
 *
 * @module
 */

import { type LocatedLv, type LogicalVolume, lvPath, lvsOf, type VolumeGroup } from "../model/report.ts";
import type { FreshReport, Lvm } from "../client/client.ts";
import { removeLeftTables, resumeSuspended } from "./resumption.ts";
import { markHeaderBackupDeleted } from "../encryption/header_tags.ts";
import {
  incompleteVolumes,
  isIncompleteSnapshot,
  type LooseCache,
  looseCaches,
  staleHeaderBackups,
} from "../inventory/leftovers.ts";
import { isOwned, markCacheDeleted, markSnapshotDeleted, ownedSnapshotId } from "../model/tags.ts";
import { lvchangeTags, lvremove } from "../model/command_lines.ts";
import { isIncompletePool, removeIncompletePool } from "../pools/pool_commands.ts";
import type { PoolContext } from "../pools/pool_reservation.ts";
import { activateLastSnapshots, mayHavePendingThin } from "./missing_thin.ts";
import { completeTransactions, poolsWithLastSnapshot } from "./pool_messages.ts";

/** Runs a step of a pass, and reports its error. The steps after it run, and another pass follows later. */
export type Attempt = (step: () => Promise<void>) => Promise<void>;

/** What {@linkcode Repair} needs. */
export interface RepairOptions extends PoolContext {
  /** Reads a report, without unresponsive groups. */
  readonly report: () => Promise<FreshReport>;
  /** Called after suspended devices were resumed, with the report of the groups that have none left. A promise is awaited. */
  readonly onResumed: (groups: readonly VolumeGroup[]) => unknown;
  /** Called when an LV was marked as deleted. */
  readonly onDeleted: () => void;
}

/**
 * Removes what an interrupted `lvcreate` left of a volume, unless another call has done so. What is left of its checksums
 * goes first: nothing but the volume's tags tells whose they are.
 */
export async function removeIncompleteVolume(lvm: Lvm, { group, lv }: LocatedLv): Promise<void> {
  for (const { name, uuid } of lv.looseChecksums ?? []) {
    await lvm.changeSelected(group, lvremove({ yes: true, uuid }, `${group.name}/${name}`));
  }
  await lvm.changeSelected(group, lvremove({ yes: true, uuid: lv.uuid }, lvPath({ group, lv })));
}

/**
 * Marks an LV as deleted that was made as a cache, and is the cache of no LV. It may have data, which the reaper erases. If it
 * became a cache meanwhile, or is gone, it stays as it is: LVM changes no hidden LV.
 */
export async function markLooseCache(lvm: Lvm, { id, group, lv }: LooseCache): Promise<void> {
  await changeTagsOf(lvm, { group, lv }, markCacheDeleted(id));
}

/** Changes the tags of an LV by its UUID. @returns whether it is still there under its name */
async function changeTagsOf(lvm: Lvm, { group, lv }: LocatedLv, changes: readonly string[]): Promise<boolean> {
  return await lvm.changeSelected(group, lvchangeTags(changes, lvPath({ group, lv }), { uuid: lv.uuid }));
}

/** The repair of one driver's LVs on this machine. */
export class Repair {
  readonly #options: RepairOptions;
  readonly #lvm: Lvm;
  readonly #driver: string;

  /** Creates the repair. It does nothing before a method is called. */
  constructor(options: RepairOptions) {
    this.#options = options;
    this.#lvm = options.lvm;
    this.#driver = options.driver;
  }

  /**
   * Removes what interrupted creations left in thin pools, before anything changes the pools: LVM would complete it then,
   * with another content. The reservation does that before each allocation. Then completes the transactions of the pools.
   *
   * @returns the report, or a new one after a change
   */
  async repairPools(report: FreshReport, attempt: Attempt): Promise<FreshReport> {
    const unsure = report.filter((group) => mayHavePendingThin(this.#driver, group));
    for (const group of unsure) {
      await attempt(() => this.#options.reservation.runExclusive([group], group, () => Promise.resolve()));
    }
    let groups = unsure.length > 0 ? await this.#options.report() : report;
    await attempt(async () => {
      if (await activateLastSnapshots(this.#lvm, this.#driver, groups)) groups = await this.#options.report();
    });
    await attempt(() => completeTransactions(this.#lvm, groups.flatMap(poolsWithLastSnapshot)));
    return groups;
  }

  /**
   * Repairs what killed commands of LVM left. Tables that they loaded in vain are removed. Suspended devices are resumed by a
   * refresh, which also loads the right tables. Incomplete RAID LVs and incomplete pools are removed. Caches of no LV, and COW space
   * that never became a snapshot, are marked as deleted. What fails for one LV does not keep the others from being repaired, and is repeated by the next pass.
   */
  async resume(groups: FreshReport, attempt: Attempt): Promise<void> {
    for (const { group, lv } of incompleteVolumes(this.#driver, groups)) {
      await attempt(() => removeIncompleteVolume(this.#lvm, { group, lv }));
    }
    for (const cache of looseCaches(this.#driver, groups)) {
      await attempt(async () => {
        await markLooseCache(this.#lvm, cache);
        this.#options.onDeleted();
      });
    }
    const suspended = this.#ownLvs(groups).filter(({ lv }) => lv.suspended);
    for (const group of groups.filter((group) => hasLeftTables(this.#driver, group))) {
      await attempt(() => removeLeftTables(this.#lvm, this.#driver, group));
    }
    for (const located of suspended) {
      await attempt(async () => void await resumeSuspended(this.#lvm, this.#driver, [located]));
    }
    const current = suspended.length > 0 ? await this.#options.report() : groups; // a refresh takes up to minutes
    for (const located of this.#ownLvs(current)) await attempt(() => this.#removeIncomplete(located));
    const stuck = new Set(this.#ownLvs(current).filter(({ lv }) => lv.suspended).map(({ group }) => group.uuid));
    await attempt(async () => void await this.#options.onResumed(current.filter(({ uuid }) => !stuck.has(uuid))));
  }

  /**
   * Marks the backups of LUKS headers as deleted that an interrupted change of a passphrase left, and whose volumes are gone: the
   * reaper overwrites them, since they have key slots. An LV that has the name of one by now stays as it is.
   */
  async markHeaderBackups(groups: FreshReport, attempt: Attempt): Promise<void> {
    for (const backup of staleHeaderBackups(this.#driver, groups)) {
      await attempt(async () => {
        const changes = markHeaderBackupDeleted(backup.tags);
        if (await changeTagsOf(this.#lvm, backup, changes)) this.#options.onDeleted();
      });
    }
  }

  /** Removes what an interrupted `lvcreate` left of a pool or a snapshot. */
  async #removeIncomplete({ group, lv }: LocatedLv): Promise<void> {
    if (isIncompletePool(this.#driver, lv)) return await this.#removeIncompletePool(group, lv);
    const snapshot = ownedSnapshotId(this.#driver, lv.tags);
    if (snapshot === undefined || !isIncompleteSnapshot(lv)) return;
    await this.#lvm.changeTags({ group, lv }, markSnapshotDeleted(snapshot));
    this.#options.onDeleted();
  }

  /** Returns the driver's LVs in a report. */
  #ownLvs(groups: FreshReport): LocatedLv[] {
    return lvsOf(groups).filter(({ lv }) => isOwned(this.#driver, lv.tags));
  }

  /** Removes what an interrupted `lvcreate` left of a pool, unless a volume that needed the pool has removed it. */
  async #removeIncompletePool(group: VolumeGroup, { uuid }: LogicalVolume): Promise<void> {
    await this.#options.reservation.runExclusive([group], group, async (current) => {
      const lv = current.lvs.find((lv) => lv.uuid === uuid);
      if (lv !== undefined && isIncompletePool(this.#driver, lv)) await removeIncompletePool(this.#lvm, current, lv);
    });
  }
}

/**
 * Reports whether a killed command of LVM may have left tables for LVs of a group that it has not suspended yet: of an LV
 * without a table in use, or one that did not become a snapshot.
 */
function hasLeftTables(driver: string, { lvs }: VolumeGroup): boolean {
  return lvs.filter(({ tags }) => isOwned(driver, tags)).some((lv) =>
    lv.deviceNumber !== undefined && !lv.active ||
    ownedSnapshotId(driver, lv.tags) !== undefined && isIncompleteSnapshot(lv)
  );
}
