/**
 * The removal of a node that does not come back (docs/adr/0013).
 *
 * Nothing touches the disks of the node: what comes back with the node is found again as what it was, or as an orphan.
 * Each step may be repeated, so an interrupted removal starts again from the beginning.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import {
  type ApiClient,
  isConflict,
  isNotFound,
  orAbsent,
  orAbsentOrChanged,
  type PatchOptions,
} from "../../k8s/client/client.ts";
import { timestamp } from "../../base/clock.ts";
import type { EventRecorder } from "../../k8s/runtime/events.ts";
import {
  type AgentManaged,
  type AgentManagedStatus,
  FORGOTTEN_ANNOTATION,
  isForgotten,
  LVM_SNAPSHOT_FINALIZER,
  LVM_VOLUME_FINALIZER,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import { lostStatus } from "../../k8s/api/object_status.ts";
import type { KubeObject, PersistentVolume, Resource } from "../../k8s/api/objects.ts";
import {
  type ForgetPlan,
  LIVENESS_TIMEOUT_MS,
  livenessEvidence,
  type NodeObjects,
  planForget,
  readNodeObjects,
} from "./plan.ts";
import type { VolumeSnapshotContent } from "../../k8s/api/snapshot_objects.ts";
import { lostSnapshotStatus } from "../../k8s/agent/snapshot_status.ts";

/** The maximum number of attempts of a patch that conflicts. */
const MAX_ATTEMPTS = 5;

/** A kind of object that agents carry out. */
interface ManagedKind<T extends AgentManaged> {
  /** The noun for an object in messages. */
  readonly noun: "volume" | "snapshot";
  /** The object whose deletion removes it, in words. */
  readonly ownerDescription: string;
  readonly resource: Resource<T>;
  readonly finalizer: string;
  /** Returns the status of an object whose LV is lost. */
  readonly toLostStatus: (object: T, error: StorageError) => AgentManagedStatus;
}

const VOLUMES: ManagedKind<LvmVolume> = {
  noun: "volume",
  ownerDescription: "claim",
  resource: lvmVolumes,
  finalizer: LVM_VOLUME_FINALIZER,
  toLostStatus: lostStatus,
};

const SNAPSHOTS: ManagedKind<LvmSnapshot> = {
  noun: "snapshot",
  ownerDescription: "VolumeSnapshot",
  resource: lvmSnapshots,
  finalizer: LVM_SNAPSHOT_FINALIZER,
  toLostStatus: lostSnapshotStatus,
};

/** Options of the removal of a node. */
export interface ForgetOptions {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The reason for the removal of a node that seems to be alive. */
  readonly reason?: string | undefined;
  /** The time of the removal. */
  readonly now: Date;
}

/**
 * Removes a node.
 *
 * The LVMNode is deleted first, so that no volume is placed on the node; then all objects are read once more.
 *
 * @returns the plan that was carried out
 * @throws {StorageError} `FailedPrecondition` when the node seems to be alive, and no reason is given
 * @throws {ApiError}
 */
export async function forget(client: ApiClient, nodeObjects: NodeObjects, options: ForgetOptions): Promise<ForgetPlan> {
  const { lvmNode } = nodeObjects;
  requireNotAlive(nodeObjects, options);
  if (lvmNode !== undefined) {
    await orAbsentOrChanged(client.delete(lvmNodes, { name: nodeObjects.nodeName }, { uid: lvmNode.metadata.uid }));
  }
  const now = await readNodeObjects(client, nodeObjects);
  requireNotAlive(now, options); // a running agent has created it again
  const plan = planForget(now, options.now);
  for (const object of now.snapshots) {
    const content = now.contents.get(object.metadata.name);
    if (content === undefined) await deleteObject(client, SNAPSHOTS, object);
    else if (await markLost(client, SNAPSHOTS, object, options) && content.spec.volumeSnapshotRef.uid !== undefined) {
      options.events.record(
        snapshotOf(content),
        "Warning",
        "SnapshotLost",
        lostMessage(SNAPSHOTS, object, options),
      );
    }
  }
  for (const object of now.volumes) {
    const persistentVolume = now.persistentVolumes.get(object.metadata.name);
    if (persistentVolume === undefined && !now.needs.has(object.metadata.name)) {
      await deleteObject(client, VOLUMES, object);
    } else if (await markLost(client, VOLUMES, object, options) && persistentVolume?.status?.phase === "Bound") {
      options.events.record(claimOf(persistentVolume), "Warning", "VolumeLost", lostMessage(VOLUMES, object, options));
    }
  }
  return { ...plan, lvmNode: lvmNode !== undefined };
}

