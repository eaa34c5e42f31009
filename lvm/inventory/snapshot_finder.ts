/**
 * Finds the snapshots of one driver in a report. It reads nothing else and changes nothing.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { defined } from "../../base/defined.ts";
import type { GroupSnapshotId, SnapshotId, VolumeId } from "../../base/ids.ts";
import { requireReadable, requireResponsive } from "../client/client.ts";
import { type LocatedLv, lvPath, type VolumeGroup } from "../model/report.ts";
import { type Erasure, ownedVolumeId, parseMembership, parseSnapshotTags } from "../model/tags.ts";
import { fullCowBytes } from "../settings/cow_size.ts";
import { isIncompleteSnapshot } from "./leftovers.ts";
import { indexReport } from "./report_index.ts";
import { lostError, type RecordedLv, withoutClones } from "./volume.ts";

/** An existing snapshot. */
export interface Snapshot {
  /** Its id. */
  readonly id: SnapshotId;
  /** The volume that it was created from. */
  readonly source: VolumeId;
  /** The size in bytes that the volume had when the snapshot was created. A restored volume needs that much. */
  readonly size: bigint;
  /** The time of its creation, in seconds since 1970. */
  readonly createdAt: number;
  /** True if it can be used; false once its COW space overflowed. */
  readonly ready: boolean;
  /** The group snapshot that it belongs to, and without which it is not deleted; absent for one that was created alone. */
  readonly groupSnapshot?: GroupSnapshotId;
}

/** A snapshot with its LV. The LV of a copy-on-write snapshot is the COW space. */
export interface LocatedSnapshot extends LocatedLv {
  /** The snapshot. */
  readonly snapshot: Snapshot;
  /**
   * True if its LV was created, but never became a snapshot of the volume, or one of a group snapshot of which not all were
   * created at one point in time.
   */
  readonly incomplete: boolean;
  /** The way in which its data is erased when it is deleted. */
  readonly erase: Erasure;
}

/** The state of a snapshot id, according to a report and the records. */
export type SnapshotState =
  | { readonly state: "present"; readonly found: LocatedSnapshot }
  /** The snapshot was created, but its LV does not exist any more, or is no snapshot of the volume any more. */
  | { readonly state: "lost"; readonly error: StorageError }
  /** There is no such snapshot, or its LV never became one. */
  | { readonly state: "absent" };

/** Options of {@linkcode SnapshotFinder}. */
export interface SnapshotFinderOptions {
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Returns what is recorded outside LVM of a snapshot that was created. By default there is no such record. */
  readonly recordedLv?: (id: SnapshotId) => RecordedLv | undefined;
}

/** The usage from which on COW space counts as near full, in percent. */
const NEAR_FULL_PERCENT = 80;

/** A finder of the snapshots of one driver. It keeps no state. */
export class SnapshotFinder {
  /** The driver's name. */
  readonly driver: string;
  readonly #recordedLv: (id: SnapshotId) => RecordedLv | undefined;

  /** Creates the finder. */
  constructor({ driver, recordedLv = () => undefined }: SnapshotFinderOptions) {
    this.driver = driver;
    this.#recordedLv = recordedLv;
  }

  /**
   * Returns what a report and the record show of a snapshot of a volume.
   *
   * @throws {StorageError} those of {@linkcode locate}; `ForeignData` when it is of another LV than its volume's
   */
  stateOf(groups: readonly VolumeGroup[], { id, source }: Pick<Snapshot, "id" | "source">): SnapshotState {
    const recorded = this.#recordedLv(id);
    const ofSource = indexReport(this.driver, groups).volumes.get(source)?.map(({ group }) => group) ?? [];
    const within = groups.filter((group) => group.name === recorded?.groupName || ofSource.includes(group));
    const found = this.locate(groups, id, within);
    if (recorded === undefined) {
      if (found === undefined || found.incomplete) return { state: "absent" };
      this.#requireOrigin(found);
      return { state: "present", found };
    }
    if (found?.lv.uuid !== recorded.lvUuid) {
      const group = groups.find(({ name }) => name === recorded.groupName);
      return { state: "lost", error: lostError("snapshot", id, { ...recorded, ...defined({ group }) }, found?.lv) };
    }
    return found.incomplete ? { state: "lost", error: splitError(found) } : { state: "present", found };
  }

