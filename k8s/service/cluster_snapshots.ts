/**
 * The snapshots of the cluster, for the Controller service: each is an LVMSnapshot, which the node of its volume makes true.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { requireSource } from "../../lvm/snapshots/snapshots.ts";
import type { ContentSource } from "../../lvm/model/tags.ts";
import type { NodeChoice, SnapshotService, StoredSnapshot } from "../../lvm/volume_service.ts";
import type { Informer } from "../runtime/informer.ts";
import { LVM_SNAPSHOT_FINALIZER, type LvmSnapshot } from "../api/lvm_objects.ts";
import { isDeleting, type NodeCallOptions, RemoteObjects } from "./remote_objects.ts";
import { reportedError } from "../api/object_status.ts";
import { lvmSnapshotFor, type NamedSnapshotRequest, snapshotOf } from "../api/snapshot_mapping.ts";
import { transferredVolumeOf } from "../api/transfers.ts";
import { listNodeNames } from "../api/pods.ts";

/** Options of {@linkcode ClusterSnapshots}. */
export interface ClusterSnapshotsOptions extends NodeCallOptions {
  /** All LVMSnapshots. */
  readonly snapshots: Informer<LvmSnapshot>;
  /** The volumes that snapshots are taken of. */
  readonly volumes: {
    get(id: VolumeId): Promise<{ readonly nodeId: string }>;
    refuseWhileCopied(source: ContentSource, operation: string): void;
    refuseWhileMoved(id: VolumeId, operation: string): void;
  };
}

/** The snapshots of one driver in the cluster. */
export class ClusterSnapshots implements SnapshotService {
  readonly #driver: string;
  readonly #snapshots: Informer<LvmSnapshot>;
  readonly #volumes: ClusterSnapshotsOptions["volumes"];
  readonly #objects: RemoteObjects<LvmSnapshot>;

  /** Makes the service; it keeps no state. */
  constructor(options: ClusterSnapshotsOptions) {
    this.#driver = options.driver;
    this.#snapshots = options.snapshots;
    this.#volumes = options.volumes;
    this.#objects = new RemoteObjects({
      ...options,
      noun: "snapshot",
      objects: options.snapshots,
      finalizer: LVM_SNAPSHOT_FINALIZER,
    });
  }

  /**
   * Takes a snapshot, unless it exists. When it cannot be taken, nothing of it is left when this fails. While the
   * outcome is unknown, it fails with `Unavailable`.
   *
   * @throws {StorageError} what the node said, such as `NoSpace`; `AlreadyExists` when it exists of another volume;
   * `NotFound` or `Lost` for the volume; `NoSpace` when it is on none of the nodes that are allowed; `Unavailable`.
   */
  async create(request: NamedSnapshotRequest, { allowed }: Pick<NodeChoice, "allowed"> = {}): Promise<StoredSnapshot> {
    let object = this.#snapshots.get(request.id) ?? await this.#writeObject(request, allowed);
    this.#objects.requireOurs(object);
    requireNode(request, object.spec.nodeName, allowed);
    if (isDeleting(object) || (snapshotOf(object) === undefined && object.status?.state === "Failed")) {
      await this.#objects.undo(object); // what an earlier attempt left
      object = await this.#writeObject(request, allowed);
    }
    requireSource({ source: object.spec.sourceVolume as VolumeId }, request.source);
    const created = await this.#objects.waitObserved("creating", object);
    const snapshot = clusterSnapshotOf(created);
    if (snapshot !== undefined && created.status?.state !== "Lost") return snapshot;
    const refusal = statusError(created);
    if (created.status?.lvUUID === undefined) await this.#objects.undo(created);
    throw refusal;
  }

  /**
   * Deletes a snapshot; one that does not exist is no failure.
   *
   * @throws {StorageError} what the node said, such as `InUse`; `InvalidArgument` when it belongs to a group snapshot; `Busy`
   * while it is copied; `Unavailable` while the node does not answer.
   */
  async delete(id: SnapshotId): Promise<void> {
    const object = await this.#objects.find(id);
    if (object === undefined || !this.#objects.isOurs(object)) return;
    const group = object.spec.groupSnapshot?.name;
    if (group !== undefined) {
      const message =
        `deleting snapshot ${id}: it belongs to group snapshot ${group}; delete that, with all its snapshots`;
      throw new StorageError("InvalidArgument", message);
    }
    this.#volumes.refuseWhileCopied({ kind: "snapshot", id }, `deleting snapshot ${id}`);
    await this.#objects.delete(object);
  }

  /** Returns a snapshot. @throws {StorageError} `NotFound` or `Lost`. */
  async get(id: SnapshotId): Promise<StoredSnapshot> {
    const object = await this.#objects.find(id);
    const snapshot = object === undefined || isDeleting(object) ? undefined : clusterSnapshotOf(object);
    if (object === undefined || snapshot === undefined || !this.#objects.isOurs(object)) {
      throw new StorageError(
        "NotFound",
        `looking for snapshot ${id}: no LVMSnapshot of that name was taken`,
      );
    }
    if (object.status?.state === "Lost") throw statusError(object);
    return snapshot;
  }

  /** Returns all snapshots that were taken, in the order of their ids; those that are Lost are not ready. */
  list(): Promise<StoredSnapshot[]> {
    const ours = this.#snapshots.list().filter((object) => this.#objects.isOurs(object) && !isDeleting(object));
    const snapshots = ours.map(clusterSnapshotOf).filter((snapshot) => snapshot !== undefined);
    return Promise.resolve(snapshots.sort((a, b) => a.id < b.id ? -1 : 1));
  }

  /** Writes the object, or answers the one that is there. Where nobody could take the snapshot, nothing is written. */
  async #writeObject(request: NamedSnapshotRequest, allowed: NodeChoice["allowed"]): Promise<LvmSnapshot> {
    const { nodeId: nodeName } = await this.#volumes.get(request.source);
    const isTemporary = transferredVolumeOf({ spec: { requestName: request.name } }) !== undefined;
    if (!isTemporary) this.#volumes.refuseWhileMoved(request.source, `creating snapshot ${request.id}`);
    requireNode(request, nodeName, allowed);
    const object = lvmSnapshotFor(request, { driver: this.#driver, nodeName });
    if (!this.#objects.hasAgent(nodeName)) throw this.#objects.unresponsiveError("creating", object);
    return await this.#objects.createOrGet(object);
  }
}

function clusterSnapshotOf(object: LvmSnapshot): StoredSnapshot | undefined {
  const snapshot = snapshotOf(object);
  return snapshot && { ...snapshot, nodeId: object.spec.nodeName };
}

/** Makes sure that the node of a snapshot is among those that are allowed. @throws {StorageError} `NoSpace`. */
function requireNode({ id, source }: NamedSnapshotRequest, nodeName: string, allowed: NodeChoice["allowed"]): void {
  if (allowed?.includes(nodeName) ?? true) return;
  throw new StorageError(
    "NoSpace",
    `creating snapshot ${id} of volume ${source}: the volume is on node ${nodeName}, and volumes from the snapshot are created ` +
      `there; the request allows only ${listNodeNames(allowed!, " or ")}`,
    { reason: "SourceOnOtherNode" },
  );
}

function statusError({ status }: LvmSnapshot): StorageError {
  return reportedError(status?.error ?? { code: "CommandFailed", message: `the snapshot is ${status?.state}` });
}
