/**
 * Lists what a report shows of one driver: volumes, snapshots, Lost volumes, deleted LVs, orphans and inconsistencies.
 *
 * @module
 */

import { type LocatedLv, type LogicalVolume, lvsOf, type VolumeGroup } from "../model/report.ts";
import { StorageError } from "../../base/error.ts";
import type { GroupMatcher } from "../model/groups.ts";
import { isDriverLvName, type KindAndId, parseVolumeId, type VolumeId } from "../../base/ids.ts";
import { type LocatedSnapshot, SnapshotFinder } from "./snapshot_finder.ts";
import {
  copySnapshotOf,
  hasPoolTag,
  isOwned,
  ownedSnapshotId,
  ownedVolumeId,
  ownersOf,
  parseDeletedTags,
  parseUsedTags,
  type UsedTag,
} from "../model/tags.ts";
import { headerBackupOf } from "../encryption/header_tags.ts";
import { type DeletedLv, deletedLvs } from "./leftovers.ts";
import type { RecordedLv, Volume, VolumeState } from "./volume.ts";
import { VolumeFinder } from "./volume_finder.ts";
import { defined } from "../../base/defined.ts";

/** A volume that is Lost. */
export type LostVolume = Extract<VolumeState, { state: "lost" }> & {
  /** Its id. */
  readonly id: VolumeId;
};

/** A volume that cannot be identified, because several LVs claim to be it, or its tags cannot be read. */
export interface ForeignVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** The reason, an error of the kind `ForeignData`. */
  readonly error: StorageError;
}

/** An LV or a tag that is neither a volume nor a snapshot of the driver. */
export interface Inconsistency {
  /**
   * The problem. `unreadable`: its tags cannot be read. `duplicate`: other LVs claim to be the same volume or snapshot.
   * `untagged`: its name has the form of the driver's LV names, but it has no driver's tags. `dangling`: it is a record
   * that names no existing LV.
   */
  readonly kind: "unreadable" | "duplicate" | "untagged" | "dangling";
  /** The name of its group. */
  readonly group: string;
  /** The LV, as `group/name`; for a record, its tag. */
  readonly subject: string;
  /** The id in its tags, if it can be read. */
  readonly id?: string;
  /** Its tags that begin with `denolith`. */
  readonly tags: readonly string[];
}

/** The volumes and snapshots that are known outside LVM: in a cluster, those with objects. */
export interface KnownObjects {
  /** The volumes by id, with the recorded LVs of those that were created. */
  readonly volumes: ReadonlyMap<string, RecordedLv | undefined>;
  /** The snapshots by id. */
  readonly snapshots: ReadonlySet<string>;
  /** Returns the command that deletes an unknown LV. */
  readonly removeCommand: (lvUuid: string) => string;
}

/** An LV of the driver for which nothing is known outside LVM. */
export interface OrphanLv {
  /** The LV, as `group/name`. */
  readonly lvFullName: string;
  /** The name of its group. */
  readonly group: string;
  /** Its UUID. */
  readonly uuid: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** The object that its tags name, and the command that deletes the LV; absent when its tags cannot be read. */
  readonly taggedAs?: TaggedObject & { readonly removeCommand: string };
}

/** The object that an LV's tags name. A volume and a snapshot can have the same id. */
export type TaggedObject = KindAndId;

/** All that a report shows of the driver. */
export interface Inventory {
  /** The volumes that exist, in the order of their ids. */
  readonly volumes: readonly Volume[];
  /** The Lost volumes, in the order of their ids. */
  readonly lost: readonly LostVolume[];
  /** The volumes that several LVs claim to be, or whose tags cannot be read, in the order of their ids. */
  readonly foreign: readonly ForeignVolume[];
  /** The volumes of which nothing is known, since their group cannot be read, in the order of their ids. */
  readonly unknown: readonly ForeignVolume[];
  /** The snapshots, also incomplete ones, in the order of their ids. */
  readonly snapshots: readonly LocatedSnapshot[];
  /** The deleted LVs, which the reaper erases and removes. */
  readonly deleted: readonly DeletedLv[];
  /** The LVs and tags that are none of these. */
  readonly inconsistencies: readonly Inconsistency[];
  /** The LVs of volumes and snapshots that are not known outside LVM. */
  readonly orphans: readonly Required<OrphanLv>[];
}

