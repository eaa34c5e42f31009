/**
 * The removal of a deleted LV: what it takes before LVM removes it, and the command that does. LVs that were deleted
 * together are removed together.
 *
 * The record that a volume was in use is removed before its LV, because a record without its LV means that the volume is Lost.
 *
 * @module
 */

import { isOfKind, lateCompletion, StorageError } from "../../base/error.ts";
import type { Clock } from "../../base/clock.ts";
import type { FreshReport, Lvm } from "../client/client.ts";
import { removeUsedTags } from "../client/used_tags.ts";
import { type DeletedLv, deletedLvs } from "../inventory/leftovers.ts";
import { DELETED, markCacheDeleted, OWNER, SNAPSHOT, usedTag, VOLUME } from "../model/tags.ts";
import { lvchangeTags, lvconvert, lvremove, type Selection, vgchange } from "../model/command_lines.ts";
import { type CacheLv, lvPath } from "../model/report.ts";
import { activationArguments } from "../pools/activation.ts";
import { isCowSnapshot, isThin } from "../pools/pool.ts";
import type { PoolContext } from "../pools/pool_reservation.ts";
import { requireNoDependents, splitSnapshot } from "./cow_origin.ts";
import { type Eraser, requireErasable, requireSoundPool, requireZeroingPool } from "./eraser.ts";
import { isMissingThin, removeMissing } from "./missing_thin.ts";
import {
  type EmptiedPool,
  extendLastOfPool,
  isExtended,
  overwritePool,
  removeEmptyPool,
  sendMessages,
} from "./pool_messages.ts";
import type { Attempt } from "./repair.ts";

/** What {@linkcode Removal} needs. */
export interface RemovalOptions extends PoolContext {
  /** Erases their data. */
  readonly eraser: Eraser;
  /** Whether the driver's thin pools are removed with their last volume. */
  readonly removesEmptyPools: boolean;
  /** Reports whether the driver stops. */
  readonly isStopped: () => boolean;
  /** Reads a report, without unresponsive groups. */
  readonly report: () => Promise<FreshReport>;
  /** Called with an error that keeps nothing from being removed. */
  readonly onError: (error: unknown) => void;
  /** Called when a change has failed whose other half was made, so that a repair is needed. */
  readonly onUnfinished: () => void;
  /** Called when another pass is needed at once. */
  readonly onChanged: () => void;
  /** Called after an LV was removed. */
  readonly onRemoved: () => void;
  /** The clock. */
  readonly clock: Clock;
}

/** A deleted LV that nothing keeps from being removed. */
export interface RemovableLv extends DeletedLv {
  /** True if it was erased. */
  readonly isErased: boolean;
  /** When the report was read in which nothing depended on the LV, in milliseconds of the clock. */
  readonly listedAt: number;
}

/** The time since a report in which an LV is removed without another one, in milliseconds: later, a disk may hang. */
const RECENT_MS = 10_000;

/**
 * Reports whether the data of a deleted LV has to be erased. A thin LV is not overwritten: its pool zeroes blocks
 * before it provides them to another LV, and overwriting would allocate all of the LV's virtual size.
 */
function needsErasure({ lv, tags: { erase } }: DeletedLv): boolean {
  return erase === "discard" || (erase === "zero" && !isThin(lv));
}

/**
 * Reports whether LVM can decide by a selection whether an LV may be removed. The removal of a thin LV may be that of its
 * pool; whether a RAID LV is erased depends on more than a selection can say.
 */
function isSelectable({ lv, group, recordedIn }: DeletedLv): boolean {
  return !lv.layout.some((layout) => ["thin", "raid"].includes(layout)) &&
    recordedIn.every(({ uuid }) => uuid === group.uuid);
}

/** Reports whether two are the same LV. A clone of it in an imported group has its UUID, too (vgimportclone(8)). */
function isSame(one: DeletedLv, other: DeletedLv): boolean {
  return one.lv.uuid === other.lv.uuid && one.group.uuid === other.group.uuid;
}

