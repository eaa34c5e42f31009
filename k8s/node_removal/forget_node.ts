/**
 * Giving up a node that does not come back (docs/adr/0013).
 *
 * What is on the node's disks is touched by nobody: whatever comes back with the node is found again as what it was, or as
 * an orphan. Each step may be done again, so who is interrupted begins anew.
 *
 * @module
 */

import { StorageError } from "../../lvm/error.ts";
import { type ApiClient, isConflict, isNotFound, type PatchOptions } from "../client/client.ts";
import { timestamp } from "../runtime/clock.ts";
import type { EventRecorder } from "../runtime/events.ts";
import {
  FORGOTTEN_ANNOTATION,
  isForgotten,
  LVM_SNAPSHOT_FINALIZER,
  LVM_VOLUME_FINALIZER,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
  type NodeMade,
  type NodeMadeStatus,
} from "../api/lvm_objects.ts";
import { lostStatus } from "../api/object_status.ts";
import type { KubeObject, PersistentVolume, Resource } from "../api/objects.ts";
import { type Forgetting, ifThere, planForgetting, readRemains, type Remains, signsOfLife, SILENT_MS } from "./plan.ts";
import type { VolumeSnapshotContent } from "../api/snapshot_objects.ts";
import { lostSnapshotStatus } from "../agent/snapshot_status.ts";

/** How often a change is tried against changes of others. */
const TRIES = 5;

/** What nodes make. */
interface Kind<T extends NodeMade> {
  /** What an object stands for. */
  readonly what: "volume" | "snapshot";
  /** Whose deletion has it removed, in words. */
  readonly owner: string;
  readonly resource: Resource<T>;
  readonly finalizer: string;
  /** The status of an object whose LV is given up. */
  readonly lost: (object: T, error: StorageError) => NodeMadeStatus;
}

const VOLUMES: Kind<LvmVolume> = {
  what: "volume",
  owner: "claim",
  resource: lvmVolumes,
  finalizer: LVM_VOLUME_FINALIZER,
  lost: lostStatus,
};

const SNAPSHOTS: Kind<LvmSnapshot> = {
  what: "snapshot",
  owner: "VolumeSnapshot",
  resource: lvmSnapshots,
  finalizer: LVM_SNAPSHOT_FINALIZER,
  lost: lostSnapshotStatus,
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
export async function forget(client: ApiClient, remains: Remains, options: ForgetOptions): Promise<Forgetting> {
  const { lvmNode } = remains;
  requireDead(remains, options);
  if (lvmNode !== undefined) {
    await ifThere(client.delete(lvmNodes, { name: remains.nodeName }, { uid: lvmNode.metadata.uid }));
  }
  const now = await readRemains(client, remains);
  requireDead(now, options); // an agent that lives has written it again
  const plan = planForgetting(now, options.now);
  for (const object of now.snapshots) {
    const needing = now.contents.get(object.metadata.name);
    if (needing === undefined) await remove(client, SNAPSHOTS, object);
    else if (await markLost(client, SNAPSHOTS, object, options) && needing.spec.volumeSnapshotRef.uid !== undefined) {
      options.events.record(
        snapshotOf(needing),
        "Warning",
        "SnapshotForgotten",
        lostMessage(SNAPSHOTS, object, options),
      );
    }
  }
  for (const object of now.volumes) {
    const needing = now.persistentVolumes.get(object.metadata.name);
    if (needing === undefined) await remove(client, VOLUMES, object);
    else if (await markLost(client, VOLUMES, object, options) && needing.status?.phase === "Bound") {
      options.events.record(claimOf(needing), "Warning", "VolumeForgotten", lostMessage(VOLUMES, object, options));
    }
  }
  return { ...plan, lvmNode: lvmNode !== undefined };
}

function requireDead(remains: Remains, { reason, now }: ForgetOptions): void {
  const signs = signsOfLife(remains, now);
  if (signs.length === 0 || reason !== undefined) return;
  throw new StorageError(
    "FailedPrecondition",
    `forgetting node ${remains.nodeName}: it seems to live: ${
      signs.join(", ")
    }. Delete its Node, or end its agent, and wait ` +
      `${SILENT_MS / 60_000} minutes; or say by --force why it is to be forgotten all the same`,
  );
}

/** Marks an object, so that its deletion does not wait for the node, and tells of it; answers whether it is lost by this. */
async function markLost<T extends NodeMade>(
  client: ApiClient,
  kind: Kind<T>,
  object: T,
  options: ForgetOptions,
): Promise<boolean> {
  const message = lostMessage(kind, object, options);
  await change(client, kind, object, (latest) => {
    if (isForgotten(latest)) return undefined;
    return { merge: { metadata: { annotations: { [FORGOTTEN_ANNOTATION]: whyOf(options) } } } };
  });
  const changed = await change(client, kind, object, (latest) => {
    if (latest.status?.lvUUID === undefined || latest.status.state === "Lost") return undefined;
    return { merge: { status: kind.lost(latest, new StorageError("Lost", message)) }, subresource: "status" };
  });
  if (changed) options.events.record(object, "Warning", "Lost", message);
  return changed;
}

function whyOf({ reason, now }: ForgetOptions): string {
  return `${timestamp(now)}${reason === undefined ? "" : `: ${reason}`}`;
}

function lostMessage<T extends NodeMade>(
  { what, owner }: Kind<T>,
  { spec: { nodeName }, status }: T,
  options: ForgetOptions,
): string {
  return `Lost: node ${nodeName} was given up (${
    whyOf(options)
  }), and with it the logical volume ${status?.lvUUID} in ` +
    `volume group ${status?.volumeGroup}. Nothing is made or formatted in its place. If the node comes back with its disks, ` +
    `so does the ${what}; delete the ${owner} to be rid of it`;
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
async function remove<T extends NodeMade>(client: ApiClient, kind: Kind<T>, object: T): Promise<void> {
  const { metadata: { name, uid } } = object;
  await ifThere(client.delete(kind.resource, { name }, { uid }));
  await change(client, kind, object, ({ metadata: { finalizers = [] } }) => {
    return { merge: { metadata: { finalizers: finalizers.filter((one) => one !== kind.finalizer) } } };
  });
}

/** Changes an object as it is now, unless it is gone or needs no change; answers whether it was changed. */
async function change<T extends NodeMade>(
  client: ApiClient,
  { resource }: Kind<T>,
  { metadata: { name, uid } }: T,
  patch: (latest: T) => PatchOptions<NodeMade> | undefined,
): Promise<boolean> {
  for (let tries = 1;; tries++) {
    const latest = await ifThere(client.get(resource, { name }));
    const options = latest?.metadata.uid === uid ? patch(latest!) : undefined;
    if (options === undefined) return false;
    try {
      // what the kinds have in common is all that is written
      const at = { ...options, resourceVersion: latest!.metadata.resourceVersion };
      await client.patch(resource as Resource<NodeMade>, { name }, at);
      return true;
    } catch (error) {
      if (!(isConflict(error) || isNotFound(error)) || tries === TRIES) throw error;
    }
  }
}