function requireNotAlive(nodeObjects: NodeObjects, { reason, now }: ForgetOptions): void {
  const evidence = livenessEvidence(nodeObjects, now);
  if (evidence.length === 0 || reason !== undefined) return;
  throw new StorageError(
    "FailedPrecondition",
    `forgetting node ${nodeObjects.nodeName}: it seems to be alive: ${
      evidence.join(", ")
    }. Delete its Node, or stop its agent, and wait ` +
      `${
        LIVENESS_TIMEOUT_MS / 60_000
      } minutes; or shut it down, and mark its Node as out of service; or give a reason with --force to forget it nevertheless`,
  );
}

/**
 * Marks an object as lost, so that its deletion does not wait for the node, and records an event.
 *
 * @returns whether it became lost by this call
 */
async function markLost<T extends AgentManaged>(
  client: ApiClient,
  kind: ManagedKind<T>,
  object: T,
  options: ForgetOptions,
): Promise<boolean> {
  const message = lostMessage(kind, object, options);
  await patchLatest(client, kind, object, (latest) => {
    if (isForgotten(latest)) return undefined;
    return { merge: { metadata: { annotations: { [FORGOTTEN_ANNOTATION]: forgottenAnnotation(options) } } } };
  });
  const changed = await patchLatest(client, kind, object, (latest) => {
    if (latest.status?.lvUUID === undefined || latest.status.state === "Lost") return undefined;
    return { merge: { status: kind.toLostStatus(latest, new StorageError("Lost", message)) }, subresource: "status" };
  });
  if (changed) options.events.record(object, "Warning", "Lost", message);
  return changed;
}

function forgottenAnnotation({ reason, now }: ForgetOptions): string {
  return `${timestamp(now)}${reason === undefined ? "" : `: ${reason}`}`;
}

function lostMessage<T extends AgentManaged>(
  { noun, ownerDescription }: ManagedKind<T>,
  { spec: { nodeName }, status }: T,
  options: ForgetOptions,
): string {
  return `Lost: node ${nodeName} was forgotten (${
    forgottenAnnotation(options)
  }), with the logical volume ${status?.lvUUID} in ` +
    `volume group ${status?.volumeGroup}. Nothing is created or formatted in its place. If the node comes back with its disks, ` +
    `the ${noun} does, too; to remove it, delete the ${ownerDescription}`;
}

function claimOf({ spec }: PersistentVolume): KubeObject {
  const { namespace, name = "", uid } = spec?.claimRef ?? {};
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name, ...(namespace && { namespace }), ...(uid && { uid }) },
  };
}

function snapshotOf({ apiVersion, spec }: VolumeSnapshotContent): KubeObject {
  const { namespace, name = "", uid } = spec.volumeSnapshotRef;
  return {
    ...(apiVersion && { apiVersion }),
    kind: "VolumeSnapshot",
    metadata: { name, ...(namespace && { namespace }), ...(uid && { uid }) },
  };
}

/** Deletes an object in place of its node. Finalizers of others stay. */
async function deleteObject<T extends AgentManaged>(client: ApiClient, kind: ManagedKind<T>, object: T): Promise<void> {
  const { metadata: { name, uid } } = object;
  await orAbsentOrChanged(client.delete(kind.resource, { name }, { uid }));
  await patchLatest(client, kind, object, ({ metadata: { finalizers = [] } }) => {
    return { merge: { metadata: { finalizers: finalizers.filter((one) => one !== kind.finalizer) } } };
  });
}

/**
 * Patches the current object, unless it was deleted or needs no change.
 *
 * @returns whether it was changed
 */
async function patchLatest<T extends AgentManaged>(
  client: ApiClient,
  { resource }: ManagedKind<T>,
  { metadata: { name, uid } }: T,
  patch: (latest: T) => PatchOptions<AgentManaged> | undefined,
): Promise<boolean> {
  for (let attempt = 1;; attempt++) {
    const latest = await orAbsent(client.get(resource, { name }));
    const options = latest?.metadata.uid === uid ? patch(latest!) : undefined;
    if (options === undefined) return false;
    try {
      // only fields that the kinds share are written
      const patchOptions = { ...options, resourceVersion: latest!.metadata.resourceVersion };
      await client.patch(resource as Resource<AgentManaged>, { name }, patchOptions);
      return true;
    } catch (error) {
      if (!(isConflict(error) || isNotFound(error)) || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}
