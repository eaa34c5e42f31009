/**
 * What it takes to move all volumes of a node elsewhere.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { compare } from "../../lvm/model/groups.ts";
import { parseQuantity } from "../../base/size.ts";
import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import { type LvmNode, type LvmSnapshot, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type StatefulSet,
  statefulSets,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { claimNamesOf, hasEnded, isNodeReady, podOfClaim, toleratesTaints } from "../../k8s/api/pods.ts";
import { actualSize, lvmVolumeFor } from "../../k8s/api/volume_mapping.ts";
import { classNameOf } from "../../k8s/provisioner/claim.ts";
import { copyRequestOf, objectsRefusal, surroundingsRefusal } from "../../k8s/handover/move_checks.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmMove, lvmMoves, type MoveObjects } from "../../k8s/handover/moves.ts";
import { type NodesState, plannedObjects, type PreviewOptions, readNodes, surroundingsOf } from "./preview.ts";
import type { ClaimReference } from "../../k8s/sidecars/csi_client.ts";

/** What decides where the volumes of a node can go. */
export interface DrainState extends NodesState {
  /** The driver's name. */
  readonly driver: string;
  /** The node. */
  readonly nodeName: string;
  readonly volumes: readonly LvmVolume[];
  readonly snapshots: readonly LvmSnapshot[];
  readonly persistentVolumes: readonly PersistentVolume[];
  readonly claims: readonly PersistentVolumeClaim[];
  readonly moves: readonly LvmMove[];
  readonly pods: readonly Pod[];
  readonly statefulSets: readonly StatefulSet[];
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
  const [nodesState, volumes, snapshots, allVolumes, claims, moves, allPods, sets] = await Promise.all([
    readNodes(client, driver),
    client.list(lvmVolumes),
    client.list(lvmSnapshots),
    client.list(persistentVolumes),
    client.list(persistentVolumeClaims),
    client.list(lvmMoves),
    client.list(pods),
    client.list(statefulSets),
  ]);
  const names = new Set(claims.items.map(classNameOf));
  const found = await Promise.all([...names].map((name) => orAbsent(client.get(storageClasses, { name }))));
  return {
    ...{ ...nodesState, driver, nodeName, volumes: volumes.items, snapshots: snapshots.items },
    ...{ pods: allPods.items.filter((pod) => !hasEnded(pod)), statefulSets: sets.items },
    ...{ persistentVolumes: allVolumes.items, claims: claims.items, moves: moves.items },
    classes: new Map(found.flatMap((one) => one === undefined ? [] : [[one.metadata.name, one] as const])),
  };
}

/**
 * Returns where each volume of a node can go, in the order of their claims; those that pods use together, to one node. Later ones
 * find the space that earlier ones leave.
 */
export function planDrain(state: DrainState, options: PreviewOptions): DrainedVolume[] {
  const assumed: LvmVolume[] = [];
  return unitsOf(state).flatMap((unit) => {
    const { targetNode, refusals = new Map() } = placeUnit(unit, state, assumed, options);
    return unit.members.map(({ volume, claim }): DrainedVolume => ({
      volume: volume.metadata.name,
      size: actualSize(volume) ?? 0n,
      ...defined({ claim: claim && claimText(claim), refusal: refusals.get(volume) }),
      ...defined({ targetNode: refusals.has(volume) ? undefined : targetNode }),
    }));
  });
}

/** A volume of the node, with its claim. */
interface Member {
  readonly volume: LvmVolume;
  readonly claim: BoundClaim | undefined;
}

/** Volumes of the node that pods use together. */
interface Unit {
  readonly members: readonly Member[];
  /** The pods that use them. */
  readonly pods: readonly Pod[];
  /** The other nodes on which these pods have volumes, or to which these are being moved. */
  readonly otherNodes: readonly string[];
}

/** Where the volumes of a unit go, or why each of them stays. */
interface Placement {
  readonly targetNode?: string;
  readonly refusals?: ReadonlyMap<LvmVolume, string>;
}

/** Finds a node for all volumes of a unit. */
function placeUnit(unit: Unit, state: DrainState, assumed: LvmVolume[], options: PreviewOptions): Placement {
  const { members, otherNodes } = unit;
  const refusals = new Map<LvmVolume, string>();
  for (const { volume, claim } of members) {
    const why = claim === undefined ? "no claim is bound to it" : runningRefusal(volume, state);
    if (why !== undefined) refusals.set(volume, why);
  }
  const candidates = candidatesOf(unit, state).filter((name) => otherNodes.every((other) => other === name));
  let refusal = otherNodes.length === 0
    ? "no other node has an agent of the driver and takes its pods"
    : `its pods have volumes on node ${otherNodes.join(" and ")}, too, where it cannot go`;
  let isFirst = true;
  for (const targetNode of candidates) {
    const copies: LvmVolume[] = [];
    const failed = members.filter(({ volume }) => !refusals.has(volume)).find(({ volume, claim }) => {
      const objects = objectsOf({ volume, claim: claim!, targetNode }, state, options);
      const why = refusalOf(objects, state, [...assumed, ...copies], options);
      if (why === undefined) {
        const request = copyRequestOf(objects.self, volume, options.parseGroups);
        const copy = lvmVolumeFor(request, { driver: state.driver, nodeName: targetNode });
        copies.push({ ...copy, metadata: { ...copy.metadata, name: volume.metadata.name } });
        return false;
      }
      if (isFirst) {
        refusal = members.length === 1
          ? why
          : `its pods use several volumes, and no node can have all of them: ${claimText(claim!)}: ${why}`;
      }
      isFirst = false;
      return true;
    });
    if (failed !== undefined) continue;
    assumed.push(...copies);
    return { targetNode, refusals };
  }
  for (const { volume } of members) if (!refusals.has(volume)) refusals.set(volume, refusal);
  return { refusals };
}

