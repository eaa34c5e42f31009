/**
 * The reconciler of LVMSnapshots: it takes and removes their snapshots on this node, and reports their state.
 *
 * @module
 */

import { memberSnapshotIdOf, parseGroupSnapshotId, type SnapshotId, type VolumeId } from "../../base/ids.ts";
import { groupSnapshotCreationLocks, type Locks, snapshotCreationLocks, snapshotLock } from "../../base/locks.ts";
import { StorageError } from "../../base/error.ts";
import type { GroupSnapshotRequest, GroupSnapshots } from "../../lvm/group_snapshots/group_snapshots.ts";
import type { FreshReport } from "../../lvm/client/client.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { formatBytes } from "../../base/size.ts";
import type { SnapshotFinder } from "../../lvm/inventory/snapshot_finder.ts";
import type { VolumeFinder } from "../../lvm/inventory/volume_finder.ts";
import { requireSource, type SnapshotRequest, type Snapshots } from "../../lvm/snapshots/snapshots.ts";
import type { CowUsage } from "../../lvm/snapshots/cow_autoextend.ts";
import { removePendingSnapshot } from "../../lvm/deletion/missing_thin.ts";
import { isToBeCreated, LVM_SNAPSHOT_FINALIZER, type LvmSnapshot, type LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { failedStatus, reportedError } from "../api/object_status.ts";
import { groupRequestOf, snapshotRequestOf } from "../api/snapshot_mapping.ts";
import type { ReconcileOutcome } from "../runtime/controller.ts";
import { hasCurrentError, ObjectReconciler, type ReconcilerOptions } from "./object_reconciler.ts";
import { lostSnapshotStatus, takenStatus } from "./snapshot_status.ts";

/** The problems of a snapshot's own COW space. */
const COW_PROBLEMS = ["Overflowed", "SnapshotNearFull", "SnapshotCannotExtend"] as const;

/** Options of {@linkcode SnapshotReconciler}. */
export interface SnapshotReconcilerOptions extends ReconcilerOptions<LvmSnapshot> {
  /** Finds volumes in a report. */
  readonly volumeFinder: VolumeFinder;
  /** Finds snapshots in a report; it knows what the objects record. */
  readonly snapshotFinder: SnapshotFinder;
  /** The snapshots of this machine. */
  readonly snapshots: Snapshots;
  /** The group snapshots of this machine. */
  readonly groupSnapshots: GroupSnapshots;
  /** Locks by volume and snapshot, shared with the agent of the volumes. */
  readonly locks: Locks;
}

/** Reconciles the LVMSnapshots of a node. */
export class SnapshotReconciler {
  readonly #options: SnapshotReconcilerOptions;
  readonly #reconciler: ObjectReconciler<LvmSnapshot, LvmSnapshotStatus>;
  /** The group snapshots that are being taken, with the names of their snapshots that wait for that. */
  readonly #taking = new Map<string, Set<string>>();

  /** Creates the reconciler. */
  constructor(options: SnapshotReconcilerOptions) {
    const { snapshotFinder, snapshots, locks } = options;
    this.#options = options;
    this.#reconciler = new ObjectReconciler({
      ...options,
      driver: snapshotFinder.driver,
      noun: "snapshot",
      ownerDescription: "VolumeSnapshot",
      finalizer: LVM_SNAPSHOT_FINALIZER,
      reconcileObject: (object) => this.#reconcileSnapshot(object),
      observe: (object, groups) => {
        const found = snapshotFinder.stateOf(groups, snapshotRequestOf(object));
        if (found.state === "lost") return lostSnapshotStatus(object, found.error);
        return found.state === "present" ? takenStatus(object, found.found) : undefined;
      },
      recordChanges: (object, status) => this.#recordCowChange(object, status),
      remove: ({ metadata, spec }) => {
        const id = metadata.name as SnapshotId; // the API server accepts no other name
        const group = parseGroupSnapshotId(spec.groupSnapshot?.name ?? "");
        return locks.run("deletion", [snapshotLock(id)], () => snapshots.delete(id, group));
      },
      isRemovable: ({ metadata }, groups) =>
        Promise.resolve(snapshots.isDeletable(groups, metadata.name as SnapshotId)),
      toLostStatus: lostSnapshotStatus,
    });
  }

  /**
   * Takes the next step towards what an object asks for, and writes its status. A step whose outcome is uncertain is
   * retried.
   */
  reconcile(name: string): Promise<ReconcileOutcome> {
    return this.#reconciler.reconcile(name);
  }

  /** Writes what a report shows of the snapshots that were taken: how full they are, overflowed, or lost. */
  verify(groups: readonly VolumeGroup[]): Promise<void> {
    return this.#reconciler.verify(groups);
  }

  async #reconcileSnapshot(object: LvmSnapshot): Promise<ReconcileOutcome> {
    const { lvm, snapshotFinder, locks } = this.#options;
    const request = snapshotRequestOf(object);
    const group = groupRequestOf(object);
    if (group !== undefined && object.status?.lvUUID === undefined) return await this.#reconcileMember(object, group);
    const groups = await lvm.report();
    const found = snapshotFinder.stateOf(groups, request);
    if (found.state === "lost") {
      return await this.#reconciler.writeStatus(object, lostSnapshotStatus(object, found.error));
    }
    if (found.state === "absent") {
      this.#reconciler.requireToBeCreated(object);
      const locksToHold = snapshotCreationLocks(request.id, request.source);
      return await locks.run(
        "snapshot",
        locksToHold,
        () => this.#reconciler.logged("create", object, () => this.#take(object, request, groups)),
      );
    }
    requireSource(found.found.snapshot, request.source);
    if (object.status?.lvUUID === undefined) {
      const remove = () => removePendingSnapshot(lvm, snapshotFinder.driver, found.found);
      const locksToHold = snapshotCreationLocks(request.id, request.source);
      if (await locks.run("snapshot", locksToHold, remove)) return await this.#reconcileSnapshot(object);
    }
    await this.#reconciler.writeStatus(object, takenStatus(object, found.found));
  }

  /**
   * Takes the group snapshot that a snapshot belongs to, when the objects of all its snapshots are there: the last one that
   * comes does it for all. All get a status, this one last: with another one's it would not be reconciled again.
   */
  async #reconcileMember(object: LvmSnapshot, group: GroupSnapshotRequest): Promise<ReconcileOutcome> {
    if (this.#otherMembers(object, group) === undefined) {
      return { waitsFor: "the other snapshots of its group snapshot" };
    }
    const waiting = this.#taking.get(group.id);
    if (waiting !== undefined) {
      waiting.add(object.metadata.name);
      return { waitsFor: "its group snapshot, which is being taken" };
    }
    this.#taking.set(group.id, new Set());
    try {
      await this.#options.locks.run(
        "group snapshot",
        groupSnapshotCreationLocks(group.id, group.sources),
        () => this.#settleGroup(object, group),
      );
    } finally {
      const names = this.#taking.get(group.id)!;
      this.#taking.delete(group.id);
      for (const name of names) this.#options.requeue(name); // one that was replaced has got no status
    }
  }

  /** Takes a group snapshot, or writes why it cannot be taken, unless another of its snapshots was reconciled meanwhile. */
  async #settleGroup({ metadata: { name } }: LvmSnapshot, group: GroupSnapshotRequest): Promise<void> {
    const object = this.#options.objects.get(name);
    if (object === undefined || object.status?.lvUUID !== undefined || hasCurrentError(object)) return;
    const others = this.#otherMembers(object, group);
    if (others === undefined) return;
    try {
      const failed = others.find((other) => other.status?.lvUUID === undefined && hasCurrentError(other));
      if (failed !== undefined) throw reportedError(failed.status!.error!);
      await this.#reconciler.logged("create", object, () => this.#takeGroup([...others, object], group));
    } catch (error) {
      // the caller decides whether the volumes are suspended again
      if (error instanceof StorageError && !["Busy", "Unavailable"].includes(error.kind)) {
        await this.#writeFailure([...others, object], error);
      }
      throw error;
    }
  }

  /** Returns the other members of a group snapshot; `undefined` while not all are there to stay. */
  #otherMembers(object: LvmSnapshot, { id, sources }: GroupSnapshotRequest): LvmSnapshot[] | undefined {
    const members = sources.map((source) => this.#options.objects.get(memberSnapshotIdOf(id, source)));
    const isThere = (member: LvmSnapshot | undefined): member is LvmSnapshot =>
      member?.metadata.deletionTimestamp === undefined && member?.spec.groupSnapshot?.name === id;
    return members.every(isThere)
      ? members.filter(({ metadata }) => metadata.name !== object.metadata.name)
      : undefined;
  }

  /** Takes a group snapshot. Where its snapshots are to be is saved before, their UUIDs after. */
  async #takeGroup(members: readonly LvmSnapshot[], request: GroupSnapshotRequest): Promise<void> {
    const { lvm, volumeFinder, snapshotFinder, groupSnapshots, events, onChange } = this.#options;
    const groups = await lvm.report();
    const pending: LvmSnapshot[] = [];
    for (const member of members.filter(({ status }) => status?.lvUUID === undefined)) {
      const { group } = volumeFinder.require(groups, member.spec.sourceVolume as VolumeId);
      const status = { ...member.status, state: "Pending", volumeGroup: group.name } as const;
      pending.push(await this.#reconciler.patchStatus(member, status));
    }
    if (pending.some(({ metadata }) => metadata.deletionTimestamp !== undefined)) return;
    // what has been reported once is never taken again
    if (pending.length === members.length && members.every(isToBeCreated)) await groupSnapshots.create(request);
    else {
      await groupSnapshots.get(request.id, []).catch((error) => {
        for (const member of pending) this.#reconciler.requireToBeCreated(member);
        throw error;
      });
    }
    onChange();
    const taken = await lvm.report();
    for (const member of pending) {
      const located = snapshotFinder.locate(taken, member.metadata.name as SnapshotId)!;
      await this.#reconciler.writeStatus(member, takenStatus(member, located));
      const message =
        `took snapshot ${located.group.name}/${located.lv.name} of volume ${located.snapshot.source}, with ` +
        `group snapshot ${request.id}`;
      events.record(member, "Normal", "Created", message);
    }
  }

  /** Writes why a group snapshot could not be taken into those of its snapshots that were not taken. */
  async #writeFailure(members: readonly LvmSnapshot[], error: StorageError): Promise<void> {
    for (const { metadata: { name, uid } } of members) {
      const latest = this.#options.objects.get(name);
      if (latest?.metadata.uid !== uid || latest?.status?.lvUUID !== undefined || hasCurrentError(latest!)) continue;
      const toStatus = error.kind === "Lost" ? lostSnapshotStatus : failedStatus<LvmSnapshotStatus>;
      await this.#reconciler.writeStatus(latest!, toStatus(latest!, error));
    }
  }

  /** Takes the snapshot. Where it is to be is saved before, its UUID after. */
  async #take(object: LvmSnapshot, request: SnapshotRequest, groups: FreshReport): Promise<void> {
    const { volumeFinder, snapshots, events, onChange } = this.#options;
    const { group } = volumeFinder.require(groups, request.source);
    const latest = await this.#reconciler.patchStatus(object, {
      ...object.status,
      state: "Pending",
      volumeGroup: group.name,
    });
    const taken = await snapshots.createNew(groups, request);
    onChange();
    await this.#reconciler.writeStatus(latest, takenStatus(latest, taken));
    events.record(
      object,
      "Normal",
      "Created",
      `took snapshot ${taken.group.name}/${taken.lv.name} of volume ${request.source}`,
    );
  }

  /** Records that the COW space of a snapshot was extended to a size in bytes, so that it does not overflow. */
  recordCowExtended({ id, group, lv, usedPercent }: CowUsage, size: bigint): void {
    const { objects, events, onChange } = this.#options;
    onChange();
    const object = objects.get(id);
    if (object === undefined) return;
    const message =
      `the COW space ${group.name}/${lv.name} was ${Math.floor(usedPercent)} % full, and was extended from ` +
      `${formatBytes(lv.size)} to ${formatBytes(size)}`;
    events.record(object, "Normal", "SnapshotExtended", message);
  }

  /** Records that the COW space of a snapshot cannot be extended although it is nearly full. */
  recordCowCannotExtend({ id }: CowUsage, why: string): void {
    const { objects, events } = this.#options;
    const object = objects.get(id);
    if (object !== undefined) events.record(object, "Warning", "SnapshotCannotExtend", why);
  }

  /** Records an event when the COW space of a snapshot becomes too small or overflows. */
  #recordCowChange(object: LvmSnapshot, status: LvmSnapshotStatus): void {
    const [before, now] = [object.status, status].map((each) => each?.conditions?.find(isHealthyCondition));
    const problem = COW_PROBLEMS.find((reason) => reason === now?.reason);
    if (problem === undefined || problem === before?.reason) return;
    this.#options.events.record(object, "Warning", problem, now!.message);
  }
}

function isHealthyCondition({ type }: { type: string }): boolean {
  return type === "Healthy";
}
