/**
 * The objects of a node in the cluster, and the plan for its removal (docs/adr/0013).
 *
 * @module
 */

import { parseQuantity } from "../../base/size.ts";
import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import {
  type AgentManaged,
  CLAIM_ANNOTATION,
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import { agentLeaseName, agentLeaseSelector, SILENT_AFTER_MS } from "../../k8s/api/agent_leases.ts";
import {
  type Lease,
  leases,
  type Node,
  nodes,
  type PersistentVolume,
  persistentVolumes,
} from "../../k8s/api/objects.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { isGone } from "../../k8s/handover/copy_step.ts";
import { copyIdOf, type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { isNodeReady } from "../../k8s/api/pods.ts";
import {
  snapshotHandleOf,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../../k8s/api/snapshot_objects.ts";
import type { NodeDriver } from "../../k8s/api/volume_mapping.ts";
import { defined } from "../../base/defined.ts";

/** The objects of a node in the cluster. */
export interface NodeObjects extends NodeDriver {
  /** Its Node. */
  readonly node: Node | undefined;
  /** Its LVMNode. */
  readonly lvmNode: LvmNode | undefined;
  /** The Leases of its agent; more than one only if the driver was in several namespaces. */
  readonly agentLeases: readonly Lease[];
  /** Its LVMVolumes. */
  readonly volumes: readonly LvmVolume[];
  /** The driver's PersistentVolumes, by the handles of their volumes. */
  readonly persistentVolumes: ReadonlyMap<string, PersistentVolume>;
  /** The objects that need volumes without a PersistentVolume, as `LVMMove NAME`, by the names of the volumes. */
  readonly needs: ReadonlyMap<string, string>;
  /** Its LVMSnapshots. */
  readonly snapshots: readonly LvmSnapshot[];
  /** The driver's VolumeSnapshotContents, by the handles of their snapshots. */
  readonly contents: ReadonlyMap<string, VolumeSnapshotContent>;
}

/**
 * The outcome for a volume or a snapshot: `removed`, since no PersistentVolume or VolumeSnapshotContent needs it;
 * `lost`, since one does, and its policy decides about it, or since a move or an import makes its PersistentVolume again.
 */
export type Outcome = "removed" | "lost";

/** A volume or a snapshot of the node, with its outcome. */
interface ForgottenObject {
  /** Its id. */
  readonly id: string;
  /**
   * Its size in bytes: the actual one, or else the requested one; of a snapshot, that of its volume when it was taken.
   */
  readonly size: bigint;
  /** Its state; none before its node said something. */
  readonly state?: string;
  /** Its group. */
  readonly volumeGroup?: string;
  /** The outcome. */
  readonly outcome: Outcome;
}

/** A volume of the node. */
export interface ForgottenVolume extends ForgottenObject {
  /** The claim that has it, or that it was made for, as `namespace/name`. */
  readonly claim?: string;
  /** The PersistentVolume that needs it. */
  readonly persistentVolume?: { readonly name: string; readonly phase: string; readonly reclaimPolicy: string };
  /** The move or import that needs it although it has no PersistentVolume, as `LVMMove NAME`. */
  readonly neededBy?: string;
}

/** A snapshot of the node. */
export interface ForgottenSnapshot extends ForgottenObject {
  /** The id of its volume. */
  readonly sourceVolume: string;
  /** The VolumeSnapshotContent that needs it, with its VolumeSnapshot as `namespace/name`. */
  readonly volumeSnapshotContent?: {
    readonly name: string;
    readonly deletionPolicy: string;
    readonly volumeSnapshot?: string;
  };
}

/** The plan of a node's removal. */
export interface ForgetPlan {
  /** The node. */
  readonly nodeName: string;
  /** The evidence that the node is alive, in sentences. */
  readonly livenessEvidence: readonly string[];
  /** True if there is an LVMNode to remove. */
  readonly lvmNode: boolean;
  /** The volumes, in the order of their ids. */
  readonly volumes: readonly ForgottenVolume[];
  /** The snapshots, in the order of their ids. */
  readonly snapshots: readonly ForgottenSnapshot[];
}

/** The time since the last sign of life within which an agent counts as alive, in milliseconds. */
export const LIVENESS_TIMEOUT_MS = SILENT_AFTER_MS;

/** Reads the objects of a node. @throws {ApiError} */
export async function readNodeObjects(client: ApiClient, { driver, nodeName }: NodeDriver): Promise<NodeObjects> {
  const fieldSelector = `spec.nodeName=${nodeName}`;
  const needs = await readNeeds(client); // first: what ends meanwhile has made its PersistentVolume before
  const ownLease = {
    labelSelector: agentLeaseSelector(driver),
    fieldSelector: `metadata.name=${agentLeaseName(nodeName)}`,
  };
  const [node, lvmNode, agentLeases, volumes, allPersistentVolumes, snapshots, contents] = await Promise.all([
    orAbsent(client.get(nodes, { name: nodeName })),
    orAbsent(client.get(lvmNodes, { name: nodeName })),
    client.list(leases, ownLease), // in all namespaces, since nobody says which one is the driver's
    client.list(lvmVolumes, { fieldSelector }),
    client.list(persistentVolumes),
    client.list(lvmSnapshots, { fieldSelector }),
    orAbsent(client.list(volumeSnapshotContents)), // a cluster may lack the kind
  ]);
  const isOwn = ({ spec }: AgentManaged) => spec.driverName === driver && spec.nodeName === nodeName;
  const ownPersistentVolumes = allPersistentVolumes.items.filter(({ spec }) => spec?.csi?.driver === driver);
  const ownContents = contents?.items.filter(({ spec }) => spec.driver === driver) ?? [];
  return {
    driver,
    nodeName,
    node,
    lvmNode: lvmNode?.spec.driverName === driver ? lvmNode : undefined,
    agentLeases: agentLeases.items,
    volumes: volumes.items.filter(isOwn),
    persistentVolumes: new Map(ownPersistentVolumes.map((volume) => [volume.spec!.csi!.volumeHandle, volume])),
    needs,
    snapshots: snapshots.items.filter(isOwn),
    contents: new Map(ownContents.map((content) => [snapshotHandleOf(content) ?? "", content])),
  };
}

/**
 * Reads which volumes are needed although they may have no PersistentVolume: those of moves and imports, which delete it and
 * make it again, and the copies of volumes that are gone.
 */
async function readNeeds(client: ApiClient): Promise<Map<string, string>> {
  const [moves, imports] = await Promise.all([
    orAbsent(client.list(lvmMoves)), // a cluster may lack the kinds
    orAbsent(client.list(lvmImports)),
  ]);
  const needs = new Map<string, string>();
  for (const { metadata: { name } } of (imports?.items ?? []).filter((one) => !isFinished(one))) {
    needs.set(name, `LVMImport ${name}`);
  }
  for (const move of (moves?.items ?? []).filter((one) => !isFinished(one))) {
    const { name } = move.metadata;
    needs.set(name, `LVMMove ${name}`);
    if (await isCopyNeeded(client, move)) needs.set(copyIdOf(move), `LVMMove ${name}`);
  }
  return needs;
}

/** Reports whether the copy of a move may be all that is left. When its volume is being removed, that takes the LV itself. */
async function isCopyNeeded(client: ApiClient, { metadata: { name }, status }: LvmMove): Promise<boolean> {
  if (status?.removing) return false;
  const volume = await orAbsent(client.get(lvmVolumes, { name }));
  return volume === undefined || isGone(volume);
}

/** Returns the plan for the removal of a node. */
export function planForget(nodeObjects: NodeObjects, now: Date): ForgetPlan {
  const { nodeName, lvmNode, volumes, snapshots } = nodeObjects;
  return {
    nodeName,
    livenessEvidence: livenessEvidence(nodeObjects, now),
    lvmNode: lvmNode !== undefined,
    volumes: volumes.map((object) => planVolume(object, nodeObjects)).sort(compareById),
    snapshots: snapshots.map((object) => planSnapshot(object, nodeObjects)).sort(compareById),
  };
}

/** The taint by which an administrator says that a node was shut down (Kubernetes, non-graceful node shutdown). */
const OUT_OF_SERVICE = "node.kubernetes.io/out-of-service";

/**
 * Returns the evidence that a node is alive. The clocks of the agent and of this process may differ by some minutes:
 * then the node counts as alive. What the agent of a node reported before that is out of service is no evidence.
 */
export function livenessEvidence({ nodeName, node, lvmNode, agentLeases }: NodeObjects, now: Date): string[] {
  const isReady = node !== undefined && isNodeReady(node);
  const isOutOfService = !isReady && (node?.spec?.taints?.some(({ key }) => key === OUT_OF_SERVICE) ?? false);
  const times = [lvmNode?.status?.lastUpdateTime, ...agentLeases.map(({ spec }) => spec?.renewTime)];
  const reportedAtMs = Math.max(...times.map((time) => Date.parse(time ?? "")).filter((ms) => !Number.isNaN(ms)));
  const agoSeconds = Math.round((now.getTime() - reportedAtMs) / 1000);
  return [
    ...(isReady ? [`Node ${nodeName} is Ready`] : []),
    ...(!isOutOfService && agoSeconds * 1000 < LIVENESS_TIMEOUT_MS
      ? [`its agent reported ${Math.max(0, agoSeconds)} s ago`]
      : []),
  ];
}

function planVolume(object: LvmVolume, { persistentVolumes, needs }: NodeObjects): ForgottenVolume {
  const { metadata: { name: id, annotations }, spec, status: { state, volumeGroup, size = spec.size } = {} } = object;
  const persistentVolume = persistentVolumes.get(id);
  const neededBy = persistentVolume === undefined ? needs.get(id) : undefined;
  const { namespace, name } = persistentVolume?.spec?.claimRef ?? {};
  const claim = namespace && name ? `${namespace}/${name}` : annotations?.[CLAIM_ANNOTATION];
  const facts = {
    state,
    volumeGroup,
    claim,
    persistentVolume: persistentVolume && {
      name: persistentVolume.metadata.name,
      phase: persistentVolume.status?.phase ?? "Pending",
      reclaimPolicy: persistentVolume.spec?.persistentVolumeReclaimPolicy ?? "Retain",
    },
    neededBy,
  };
  const outcome = (persistentVolume ?? neededBy) === undefined ? "removed" : "lost";
  return { id, size: parseQuantity(size) ?? 0n, ...defined(facts), outcome };
}

function planSnapshot(
  { metadata: { name: id }, spec: { sourceVolume }, status: { state, volumeGroup, restoreSize } = {} }: LvmSnapshot,
  { contents }: NodeObjects,
): ForgottenSnapshot {
  const content = contents.get(id);
  const { namespace, name } = content?.spec.volumeSnapshotRef ?? {};
  const volumeSnapshotContent = content && defined({
    name: content.metadata.name,
    deletionPolicy: content.spec.deletionPolicy,
    volumeSnapshot: namespace && name ? `${namespace}/${name}` : undefined,
  });
  return {
    id,
    sourceVolume,
    size: parseQuantity(restoreSize ?? "0") ?? 0n,
    ...defined({ state, volumeGroup, volumeSnapshotContent }),
    outcome: content === undefined ? "removed" : "lost",
  };
}

function compareById(a: ForgottenObject, b: ForgottenObject): number {
  return a.id < b.id ? -1 : 1;
}
