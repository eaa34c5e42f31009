/**
 * Giving up a node that does not come back: what the cluster has of it, what becomes of that, and doing it (docs/adr/0013).
 *
 * What is on the node's disks is touched by nobody: whatever comes back with the node is found again as what it was, or as
 * an orphan. Each step may be done again, so who is interrupted begins anew.
 *
 * @module
 */

import { StorageError } from "../lvm/error.ts";
import { parseQuantity } from "../lvm/size.ts";
import { type ApiClient, isConflict, isNotFound, type PatchOptions } from "./client.ts";
import { timestamp } from "./clock.ts";
import type { EventRecorder } from "./events.ts";
import {
  FORGOTTEN_ANNOTATION,
  isForgotten,
  LVM_VOLUME_FINALIZER,
  type LvmNode,
  lvmNodes,
  type LvmVolume,
  lvmVolumes,
} from "./lvm_objects.ts";
import { type KubeObject, type Node, nodes, type PersistentVolume, persistentVolumes } from "./objects.ts";
import { CLAIM_ANNOTATION } from "./volume_intents.ts";
import type { Placement } from "./volume_spec.ts";
import { lostStatus } from "./object_status.ts";

/** What the cluster has of a node. */
export interface Remains extends Placement {
  /** Its Node. */
  readonly node: Node | undefined;
  /** Its LVMNode. */
  readonly lvmNode: LvmNode | undefined;
  /** Its LVMVolumes. */
  readonly volumes: readonly LvmVolume[];
  /** The driver's PersistentVolumes, by the handles of their volumes. */
  readonly persistentVolumes: ReadonlyMap<string, PersistentVolume>;
}

/**
 * What becomes of a volume: `removed`, since no PersistentVolume needs it; `lost`, since one does, and is left to its policy.
 */
export type Fate = "removed" | "lost";

/** A volume of the node, and what becomes of it. */
export interface ForgottenVolume {
  /** Its id. */
  readonly id: string;
  /** Its size in bytes: the real one, or else the one that was wanted. */
  readonly size: bigint;
  /** Its state; none before its node said something. */
  readonly state?: string;
  /** Its group. */
  readonly volumeGroup?: string;
  /** The claim that has it, or that it was made for, as `namespace/name`. */
  readonly claim?: string;
  /** The PersistentVolume that needs it. */
  readonly persistentVolume?: { readonly name: string; readonly phase: string; readonly reclaimPolicy: string };
  /** What becomes of it. */
  readonly fate: Fate;
}

/** What giving up a node comes to. */
export interface Forgetting {
  /** The node. */
  readonly nodeName: string;
  /** What speaks for it being alive, in sentences. */
  readonly signsOfLife: readonly string[];
  /** Whether there is an LVMNode to be removed. */
  readonly lvmNode: boolean;
  /** The volumes, in the order of their ids. */
  readonly volumes: readonly ForgottenVolume[];
}

/** How long ago an agent may have reported to count as alive, in milliseconds: it does every minute. */
const SILENT_MS = 300_000;

/** How often a change is tried against changes of others. */
const TRIES = 5;

/** Asks what there is of a node. @throws {ApiError} */
export async function readRemains(client: ApiClient, { driver, nodeName }: Placement): Promise<Remains> {
  const [node, lvmNode, volumes, all] = await Promise.all([
    ifThere(client.get(nodes, { name: nodeName })),
    ifThere(client.get(lvmNodes, { name: nodeName })),
    client.list(lvmVolumes, { fieldSelector: `spec.nodeName=${nodeName}` }),
    client.list(persistentVolumes),
  ]);
  const ours = all.items.filter(({ spec }) => spec?.csi?.driver === driver);
  return {
    driver,
    nodeName,
    node,
    lvmNode: lvmNode?.spec.driverName === driver ? lvmNode : undefined,
    volumes: volumes.items.filter(({ spec }) => spec.driverName === driver && spec.nodeName === nodeName),
    persistentVolumes: new Map(ours.map((volume) => [volume.spec!.csi!.volumeHandle, volume])),
  };
}

/** What becomes of it all. */
export function planForgetting(remains: Remains, now: Date): Forgetting {
  const { nodeName, lvmNode, volumes } = remains;
  return {
    nodeName,
    signsOfLife: signsOfLife(remains, now),
    lvmNode: lvmNode !== undefined,
    volumes: volumes.map((object) => fateOf(object, remains)).sort((a, b) => a.id < b.id ? -1 : 1),
  };
}