  /**
   * Makes sure that a COW snapshot, of which nothing says that it was complete, is of its volume. LVM takes the volume by its
   * name, which another LV may have had by then; and the process that would have seen it may have ended.
   *
   * @throws {StorageError} `ForeignData`.
   */
  #requireOrigin({ snapshot: { id, source }, lv, group }: LocatedSnapshot): void {
    const origin = group.lvs.find(({ name }) => name === lv.origin);
    if (origin === undefined || lv.layout.includes("thin") || ownedVolumeId(this.driver, origin.tags) === source) {
      return;
    }
    throw new StorageError(
      "ForeignData",
      `looking for snapshot ${id}: ${
        lvPath({ lv, group })
      } is a snapshot of ${origin.name}, which is not volume ${source}; ` +
        "delete the snapshot",
    );
  }

  /**
   * Makes sure that no other LV has taken the place of a snapshot that is recorded.
   *
   * @throws {StorageError} `Lost`.
   */
  requireRecorded({ snapshot: { id }, lv }: LocatedSnapshot): void {
    const recorded = this.#recordedLv(id);
    if (recorded !== undefined && recorded.lvUuid !== lv.uuid) throw lostError("snapshot", id, recorded, lv);
  }

  /**
   * Returns the snapshot according to a report, or `undefined` when no LV carries its tag.
   *
   * @param groups a report of LVM
   * @param id the snapshot
   * @param within the groups that may hold the snapshot; all by default
   * @throws {StorageError} `ForeignData` when several LVs claim to be the snapshot, or its tags cannot be read;
   * `Unavailable` when the snapshot is, or may be, in an unresponsive group.
   */
  locate(groups: readonly VolumeGroup[], id: SnapshotId, within = groups): LocatedSnapshot | undefined {
    const found = withoutClones(indexReport(this.driver, groups).snapshots.get(id) ?? [], this.#recordedLv(id));
    if (found.length > 1) {
      const names = found.map(lvPath).join(" and ");
      throw new StorageError(
        "ForeignData",
        `looking for snapshot ${id}: ${names} both claim to be it; remove the tags of one`,
      );
    }
    const [only] = found;
    const operation = `looking for snapshot ${id}`;
    for (const group of only === undefined ? within.filter(({ showsLvs }) => !showsLvs) : [only.group]) {
      requireResponsive(operation, group);
    }
    if (only === undefined) return undefined;
    requireReadable(operation, only);
    const { lv } = only;
    const { source, erase } = parseSnapshotTags(this.driver, lv.tags)!;
    const size = lv.originSize ?? lv.size;
    const membership = parseMembership(lv.tags);
    const snapshot = {
      id,
      source,
      size,
      createdAt: lv.createdAt,
      ready: !lv.invalidSnapshot,
      ...defined({ groupSnapshot: membership?.id }),
    };
    return { snapshot, ...only, incomplete: isIncompleteSnapshot(lv) || membership?.confirmed === false, erase };
  }

  /**
   * Returns all snapshots of the driver, in the order of their ids. It leaves out incomplete snapshots, and those whose
   * tags cannot be read. It returns the snapshots of an unresponsive group as they were last seen.
   */
  list(report: readonly VolumeGroup[]): Snapshot[] {
    const groups = report.map((group) => ({ ...group, responsive: true }));
    return [...indexReport(this.driver, groups).snapshots.keys()].sort().flatMap((id) => {
      try {
        const { snapshot, incomplete } = this.locate(groups, id)!;
        return incomplete ? [] : [snapshot];
      } catch {
        return [];
      }
    });
  }
}

/**
 * Returns the state of a snapshot's COW space: whether it overflowed, is near full, or has space left. COW space that
 * can hold the whole volume cannot overflow, and so is never near full.
 */
export function cowState({ snapshot, lv, group }: LocatedSnapshot): "Overflowed" | "NearFull" | "Ok" {
  if (!snapshot.ready) return "Overflowed";
  const coversOrigin = lv.originSize !== undefined && lv.size >= fullCowBytes(lv.originSize, group.extentSize);
  return !coversOrigin && (lv.snapshotPercent ?? 0) >= NEAR_FULL_PERCENT ? "NearFull" : "Ok";
}

function splitError(found: LocatedSnapshot): StorageError {
  const { snapshot: { id, source } } = found;
  return new StorageError(
    "Lost",
    `Lost: snapshot ${id} was the logical volume ${
      lvPath(found)
    }, which is no snapshot of volume ${source} any more: it was ` +
      `split off (lvconvert --splitsnapshot), and has only what changed. Nothing is created in its place. Delete the snapshot`,
  );
}