/** The removal of one driver's deleted LVs on this machine. */
export class Removal {
  readonly #options: RemovalOptions;
  readonly #lvm: Lvm;
  readonly #driver: string;
  /** The UUIDs of the LVs that LVM split from their origins, until a report shows that. */
  readonly #splitUuids = new Set<string>();

  /** Creates the removal. It does nothing before a method is called. */
  constructor(options: RemovalOptions) {
    this.#options = options;
    this.#lvm = options.lvm;
    this.#driver = options.driver;
  }

  /** Reports whether the removal of a deleted LV takes little time: nothing of it, or of its pool, is overwritten now. */
  isQuick(deleted: DeletedLv): boolean {
    const { lv } = deleted;
    return isCowSnapshot(lv) || !needsErasure(deleted) && !(isThin(lv) && this.#options.removesEmptyPools);
  }

  /** Forgets what it knew of LVs that are not deleted any more, or are no snapshots. */
  forgetOthers(deleted: readonly DeletedLv[]): void {
    const snapshotUuids = deleted.filter(({ lv }) => isCowSnapshot(lv)).map(({ lv }) => lv.uuid);
    for (const uuid of this.#splitUuids) if (!snapshotUuids.includes(uuid)) this.#splitUuids.delete(uuid);
  }

  /**
   * Erases a deleted LV. Removes it, too, unless it can be removed together with others.
   *
   * @param listed the LV in a report
   * @param isFresh whether nothing took time since the report. If not, another one is read: an administrator may have rescued
   * the LV, or created a snapshot of it
   * @returns the LV if it can be removed together with others ({@linkcode Removal.removeTogether})
   * @throws {StorageError} `InUse` while other LVs depend on the LV: LVM would remove these with it
   */
  async erase(listed: DeletedLv, isFresh: boolean): Promise<RemovableLv | undefined> {
    const { clock, isStopped, onRemoved, removesEmptyPools } = this.#options;
    const deleted = isFresh ? listed : await this.#findAgain(listed);
    if (deleted === undefined) return;
    if (isCowSnapshot(deleted.lv)) return await this.#split(deleted);
    requireSoundPool(deleted);
    await this.#sendMessages(deleted);
    const listedAt = clock.now();
    requireNoDependents(deleted); // an erasure would fill their COW space
    const emptied = removesEmptyPools ? await extendLastOfPool(this.#options, deleted) : undefined;
    if (emptied === undefined) requireZeroingPool(deleted);
    const isErased = emptied !== undefined || needsErasure(deleted);
    const { encrypted } = deleted.tags;
    const { cache } = deleted.lv;
    if (isErased && cache !== undefined) return await this.#splitCache(deleted, cache);
    if (encrypted && cache !== undefined && await this.#attempt(() => this.#splitCache(deleted, cache))) return;
    if ((isErased || encrypted) && await this.#removeMissing(deleted)) return void onRemoved();
    if (isErased && !await this.#erase(deleted, emptied)) return;
    if (!isErased && encrypted) {
      await this.#attempt(async () => await this.#options.eraser.destroyKeySlots(await this.#ensureActive(deleted)));
    }
    if (isStopped()) return;
    if (isSelectable(deleted)) return { ...deleted, isErased, listedAt };
    await this.#removeReported(deleted, isErased, emptied);
  }

  /** Removes LVs. What fails for one does not keep the others. */
  async removeTogether(lvs: readonly RemovableLv[], attempt: Attempt): Promise<void> {
    const [first, ...others] = lvs;
    if (first === undefined) return;
    if (others.length === 0) return await attempt(() => this.#removeAlone(first));
    await attempt(async () => {
      const current = deletedLvs(this.#driver, await this.#options.report());
      const removable: RemovableLv[] = [];
      for (const listed of lvs) {
        const found = current.find((each) => isSame(each, listed));
        if (found === undefined) continue;
        await attempt(() => {
          requireRemovable(found, listed.isErased);
          return Promise.resolve(void removable.push({ ...listed, ...found }));
        });
      }
      for (const [group, ofGroup] of Map.groupBy(removable, ({ group }) => group)) {
        await attempt(async () => {
          const records = ofGroup.filter(({ recordedIn }) => recordedIn.length > 0).map((each) => this.#recordOf(each));
          if (records.length > 0) await removeUsedTags(this.#lvm, group, records);
          await Promise.all(ofGroup.map((each) => attempt(() => this.#removeSelected(each))));
        });
      }
    });
  }

  /** Finds an LV in a new report; `undefined` when it is gone, or not deleted any more. */
  async #findAgain(deleted: DeletedLv): Promise<DeletedLv | undefined> {
    return deletedLvs(this.#driver, await this.#options.report()).find((each) => isSame(each, deleted));
  }

  /** Separates a COW snapshot from its origin. It has another device then, so another pass removes it. */
  async #split(deleted: DeletedLv): Promise<undefined> {
    await splitSnapshot(this.#lvm, deleted.group, deleted.lv);
    if (this.#splitUuids.delete(deleted.lv.uuid)) {
      throw new StorageError(
        "CommandFailed",
        `separating ${lvPath(deleted)} from its origin: LVM reports it as a snapshot after it was separated`,
      );
    }
    this.#splitUuids.add(deleted.lv.uuid);
    this.#options.onChanged();
  }

  /**
   * Separates the cache of an LV, which has data of the volume that would stay there, and marks it as deleted. Another pass
   * erases and removes both.
   */
  async #splitCache(deleted: DeletedLv, cache: CacheLv): Promise<undefined> {
    const { group, tags } = deleted;
    requireErasable(deleted);
    await this.#lvm.change(group, lvconvert({ yes: true, splitcache: true }, lvPath(deleted)));
    try {
      await this.#lvm.change(group, lvchangeTags(markCacheDeleted(tags.id), `${group.name}/${cache.name}`));
    } catch (error) {
      this.#options.onUnfinished();
      throw error;
    }
    this.#options.onChanged();
  }

  /** Sends the pool of an LV what LVM has for it ({@linkcode sendMessages}). A full pool refuses, and needs the removal. */
  async #sendMessages(deleted: DeletedLv): Promise<void> {
    const isCreated = await sendMessages(this.#options, deleted).catch((error) => {
      if (!isOfKind(error, "NoSpace")) throw error; // it may have left a message itself
      this.#options.onError(error);
      return false;
    });
    if (isCreated) this.#options.onChanged();
  }

  /** Removes a thin LV that its pool lacks, and so cannot be erased; its pool stays. Returns whether it was removed. */
  async #removeMissing(deleted: DeletedLv): Promise<boolean> {
    if (deleted.recordedIn.length > 0) return false;
    if (!await isMissingThin(this.#lvm, this.#driver, deleted)) return false;
    await removeMissing(this.#lvm, deleted);
    return true;
  }

  /**
   * Erases a deleted LV, or by it the whole pool.
   *
   * @returns false when it was interrupted
   * @throws {StorageError} `FailedPrecondition` when a disk of it was missing before the erasure
   */
  async #erase(deleted: DeletedLv, emptied: EmptiedPool | undefined): Promise<boolean> {
    requireErasable(deleted);
    const active = await this.#ensureActive(emptied?.wiper ?? deleted);
    requireErasable({ ...active, tags: deleted.tags });
    const { eraser } = this.#options;
    return await (emptied === undefined ? eraser.erase(active) : overwritePool(eraser, active, emptied.pool));
  }

  /**
   * Attempts what the removal of an LV that is not erased must not wait for: a thin LV in a full pool takes no writes, nor does a
   * failed disk.
   *
   * @returns whether it was done
   */
  async #attempt(step: () => Promise<unknown>): Promise<boolean> {
    try {
      await step();
      return true;
    } catch (error) {
      if (lateCompletion(error) !== undefined) throw error;
      this.#options.onError(error);
      return false;
    }
  }

  async #ensureActive(deleted: DeletedLv): Promise<DeletedLv> {
    const { lv, group, tags } = deleted;
    if (lv.active) return deleted;
    await this.#lvm.change(group, activationArguments(this.#driver, group, lv));
    const active = await this.#findAgain(deleted);
    if (active?.lv.active) return { ...active, tags };
    throw new StorageError("FailedPrecondition", `erasing ${group.name}/${lv.name}: it cannot be activated`);
  }

  /** Removes an LV, if it is still as it was listed. If not, a report shows why. */
  async #removeAlone(removable: RemovableLv): Promise<void> {
    const isRecent = this.#options.clock.now() - removable.listedAt <= RECENT_MS;
    if (isRecent && await this.#removeRecordSelected(removable)) await this.#removeSelected(removable);
    else await this.#removeReported(removable, removable.isErased);
  }

  /** Removes the records of a deleted LV, if the LV is still as it was listed. Returns whether that is so. */
  async #removeRecordSelected(removable: RemovableLv): Promise<boolean> {
    const { group } = removable;
    if (removable.recordedIn.length === 0) return true;
    const deltag = [this.#recordOf(removable)];
    const command = vgchange({ deltag, select: this.#selectionOf(removable) }, group.name);
    return await this.#lvm.changeSelected(group, command, { isLast: false });
  }

  /**
   * Removes a deleted LV, if it is still deleted, no other LV depends on it, and none of its disks is missing if it was
   * erased. LVM decides that when it removes it. If not, a report shows why.
   */
  async #removeSelected(removable: RemovableLv): Promise<void> {
    const { group, isErased } = removable;
    const options = { yes: true, ...this.#selectionOf(removable) } as const;
    if (await this.#lvm.remove(group, options, lvPath(removable))) this.#options.onRemoved();
    else await this.#removeReported(removable, isErased);
  }

  /** Removes a deleted LV, and its records, after another report. */
  async #removeReported(deleted: DeletedLv, isErased: boolean, emptied?: EmptiedPool): Promise<void> {
    const groups = await this.#options.report();
    const removable = deletedLvs(this.#driver, groups).find((each) => isSame(each, deleted));
    if (removable === undefined) {
      const there = groups.find(({ uuid }) => uuid === deleted.group.uuid)?.lvs;
      // a command that failed for another LV does not tell whether it removed this one
      if (there?.every(({ uuid }) => uuid !== deleted.lv.uuid)) this.#options.onRemoved();
      return;
    }
    requireRemovable(removable, isErased);
    const { lv, group } = removable;
    if (emptied !== undefined && isExtended(group, emptied)) return this.#options.onChanged(); // it is overwritten again
    for (const each of removable.recordedIn) await removeUsedTags(this.#lvm, each, [this.#recordOf(removable)]);
    const command = lvremove({ yes: true, uuid: lv.uuid }, lvPath({ group, lv }));
    await this.#lvm.changeSelected(group, command);
    if (emptied !== undefined) await removeEmptyPool(this.#options, group, emptied);
    this.#options.onRemoved();
  }

  #recordOf({ lv, tags }: DeletedLv): string {
    return usedTag(this.#driver, tags.id, lv.uuid);
  }

  #selectionOf({ lv, tags, isErased }: RemovableLv): Selection {
    return {
      uuid: lv.uuid,
      tags: [OWNER + this.#driver, DELETED + tags.id],
      withoutTags: [VOLUME + tags.id, SNAPSHOT + tags.id],
      withoutDependents: true,
      ...(isErased && { healthy: true }),
    };
  }
}

/**
 * Requires that a deleted LV can be removed.
 *
 * @throws {StorageError} `FailedPrecondition` when it was erased, and one of its disks is missing; `InUse` while others depend on it
 */
function requireRemovable(deleted: DeletedLv, isErased: boolean): void {
  if (isErased) requireErasable(deleted);
  requireNoDependents(deleted);
}
