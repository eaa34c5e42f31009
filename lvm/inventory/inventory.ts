/**
 * All that a report shows of one driver: its volumes and snapshots, those that are Lost, and what fits neither.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Exec } from "../exec.ts";
import { exactly, type GroupMatcher } from "../model/groups.ts";
import { isOurLvName, parseVolumeId, type SnapshotId, type VolumeId } from "../ids.ts";
import { Lvm } from "../model/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { type LocatedSnapshot, Snapshots } from "../snapshots/snapshots.ts";
import {
  cutOf,
  isOwned,
  isOwnedPool,
  ownedSnapshotId,
  ownedVolumeId,
  ownersOf,
  parseDeletedTags,
  type UsedTag,
  usedTags,
} from "../model/tags.ts";
import { type Doomed, doomedLvs } from "../volumes/reaper.ts";
import type { RecordedLv, VolumeState } from "./volume_state.ts";
import type { Volume } from "./volume.ts";
import { Volumes } from "../volumes/volumes.ts";

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
export interface Orphan {
  /**
   * What is wrong: its tags cannot be read; other LVs claim to be the same volume or snapshot; it has a name as the driver
   * gives them, but nobody's tags; it is a record that names no LV that is there.
   */
  readonly kind: "unreadable" | "duplicate" | "untagged" | "record";
  /** The group that it is in. */
  readonly group: string;
  /** The LV, as `group/name`; for a record, its tag. */
  readonly on: string;
  /** The id that it claims, where it can be read. */
  readonly id?: string;
  /** Its tags of ours. */
  readonly tags: readonly string[];
}

/** What is known elsewhere of the driver's volumes and snapshots on this machine: in a cluster, by their objects. */
export interface Known {
  /** The volumes by id, with what is recorded of those that were made. */
  readonly volumes: ReadonlyMap<string, RecordedLv | undefined>;
  /** The snapshots by id. */
  readonly snapshots: ReadonlySet<string>;
  /** The command by which somebody gives up an LV that is not known. */
  readonly removal: (lvUuid: string) => string;
}

/** An LV of the driver that stands for nothing that is known elsewhere. */
export interface Stray {
  /** The LV, as `group/name`. */
  readonly on: string;
  /** The group that it is in. */
  readonly group: string;
  /** Its UUID. */
  readonly uuid: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** What it claims to be, and the command by which it is given up; absent where its tags cannot be read. */
  readonly claim?: Claim & { readonly removal: string };
}

/** What an LV claims to be. A volume and a snapshot can have the same id. */
export type Claim = { readonly of: "volume"; readonly id: VolumeId } | {
  readonly of: "snapshot";
  readonly id: SnapshotId;
};

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
  readonly deleted: readonly Doomed[];
  /** What is none of these. */
  readonly orphans: readonly Orphan[];
  /** What of the volumes and snapshots is not known elsewhere. */
  readonly strays: readonly Required<Stray>[];
}

/** Where things are found. */
export interface Finders {
  /** Finds volumes. */
  readonly volumes: Volumes;
  /** Finds snapshots. */
  readonly snapshots: Snapshots;
  /** What is known elsewhere; without it, what is here is all that there is to know. */
  readonly known?: Known;
}

/** What finds the driver's volumes and snapshots; for looking only, so that there is nothing to keep up. */
export function finders(exec: Exec, driver: string, known?: Known): Finders {
  const options = { lvm: new Lvm(exec), driver, upkeep: { look: () => {} } };
  const volumes = new Volumes({ ...options, groups: exactly(""), recorded: (id) => known?.volumes.get(id) });
  return { volumes, snapshots: new Snapshots({ ...options, volumes }), ...(known && { known }) };
}

interface Place {
  readonly group: VolumeGroup;
  readonly lv: LogicalVolume;
}

/** Sorts out what the groups hold of the driver of the finders. It reads nothing but the report. */
export function takeInventory(groups: readonly VolumeGroup[], { volumes, snapshots, known }: Finders): Inventory {
  const { driver } = volumes;
  const made = [...known?.volumes ?? []].flatMap(([id, recorded]) => recorded === undefined ? [] : [parseVolumeId(id)]);
  const places = groups.flatMap((group) => group.lvs.map((lv) => ({ group, lv })));
  const records = groups.flatMap((group) => usedTags(driver, group.tags).map((used) => ({ group: group.name, used })));
  const volumeIds = sorted([
    ...places.map(({ lv }) => ownedVolumeId(driver, lv.tags)),
    ...records.map(({ used }) => used.id),
    ...made,
  ]);
  const snapshotIds = sorted(places.map(({ lv }) => ownedSnapshotId(driver, lv.tags)));

  const states = volumeIds.map((id) => ({ id, found: unlessForeign(() => volumes.locate(groups, id)) }));
  const located = snapshotIds.map((id) => ({ id, found: unlessForeign(() => snapshots.locate(groups, id)) }));
  const lost = states.flatMap(({ id, found }) =>
    "value" in found && found.value.state === "lost" ? [{ ...found.value, id }] : []
  );
  const foreign = states.flatMap(({ id, found }) => "error" in found ? [{ id, error: found.error }] : []);
  const claims = new Set<string>([
    ...foreign.map(({ id }) => keyOf({ of: "volume", id })),
    ...located.filter(({ found }) => "error" in found).map(({ id }) => keyOf({ of: "snapshot", id })),
  ]);
  return {
    volumes: states.flatMap(({ found }) =>
      "value" in found && found.value.state === "present" ? [found.value.volume] : []
    ),
    lost,
    foreign,
    snapshots: located.flatMap(({ found }) => "value" in found && found.value !== undefined ? [found.value] : []),
    deleted: doomedLvs(driver, groups),
    orphans: [
      ...places.flatMap((place) => orphanAt(driver, place, places, claims)),
      ...records.filter(({ used }) => isDangling(used, places)).map(({ group, used }) => recordOrphan(group, used)),
    ],
    strays: known === undefined ? [] : straysIn(groups, driver, known).filter(isClaimed),
  };
}

