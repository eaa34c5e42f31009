/**
 * Giving up a node that does not come back (docs/adr/0013).
 *
 * What is on the node's disks is touched by nobody: whatever comes back with the node is found again as what it was, or as
 * an orphan. Each step may be done again, so who is interrupted begins anew.
 *
 * @module
 */

import { StorageError } from "../../lvm/error.ts";
import {
  type ApiClient,
  isConflict,
  isNotFound,
  orAbsent,
  orAbsentOrChanged,
  type PatchOptions,
} from "../client/client.ts";
import { timestamp } from "../../lvm/clock.ts";
import type { EventRecorder } from "../runtime/events.ts";
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
} from "../api/lvm_objects.ts";
import { lostStatus } from "../api/object_status.ts";
import type { KubeObject, PersistentVolume, Resource } from "../api/objects.ts";
import {
  type ForgetPlan,
  LIVENESS_TIMEOUT_MS,
  livenessEvidence,
  type NodeObjects,
  planForget,
  readNodeObjects,
} from "./plan.ts";
import type { VolumeSnapshotContent } from "../api/snapshot_objects.ts";
import { lostSnapshotStatus } from "../agent/snapshot_status.ts";

/** How often a change is tried against changes of others. */
const MAX_ATTEMPTS = 5;

/** What nodes make. */
interface ManagedKind<T extends AgentManaged> {
  /** What an object stands for. */
  readonly noun: "volume" | "snapshot";
  /** Whose deletion has it removed, in words. */
  readonly ownerDescription: string;
  readonly resource: Resource<T>;
  readonly finalizer: string;
  /** The status of an object whose LV is given up. */
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

/** How a node is given up. */
export interface ForgetOptions {
  /** Where events go. */
  readonly events: EventRecorder;
  /** Why it is given up although it seems to live. */
  readonly reason?: string | undefined;
  /** When. */
  readonly now: Date;
}

/**
 * Gives a node up; answers what became of what.
 *
 * The LVMNode goes first, so that nothing new is put on the node; then all is looked at once more.
 *
 * @throws {StorageError} `FailedPrecondition` when the node seems to live, and no reason is given
 * @throws {ApiError}
 */
export async function forget(client: ApiClient, nodeObjects: NodeObjects, options: ForgetOptions): Promise<ForgetPlan> {
  const { lvmNode } = nodeObjects;
  requireNotAlive(nodeObjects, options);
  if (lvmNode !== undefined) {
    await orAbsentOrChanged(client.delete(lvmNodes, { name: nodeObjects.nodeName }, { uid: lvmNode.metadata.uid }));
  }
  const now = await readNodeObjects(client, nodeObjects);
  requireNotAlive(now, options); // an agent that lives has written it again
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
    if (persistentVolume === undefined) await deleteObject(client, VOLUMES, object);
    else if (await markLost(client, VOLUMES, object, options) && persistentVolume.status?.phase === "Bound") {
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
    `forgetting node ${nodeObjects.nodeName}: it seems to live: ${
      evidence.join(", ")
    }. Delete its Node, or end its agent, and wait ` +
      `${LIVENESS_TIMEOUT_MS / 60_000} minutes; or say by --force why it is to be forgotten all the same`,
  );
}

/** Marks an object, so that its deletion does not wait for the node, and tells of it; answers whether it is lost by this. */
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
  return `Lost: node ${nodeName} was given up (${
    forgottenAnnotation(options)
  }), and with it the logical volume ${status?.lvUUID} in ` +
    `volume group ${status?.volumeGroup}. Nothing is made or formatted in its place. If the node comes back with its disks, ` +
    `so does the ${noun}; delete the ${ownerDescription} to be rid of it`;
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

/** Removes an object in the stead of its node. Finalizers of others stay. */
async function deleteObject<T extends AgentManaged>(client: ApiClient, kind: ManagedKind<T>, object: T): Promise<void> {
  const { metadata: { name, uid } } = object;
  await orAbsentOrChanged(client.delete(kind.resource, { name }, { uid }));
  await patchLatest(client, kind, object, ({ metadata: { finalizers = [] } }) => {
    return { merge: { metadata: { finalizers: finalizers.filter((one) => one !== kind.finalizer) } } };
  });
}

/** Changes an object as it is now, unless it is gone or needs no change; answers whether it was changed. */
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
      // what the kinds have in common is all that is written
      const patchOptions = { ...options, resourceVersion: latest!.metadata.resourceVersion };
      await client.patch(resource as Resource<AgentManaged>, { name }, patchOptions);
      return true;
    } catch (error) {
      if (!(isConflict(error) || isNotFound(error)) || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}
