/**
 * What the cluster has of a node, and what would become of that if the node were given up (docs/adr/0013).
 *
 * @module
 */

import { parseQuantity } from "../../lvm/size.ts";
import { type ApiClient, isConflict, isNotFound } from "../client/client.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
  type NodeMade,
} from "../api/lvm_objects.ts";
import { type Node, nodes, type PersistentVolume, persistentVolumes } from "../api/objects.ts";
import { handleOf } from "../snapshotter/snapshot_content.ts";
import { type VolumeSnapshotContent, volumeSnapshotContents } from "../api/snapshot_objects.ts";
import { CLAIM_ANNOTATION } from "../provisioner/volume_intents.ts";
import type { Placement } from "../api/volume_mapping.ts";

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
  /** Its LVMSnapshots. */
  readonly snapshots: readonly LvmSnapshot[];
  /** The driver's VolumeSnapshotContents, by the handles of their snapshots. */
  readonly contents: ReadonlyMap<string, VolumeSnapshotContent>;
}

/**
 * What becomes of a volume or a snapshot: `removed`, since no PersistentVolume or VolumeSnapshotContent needs it; `lost`, since
 * one does, and is left to its policy.
 */
export type Fate = "removed" | "lost";

/** Something of the node, and what becomes of it. */
interface Forgotten {
  /** Its id. */
  readonly id: string;
  /** Its size in bytes: the real one, or else the one that was wanted; of a snapshot, that of its volume at the cut. */
  readonly size: bigint;
  /** Its state; none before its node said something. */
  readonly state?: string;
  /** Its group. */
  readonly volumeGroup?: string;
  /** What becomes of it. */
  readonly fate: Fate;
}

/** A volume of the node. */
export interface ForgottenVolume extends Forgotten {
  /** The claim that has it, or that it was made for, as `namespace/name`. */
  readonly claim?: string;
  /** The PersistentVolume that needs it. */
  readonly persistentVolume?: { readonly name: string; readonly phase: string; readonly reclaimPolicy: string };
}

/** A snapshot of the node. */
export interface ForgottenSnapshot extends Forgotten {
  /** The id of its volume. */
  readonly sourceVolume: string;
  /** The VolumeSnapshotContent that needs it, with its VolumeSnapshot as `namespace/name`. */
  readonly content?: { readonly name: string; readonly deletionPolicy: string; readonly snapshot?: string };
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
  /** The snapshots, in the order of their ids. */
  readonly snapshots: readonly ForgottenSnapshot[];
}

/** How long ago an agent may have reported to count as alive, in milliseconds: it does every minute. */
export const SILENT_MS = 300_000;

/** Asks what there is of a node. @throws {ApiError} */
export async function readRemains(client: ApiClient, { driver, nodeName }: Placement): Promise<Remains> {
  const fieldSelector = `spec.nodeName=${nodeName}`;
  const [node, lvmNode, volumes, all, snapshots, contents] = await Promise.all([
    ifThere(client.get(nodes, { name: nodeName })),
    ifThere(client.get(lvmNodes, { name: nodeName })),
    client.list(lvmVolumes, { fieldSelector }),
    client.list(persistentVolumes),
    client.list(lvmSnapshots, { fieldSelector }),
    ifThere(client.list(volumeSnapshotContents)), // a cluster need not have the kind
  ]);
  const isOwn = ({ spec }: NodeMade) => spec.driverName === driver && spec.nodeName === nodeName;
  const ours = all.items.filter(({ spec }) => spec?.csi?.driver === driver);
  const taken = contents?.items.filter(({ spec }) => spec.driver === driver) ?? [];
  return {
    driver,
    nodeName,
    node,
    lvmNode: lvmNode?.spec.driverName === driver ? lvmNode : undefined,
    volumes: volumes.items.filter(isOwn),
    persistentVolumes: new Map(ours.map((volume) => [volume.spec!.csi!.volumeHandle, volume])),
    snapshots: snapshots.items.filter(isOwn),
    contents: new Map(taken.map((content) => [handleOf(content) ?? "", content])),
  };
}

/** What becomes of it all. */
export function planForgetting(remains: Remains, now: Date): Forgetting {
  const { nodeName, lvmNode, volumes, snapshots } = remains;
  return {
    nodeName,
    signsOfLife: signsOfLife(remains, now),
    lvmNode: lvmNode !== undefined,
    volumes: volumes.map((object) => volumeFate(object, remains)).sort(byId),
    snapshots: snapshots.map((object) => snapshotFate(object, remains)).sort(byId),
  };
}

/** What speaks for a node being alive. The agent's time and this one's may differ by some minutes: then it counts as alive. */
export function signsOfLife({ nodeName, node, lvmNode }: Remains, now: Date): string[] {
  const isReady = node?.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
  const reported = Date.parse(lvmNode?.status?.lastUpdate ?? "");
  const ago = Math.round((now.getTime() - reported) / 1000);
  return [
    ...(isReady ? [`Node ${nodeName} is Ready`] : []),
    ...(ago * 1000 < SILENT_MS ? [`its agent reported ${Math.max(0, ago)} s ago`] : []),
  ];
}

function volumeFate(object: LvmVolume, { persistentVolumes }: Remains): ForgottenVolume {
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

function snapshotFate(
  { metadata: { name: id }, spec: { sourceVolume }, status: { state, volumeGroup, restoreSize } = {} }: LvmSnapshot,
  { contents }: Remains,
): ForgottenSnapshot {
  const needing = contents.get(id);
  const { namespace, name } = needing?.spec.volumeSnapshotRef ?? {};
  return {
    id,
    sourceVolume,
    size: parseQuantity(restoreSize ?? "0") ?? 0n,
    ...(state && { state }),
    ...(volumeGroup && { volumeGroup }),
    ...(needing && {
      content: {
        name: needing.metadata.name,
        deletionPolicy: needing.spec.deletionPolicy,
        ...(namespace && name && { snapshot: `${namespace}/${name}` }),
      },
    }),
    fate: needing === undefined ? "removed" : "lost",
  };
}

function byId(a: Forgotten, b: Forgotten): number {
  return a.id < b.id ? -1 : 1;
}

/** What is answered; nothing when the object is gone, or is another one of the name. @throws {ApiError} for anything else */
export async function ifThere<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (isNotFound(error) || isConflict(error)) return undefined;
    throw error;
  }
}
