/**
 * All that a report shows of one driver: its volumes and snapshots, those that are Lost, and what fits neither.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { GroupMatcher } from "../model/groups.ts";
import { isDriverLvName, type KindAndId, parseVolumeId, type VolumeId } from "../ids.ts";
import type { LocatedLv, LogicalVolume, VolumeGroup } from "../model/report.ts";
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
import { type DeletedLv, deletedLvs } from "./leftovers.ts";
import type { RecordedLv, VolumeState } from "./volume_state.ts";
import type { Volume } from "./volume.ts";
import { VolumeFinder } from "./volume_finder.ts";
import { defined } from "../defined.ts";

/** A volume that is Lost. */
export type LostVolume = Extract<VolumeState, { state: "lost" }> & {
  /** Its id. */
  readonly id: VolumeId;
};

/** A volume that cannot be told from what is there. */
export interface ForeignVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** Why, of the kind `ForeignData`. */
  readonly error: StorageError;
}

/** Something of the driver's that is no volume and no snapshot. */
export interface Inconsistency {
  /**
   * What is wrong: its tags cannot be read; other LVs claim to be the same volume or snapshot; it has a name as the driver
   * gives them, but nobody's tags; it is a record that names no LV that is there.
   */
  readonly kind: "unreadable" | "duplicate" | "untagged" | "dangling";
  /** The group that it is in. */
  readonly group: string;
  /** The LV, as `group/name`; for a record, its tag. */
  readonly subject: string;
  /** The id that it claims, where it can be read. */
  readonly id?: string;
  /** Its tags of ours. */
  readonly tags: readonly string[];
}

/** What is known elsewhere of the driver's volumes and snapshots on this machine: in a cluster, by their objects. */
export interface KnownObjects {
  /** The volumes by id, with what is recorded of those that were made. */
  readonly volumes: ReadonlyMap<string, RecordedLv | undefined>;
  /** The snapshots by id. */
  readonly snapshots: ReadonlySet<string>;
  /** The command by which somebody gives up an LV that is not known. */
  readonly removeCommand: (lvUuid: string) => string;
}

/** An LV of the driver that stands for nothing that is known elsewhere. */
export interface OrphanLv {
  /** The LV, as `group/name`. */
  readonly lvFullName: string;
  /** The group that it is in. */
  readonly group: string;
  /** Its UUID. */
  readonly uuid: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** What it claims to be, and the command by which it is given up; absent where its tags cannot be read. */
  readonly taggedAs?: TaggedObject & { readonly removeCommand: string };
}

/** What an LV claims to be. A volume and a snapshot can have the same id. */
export type TaggedObject = KindAndId;

/** All that is of the driver. */
export interface Inventory {
  /** The volumes that are there, in the order of their ids. */
  readonly volumes: readonly Volume[];
  /** The volumes that are not, in the order of their ids. */
  readonly lost: readonly LostVolume[];
  /** The volumes that several LVs claim to be, or whose tags cannot be read, in the order of their ids. */
  readonly foreign: readonly ForeignVolume[];
  /** The snapshots, in the order of their ids. */
  readonly snapshots: readonly LocatedSnapshot[];
  /** What is left of deleted volumes and snapshots, and only to be erased and removed. */
  readonly deleted: readonly DeletedLv[];
  /** What is none of these. */
  readonly inconsistencies: readonly Inconsistency[];
  /** What of the volumes and snapshots is not known elsewhere. */
  readonly orphans: readonly Required<OrphanLv>[];
}

/** Where things are found. */
export interface Finders {
  /** Finds volumes. */
  readonly volumes: VolumeFinder;
  /** Finds snapshots. */
  readonly snapshots: SnapshotFinder;
  /** What is known elsewhere; without it, what is here is all that there is to know. */
  readonly known?: KnownObjects;
}

/**
 * Creates the finders of a driver's volumes and snapshots.
 *
 * @param driver the driver's name
 * @param known what is known elsewhere; by default, what is here is all that there is to know
 */