/** Returns the volumes of the node in the order of their claims; each comes with the others that its pods use. */
function unitsOf(state: DrainState): Unit[] {
  const { driver, nodeName, volumes, moves } = state;
  const isLocal = ({ spec }: LvmVolume) => spec.nodeName === nodeName;
  const members = volumes.filter(({ metadata, spec }) =>
    spec.driverName === driver && metadata.deletionTimestamp === undefined
  ).map((volume) => ({ volume, claim: claimOf(volume, state) }));
  const nameOf = ({ volume, claim }: Member) => claim?.name ?? volume.metadata.name;
  const own = members.filter(({ volume }) => isLocal(volume)).sort((a, b) => nameOf(a) < nameOf(b) ? -1 : 1);
  const together = claimsOfPods(state);
  const seen = new Set<Member>();
  return own.flatMap((first) => {
    if (seen.has(first)) return [];
    const claims = (first.claim && together.get(claimText(first.claim))) ?? new Set<string>();
    const isOfUnit = (one: Member) => one === first || (one.claim !== undefined && claims.has(claimText(one.claim)));
    const ofUnit = own.filter(isOfUnit);
    for (const one of ofUnit) seen.add(one);
    const targets = moves.filter((move) => !isFinished(move) && claims.has(claimText(move.spec.claim)));
    const otherNodes = [
      ...members.filter((one) => isOfUnit(one) && !isLocal(one.volume)).map(({ volume }) => volume.spec.nodeName),
      ...targets.map(({ spec }) => spec.targetNode),
    ].filter((name) => name !== nodeName);
    return [{
      members: ofUnit,
      pods: state.pods.filter((pod) => podClaims(pod).some((claim) => claims.has(claim))),
      otherNodes: [...new Set(otherNodes)],
    }];
  });
}

/** Returns the claims that have to be on one node, by each of them: those of a pod, also of one that a StatefulSet would create. */
function claimsOfPods({ pods, statefulSets, claims }: DrainState): ReadonlyMap<string, ReadonlySet<string>> {
  const planned = statefulSets.flatMap((set) => {
    const { namespace } = set.metadata;
    const own = claims.filter(({ metadata }) => metadata.namespace === namespace);
    const byPod = Map.groupBy(own, ({ metadata: { name } }) => podOfClaim(name, set));
    byPod.delete(undefined);
    return [...byPod.values()].map((all) => all.map(({ metadata }) => claimText(metadata)));
  });
  const together = new Map<string, Set<string>>();
  for (const names of [...pods.map(podClaims), ...planned]) {
    const all = new Set(names.flatMap((name) => [...together.get(name) ?? [name]]));
    for (const name of all) together.set(name, all);
  }
  return together;
}

function podClaims(pod: Pod): string[] {
  return claimNamesOf(pod).map((name) => claimText({ namespace: pod.metadata.namespace, name }));
}

function claimText({ namespace, name }: { readonly namespace?: string | undefined; readonly name: string }): string {
  return `${namespace}/${name}`;
}

/** The claim of a volume, and the PersistentVolume through which it has it. */
interface BoundClaim extends ClaimReference {
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

/** Returns the names of the nodes that a volume and its pods may go to, those with the most free space first. */
function candidatesOf({ pods }: Unit, { nodeName, nodes, lvmNodes }: DrainState): string[] {
  const users: readonly Pick<Pod, "spec">[] = pods.length === 0 ? [{}] : pods;
  const takesPods = (name: string) =>
    nodes.some((node) =>
      node.metadata.name === name && !node.spec?.unschedulable && isNodeReady(node) &&
      users.every((pod) => toleratesTaints(pod, node))
    );
  const freeOf = ({ status }: LvmNode) => parseQuantity(status?.total?.free ?? "") ?? 0n;
  return lvmNodes.filter(({ metadata: { name } }) => name !== nodeName && takesPods(name))
    .sort((a, b) => compare(freeOf(b), freeOf(a))).map(({ metadata: { name } }) => name);
}

function objectsOf(
  { volume, claim: bound, targetNode }: { volume: LvmVolume; claim: BoundClaim; targetNode: string },
  state: DrainState,
  { topologyKey }: PreviewOptions,
): MoveObjects {
  const { persistentVolume, ...claim } = bound;
  const spec = {
    driverName: state.driver,
    persistentVolume: persistentVolume.metadata.name,
    claim,
    sourceNode: volume.spec.nodeName,
    targetNode,
  };
  const isClaim = ({ metadata }: PersistentVolumeClaim) =>
    metadata.namespace === claim.namespace && metadata.name === claim.name;
  const { snapshots, claims } = state;
  return plannedObjects(spec, volume, { persistentVolume, claim: claims.find(isClaim), snapshots, topologyKey });
}

function runningRefusal({ metadata: { name } }: LvmVolume, { moves }: DrainState): string | undefined {
  const running = moves.find((move) => move.metadata.name === name && !isFinished(move));
  return running && `it is being moved to node ${running.spec.targetNode} already`;
}

function refusalOf(
  objects: MoveObjects,
  state: DrainState,
  assumed: readonly LvmVolume[],
  options: PreviewOptions,
): string | undefined {
  const { driver, classes } = state;
  const refusal = objectsRefusal(objects, driver);
  if (refusal !== undefined) return refusal; // there may be no claim
  const { sourceNode, targetNode } = objects.self.spec;
  const storageClass = classes.get(classNameOf(objects.claim!));
  const volumes = [...state.volumes, ...assumed];
  const about = { driver, sourceNode, targetNode, volumes, storageClass };
  return surroundingsRefusal(objects, surroundingsOf(state, about, options));
}