/** The finders of one driver, and what is known outside LVM. */
export interface Finders {
  /** Finds volumes. */
  readonly volumes: VolumeFinder;
  /** Finds snapshots. */
  readonly snapshots: SnapshotFinder;
  /** The objects that are known outside LVM; without them, LVM is the only record, and there are no orphans. */
  readonly known?: KnownObjects;
}

/**
 * Creates the finders of a driver's volumes and snapshots.
 *
 * @param driver the driver's name
 * @param known what is known outside LVM; by default LVM is the only record
 */
export function createFinders(driver: string, known?: KnownObjects): Finders {
  const volumes = new VolumeFinder({ driver, recordedLv: (id) => known?.volumes.get(id) });
  return { volumes, snapshots: new SnapshotFinder({ driver }), ...defined({ known }) };
}

/**
 * Returns all that a report shows of one driver.
 *
 * @param groups a report of LVM
 * @param finders the finders of the driver, from {@linkcode createFinders}
 */
export function takeInventory(groups: readonly VolumeGroup[], { volumes, snapshots, known }: Finders): Inventory {
  const { driver } = volumes;
  const recordedIds = [...known?.volumes ?? []].flatMap(([id, recorded]) =>
    recorded === undefined ? [] : [parseVolumeId(id)]
  );
  const allLvs = lvsOf(groups);
  const usedTagEntries = groups.flatMap((group) =>
    parseUsedTags(driver, group.tags).map((used) => ({ group: group.name, used }))
  );
  const volumeIds = sortUnique([
    ...allLvs.map(({ lv }) => ownedVolumeId(driver, lv.tags)),
    ...usedTagEntries.map(({ used }) => used.id),
    ...recordedIds,
  ]);
  const snapshotIds = sortUnique(allLvs.map(({ lv }) => ownedSnapshotId(driver, lv.tags)));

  const states = volumeIds.map((id) => ({ id, found: attempt(() => volumes.locate(groups, id)) }));
  const located = snapshotIds.map((id) => ({ id, found: attempt(() => snapshots.locate(groups, id)) }));
  const lost = states.flatMap(({ id, found }) =>
    "value" in found && found.value.state === "lost" ? [{ ...found.value, id }] : []
  );
  const failed = states.flatMap(({ id, found }) => "error" in found ? [{ id, error: found.error }] : []);
  const ambiguousKeys = new Set<string>([
    ...failed.map(({ id }) => keyOf({ kind: "volume", id })),
    ...located.filter(({ found }) => "error" in found).map(({ id }) => keyOf({ kind: "snapshot", id })),
  ]);
  return {
    volumes: states.flatMap(({ found }) =>
      "value" in found && found.value.state === "present" ? [found.value.volume] : []
    ),
    lost,
    foreign: failed.filter(({ error }) => error.kind === "ForeignData"),
    unknown: failed.filter(({ error }) => error.kind === "Unavailable"),
    snapshots: located.flatMap(({ found }) => "value" in found && found.value !== undefined ? [found.value] : []),
    deleted: deletedLvs(driver, groups),
    inconsistencies: [
      ...allLvs.flatMap((place) => findInconsistencies(driver, place, allLvs, ambiguousKeys)),
      ...usedTagEntries.filter(({ used }) => isDangling(used, allLvs)).map(({ group, used }) =>
        danglingTagInconsistency(group, used)
      ),
    ],
    orphans: known === undefined ? [] : findOrphanLvs(groups, driver, known).filter(hasReadableTags),
  };
}

/**
 * Returns the driver's LVs that are not known outside LVM, or whose tags cannot be read. Deleted LVs, copy snapshots,
 * backups of LUKS headers and thin pools are not orphans, because they have no objects.
 *
 * @param groups a report of LVM
 * @param driver the driver's name
 * @param known what is known outside LVM
 */
export function findOrphanLvs(groups: readonly VolumeGroup[], driver: string, known: KnownObjects): OrphanLv[] {
  return lvsOf(groups).filter(({ lv: { tags } }) => isOwned(driver, tags) && !isInternal(driver, tags)).flatMap(
    ({ group, lv }) => {
      const taggedAs = taggedObjectOf(driver, lv);
      if (taggedAs !== undefined && isKnown(taggedAs, known)) return [];
      const { uuid, size } = lv;
      const orphan = { lvFullName: `${group.name}/${lv.name}`, group: group.name, uuid, size };
      return [
        taggedAs === undefined
          ? orphan
          : { ...orphan, taggedAs: { ...taggedAs, removeCommand: known.removeCommand(uuid) } },
      ];
    },
  );
}