/** What speaks for a node being alive. The agent's time and this one's may differ by some minutes: then it counts as alive. */
function signsOfLife({ nodeName, node, lvmNode }: Remains, now: Date): string[] {
  const isReady = node?.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
  const reported = Date.parse(lvmNode?.status?.lastUpdate ?? "");
  const ago = Math.round((now.getTime() - reported) / 1000);
  return [
    ...(isReady ? [`Node ${nodeName} is Ready`] : []),
    ...(ago * 1000 < SILENT_MS ? [`its agent reported ${Math.max(0, ago)} s ago`] : []),
  ];
}

function fateOf(object: LvmVolume, { persistentVolumes }: Remains): ForgottenVolume {
  const { metadata: { name: id, annotations }, spec, status: { state, volumeGroup, size = spec.size } = {} } = object;
  const needing = persistentVolumes.get(id);
  const { namespace, name } = needing?.spec?.claimRef ?? {};
  const claim = namespace && name ? `${namespace}/${name}` : annotations?.[CLAIM_ANNOTATION];
  return {
    id,
    size: parseQuantity(size) ?? 0n,
    ...(state && { state }),
    ...(volumeGroup && { volumeGroup }),
    ...(claim && { claim }),
    ...(needing && {
      persistentVolume: {
        name: needing.metadata.name,
        phase: needing.status?.phase ?? "Pending",
        reclaimPolicy: needing.spec?.persistentVolumeReclaimPolicy ?? "Retain",
      },
    }),
    fate: needing === undefined ? "removed" : "lost",
  };
}

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
  for (const object of now.volumes) {
    const needing = now.persistentVolumes.get(object.metadata.name);
    if (needing === undefined) await remove(client, object);
    else await markLost(client, object, needing, options);
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

/** Marks a volume, so that its deletion does not wait for the node, and tells whose it is. */
async function markLost(
  client: ApiClient,
  object: LvmVolume,
  { spec, status }: PersistentVolume,
  { events, reason, now }: ForgetOptions,
): Promise<void> {
  const why = `${timestamp(now)}${reason === undefined ? "" : `: ${reason}`}`;
  const message = lostMessage(object, why);
  await change(client, object, (latest) => {
    if (isForgotten(latest)) return undefined;
    return { merge: { metadata: { annotations: { [FORGOTTEN_ANNOTATION]: why } } } };
  });
  const changed = await change(client, object, (latest) => {
    if (latest.status?.lvUUID === undefined || latest.status.state === "Lost") return undefined;
    return { merge: { status: lostStatus(latest, new StorageError("Lost", message)) }, subresource: "status" };
  });
  if (!changed) return;
  events.record(object, "Warning", "Lost", message);
  if (status?.phase === "Bound") events.record(claimOf(spec), "Warning", "VolumeForgotten", message);
}

function lostMessage({ spec: { nodeName }, status }: LvmVolume, why: string): string {
  return `Lost: node ${nodeName} was given up (${why}), and with it the logical volume ${status?.lvUUID} in volume group ` +
    `${status?.volumeGroup}. Nothing is made or formatted in its place. If the node comes back with its disks, so does the ` +
    "volume; delete the claim to be rid of it";
}

function claimOf(spec: PersistentVolume["spec"]): KubeObject {
  const { namespace, name = "", uid } = spec?.claimRef ?? {};
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name, ...(namespace && { namespace }), ...(uid && { uid }) },
  };
}

/** Removes an object in the stead of its node. Finalizers of others stay. */
async function remove(client: ApiClient, object: LvmVolume): Promise<void> {
  const { metadata: { name, uid } } = object;
  await ifThere(client.delete(lvmVolumes, { name }, { uid }));
  await change(client, object, ({ metadata: { finalizers = [] } }) => {
    return { merge: { metadata: { finalizers: finalizers.filter((one) => one !== LVM_VOLUME_FINALIZER) } } };
  });
}

/** Changes an object as it is now, unless it is gone or needs no change; answers whether it was changed. */
async function change(
  client: ApiClient,
  { metadata: { name, uid } }: LvmVolume,
  patch: (latest: LvmVolume) => PatchOptions<LvmVolume> | undefined,
): Promise<boolean> {
  for (let tries = 1;; tries++) {
    const latest = await ifThere(client.get(lvmVolumes, { name }));
    const options = latest?.metadata.uid === uid ? patch(latest!) : undefined;
    if (options === undefined) return false;
    try {
      await client.patch(lvmVolumes, { name }, { ...options, resourceVersion: latest!.metadata.resourceVersion });
      return true;
    } catch (error) {
      if (!(isConflict(error) || isNotFound(error)) || tries === TRIES) throw error;
    }
  }
}

/** What is answered; nothing when the object is gone, or is another one of the name. @throws {ApiError} for anything else */
async function ifThere<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (isNotFound(error) || isConflict(error)) return undefined;
    throw error;
  }
}
