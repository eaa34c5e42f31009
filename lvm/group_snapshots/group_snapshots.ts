/**
 * Creates and deletes group snapshots: snapshots of several volumes of this machine, at one point in time.
 *
 * LVM creates one snapshot at a time. So all volumes are suspended, and each stays so until its own snapshot exists: what is
 * written to any of them after that point in time is in none of the snapshots. lvcreate accepts a suspended volume as the
 * origin of a COW snapshot, and resumes it. For a thin one, LVM would send the pool no message to make the snapshot. So thin
 * snapshots are created before, and while their origins are suspended the pool makes each of them again
 * ({@linkcode ThinMember}).
 *
 * @module
 */

import { ignoring, lateCompletion, StorageError } from "../../base/error.ts";
import { type GroupSnapshotId, memberSnapshotIdOf, type SnapshotId, type VolumeId } from "../../base/ids.ts";
import type { FreshReport, Lvm } from "../client/client.ts";
import type { Reaper } from "../deletion/reaper.ts";
import { readMounts } from "../host/mounts.ts";
import { resumeSuspended } from "../deletion/resumption.ts";
import { requireSnapshots } from "../inventory/copying.ts";
import type { LocatedSnapshot, SnapshotFinder } from "../inventory/snapshot_finder.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { lvPath, type VolumeGroup } from "../model/report.ts";
import { markConfirmed, markSnapshotDeleted, ownedVolumeId } from "../model/tags.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import type { SizeOrPercent } from "../settings/cow_size.ts";
import { isInKernel, type Snapshots } from "../snapshots/snapshots.ts";
import {
  type GroupSnapshot,
  groupSnapshotState,
  membersOf,
  partialError,
  requireSources,
  unconfirmedGroups,
} from "./groups.ts";
import { type Member, MemberSnapshots } from "./members.ts";
import type { EarlierGuards } from "./suspension.ts";
import { requireSuspendable } from "./usage.ts";
import { readDeviceTree } from "../model/device_tree.ts";

/** A request for a group snapshot. */
export interface GroupSnapshotRequest {
  /** Its id. */
  readonly id: GroupSnapshotId;
  /** The volumes, each once. */
  readonly sources: readonly VolumeId[];
  /** The COW space of each snapshot of a thick volume. */
  readonly cowSize: SizeOrPercent;
}

/** Options of {@linkcode GroupSnapshots}. */
export interface GroupSnapshotsOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the driver's snapshots. */
  readonly finder: SnapshotFinder;
  /** Finds their volumes. */
  readonly volumes: VolumeFinder;
  /** Deletes snapshots. */
  readonly snapshots: Pick<Snapshots, "delete" | "isDeletable">;
  /** Removes the LVs of deleted snapshots, and calls {@linkcode GroupSnapshots.removeUnconfirmed} with each repair. */
  readonly reaper: Pick<Reaper, "wake" | "repairSoon">;
  /** Reserves space in the machine's thin pools. */
  readonly reservation: PoolReservation;
  /** The directories below which volumes are staged and published. */
  readonly mountRoots: readonly string[];
  /** What an earlier process may have left; by default nothing. */
  readonly earlierGuards?: EarlierGuards | undefined;
}

/** The group snapshots of one driver on this machine. */
export class GroupSnapshots {
  readonly #options: GroupSnapshotsOptions;
  readonly #lvm: Lvm;
  readonly #driver: string;
  readonly #members: MemberSnapshots;
  /** The group snapshots that are being created. */
  readonly #running = new Set<GroupSnapshotId>();

  /** Creates the service. */
  constructor(options: GroupSnapshotsOptions) {
    this.#options = options;
    this.#lvm = options.lvm;
    this.#driver = options.finder.driver;
    this.#members = new MemberSnapshots(options.lvm, this.#driver, options.reservation);
  }

