/**
 * Everything that has a part in a claim, as it is read to explain it.
 *
 * @module
 */

import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import { agentLeaseName, agentLeaseSelector } from "../../k8s/api/agent_leases.ts";
import { CLAIM_ANNOTATION, type LvmNode, lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  csiStorageCapacities,
  type CsiStorageCapacity,
  type Event,
  events,
  type KubeObject,
  type Lease,
  leases,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmImport, lvmImports } from "../../k8s/handover/imports.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { claimNamesOf } from "../../k8s/api/pods.ts";
import { classNameOf, selectedNodeOf } from "../../k8s/provisioner/claim.ts";
import { formatBytes } from "../../base/size.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { maximumVolumeSizeOf } from "../../k8s/scheduling/capacity_object.ts";
import { type Sidecar, sidecarLeaseName } from "../../k8s/runtime/leader.ts";
import { LenientReader } from "./cluster_state.ts";
import { isLive, type NodeEvidence } from "./evidence.ts";
import { agentStateOf } from "./nodes.ts";
import { isUnread } from "../problem.ts";

/** The number of pods that are looked at: the pods of a claim have the same cause. */
export const MAX_PODS = 5;

/** The namespace of events about objects without one. */
const CLUSTER_NAMESPACE = "default";

/** What is known of a claim. */
export interface ClaimState extends NodeEvidence {
  /** The driver. */
  readonly driver: string;
  /** Its name as `namespace/name`. */
  readonly key: string;
  /** The claim; absent when it is gone. */
  readonly claim?: PersistentVolumeClaim | undefined;
  /** Its class, where it exists. */
  readonly storageClass?: StorageClass | undefined;
  /** The events about the claim. */
  readonly claimEvents: readonly Event[];
  /** The pods that use the claim; those that wait come first, and those that have ended last. */
  readonly pods: readonly Pod[];
  /** The events about these pods. */
  readonly podEvents: readonly Event[];
  /** Its PersistentVolume. */
  readonly persistentVolume?: PersistentVolume | undefined;
  /** Its LVMVolume. */
  readonly volume?: LvmVolume | undefined;
  /** The last move of its volume to another node, also one that is over. */
  readonly move?: LvmMove | undefined;
  /** The nodes of its move that is not finished whose agents are away. */
  readonly absentAgents: readonly string[];
  /** The other claims of pods that have no node, and the nodes of their volumes. */
  readonly otherClaims: readonly { readonly pod: string; readonly claim: string; readonly nodeName: string }[];
  /** The import of its volume that is not finished. */
  readonly import?: LvmImport | undefined;
  /** The events about the PersistentVolume and the LVMVolume. */
  readonly volumeEvents: readonly Event[];
  /** The node of the volume, or the one that the scheduler selected. */
  readonly nodeName?: string | undefined;
  /** What the scheduler reads of the class, for each node. */
  readonly capacities: readonly CsiStorageCapacity[];
  /** The LVMNodes of the driver, while the claim waits for its volume. */
  readonly lvmNodes: readonly LvmNode[];
  /** The Lease of the provisioner. */
  readonly provisionerLease?: Lease | undefined;
  /** The Lease of the resizer. */
  readonly resizerLease?: Lease | undefined;
}

/** A reader of objects that belong to one that is explained. */
export class EvidenceReader extends LenientReader {
  /** Reads the events about an object, without those about an earlier one of the same name, which live for an hour. */
  async eventsAbout(kind: string, object: KubeObject | undefined): Promise<Event[]> {
    if (object === undefined) return [];
    const { name, namespace = CLUSTER_NAMESPACE, uid } = object.metadata;
    const fieldSelector = `involvedObject.kind=${kind},involvedObject.name=${name}`;
    const found = await this.list(events, { namespace, fieldSelector });
    return found.filter(({ involvedObject }) => !involvedObject?.uid || involvedObject.uid === uid);
  }

  /** Reads the Lease of a node's agent, in whichever namespace. */
  async #agentLeasesOf(nodeName: string, driver: string): Promise<Lease[]> {
    const fieldSelector = `metadata.name=${agentLeaseName(nodeName)}`;
    return await this.list(leases, { labelSelector: agentLeaseSelector(driver), fieldSelector });
  }

  /** Reads what is known of a node and of its agent; nothing while no node was chosen. */
  async nodeEvidence(
    nodeName: string | undefined,
    driver: string,
  ): Promise<Pick<NodeEvidence, "nodeName" | "node" | "lvmNode" | "agentLeases">> {
    if (nodeName === undefined) return { nodeName, agentLeases: [] };
    const [node, lvmNode, agentLeases] = await Promise.all([
      this.get(nodes, { name: nodeName }),
      this.get(lvmNodes, { name: nodeName }),
      this.#agentLeasesOf(nodeName, driver),
    ]);
    return { nodeName, node, lvmNode, agentLeases };
  }

  /** Reads the Lease under which a group of controllers works, in whichever namespace. */
  async leaseOf(sidecar: Sidecar, driver: string): Promise<Lease | undefined> {
    const found = await this.list(leases, { fieldSelector: `metadata.name=${sidecarLeaseName(sidecar, driver)}` });
    const renewed = ({ spec }: Lease) => Date.parse(spec?.renewTime ?? "") || 0;
    return found.sort((a, b) => renewed(b) - renewed(a))[0];
  }
}

