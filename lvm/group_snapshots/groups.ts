/**
 * Finds the group snapshots of one driver in a report. It reads nothing else and changes nothing.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { GroupSnapshotId, VolumeId } from "../../base/ids.ts";
import { indexReport } from "../inventory/report_index.ts";
import type { LocatedSnapshot, Snapshot, SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { parseMembership } from "../model/tags.ts";
import type { VolumeGroup } from "../model/report.ts";

/** An existing group snapshot. */
export interface GroupSnapshot {
  /** Its id. */
  readonly id: GroupSnapshotId;
  /** Its snapshots, in the order of their ids. */
  readonly snapshots: readonly Snapshot[];
}

/** What a report shows of a group snapshot. */
export type GroupSnapshotState =
  | { readonly state: "present"; readonly group: GroupSnapshot }
  /** Some of its snapshots are missing, or in groups that LVM does not show. */
  | { readonly state: "partial"; readonly members: readonly LocatedSnapshot[]; readonly count: number }
  /** It was begun, and no caller knows that it exists. */
  | { readonly state: "unconfirmed"; readonly members: readonly LocatedSnapshot[] }
  | { readonly state: "absent" };

/**
 * Returns what a report shows of a group snapshot.
 *
 * @throws {StorageError} those of {@linkcode SnapshotFinder.locate}
 */
export function groupSnapshotState(
  finder: SnapshotFinder,
  report: readonly VolumeGroup[],
  id: GroupSnapshotId,
): GroupSnapshotState {
  const members = membersOf(finder, report, id);
  const [first] = members;
  if (first === undefined) return { state: "absent" };
  const memberships = members.map(({ lv }) => parseMembership(lv.tags)!);
  if (memberships.some(({ confirmed }) => !confirmed)) return { state: "unconfirmed", members };
  const { count } = memberships[0]!;
  if (members.length !== count) return { state: "partial", members, count };
  return { state: "present", group: { id, snapshots: members.map(({ snapshot }) => snapshot) } };
}

/** Returns the ids of the group snapshots that were begun, and that no caller knows of. */
export function unconfirmedGroups(driver: string, report: readonly VolumeGroup[]): GroupSnapshotId[] {
  const memberships = [...indexReport(driver, report).snapshots.values()].flat()
    .map(({ lv }) => parseMembership(lv.tags))
    .filter((membership) => membership !== undefined && !membership.confirmed);
  return [...new Set(memberships.map((membership) => membership!.id))];
}

/**
 * Makes sure that an existing group snapshot is of the requested volumes.
 *
 * @throws {StorageError} `AlreadyExists`.
 */
export function requireSources({ id, snapshots }: GroupSnapshot, sources: readonly VolumeId[]): void {
  const existing = snapshots.map(({ source }) => source).sort();
  if (existing.join() === [...sources].sort().join()) return;
  throw new StorageError(
    "AlreadyExists",
    `creating group snapshot ${id}: one of that name exists, of the volumes ${existing.join(", ")}`,
  );
}

/** Creates the error for a group snapshot some of whose snapshots are missing. */
export function partialError(
  operation: string,
  { members, count }: Extract<GroupSnapshotState, { state: "partial" }>,
): StorageError {
  return new StorageError(
    "FailedPrecondition",
    `${operation}: LVM shows ${members.length} of its ${count} snapshots; delete it, or bring the other volume groups back`,
  );
}

/**
 * Returns what a report shows of the snapshots of a group snapshot, in the order of their ids.
 *
 * @throws {StorageError} those of {@linkcode SnapshotFinder.locate}
 */
export function membersOf(
  finder: SnapshotFinder,
  report: readonly VolumeGroup[],
  id: GroupSnapshotId,
): LocatedSnapshot[] {
  const { snapshots } = indexReport(finder.driver, report);
  return [...snapshots].filter(([, lvs]) => lvs.some(({ lv }) => parseMembership(lv.tags)?.id === id))
    .map(([snapshot]) => finder.locate(report, snapshot)!)
    .toSorted((a, b) => a.snapshot.id < b.snapshot.id ? -1 : 1);
}
