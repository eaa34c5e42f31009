/**
 * What a node does for its LVMSnapshots: it takes and removes the snapshots that they ask for, and says what it sees.
 *
 * @module
 */

import type { SnapshotId } from "../../lvm/ids.ts";
import { type Locks, snapshotLock, snapshottingLocks } from "../../lvm/locks.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { formatBytes } from "../../lvm/size.ts";
import {
  type LocatedSnapshot,
  requireSource,
  type SnapshotRequest,
  type Snapshots,
  storeState,
} from "../../lvm/snapshots/snapshots.ts";
import type { Store } from "../../lvm/snapshots/cow_growth.ts";
import type { Volumes } from "../../lvm/volumes/volumes.ts";
import { LVM_SNAPSHOT_FINALIZER, type LvmSnapshot, type LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { type AgentOptions, ObjectAgent } from "./object_reconciler.ts";
import { snapshotRequestOf } from "../api/snapshot_mapping.ts";
import { lostSnapshotStatus, takenStatus } from "./snapshot_status.ts";

/** What {@linkcode SnapshotAgent} needs. */
export interface SnapshotAgentOptions extends AgentOptions<LvmSnapshot> {
  /** The volumes of this machine. */
  readonly volumes: Volumes;
  /** The snapshots of this machine, which know what the objects record. */
  readonly snapshots: Snapshots;
  /** Locks by volume and snapshot, shared with the agent of the volumes. */
  readonly locks: Locks;
}

/** A node's part of the LVMSnapshots. */
export class SnapshotAgent {
  readonly #options: SnapshotAgentOptions;
  readonly #objects: ObjectAgent<LvmSnapshot, LvmSnapshotStatus>;

  /** Makes the agent; it keeps no state. */
  constructor(options: SnapshotAgentOptions) {
    const { volumes, snapshots, locks } = options;
    this.#options = options;
    this.#objects = new ObjectAgent({
      ...options,
      driver: volumes.driver,
      what: "snapshot",
      owner: "VolumeSnapshot",
      finalizer: LVM_SNAPSHOT_FINALIZER,
      settle: (object) => this.#settle(object),
      see: (object, groups) => {
        const found = snapshots.stateOf(groups, snapshotRequestOf(object));
        if (found.state === "lost") return lostSnapshotStatus(object, found.error);
        return found.state === "present" ? this.#seen(object, found.found) : undefined;
      },
      remove: ({ metadata }) => {
        const id = metadata.name as SnapshotId; // the API server takes no other name
        return locks.run("deletion", [snapshotLock(id)], () => snapshots.delete(id));
      },
      lost: lostSnapshotStatus,
    });
  }

  /** Does what the object of the name asks for next, and writes what is true. Whatever is in doubt is tried again. */
  reconcile(name: string): Promise<void> {
    return this.#objects.reconcile(name);
  }

  /** Writes what a report shows of the snapshots that were taken: how full they are, overflowed, or lost. */
  verify(groups: readonly VolumeGroup[]): Promise<void> {
    return this.#objects.verify(groups);
  }

  async #settle(object: LvmSnapshot): Promise<void> {
    const { lvm, snapshots, locks } = this.#options;
    const request = snapshotRequestOf(object);
    const groups = await lvm.report();
    const found = snapshots.stateOf(groups, request);
    if (found.state === "lost") return await this.#objects.write(object, lostSnapshotStatus(object, found.error));
    if (found.state === "absent") {
      const held = snapshottingLocks(request.id, request.source);
      return await locks.run("snapshot", held, () => this.#take(object, request, groups));
    }
    requireSource(found.found.snapshot, request.source);
    await this.#objects.write(object, this.#seen(object, found.found));
  }

  /** Takes the snapshot. Where it is to be is saved before, its UUID after. */
  async #take(object: LvmSnapshot, request: SnapshotRequest, groups: readonly VolumeGroup[]): Promise<void> {
    const { volumes, snapshots, events, onChange } = this.#options;
    const { group } = volumes.require(groups, request.source);
    const latest = await this.#objects.patch(object, { ...object.status, state: "Pending", volumeGroup: group.name });
    const made = await snapshots.make(groups, request);
    onChange();
    await this.#objects.write(latest, takenStatus(latest, made));
    events.record(object, "Normal", "Created", `took ${made.group.name}/${made.lv.name} of volume ${request.source}`);
  }

  /** Tells that the store of a snapshot was grown to a size in bytes, so that it does not overflow. */
  grown({ id, group, lv, percent }: Store, size: bigint): void {
    const { objects, events, onChange } = this.#options;
    onChange();
    const object = objects.get(id);
    if (object === undefined) return;
    const message = `the store ${group.name}/${lv.name} was ${Math.floor(percent)} % full, and grew from ` +
      `${formatBytes(lv.size)} to ${formatBytes(size)}`;
    events.record(object, "Normal", "StoreGrown", message);
  }

  /** Tells that the store of a snapshot ought to grow, and cannot. */
  stuck({ id }: Store, why: string): void {
    const { objects, events } = this.#options;
    const object = objects.get(id);
    if (object !== undefined) events.record(object, "Warning", "StoreCannotGrow", why);
  }

  /** The status of a snapshot that is there. When its store begins to be too small, or is, people are told. */
  #seen(object: LvmSnapshot, found: LocatedSnapshot): LvmSnapshotStatus {
    const status = takenStatus(object, found);
    const [before, now] = [object.status, status].map((each) => each?.conditions?.find(isHealth));
    if (storeState(found) !== "Roomy" && now?.reason !== before?.reason) {
      this.#options.events.record(object, "Warning", now!.reason, now!.message);
    }
    return status;
  }
}

function isHealth({ type }: { type: string }): boolean {
  return type === "Healthy";
}