/**
 * Reads everything that has a part in a claim. A volume that is known is got by its name: a cluster may have very many.
 *
 * @throws {ApiError}
 */
export async function readClaimState(
  client: ApiClient,
  { driver, namespace, name, now }: { driver: string; namespace: string; name: string; now: Date },
): Promise<ClaimState> {
  const reader = new EvidenceReader(client);
  const key = `${namespace}/${name}`;
  const claim = await orAbsent(client.get(persistentVolumeClaims, { namespace, name })); // what it is all about
  const className = claim && classNameOf(claim);
  const isWaiting = claim !== undefined && claim.status?.phase !== "Bound" && claim.status?.phase !== "Lost";
  const [
    allPods,
    claimEvents,
    persistentVolume,
    storageClass,
    capacities,
    allNodes,
    moves,
    imports,
    provisionerLease,
    resizerLease,
  ] = await Promise.all([
    reader.list(pods, { namespace }),
    reader.eventsAbout("PersistentVolumeClaim", claim),
    findPersistentVolume(reader, claim, { namespace, name, driver }),
    className ? reader.get(storageClasses, { name: className }) : undefined,
    isWaiting ? reader.list(csiStorageCapacities) : [],
    isWaiting ? reader.list(lvmNodes) : [],
    reader.list(lvmMoves),
    reader.list(lvmImports),
    reader.leaseOf("csi-provisioner", driver),
    reader.leaseOf("csi-resizer", driver),
  ]);
  const volume = await findVolume(reader, persistentVolume, claim, { key, driver });
  const ofClaim = allPods.filter((pod) => claimNamesOf(pod).includes(name)).sort((a, b) => rankOf(a) - rankOf(b));
  const nodeName = volume?.spec.nodeName ?? (claim && selectedNameOf(claim));
  const move = moves.find(({ spec }) => isOfClaim(spec, { key, driver, claim }));
  const [podEvents, persistentVolumeEvents, lvmVolumeEvents, nodeEvidence, absentAgents, otherClaims] = await Promise
    .all([
      Promise.all(ofClaim.slice(0, MAX_PODS).map((pod) => reader.eventsAbout("Pod", pod))),
      reader.eventsAbout("PersistentVolume", persistentVolume),
      reader.eventsAbout("LVMVolume", volume),
      reader.nodeEvidence(nodeName, driver),
      findAbsentAgents(reader, move, { driver, now }),
      Promise.all(
        ofClaim.filter(isUnscheduled).slice(0, MAX_PODS).map((pod) => findOtherClaims(reader, pod, { name, driver })),
      ),
    ]);
  return {
    ...{ driver, now, key, claim, storageClass, claimEvents, pods: ofClaim, podEvents: podEvents.flat() },
    ...{ move, absentAgents, otherClaims: otherClaims.flat() },
    import: imports.find((one) => !isFinished(one) && isOfClaim(one.spec, { key, driver, claim })),
    ...{ persistentVolume, volume, volumeEvents: [...persistentVolumeEvents, ...lvmVolumeEvents] },
    ...{ ...nodeEvidence, provisionerLease, resizerLease },
    capacities: capacities.filter(({ storageClassName }) => storageClassName === className),
    lvmNodes: allNodes.filter(({ spec }) => spec.driverName === driver),
    unread: reader.unreadKinds(),
  };
}

/** Returns the nodes of a move that is not finished whose agents are away. */
async function findAbsentAgents(
  reader: EvidenceReader,
  move: LvmMove | undefined,
  { driver, now }: { readonly driver: string; readonly now: Date },
): Promise<string[]> {
  if (move === undefined || isFinished(move)) return [];
  const { sourceNode, targetNode, adopt } = move.spec;
  const names = adopt ? [targetNode] : [sourceNode, targetNode];
  const evidence = await Promise.all(names.map((name) => reader.nodeEvidence(name, driver)));
  const { unread } = reader;
  return evidence.filter(({ lvmNode, agentLeases }) =>
    lvmNode === undefined
      ? !isUnread({ unread }, lvmNodes.plural)
      : agentStateOf(lvmNode, { agentLeases, now, unread }) === "Silent"
  ).map(({ nodeName }) => nodeName!);
}

/** Reports whether a pod waits for a node. */
export function isUnscheduled({ spec, status }: Pod): boolean {
  return status?.phase === "Pending" && !spec?.nodeName;
}

