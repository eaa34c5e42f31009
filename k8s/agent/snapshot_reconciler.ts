/**
 * The reconciler of LVMSnapshots: it takes and removes their snapshots on this node, and reports their state.
 *
 * @module
 */

import type { SnapshotId } from "../../lvm/ids.ts";
import { type Locks, snapshotCreationLocks, snapshotLock } from "../../lvm/locks.ts";
import type { FreshReport } from "../../lvm/client/client.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { formatBytes } from "../../lvm/size.ts";
import type { SnapshotFinder } from "../../lvm/inventory/snapshot_finder.ts";
import type { VolumeFinder } from "../../lvm/inventory/volume_finder.ts";
import { requireSource, type SnapshotRequest, type Snapshots } from "../../lvm/snapshots/snapshots.ts";
import type { CowUsage } from "../../lvm/snapshots/cow_autoextend.ts";
import { removePendingSnapshot } from "../../lvm/deletion/missing_thin.ts";
import { LVM_SNAPSHOT_FINALIZER, type LvmSnapshot, type LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { ObjectReconciler, type ReconcilerOptions } from "./object_reconciler.ts";
import { snapshotRequestOf } from "../api/snapshot_mapping.ts";
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
  /** Locks by volume and snapshot, shared with the agent of the volumes. */
  readonly locks: Locks;
}

/** Reconciles the LVMSnapshots of a node. */
export class SnapshotReconciler {
  readonly #options: SnapshotReconcilerOptions;
  readonly #reconciler: ObjectReconciler<LvmSnapshot, LvmSnapshotStatus>;

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
      remove: ({ metadata }) => {
        const id = metadata.name as SnapshotId; // the API server accepts no other name
        return locks.run("deletion", [snapshotLock(id)], () => snapshots.delete(id));
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
  reconcile(name: string): Promise<void> {
    return this.#reconciler.reconcile(name);
  }

  /** Writes what a report shows of the snapshots that were taken: how full they are, overflowed, or lost. */
  verify(groups: readonly VolumeGroup[]): Promise<void> {
    return this.#reconciler.verify(groups);
  }

  async #reconcileSnapshot(object: LvmSnapshot): Promise<void> {
    const { lvm, snapshotFinder, locks } = this.#options;
    const request = snapshotRequestOf(object);
    const groups = await lvm.report();
    const found = snapshotFinder.stateOf(groups, request);
    if (found.state === "lost") {
      return await this.#reconciler.writeStatus(object, lostSnapshotStatus(object, found.error));
    }
    if (found.state === "absent") {
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
