/**
 * What a move of a claim would do, before anybody asks for it.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { type ApiClient, type NewObject, orAbsent } from "../../k8s/client/client.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import {
  type CsiNode,
  type Node,
  nodes,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { claimNamesOf, hasEnded } from "../../k8s/api/pods.ts";
import { actualSize } from "../../k8s/api/volume_mapping.ts";
import type { ObjectsByName } from "../../k8s/sidecars/claim_topology.ts";
import { classNameOf } from "../../k8s/provisioner/claim.ts";
import {
  blockingSnapshots,
  type MoveSurroundings,
  objectsRefusal,
  surroundingsRefusal,
} from "../../k8s/handover/move_checks.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type CopyMode, type LvmMove, lvmMoves, type MoveObjects } from "../../k8s/handover/moves.ts";
import { chooseCopyMode } from "../../k8s/handover/copy_mode.ts";

/** A claim, and the node that its volume is to move to. */
export interface MoveRequest {
  /** The driver's name. */
  readonly driver: string;
  /** The namespace of the claim. */
  readonly namespace: string;
  /** The name of the claim. */
  readonly claimName: string;
  /** The node. */
  readonly targetNode: string;
  /** True to copy it only while nobody may use it. */
  readonly offline?: boolean;
}

/** What a move would do. */
export interface MovePlan {
  /** The claim, as `namespace/name`. */
  readonly claim: string;
  /** The PersistentVolume. */
  readonly persistentVolume: string;
  /** The id of the volume. */
  readonly volume: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** True if it is a thin volume. */
  readonly thin: boolean;
  /** How its data on the first node is erased. */
  readonly erase: string;
  /** The node of the volume. */
  readonly sourceNode: string;
  /** The node that it moves to. */
  readonly targetNode: string;
  /** The pods that use the claim. */
  readonly pods: readonly string[];
  /** The other claims of these pods on the first node: the pods start only where all of their volumes are. */
  readonly companions: readonly string[];
  /** How it would be copied. */
  readonly copyMode: CopyMode;
  /** Why it would be copied offline. */
  readonly offlineReason?: string;
  /** Why it cannot be moved now; absent when it can. */
  readonly refusal?: string;
}

/** Settings of the driver that a plan depends on. */
export interface PreviewOptions extends Pick<MoveSurroundings, "parseGroups" | "now"> {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
}

/**
 * Reads what a move depends on, and returns the plan and the LVMMove that asks for it.
 *
 * @throws {StorageError} `NotFound` without such a claim, or a volume of the driver that it is bound to
 * @throws {ApiError}
 */