/** Reports whether the object that an LV's tags name is known outside LVM. */
export function isKnown({ kind, id }: TaggedObject, { volumes, snapshots }: KnownObjects): boolean {
  return (kind === "volume" ? volumes : snapshots).has(id);
}

function hasReadableTags(orphan: OrphanLv): orphan is Required<OrphanLv> {
  return orphan.taggedAs !== undefined;
}

/**
 * Returns the requested groups, and those with LVs or tags of the driver. Without a request and without such groups, it
 * returns all groups.
 *
 * @param groups a report of LVM
 * @param driver the driver's name
 * @param wanted the requested groups
 */
export function groupsInUse<G extends VolumeGroup>(
  groups: readonly G[],
  driver: string,
  wanted: GroupMatcher | undefined,
): readonly G[] {
  const used = groups.filter((group) => wanted?.matches(group.name) || hasDriverData(group, driver));
  return used.length === 0 && wanted === undefined ? groups : used;
}

function hasDriverData({ lvs, tags }: VolumeGroup, driver: string): boolean {
  return parseUsedTags(driver, tags).length > 0 ||
    lvs.some((lv) => ownersOf(lv.tags).includes(driver) || isUntagged(lv));
}

function findInconsistencies(
  driver: string,
  located: LocatedLv,
  all: readonly LocatedLv[],
  ambiguousKeys: ReadonlySet<string>,
): Inconsistency[] {
  const { group, lv } = located;
  const owned = ownersOf(lv.tags).includes(driver);
  if (!owned && !isUntagged(lv)) return [];
  const taggedAs = taggedObjectOf(driver, lv);
  const tags = lv.tags.filter((tag) => tag.startsWith("denolith"));
  const inconsistency = { group: group.name, subject: `${group.name}/${lv.name}`, tags };
  if (!owned) return [{ ...inconsistency, kind: "untagged" }];
  if (isInternal(driver, lv.tags)) return [];
  if (taggedAs === undefined) return [{ ...inconsistency, kind: "unreadable" }];
  if (!ambiguousKeys.has(keyOf(taggedAs))) return [];
  const sameObjects = all.map((other) => taggedObjectOf(driver, other.lv)).filter((other) =>
    other && keyOf(other) === keyOf(taggedAs)
  );
  return [{ ...inconsistency, id: taggedAs.id, kind: sameObjects.length > 1 ? "duplicate" : "unreadable" }];
}

/** Reports whether an LV is internal to the driver: a deleted LV, a copy snapshot, the backup of a header, or a thin pool. */
function isInternal(driver: string, tags: readonly string[]): boolean {
  return [parseDeletedTags, copySnapshotOf, headerBackupOf].some((read) => read(driver, tags) !== undefined) ||
    hasPoolTag(driver, tags);
}

function isUntagged(lv: LogicalVolume): boolean {
  return isDriverLvName(lv.name) && ownersOf(lv.tags).length === 0;
}

/** Reports whether a record cannot be read, or names no existing LV. */
function isDangling({ id, lvUuid }: UsedTag, allLvs: readonly LocatedLv[]): boolean {
  return id === undefined || !allLvs.some(({ lv }) => lv.uuid === lvUuid);
}

function danglingTagInconsistency(group: string, { tag, id }: UsedTag): Inconsistency {
  return { kind: "dangling", group, subject: tag, tags: [tag], ...defined({ id }) };
}

function taggedObjectOf(driver: string, lv: LogicalVolume): TaggedObject | undefined {
  const volume = ownedVolumeId(driver, lv.tags);
  if (volume !== undefined) return { kind: "volume", id: volume };
  const snapshot = ownedSnapshotId(driver, lv.tags);
  return snapshot && { kind: "snapshot", id: snapshot };
}

function keyOf({ kind, id }: TaggedObject): string {
  return `${kind} ${id}`;
}

/** Returns what is found, or why not: one volume that cannot be identified, or one group that cannot be read, hides no other. */
function attempt<T>(find: () => T): { readonly value: T } | { readonly error: StorageError } {
  try {
    return { value: find() };
  } catch (error) {
    if (error instanceof StorageError && ["ForeignData", "Unavailable"].includes(error.kind)) return { error };
    throw error;
  }
}

function sortUnique<T extends string>(ids: readonly (T | undefined)[]): T[] {
  return [...new Set(ids.filter((id) => id !== undefined))].sort();
}