  /**
   * Creates the group snapshot that a request describes, unless it exists. The caller holds the locks of the group snapshot and
   * of all its volumes, so that nothing reads or changes these meanwhile.
   *
   * @throws {StorageError} `AlreadyExists` when one of other volumes has the id; `NotFound` or `Lost` for a volume;
   * `FailedPrecondition` when a volume must not be suspended; `NoSpace`; `StillRunning` when the volumes were suspended for
   * too long, and were resumed
   */
  async create(request: GroupSnapshotRequest): Promise<GroupSnapshot> {
    const { id, sources } = request;
    let groups = await this.#lvm.report();
    const found = groupSnapshotState(this.#options.finder, groups, id);
    if (found.state === "partial") throw partialError(`creating group snapshot ${id}`, found);
    if (found.state === "present") {
      requireSources(found.group, sources);
      return found.group;
    }
    this.#running.add(id);
    let completion: Promise<unknown> | undefined;
    try {
      if (found.state === "unconfirmed") {
        await this.#markDeleted(found.members);
        groups = await this.#lvm.report();
      }
      return await this.#createNew(groups, request);
    } catch (error) {
      const cleaned = this.#removeAfter(lateCompletion(error), id);
      if (lateCompletion(error) === undefined) {
        await cleaned;
        throw error;
      }
      completion = cleaned;
      throw new StorageError("StillRunning", (error as Error).message, { cause: error, completion });
    } finally {
      if (completion === undefined) this.#running.delete(id);
      else void completion.then(() => this.#running.delete(id));
    }
  }

  /** Returns the ids of what exists of the snapshots of a group snapshot. While the caller holds its lock, no others come. */
  async members(id: GroupSnapshotId): Promise<SnapshotId[]> {
    return membersOf(this.#options.finder, await this.#lvm.report(), id).map(({ snapshot }) => snapshot.id);
  }

  /**
   * Deletes a group snapshot with all its snapshots. One that does not exist is deleted already. The caller holds the locks of
   * the group snapshot and of its snapshots.
   *
   * @param snapshots the snapshots that the caller knows; if there are any, they must be those of the group
   * @throws {StorageError} `InvalidArgument` when they are others; `InUse` while one is open; `Busy` while one is copied
   */
  async delete(id: GroupSnapshotId, snapshots: readonly SnapshotId[]): Promise<void> {
    const groups = await this.#lvm.report();
    const found = groupSnapshotState(this.#options.finder, groups, id);
    if (found.state === "absent") return;
    if (found.state === "unconfirmed") return await this.#markDeleted(found.members);
    if (found.state === "present") requireMembers(`deleting group snapshot ${id}`, found.group, snapshots);
    const ids = found.state === "present" ? found.group.snapshots : found.members.map(({ snapshot }) => snapshot);
    const used = ids.find((snapshot) => !this.#options.snapshots.isDeletable(groups, snapshot.id));
    if (used !== undefined) {
      throw new StorageError("InUse", `deleting group snapshot ${id}: snapshot ${used.id} is open, or being copied`);
    }
    for (const snapshot of ids) await this.#options.snapshots.delete(snapshot.id, id);
  }

  /**
   * Returns a group snapshot according to a new report.
   *
   * @param snapshots as for {@linkcode delete}
   * @throws {StorageError} `NotFound`; `InvalidArgument`; `FailedPrecondition` while some of its snapshots are missing
   */
  async get(id: GroupSnapshotId, snapshots: readonly SnapshotId[]): Promise<GroupSnapshot> {
    const operation = `looking for group snapshot ${id}`;
    const found = groupSnapshotState(this.#options.finder, await this.#lvm.report(), id);
    if (found.state === "partial") throw partialError(operation, found);
    if (found.state !== "present") {
      throw new StorageError("NotFound", `${operation}: no logical volume carries its tag`);
    }
    requireMembers(operation, found.group, snapshots);
    return found.group;
  }

  /**
   * Marks as deleted what is left of group snapshots that were not completed, by this process or an earlier one.
   *
   * @throws {unknown} the first error, after all were tried
   */
  async removeUnconfirmed(groups: readonly VolumeGroup[]): Promise<void> {
    let failure: unknown;
    for (const id of unconfirmedGroups(this.#driver, groups)) {
      if (this.#running.has(id)) continue;
      try {
        const found = groupSnapshotState(this.#options.finder, groups, id);
        if (found.state === "unconfirmed") await this.#markDeleted(found.members);
      } catch (error) {
        failure ??= error; // which says nothing of the others
      }
    }
    if (failure !== undefined) throw failure;
  }

  async #createNew(groups: FreshReport, { id, sources, cowSize }: GroupSnapshotRequest): Promise<GroupSnapshot> {
    let volumes = sources.map((source) => this.#options.volumes.require(groups, source));
    const isResumed = await resumeSuspended(this.#lvm, this.#driver, volumes);
    if (await this.#options.earlierGuards?.waitForEnd() || isResumed) {
      groups = await this.#lvm.report();
      volumes = sources.map((source) => this.#options.volumes.require(groups, source));
    }
    for (const volume of volumes) requireSnapshots(`creating group snapshot ${id}`, volume);
    await this.#requireSuspendable(volumes);
    const members = volumes.map((volume): Member => ({
      volume,
      id: memberSnapshotIdOf(id, volume.id),
      membership: { id, count: volumes.length, confirmed: false },
    }));
    await this.#members.create(groups, members, cowSize);
    const created = await this.#readBack(id, volumes);
    for (const { group, lv } of created) {
      await this.#lvm.changeTags({ group, lv }, markConfirmed(members[0]!.membership));
    }
    return { id, snapshots: created.map(({ snapshot }) => snapshot) };
  }

  async #requireSuspendable(volumes: readonly Volume[]): Promise<void> {
    const paths = volumes.filter(({ lv }) => lv.active).map(({ lv }) => lv.devicePath);
    const uses = paths.length === 0 ? [] : await readDeviceTree(this.#lvm.exec, paths);
    const mounts = await readMounts(this.#lvm.exec);
    for (const volume of volumes) {
      const use = uses.find(({ name }) => name === volume.lv.devicePath);
      requireSuspendable(volume, use, mounts, this.#options.mountRoots);
    }
  }

  /** Returns the new snapshots, as a report shows them. @throws {StorageError} `Busy` when they are not of the volumes */
  async #readBack(id: GroupSnapshotId, volumes: readonly Volume[]): Promise<readonly LocatedSnapshot[]> {
    const groups = await this.#lvm.reportAfterChanges();
    const found = groupSnapshotState(this.#options.finder, groups, id);
    const members = found.state === "unconfirmed" ? found.members : [];
    for (const volume of volumes) {
      const member = members.find(({ snapshot }) => snapshot.source === volume.id);
      const origin = member?.group.lvs.find(({ name }) => name === member.lv.origin);
      const isOfVolume = origin?.uuid === volume.lv.uuid && ownedVolumeId(this.#driver, origin.tags) === volume.id;
      const isTaken = isOfVolume && !origin.suspended && isInKernel(member!, origin);
      if (isTaken && member?.snapshot.size === volume.lv.size) continue;
      throw new StorageError(
        "Busy",
        `creating group snapshot ${id}: ${
          lvPath(volume)
        } was renamed, resumed, extended or deleted meanwhile; try again`,
      );
    }
    return members;
  }

  /** Removes what was created of a group snapshot, after the commands that may still create some of it. */
  async #removeAfter(completion: Promise<unknown> | undefined, id: GroupSnapshotId): Promise<void> {
    await completion?.catch(() => {});
    try {
      const found = groupSnapshotState(this.#options.finder, await this.#lvm.report(), id);
      if (found.state === "unconfirmed") await this.#markDeleted(found.members);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      this.#options.reaper.repairSoon();
    }
  }

  /** Marks snapshots of a group as deleted, unconfirmed ones last: while there is one, the group is known as not complete. */
  async #markDeleted(members: readonly LocatedSnapshot[]): Promise<void> {
    for (const { group, lv, snapshot } of members.toSorted((a, b) => Number(a.incomplete) - Number(b.incomplete))) {
      // one that its pool never made is removed before the next change of the pool, by any operation
      await this.#lvm.changeTags({ group, lv }, markSnapshotDeleted(snapshot.id)).catch(ignoring("NotFound"));
    }
    this.#options.reaper.wake();
  }
}

function requireMembers(operation: string, group: GroupSnapshot, given: readonly SnapshotId[]): void {
  const ids = group.snapshots.map(({ id }) => id);
  if (given.length === 0 || [...given].sort().join() === ids.join()) return;
  throw new StorageError(
    "InvalidArgument",
    `${operation}: its snapshots are ${ids.join(", ")}, and not the given ones`,
  );
}