export function createFinders(driver: string, known?: KnownObjects): Finders {
  const volumes = new VolumeFinder({ driver, recordedLv: (id) => known?.volumes.get(id) });
  return { volumes, snapshots: new SnapshotFinder({ driver }), ...defined({ known }) };
}

/** Sorts out what the groups hold of the driver of the finders. It reads nothing but the report. */
export function takeInventory(groups: readonly VolumeGroup[], { volumes, snapshots, known }: Finders): Inventory {
  const { driver } = volumes;
  const recordedIds = [...known?.volumes ?? []].flatMap(([id, recorded]) =>
    recorded === undefined ? [] : [parseVolumeId(id)]
  );
  const allLvs = groups.flatMap((group) => group.lvs.map((lv) => ({ group, lv })));
  const usedTagEntries = groups.flatMap((group) =>
    parseUsedTags(driver, group.tags).map((used) => ({ group: group.name, used }))
  );
  const volumeIds = sortUnique([
    ...allLvs.map(({ lv }) => ownedVolumeId(driver, lv.tags)),
    ...usedTagEntries.map(({ used }) => used.id),
    ...recordedIds,
  ]);
  const snapshotIds = sortUnique(allLvs.map(({ lv }) => ownedSnapshotId(driver, lv.tags)));

  const states = volumeIds.map((id) => ({ id, found: catchForeignData(() => volumes.locate(groups, id)) }));
  const located = snapshotIds.map((id) => ({ id, found: catchForeignData(() => snapshots.locate(groups, id)) }));
  const lost = states.flatMap(({ id, found }) =>
    "value" in found && found.value.state === "lost" ? [{ ...found.value, id }] : []
  );
  const foreign = states.flatMap(({ id, found }) => "error" in found ? [{ id, error: found.error }] : []);
  const ambiguousKeys = new Set<string>([
    ...foreign.map(({ id }) => keyOf({ kind: "volume", id })),
    ...located.filter(({ found }) => "error" in found).map(({ id }) => keyOf({ kind: "snapshot", id })),
  ]);
  return {
    volumes: states.flatMap(({ found }) =>
      "value" in found && found.value.state === "present" ? [found.value.volume] : []
    ),
    lost,
    foreign,
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
 * The driver's LVs that stand for nothing that is known, or whose tags cannot be read. What is deleted, and only to be erased,
 * is not among them, nor what keeps a volume as it was while it is copied, nor thin pools: nobody has to know of them.
 */
export function findOrphanLvs(groups: readonly VolumeGroup[], driver: string, known: KnownObjects): OrphanLv[] {
  return groups.flatMap((group) =>
    group.lvs.filter(({ tags }) => isOwned(driver, tags) && !isInternal(driver, tags)).flatMap(
      (lv) => {
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
    )
  );
}

/** Whether what an LV claims to be is known. */
export function isKnown({ kind, id }: TaggedObject, { volumes, snapshots }: KnownObjects): boolean {
  return (kind === "volume" ? volumes : snapshots).has(id);
}

function hasReadableTags(orphan: OrphanLv): orphan is Required<OrphanLv> {
  return orphan.taggedAs !== undefined;
}

/** Of the groups, those that were asked for and those with anything of the driver; if there are none such, all. */
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

/** Whether an LV of the driver is there for the driver alone: to be removed, kept while it is copied, or a thin pool. */
function isInternal(driver: string, tags: readonly string[]): boolean {
  return [parseDeletedTags, copySnapshotOf].some((read) => read(driver, tags) !== undefined) ||
    hasPoolTag(driver, tags);
}

function isUntagged(lv: LogicalVolume): boolean {
  return isDriverLvName(lv.name) && ownersOf(lv.tags).length === 0;
}

/** Whether a record cannot be read, or names no LV that is there. */
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

function catchForeignData<T>(find: () => T): { readonly value: T } | { readonly error: StorageError } {
  try {
    return { value: find() };
  } catch (error) {
    if (error instanceof StorageError && error.kind === "ForeignData") return { error };
    throw error;
  }
}

function sortUnique<T extends string>(ids: readonly (T | undefined)[]): T[] {
  return [...new Set(ids.filter((id) => id !== undefined))].sort();
}