/** Returns the other claims of a pod whose volumes are the driver's, with their nodes. */
async function findOtherClaims(
  reader: EvidenceReader,
  pod: Pod,
  { name, driver }: { readonly name: string; readonly driver: string },
): Promise<ClaimState["otherClaims"]> {
  const { namespace } = pod.metadata;
  const others = claimNamesOf(pod).filter((other) => other !== name);
  const found = await Promise.all(others.map(async (claim) => {
    const bound = (await reader.get(persistentVolumeClaims, { namespace, name: claim }))?.spec?.volumeName;
    const csi = bound ? (await reader.get(persistentVolumes, { name: bound }))?.spec?.csi : undefined;
    if (csi?.driver !== driver) return [];
    const nodeName = (await reader.get(lvmVolumes, { name: csi.volumeHandle }))?.spec.nodeName;
    return nodeName === undefined ? [] : [{ pod: pod.metadata.name, claim, nodeName }];
  }));
  return found.flat();
}

/** Reports whether a move or an import is of a claim. A claim that is gone has no uid to compare. */
function isOfClaim(
  { driverName, claim: { namespace, name, uid } }: LvmMove["spec"] | LvmImport["spec"],
  { key, driver, claim }: Pick<ClaimState, "key" | "driver" | "claim">,
): boolean {
  return driverName === driver && `${namespace}/${name}` === key && (claim === undefined || claim.metadata.uid === uid);
}

/** The name of a Node (Kubernetes docs, DNS subdomain names). */
const NODE_NAME = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/;

/** Returns the node that the scheduler chose. Whoever may write the claim may write anything else there. */
function selectedNameOf(claim: PersistentVolumeClaim): string | undefined {
  const name = selectedNodeOf(claim);
  return name !== undefined && NODE_NAME.test(name) ? name : undefined;
}

/** Returns the place of a pod: what is wrong with a claim is seen of the pods that wait. */
function rankOf(pod: Pod): number {
  return pod.status?.phase === "Pending" ? 0 : isLive(pod) ? 1 : 2;
}

/** Returns the PersistentVolume that a claim is bound to, or else the last one that was made for it. */
async function findPersistentVolume(
  reader: EvidenceReader,
  claim: PersistentVolumeClaim | undefined,
  { namespace, name, driver }: { namespace: string; name: string; driver: string },
): Promise<PersistentVolume | undefined> {
  const bound = claim?.spec?.volumeName;
  if (bound) return await reader.get(persistentVolumes, { name: bound });
  const ofClaim = (await reader.list(persistentVolumes)).filter(({ spec }) =>
    spec?.csi?.driver === driver && spec.claimRef?.namespace === namespace && spec.claimRef.name === name &&
    (claim === undefined || spec.claimRef.uid === claim.metadata.uid)
  );
  return ofClaim.sort((a, b) => createdAt(a) - createdAt(b)).at(-1);
}

/** Returns the time of an object's creation, in milliseconds. The API server has it in seconds. */
function createdAt({ metadata: { creationTimestamp = "" } }: KubeObject): number {
  return Date.parse(creationTimestamp) || 0;
}

/** Returns the LVMVolume of a PersistentVolume, or else the one that was made for a claim. */
async function findVolume(
  reader: EvidenceReader,
  persistentVolume: PersistentVolume | undefined,
  claim: PersistentVolumeClaim | undefined,
  { key, driver }: { key: string; driver: string },
): Promise<LvmVolume | undefined> {
  if (persistentVolume !== undefined) {
    const { csi } = persistentVolume.spec ?? {};
    if (csi?.driver !== driver) return undefined;
    const volume = await reader.get(lvmVolumes, { name: csi.volumeHandle });
    return volume?.spec.driverName === driver ? volume : undefined;
  }
  // one that is older than the claim was made for another claim of the same name, and outlives it
  return (await reader.list(lvmVolumes)).find((volume) =>
    volume.spec.driverName === driver && volume.metadata.annotations?.[CLAIM_ANNOTATION] === key &&
    (claim === undefined || createdAt(volume) >= createdAt(claim))
  );
}

/** Returns the size that a claim requests, in bytes. */
export function requestedBytes({ spec }: PersistentVolumeClaim): bigint {
  return quantityToBytes(spec?.resources?.requests?.["storage"]) ?? 0n;
}

/** The number of nodes whose capacity is shown. */
export const MAX_CAPACITIES = 5;

/** Returns what the scheduler reads, as `NODE SIZE`, the largest first. */
export function capacityTexts({ capacities }: Pick<ClaimState, "capacities">): string[] {
  return capacities.map((capacity) => ({
    node: Object.values(capacity.nodeTopology?.matchLabels ?? {})[0] ?? "?",
    bytes: maximumVolumeSizeOf(capacity),
  })).sort((a, b) => a.bytes < b.bytes ? 1 : a.bytes > b.bytes ? -1 : a.node < b.node ? -1 : 1)
    .map(({ node, bytes }) => `${node} ${formatBytes(bytes)}`);
}