/**
 * The driver's LVs that stand for nothing that is known, or whose tags cannot be read. What is deleted, and only to be erased,
 * is not among them, nor what keeps a volume as it was while it is copied, nor thin pools: nobody has to know of them.
 */
export function straysIn(groups: readonly VolumeGroup[], driver: string, known: Known): Stray[] {
  return groups.flatMap((group) =>
    group.lvs.filter(({ tags }) => isOwned(driver, tags) && !isInternal(driver, tags)).flatMap(
      (lv) => {
        const claim = claimOf(driver, lv);
        if (claim !== undefined && isKnown(claim, known)) return [];
        const { uuid, size } = lv;
        const stray = { on: `${group.name}/${lv.name}`, group: group.name, uuid, size };
        return [claim === undefined ? stray : { ...stray, claim: { ...claim, removal: known.removal(uuid) } }];
      },
    )
  );
}

/** Whether what an LV claims to be is known. */
export function isKnown({ of, id }: Claim, { volumes, snapshots }: Known): boolean {
  return (of === "volume" ? volumes : snapshots).has(id);
}

function isClaimed(stray: Stray): stray is Required<Stray> {
  return stray.claim !== undefined;
}

/** Of the groups, those that were asked for and those with anything of the driver; if there are none such, all. */
export function groupsInUse<G extends VolumeGroup>(
  groups: readonly G[],
  driver: string,
  wanted: GroupMatcher | undefined,
): readonly G[] {
  const used = groups.filter((group) => wanted?.matches(group.name) || hasOurs(group, driver));
  return used.length === 0 && wanted === undefined ? groups : used;
}

function hasOurs({ lvs, tags }: VolumeGroup, driver: string): boolean {
  return usedTags(driver, tags).length > 0 || lvs.some((lv) => ownersOf(lv.tags).includes(driver) || isUntagged(lv));
}

function orphanAt(driver: string, place: Place, all: readonly Place[], claims: ReadonlySet<string>): Orphan[] {
  const { group, lv } = place;
  const owned = ownersOf(lv.tags).includes(driver);
  if (!owned && !isUntagged(lv)) return [];
  const claim = claimOf(driver, lv);
  const tags = lv.tags.filter((tag) => tag.startsWith("denolith"));
  const orphan = { group: group.name, on: `${group.name}/${lv.name}`, tags };
  if (!owned) return [{ ...orphan, kind: "untagged" }];
  if (isInternal(driver, lv.tags)) return [];
  if (claim === undefined) return [{ ...orphan, kind: "unreadable" }];
  if (!claims.has(keyOf(claim))) return [];
  const claimants = all.map((other) => claimOf(driver, other.lv)).filter((other) =>
    other && keyOf(other) === keyOf(claim)
  );
  return [{ ...orphan, id: claim.id, kind: claimants.length > 1 ? "duplicate" : "unreadable" }];
}

/** Whether an LV of the driver is there for the driver alone: to be removed, kept while it is copied, or a thin pool. */
function isInternal(driver: string, tags: readonly string[]): boolean {
  return [parseDeletedTags, cutOf].some((read) => read(driver, tags) !== undefined) || isOwnedPool(driver, tags);
}

function isUntagged(lv: LogicalVolume): boolean {
  return isOurLvName(lv.name) && ownersOf(lv.tags).length === 0;
}

/** Whether a record cannot be read, or names no LV that is there. */
function isDangling({ id, lvUuid }: UsedTag, places: readonly Place[]): boolean {
  return id === undefined || !places.some(({ lv }) => lv.uuid === lvUuid);
}

function recordOrphan(group: string, { tag, id }: UsedTag): Orphan {
  return { kind: "record", group, on: tag, tags: [tag], ...(id === undefined ? {} : { id }) };
}

function claimOf(driver: string, lv: LogicalVolume): Claim | undefined {
  const volume = ownedVolumeId(driver, lv.tags);
  if (volume !== undefined) return { of: "volume", id: volume };
  const snapshot = ownedSnapshotId(driver, lv.tags);
  return snapshot && { of: "snapshot", id: snapshot };
}

function keyOf({ of, id }: Claim): string {
  return `${of} ${id}`;
}

function unlessForeign<T>(find: () => T): { readonly value: T } | { readonly error: StorageError } {
  try {
    return { value: find() };
  } catch (error) {
    if (error instanceof StorageError && error.kind === "ForeignData") return { error };
    throw error;
  }
}

function sorted<T extends string>(ids: readonly (T | undefined)[]): T[] {
  return [...new Set(ids.filter((id) => id !== undefined))].sort();
}
