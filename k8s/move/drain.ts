/**
 * What it takes to move all volumes of a node elsewhere.
 *
 * @module
 */

import { defined } from "../../lvm/defined.ts";
import { compare } from "../../lvm/model/groups.ts";
import { parseQuantity } from "../../lvm/size.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../api/lvm_objects.ts";
import {
  type Node,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type StorageClass,
  storageClasses,
} from "../api/objects.ts";
import { actualSize, lvmVolumeFor } from "../api/volume_mapping.ts";
import { classNameOf } from "../provisioner/claim.ts";
import { blockingSnapshots, copyRequestOf, objectsRefusal, surroundingsRefusal } from "./checks.ts";
import { isFinished, type LvmMove, lvmMoves, type MoveObjects } from "./objects.ts";
import { csiNodesOf, namedObjects, type PreviewOptions } from "./preview.ts";

/** What decides where the volumes of a node can go. */
export interface DrainState {
  /** The driver's name. */
  readonly driver: string;
  /** The node. */
  readonly nodeName: string;
  readonly nodes: readonly Node[];
  readonly lvmNodes: readonly LvmNode[];
  readonly volumes: readonly LvmVolume[];
  readonly snapshots: readonly LvmSnapshot[];
  readonly persistentVolumes: readonly PersistentVolume[];
  readonly claims: readonly PersistentVolumeClaim[];
  readonly moves: readonly LvmMove[];
  readonly classes: ReadonlyMap<string, StorageClass>;
}

/** A volume of the node, and where it goes. */
export interface DrainedVolume {
  /** Its id. */
  readonly volume: string;
  /** The claim, as `namespace/name`; absent without one. */
  readonly claim?: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** The node that it moves to; absent when it stays. */
  readonly targetNode?: string;
  /** Why it stays. */
  readonly refusal?: string;
}

/** Reads what decides where the volumes of a node can go. @throws {ApiError} */
export async function readDrainState(client: ApiClient, driver: string, nodeName: string): Promise<DrainState> {
  const [allNodes, allLvmNodes, volumes, snapshots, allVolumes, claims, moves] = await Promise.all([
    client.list(nodes),
    client.list(lvmNodes),
    client.list(lvmVolumes),
    client.list(lvmSnapshots),
    client.list(persistentVolumes),
    client.list(persistentVolumeClaims),
    client.list(lvmMoves),
  ]);
  const names = new Set(claims.items.map(classNameOf));
  const found = await Promise.all([...names].map((name) => orAbsent(client.get(storageClasses, { name }))));
  return {
    ...{ driver, nodeName, nodes: allNodes.items, volumes: volumes.items, snapshots: snapshots.items },
    ...{ lvmNodes: allLvmNodes.items.filter(({ spec }) => spec.driverName === driver) },
    ...{ persistentVolumes: allVolumes.items, claims: claims.items, moves: moves.items },
    classes: new Map(found.flatMap((one) => one === undefined ? [] : [[one.metadata.name, one] as const])),
  };
}

/** Returns where each volume of a node can go, in the order of their claims. Later ones find the space that earlier ones leave. */
export function planDrain(state: DrainState, options: PreviewOptions): DrainedVolume[] {
  const { driver, nodeName, volumes } = state;
  const assumed: LvmVolume[] = [];
  const own = volumes.filter(({ metadata, spec }) =>
    spec.driverName === driver && spec.nodeName === nodeName && metadata.deletionTimestamp === undefined
  );
  const described = own.map((volume) => ({ volume, claim: claimOf(volume, state) }))
    .sort((a, b) => (a.claim?.name ?? a.volume.metadata.name) < (b.claim?.name ?? b.volume.metadata.name) ? -1 : 1);
  return described.map(({ volume, claim }) => {
    const base = {
      volume: volume.metadata.name,
      size: actualSize(volume) ?? 0n,
      ...defined({ claim: claim && `${claim.namespace}/${claim.name}` }),
    };
    if (claim === undefined) return { ...base, refusal: "no claim is bound to it" };
    let refusal: string | undefined;
    for (const targetNode of candidatesOf(state)) {
      const objects = objectsOf({ volume, claim, targetNode }, state, options);
      const why = runningRefusal(objects.move, state) ?? refusalOf(objects, state, assumed, options);
      if (why === undefined) {
        const copy = lvmVolumeFor(copyRequestOf(objects.move, volume, options.parseGroups), {
          driver,
          nodeName: targetNode,
        });
        assumed.push({ ...copy, metadata: { ...copy.metadata, name: volume.metadata.name } });
        return { ...base, targetNode };
      }
      refusal ??= why;
    }
    return { ...base, refusal: refusal ?? "no other node has an agent of the driver and takes new pods" };
  });
}