export async function previewMove(
  client: ApiClient,
  request: MoveRequest,
  options: PreviewOptions,
): Promise<{ readonly plan: MovePlan; readonly move: NewObject<LvmMove> & { metadata: { name: string } } }> {
  const { driver, namespace, claimName, targetNode } = request;
  const { claim, volume, objects } = await readObjects(client, request, options);
  const { nodeName: sourceNode, thinProvision = false, erase } = volume.spec;
  const [using, surroundings] = await Promise.all([
    podsUsing(client, claim),
    readSurroundings(client, { claim, driver, sourceNode, targetNode }, options),
  ]);
  const [existing, companions] = await Promise.all([
    orAbsent(client.get(lvmMoves, { name: volume.metadata.name })),
    companionsOn(client, { claim, driver, sourceNode, using }),
  ]);
  const refusal = (existing === undefined || isFinished(existing) ? undefined : runningRefusal(existing)) ??
    objectsRefusal(objects, driver) ?? surroundingsRefusal(objects, surroundings);
  const { mode: copyMode, reason } = chooseCopyMode(volume, surroundings.lvmNodes.source, objects.self.spec);
  const plan = {
    claim: `${namespace}/${claimName}`,
    persistentVolume: objects.self.spec.persistentVolume,
    volume: volume.metadata.name,
    size: actualSize(volume) ?? 0n,
    thin: thinProvision,
    ...{ erase, sourceNode, targetNode },
    pods: using.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`),
    companions,
    ...{ copyMode, ...defined({ offlineReason: reason, refusal }) },
  };
  return { plan, move: objects.self };
}

/** Returns the pods of a claim that have not ended. @throws {ApiError} */
export async function podsUsing(client: ApiClient, { metadata }: PersistentVolumeClaim): Promise<Pod[]> {
  const { items } = await client.list(pods, { namespace: metadata.namespace });
  return items.filter((pod) => !hasEnded(pod) && claimNamesOf(pod).includes(metadata.name));
}

/** Returns the other claims of pods whose volumes are on a node, too, as `namespace/name`. @throws {ApiError} */
async function companionsOn(
  client: ApiClient,
  { claim: { metadata }, driver, sourceNode, using }: {
    readonly claim: PersistentVolumeClaim;
    readonly driver: string;
    readonly sourceNode: string;
    readonly using: readonly Pod[];
  },
): Promise<string[]> {
  const names = new Set(using.flatMap(claimNamesOf));
  names.delete(metadata.name);
  if (names.size === 0) return [];
  const [volumes, local] = await Promise.all([
    client.list(persistentVolumes),
    client.list(lvmVolumes, { fieldSelector: `spec.nodeName=${sourceNode}` }),
  ]);
  const handles = new Set(local.items.map(({ metadata: { name } }) => name));
  return volumes.items.filter(({ spec }) =>
    spec?.csi?.driver === driver && handles.has(spec.csi.volumeHandle) &&
    spec.claimRef?.namespace === metadata.namespace && names.has(spec.claimRef?.name ?? "")
  ).map(({ spec }) => `${metadata.namespace}/${spec!.claimRef!.name}`).sort();
}

function runningRefusal({ spec: { targetNode }, status }: LvmMove): string {
  return `it is being moved to node ${targetNode} already (${status?.state ?? "Pending"})`;
}

async function readObjects(
  client: ApiClient,
  { driver, namespace, claimName, targetNode, offline }: MoveRequest,
  { topologyKey }: PreviewOptions,
): Promise<{ claim: PersistentVolumeClaim; volume: LvmVolume; objects: MoveObjects }> {
  const what = `moving claim ${namespace}/${claimName}`;
  const claim = await orAbsent(client.get(persistentVolumeClaims, { namespace, name: claimName }));
  if (claim === undefined) throw new StorageError("NotFound", `${what}: there is no such claim`);
  const name = claim.spec?.volumeName;
  const persistentVolume = name === undefined ? undefined : await orAbsent(client.get(persistentVolumes, { name }));
  const csi = persistentVolume?.spec?.csi;
  if (csi?.driver !== driver) {
    throw new StorageError("NotFound", `${what}: it is not bound to a PersistentVolume of the driver ${driver}`);
  }
  const volume = await orAbsent(client.get(lvmVolumes, { name: csi.volumeHandle }));
  if (volume === undefined) throw new StorageError("NotFound", `${what}: there is no LVMVolume ${csi.volumeHandle}`);
  const spec = {
    driverName: driver,
    persistentVolume: name!,
    claim: { namespace, name: claimName, uid: claim.metadata.uid! },
    sourceNode: volume.spec.nodeName,
    targetNode,
    ...(offline && { offline }),
  };
  const { items: snapshots } = await client.list(lvmSnapshots);
  return { claim, volume, objects: plannedObjects(spec, volume, { persistentVolume, claim, snapshots, topologyKey }) };
}

/** Returns the objects of a move that nobody has asked for. */
export function plannedObjects(
  spec: LvmMove["spec"],
  volume: LvmVolume,
  { snapshots, ...objects }: Pick<MoveObjects, "persistentVolume" | "claim" | "topologyKey"> & {
    readonly snapshots: readonly LvmSnapshot[];
  },
): MoveObjects {
  const self = { metadata: { name: volume.metadata.name }, spec };
  const blocking = blockingSnapshots(self, volume, snapshots);
  return {
    ...objects,
    self,
    volume,
    copy: undefined,
    snapshots: blocking,
    temporary: [],
    isSnapshotted: false,
    hasSpaceForSnapshot: false,
  };
}

async function readSurroundings(
  client: ApiClient,
  { claim, driver, sourceNode, targetNode }: {
    readonly claim: PersistentVolumeClaim;
    readonly driver: string;
    readonly sourceNode: string;
    readonly targetNode: string;
  },
  options: PreviewOptions,
): Promise<MoveSurroundings> {
  const [nodesState, volumes, storageClass] = await Promise.all([
    readNodes(client, driver),
    client.list(lvmVolumes, { fieldSelector: `spec.nodeName=${targetNode}` }),
    orAbsent(client.get(storageClasses, { name: classNameOf(claim) })),
  ]);
  return surroundingsOf(nodesState, { driver, sourceNode, targetNode, volumes: volumes.items, storageClass }, options);
}

/** The nodes and their agents. */
export interface NodesState {
  /** The nodes. */
  readonly nodes: readonly Node[];
  /** The LVMNodes of the driver. */
  readonly lvmNodes: readonly LvmNode[];
}

/** Reads the nodes and their agents. @throws {ApiError} */
export async function readNodes(client: ApiClient, driver: string): Promise<NodesState> {
  const [allNodes, allLvmNodes] = await Promise.all([client.list(nodes), client.list(lvmNodes)]);
  const own = allLvmNodes.items.filter(({ spec }) => spec.driverName === driver);
  return { nodes: allNodes.items, lvmNodes: own };
}

/** Returns what decides whether a volume can be moved, of what was read of the cluster. */
export function surroundingsOf(
  { nodes, lvmNodes }: NodesState,
  { driver, sourceNode, targetNode, volumes, storageClass }: {
    readonly driver: string;
    readonly sourceNode: string;
    readonly targetNode: string;
    readonly volumes: readonly LvmVolume[];
    readonly storageClass: StorageClass | undefined;
  },
  { topologyKey, parseGroups, now }: PreviewOptions,
): MoveSurroundings {
  const lvmNode = (name: string) => lvmNodes.find(({ metadata }) => metadata.name === name);
  return {
    lvmNodes: { source: lvmNode(sourceNode), target: lvmNode(targetNode) },
    // as the controller sees it: the clock of this machine may be wrong
    isSilent: (name) => lvmNode(name)?.status?.agent?.state === "Silent",
    targetVolumes: volumes.filter(({ spec }) => spec.nodeName === targetNode),
    storageClass,
    cluster: {
      ...{ driverName: driver, topologyKey },
      nodes: namedObjects(nodes),
      csiNodes: csiNodesOf(driver, lvmNodes),
    },
    ...{ parseGroups, now },
  };
}

/** Returns the CSINodes as far as LVMNodes show them: an agent that reports is registered. */
export function csiNodesOf(driver: string, lvmNodes: readonly LvmNode[]): ObjectsByName<CsiNode> {
  const spec = (name: string) => ({ drivers: [{ name: driver, nodeID: name }] });
  return namedObjects(lvmNodes.map(({ metadata: { name } }) => ({ metadata: { name }, spec: spec(name) })));
}

/** Returns objects of a list by their names. */
export function namedObjects<T extends { metadata: { name: string } }>(objects: readonly T[]): ObjectsByName<T> {
  const byName = new Map(objects.map((object) => [object.metadata.name, object]));
  return { get: (name) => byName.get(name), list: () => objects };
}

/** Returns the plan of a move for people. */
export function movePlanText(plan: MovePlan): string {
  const { claim, persistentVolume, volume, size, thin, erase, sourceNode, targetNode, companions, refusal } = plan;
  const head = `Claim ${claim} (${thin ? "thin" : "thick"} volume ${volume}, ${formatBytes(size)})`;
  if (refusal !== undefined) return `${head} cannot be moved from node ${sourceNode} to node ${targetNode}: ${refusal}`;
  const erasure = erase === "none" ? "not erased" : erase === "zero" ? "overwritten with zeros" : "discarded";
  const steps = [
    ...copySteps(plan),
    [
      `PersistentVolume ${persistentVolume} gets the affinity to node ${targetNode}. Where the API server does not allow`,
      "to change it, it is deleted and created again with the same name; the claim is Lost for some seconds.",
    ],
    [`The volume on node ${sourceNode} is deleted, its data ${erasure}, and the copy takes its place.`],
  ];
  return [
    `${head} moves from node ${sourceNode} to node ${targetNode}:`,
    "",
    ...steps.flatMap((lines, index) => lines.map((line, at) => `${at === 0 ? `  ${index + 1}. ` : "     "}${line}`)),
    "",
    `Until step ${steps.length}, --cancel undoes it.`,
    ...(companions.length === 0 ? [] : [
      "",
      `Its pods also use the claims ${companions.join(", ")} on node ${sourceNode}. They start only where all of their`,
      "volumes are: move these, too.",
    ]),
  ].join("\n");
}

/** Returns the steps after which the copy is complete. */
function copySteps({ sourceNode, targetNode, pods, copyMode, offlineReason }: MovePlan): string[][] {
  const hold = [
    `Nobody may begin to use it on node ${sourceNode}, and the move waits until nobody uses it.`,
    `Pods that use it: ${pods.join(", ") || "none"}`,
  ];
  if (copyMode === "Offline") {
    return [hold, [
      `It is copied to node ${targetNode} while nobody can use it, and compared. It cannot be copied before:`,
      `${offlineReason}.`,
    ]];
  }
  return [
    [
      `It is copied to node ${targetNode} while it is used, from a temporary snapshot, and compared. Then what changed`,
      "meanwhile is copied, where that is much.",
    ],
    hold,
    ["What changed last is copied, while nobody can use it."],
  ];
}
