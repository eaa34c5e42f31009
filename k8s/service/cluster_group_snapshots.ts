/**
 * The group snapshots of the cluster, for the GroupController service: each is some LVMSnapshots of one node, which name all
 * its volumes. The node makes all of them true at one point in time, or none.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { GroupSnapshotRequest } from "../../lvm/group_snapshots/group_snapshots.ts";
import { type GroupSnapshotId, memberSnapshotIdOf, type SnapshotId, type VolumeId } from "../../base/ids.ts";
import type { GroupSnapshotService, StoredGroupSnapshot } from "../../lvm/volume_service.ts";
import { LVM_SNAPSHOT_FINALIZER, type LvmSnapshot } from "../api/lvm_objects.ts";
import { reportedError } from "../api/object_status.ts";
import { lvmSnapshotsForGroup, snapshotOf } from "../api/snapshot_mapping.ts";
import type { ClusterSnapshotsOptions } from "./cluster_snapshots.ts";
import { isDeleting, RemoteObjects } from "./remote_objects.ts";

/** A request with the name that it came under. */
type NamedGroupRequest = GroupSnapshotRequest & { readonly name: string };

/** The group snapshots of one driver in the cluster. */
export class ClusterGroupSnapshots implements GroupSnapshotService {
  readonly #options: ClusterSnapshotsOptions;
  readonly #objects: RemoteObjects<LvmSnapshot>;

