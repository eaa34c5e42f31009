/**
 * Logical volumes of the driver that stand for no volume and no snapshot: deleted ones, and those that an `lvcreate`
 * left incomplete.
 *
 * @module
 */

import { type LocatedLv, type LogicalVolume, lvsOf, type VolumeGroup } from "../model/report.ts";
import { sum } from "../../base/size.ts";
import { type HeaderBackup, headerBackups } from "../encryption/header_tags.ts";
import type { VolumeId } from "../../base/ids.ts";
import {
  CACHED,
  type DeletedTags,
  hasRecordedFilesystem,
  hasSourceData,
  INTEGRITY,
  ownedCacheId,
  ownedVolumeId,
  parseDeletedTags,
  usedLvUuids,
  usedTag,
} from "../model/tags.ts";
import { hasChecksums } from "../model/layout.ts";

/** A deleted LV, which the reaper erases and removes. */
export interface DeletedLv extends LocatedLv {
  /** The contents of its tags. */
  readonly tags: DeletedTags;
  /** The groups with a record that it was in use: that of the LV, and the one from which vgsplit(8) took it. */
  readonly recordedIn: readonly VolumeGroup[];
}

/**
 * Returns the deleted LVs of the driver, which the reaper erases and removes.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 */
export function deletedLvs(driver: string, groups: readonly VolumeGroup[]): DeletedLv[] {
  return lvsOf(groups).flatMap(({ group, lv }) => {
    const tags = parseDeletedTags(driver, lv.tags);
    if (tags === undefined) return [];
    const record = usedTag(driver, tags.id, lv.uuid);
    // the record of a clone in an imported group is the clone's own (vgimportclone(8))
    const isOfClone = (other: VolumeGroup) => other !== group && other.lvs.some(({ uuid }) => uuid === lv.uuid);
    const recordedIn = groups.filter((each) => each.tags.includes(record) && !isOfClone(each));
    return [{ lv, group, tags, recordedIn }];
  });
}

/** The deleted volumes and snapshots of a volume group that are to be erased and removed; sizes in bytes. */
export interface Erasing {
  /** Their number. */
  readonly volumes: number;
  /** The space of the volume group that their removal frees. A thin LV frees space of its pool instead. */
  readonly bytes: bigint;
  /** The part of it that is not recorded as erased yet. */
  readonly remaining: bigint;
}

/** Returns what is left of the driver's deleted volumes and snapshots in a volume group. */
export function erasingOf(driver: string, group: VolumeGroup): Erasing {
  const deleted = deletedLvs(driver, [group]);
  const thick = deleted.filter(({ lv: { pool } }) => pool === undefined);
  return {
    volumes: deleted.length,
    bytes: sum(deleted.flatMap(({ lv: { pvSegments } }) => pvSegments.map(({ size }) => size))),
    remaining: sum(thick.map(({ lv: { size }, tags: { erased } }) => size - erased)),
  };
}

/** Returns the backups of LUKS headers whose volumes are deleted: nobody changes their passphrases any more. */
export function staleHeaderBackups(driver: string, groups: readonly VolumeGroup[]): HeaderBackup[] {
  return groups.flatMap((group) => {
    const volumes = new Set(group.lvs.map((lv) => ownedVolumeId(driver, lv.tags)));
    return headerBackups(driver, group).filter(({ tags }) => !volumes.has(tags.id));
  });
}

/**
 * Returns the LVs of the driver that are no volumes, because the `lvcreate` that made them died before they were
 * complete.
 *
 * An LV that was in use, whose filesystem is recorded, or that has data of a copy's source, is a volume in any case. LVM also converts LVs in
 * steps, so such an LV may look incomplete during a conversion. LVM adds checksums to RAID images, and a
 * cache, when the LV is complete, so a tag tells that they are missing.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 */
export function incompleteVolumes(driver: string, groups: readonly VolumeGroup[]): LocatedLv[] {
  return lvsOf(groups).flatMap(({ group, lv }) => {
    const isEmpty = !hasSourceData(lv.tags) && !hasRecordedFilesystem(lv.tags);
    const isIncomplete = lv.incomplete || (lv.tags.includes(INTEGRITY) && !hasChecksums(lv)) ||
      (lv.tags.includes(CACHED) && lv.cache === undefined);
    const id = isIncomplete && isEmpty ? ownedVolumeId(driver, lv.tags) : undefined;
    return id === undefined || usedLvUuids(driver, id, group.tags).includes(lv.uuid) ? [] : [{ lv, group }];
  });
}

/** An LV that was made as the cache of a volume, and is the cache of no LV. */
export interface LooseCache extends LocatedLv {
  /** The volume. */
  readonly id: VolumeId;
}

/**
 * Returns the LVs of the driver that were made as caches, and are the cache of no LV: the creation of the volume, or its
 * deletion, was interrupted. They may have data of the volume.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 */
export function looseCaches(driver: string, groups: readonly VolumeGroup[]): LooseCache[] {
  return lvsOf(groups).flatMap(({ group, lv }) => {
    const id = ownedCacheId(driver, lv.tags);
    return id === undefined ? [] : [{ lv, group, id }];
  });
}

/**
 * Reports whether an LV was made for a snapshot, but never became one.
 *
 * LVM first makes the COW space and turns it into a snapshot in a second step, under one lock. A report shows the state
 * between the two steps only when the `lvcreate` is dead.
 */
export function isIncompleteSnapshot(lv: LogicalVolume): boolean {
  return lv.origin === undefined && !lv.layout.includes("thin");
}