/** The claim of a volume, and the PersistentVolume through which it has it. */
interface BoundClaim {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly persistentVolume: PersistentVolume;
}

function claimOf({ metadata: { name } }: LvmVolume, { driver, persistentVolumes }: DrainState): BoundClaim | undefined {
  const found = persistentVolumes.find(({ spec }) => spec?.csi?.driver === driver && spec.csi.volumeHandle === name);
  const { claimRef } = found?.spec ?? {};
  if (found?.status?.phase !== "Bound" || claimRef?.namespace === undefined || claimRef.name === undefined) {
    return undefined;
  }
  return { namespace: claimRef.namespace, name: claimRef.name, uid: claimRef.uid ?? "", persistentVolume: found };
}

/** Returns the names of the nodes that volumes may go to, those with the most free space first. */
function candidatesOf({ nodeName, nodes, lvmNodes }: DrainState): string[] {
  const isCordoned = (name: string) =>
    nodes.find(({ metadata }) => metadata.name === name)?.spec?.unschedulable ?? false;
  const freeOf = ({ status }: LvmNode) => parseQuantity(status?.total?.free ?? "") ?? 0n;
  return lvmNodes.filter(({ metadata: { name } }) => name !== nodeName && !isCordoned(name))
    .sort((a, b) => compare(freeOf(b), freeOf(a))).map(({ metadata: { name } }) => name);
}

function objectsOf(
  { volume, claim: bound, targetNode }: { volume: LvmVolume; claim: BoundClaim; targetNode: string },
  state: DrainState,
  { topologyKey }: PreviewOptions,
): MoveObjects {
  const { persistentVolume, ...claim } = bound;
  const move: LvmMove = {
    metadata: { name: volume.metadata.name },
    spec: {
      driverName: state.driver,
      persistentVolume: persistentVolume.metadata.name,
      claim,
      sourceNode: volume.spec.nodeName,
      targetNode,
    },
  };
  const isClaim = ({ metadata }: PersistentVolumeClaim) =>
    metadata.namespace === claim.namespace && metadata.name === claim.name;
  return {
    ...{ move, volume, copy: undefined, persistentVolume, claim: state.claims.find(isClaim), topologyKey },
    ...{ snapshots: blockingSnapshots(move, volume, state.snapshots), temporary: [], hasSpaceForSnapshot: false },
  };
}

function runningRefusal({ metadata: { name } }: LvmMove, { moves }: DrainState): string | undefined {
  const running = moves.find((move) => move.metadata.name === name && !isFinished(move));
  return running && `it is being moved to node ${running.spec.targetNode} already`;
}

function refusalOf(
  objects: MoveObjects,
  state: DrainState,
  assumed: readonly LvmVolume[],
  options: PreviewOptions,
): string | undefined {
  const { driver, lvmNodes, classes } = state;
  const { sourceNode, targetNode } = objects.move.spec;
  const lvmNode = (name: string) => lvmNodes.find(({ metadata }) => metadata.name === name);
  return objectsRefusal(objects, driver) ?? surroundingsRefusal(objects, {
    ...options,
    lvmNodes: { source: lvmNode(sourceNode), target: lvmNode(targetNode) },
    isSilent: () => false, // the controller knows it, and refuses
    targetVolumes: [...state.volumes, ...assumed].filter(({ spec }) => spec.nodeName === targetNode),
    storageClass: classes.get(classNameOf(objects.claim!)),
    cluster: {
      ...{ driverName: driver, topologyKey: options.topologyKey },
      ...{ nodes: namedObjects(state.nodes), csiNodes: csiNodesOf(driver, lvmNodes) },
    },
  });
}