  /** Makes the service; it keeps no state. */
  constructor(options: ClusterSnapshotsOptions) {
    this.#options = options;
    this.#objects = new RemoteObjects({
      ...options,
      noun: "snapshot",
      objects: options.snapshots,
      finalizer: LVM_SNAPSHOT_FINALIZER,
    });
  }

  /**
   * Takes a group snapshot, unless it exists. When it cannot be taken, nothing of it is left when this fails. While the
   * outcome is unknown, it fails with `Unavailable`.
   *
   * @throws {StorageError} what the node said, such as `NoSpace`, or `StillRunning` when the volumes were suspended for too
   * long; `AlreadyExists` when it exists of other volumes; `FailedPrecondition` for volumes of several nodes; `NotFound` or
   * `Lost` for a volume; `Unavailable`.
   */
  async create(request: NamedGroupRequest): Promise<StoredGroupSnapshot> {
    let found = this.#cached(request.id);
    if (found.some((object) => isDeleting(object) || hasFailed(object))) {
      await this.#undo(found); // what an earlier attempt left
      found = [];
    }
    for (const { spec } of found) requireSources(request, spec.groupSnapshot!.sourceVolumes);
    const objects = found.length === request.sources.length ? found : await this.#write(request);
    const waits = objects.map((object) => this.#objects.waitObserved("creating", object));
    const outcomes = await Promise.allSettled(waits);
    const observed = outcomes.flatMap((outcome) => outcome.status === "fulfilled" ? [outcome.value] : []);
    const refused = observed.find((object) => snapshotOf(object) === undefined || object.status?.state === "Lost");
    if (refused !== undefined) {
      const refusal = statusError(refused);
      if (objects.every((object) => !isTaken(this.#options.snapshots.get(object.metadata.name) ?? object))) {
        await this.#undo(objects);
      }
      throw refusal;
    }
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
    return storedGroup(request.id, observed);
  }

  /** Returns the snapshots of a group snapshot whose objects exist. */
  async members(id: GroupSnapshotId): Promise<readonly SnapshotId[]> {
    return (await this.#find(id, [])).map(({ metadata }) => metadata.name as SnapshotId);
  }

  /**
   * Deletes a group snapshot with all its snapshots; one that does not exist is no failure.
   *
   * @throws {StorageError} `InvalidArgument` when its snapshots are not those that the caller knows; what the node said,
   * such as `InUse`; `Busy` while one is copied; `Unavailable` while the node does not answer.
   */
  async delete(id: GroupSnapshotId, snapshots: readonly SnapshotId[]): Promise<void> {
    const objects = await this.#find(id, snapshots);
    requireMembers(`deleting group snapshot ${id}`, id, objects, snapshots);
    for (const { metadata: { name } } of objects) {
      const source = { kind: "snapshot", id: name as SnapshotId } as const;
      this.#options.volumes.refuseWhileCopied(source, `deleting group snapshot ${id}, which has snapshot ${name}`);
    }
    const outcomes = await Promise.allSettled(objects.map((object) => this.#objects.delete(object)));
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }

  /**
   * Returns a group snapshot. Those of its snapshots that are Lost are not ready.
   *
   * @throws {StorageError} `NotFound`; `InvalidArgument` when its snapshots are not those that the caller knows;
   * `FailedPrecondition` when not all of them exist.
   */
  async get(id: GroupSnapshotId, snapshots: readonly SnapshotId[]): Promise<StoredGroupSnapshot> {
    const operation = `looking for group snapshot ${id}`;
    const objects = (await this.#find(id, snapshots)).filter((object) => !isDeleting(object) && isTaken(object));
    const [first] = objects;
    if (first === undefined) throw new StorageError("NotFound", `${operation}: no LVMSnapshot of it was taken`);
    requireMembers(operation, id, objects, snapshots);
    const count = first.spec.groupSnapshot!.sourceVolumes.length;
    if (objects.length === count) return storedGroup(id, objects);
    const message = `${operation}: ${objects.length} of its ${count} snapshots exist; delete it`;
    throw new StorageError("FailedPrecondition", message);
  }

  /** Returns the objects of a group snapshot, as far as the cache has them. */
  #cached(id: GroupSnapshotId): LvmSnapshot[] {
    return this.#options.snapshots.list().filter((object) => this.#isOf(id, object));
  }

  /** Returns the objects of a group snapshot; of those that the caller knows, also those that the cache lacks. */
  async #find(id: GroupSnapshotId, known: readonly SnapshotId[]): Promise<LvmSnapshot[]> {
    const cached = this.#cached(id);
    const members = cached.flatMap((object) => memberIds(id, object));
    const missing = new Set(
      [...known, ...members].filter((name) => !cached.some(({ metadata }) => metadata.name === name)),
    );
    const read = await Promise.all([...missing].map((name) => this.#objects.read(name)));
    return [...cached, ...read.filter((object) => object !== undefined && this.#isOf(id, object)) as LvmSnapshot[]];
  }

  #isOf(id: GroupSnapshotId, object: LvmSnapshot): boolean {
    return object.spec.groupSnapshot?.name === id && this.#objects.isOurs(object);
  }

  /** Writes the objects that are not there. Where nobody could take the snapshots, or not all can be written, none is left. */
  async #write(request: NamedGroupRequest): Promise<LvmSnapshot[]> {
    const nodeName = await this.#requireOneNode(request);
    const wanted = lvmSnapshotsForGroup(request, { driver: this.#options.driver, nodeName });
    if (!this.#objects.hasAgent(nodeName)) throw this.#objects.unresponsiveError("creating", wanted[0]!);
    const written: LvmSnapshot[] = [];
    try {
      for (const object of wanted) {
        const now = await this.#objects.createOrGet(object);
        this.#objects.requireOurs(now);
        requireSources(request, now.spec.groupSnapshot?.sourceVolumes ?? [now.spec.sourceVolume]);
        written.push(now);
      }
    } catch (error) {
      if (!(error instanceof StorageError) || error.kind === "Unavailable") throw error;
      await this.#undo(written.filter((object) => !isTaken(object)));
      throw error;
    }
    return written;
  }

  /** Returns the node of all volumes. @throws {StorageError} `FailedPrecondition`; `NotFound` or `Lost` for a volume. */
  async #requireOneNode({ id, sources }: NamedGroupRequest): Promise<string> {
    const nodes: string[] = [];
    for (const source of sources) {
      this.#options.volumes.refuseWhileMoved(source, `creating group snapshot ${id}`);
      nodes.push((await this.#options.volumes.get(source)).nodeId);
    }
    const other = nodes.findIndex((node) => node !== nodes[0]);
    if (other === -1) return nodes[0]!;
    throw new StorageError(
      "FailedPrecondition",
      `creating group snapshot ${id}: volume ${sources[0]} is on node ${nodes[0]}, and volume ${
        sources[other]
      } on node ` +
        `${nodes[other]}; snapshots are taken at one point in time on one node alone`,
      { reason: "VolumesOnSeveralNodes" },
    );
  }

  async #undo(objects: readonly LvmSnapshot[]): Promise<void> {
    const outcomes = await Promise.allSettled(objects.map((object) => this.#objects.undo(object)));
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }
}

function isTaken(object: LvmSnapshot): boolean {
  return snapshotOf(object) !== undefined;
}

/** Reports whether the agent has said that it does not take the snapshot. */
function hasFailed(object: LvmSnapshot): boolean {
  return !isTaken(object) && ["Failed", "Lost"].includes(object.status?.state ?? "");
}

function storedGroup(id: GroupSnapshotId, objects: readonly LvmSnapshot[]): StoredGroupSnapshot {
  const snapshots = objects.map((object) => ({ ...snapshotOf(object)!, nodeId: object.spec.nodeName }));
  return { id, snapshots: snapshots.sort((a, b) => a.id < b.id ? -1 : 1) };
}

/** Returns the ids of all snapshots of a group snapshot, by one of its objects. */
function memberIds(id: GroupSnapshotId, { spec }: LvmSnapshot): SnapshotId[] {
  return spec.groupSnapshot!.sourceVolumes.map((source) => memberSnapshotIdOf(id, source as VolumeId));
}

/** Makes sure that a group snapshot has the snapshots that the caller knows, if any. @throws {StorageError} `InvalidArgument`. */
function requireMembers(
  operation: string,
  id: GroupSnapshotId,
  [first]: readonly LvmSnapshot[],
  known: readonly SnapshotId[],
): void {
  if (first === undefined || known.length === 0) return;
  const members = memberIds(id, first).sort();
  if ([...known].sort().join() === members.join()) return;
  throw new StorageError(
    "InvalidArgument",
    `${operation}: its snapshots are ${members.join(", ")}, and not the given ones`,
  );
}

function requireSources({ id, sources }: NamedGroupRequest, existing: readonly string[]): void {
  if ([...existing].sort().join() === [...sources].sort().join()) return;
  throw new StorageError(
    "AlreadyExists",
    `creating group snapshot ${id}: one of that name exists, of the volumes ${existing.join(", ")}`,
  );
}

function statusError({ status }: LvmSnapshot): StorageError {
  return reportedError(status?.error ?? { code: "CommandFailed", message: `the snapshot is ${status?.state}` });
}
