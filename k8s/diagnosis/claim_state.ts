/**
 * Everything that has a part in a claim, as it is read to explain it.
 *
 * @module
 */

import type { ApiClient } from "../client/client.ts";
import { agentLeaseSelector } from "../api/agent_leases.ts";
import { CLAIM_ANNOTATION, type LvmNode, lvmNodes, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import {
  csiStorageCapacities,
  type CsiStorageCapacity,
  type Event,
  events,
  type Lease,
  leases,
  type Node,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type StorageClass,
  storageClasses,
} from "../api/objects.ts";
import { classNameOf, selectedNodeOf } from "../provisioner/claim.ts";
import { formatBytes } from "../../lvm/size.ts";
import { quantityToBytes } from "../api/quantity.ts";
import { maximumVolumeSizeOf } from "../scheduling/capacity_object.ts";
import { type Sidecar, sidecarLeaseName } from "../runtime/leader.ts";
import { LenientReader } from "./cluster_state.ts";

/** The number of pods whose events are read: the pods of a claim have the same cause. */
const MAX_PODS = 5;

/** The namespace of events about objects without one. */
const CLUSTER_NAMESPACE = "default";

/** What is known of a claim. */
export interface ClaimState {
  /** The driver. */
  readonly driver: string;
  /** The time at which it was read. */
  readonly now: Date;
  /** Its name as `namespace/name`. */
  readonly key: string;
  /** The claim; absent when it is gone. */
  readonly claim?: PersistentVolumeClaim | undefined;
  /** Its class, where it exists. */
  readonly storageClass?: StorageClass | undefined;
  /** The events about the claim. */
  readonly claimEvents: readonly Event[];
  /** The pods that use the claim. */
  readonly pods: readonly Pod[];
  /** The events about these pods. */
  readonly podEvents: readonly Event[];
  /** Its PersistentVolume. */
  readonly persistentVolume?: PersistentVolume | undefined;
  /** Its LVMVolume. */
  readonly volume?: LvmVolume | undefined;
  /** The events about the PersistentVolume and the LVMVolume. */
  readonly volumeEvents: readonly Event[];
  /** The node of the volume, or the one that the scheduler selected. */
  readonly nodeName?: string | undefined;
  /** Its Node. */
  readonly node?: Node | undefined;
  /** Its LVMNode. */
  readonly lvmNode?: LvmNode | undefined;
  /** The Leases of agents. */
  readonly agentLeases: readonly Lease[];
  /** What the scheduler reads of the class, for each node. */
  readonly capacities: readonly CsiStorageCapacity[];
  /** The Lease of the provisioner. */
  readonly provisionerLease?: Lease | undefined;
  /** The Lease of the resizer. */
  readonly resizerLease?: Lease | undefined;
  /** Kinds that could not be read, with the cause. */
  readonly unread: readonly string[];
}

/** A reader of objects that belong to one that is explained. */
export class EvidenceReader extends LenientReader {
  /** Reads the events about an object. */
  eventsAbout(kind: string, name: string, namespace: string = CLUSTER_NAMESPACE): Promise<Event[]> {
    return this.list(events, {
      namespace,
      fieldSelector: `involvedObject.kind=${kind},involvedObject.name=${name}`,
    });
  }

  /** Reads the Lease under which a group of controllers works, in whichever namespace. */
  async leaseOf(sidecar: Sidecar, driver: string): Promise<Lease | undefined> {
    const found = await this.list(leases, { fieldSelector: `metadata.name=${sidecarLeaseName(sidecar, driver)}` });
    const renewed = ({ spec }: Lease) => Date.parse(spec?.renewTime ?? "") || 0;
    return found.sort((a, b) => renewed(b) - renewed(a))[0];
  }
}

/** Reads everything that has a part in a claim. @throws {ApiError} */
export async function readClaimState(
  client: ApiClient,
  { driver, namespace, name, now }: { driver: string; namespace: string; name: string; now: Date },
): Promise<ClaimState> {
  const reader = new EvidenceReader(client);
  const key = `${namespace}/${name}`;
  const claim = await reader.get(persistentVolumeClaims, { namespace, name });
  const className = claim && classNameOf(claim);
  const [allPods, claimEvents, allVolumes, allPersistentVolumes, storageClass, capacities, agentLeases, ...held] =
    await Promise.all([
      reader.list(pods, { namespace }),
      reader.eventsAbout("PersistentVolumeClaim", name, namespace),
      reader.list(lvmVolumes),
      reader.list(persistentVolumes),
      className ? reader.get(storageClasses, { name: className }) : undefined,
      reader.list(csiStorageCapacities),
      reader.list(leases, { labelSelector: agentLeaseSelector(driver) }),
      reader.leaseOf("csi-provisioner", driver),
      reader.leaseOf("csi-resizer", driver),
    ]);
  const ofClaim = allPods.filter((pod) => claimNamesOf(pod).includes(name));
  const persistentVolume = findPersistentVolume(allPersistentVolumes, claim, { namespace, name, driver });
  const volume = findVolume(allVolumes, persistentVolume, { key, driver });
  const nodeName = volume?.spec.nodeName ?? (claim && selectedNodeOf(claim));
  const [podEvents, persistentVolumeEvents, lvmVolumeEvents, node, lvmNode] = await Promise.all([
    Promise.all(ofClaim.slice(0, MAX_PODS).map(({ metadata }) => reader.eventsAbout("Pod", metadata.name, namespace))),
    persistentVolume ? reader.eventsAbout("PersistentVolume", persistentVolume.metadata.name) : [],
    volume ? reader.eventsAbout("LVMVolume", volume.metadata.name) : [],
    nodeName === undefined ? undefined : reader.get(nodes, { name: nodeName }),
    nodeName === undefined ? undefined : reader.get(lvmNodes, { name: nodeName }),
  ]);
  const [provisionerLease, resizerLease] = held;
  return {
    ...{ driver, now, key, claim, storageClass, claimEvents, pods: ofClaim, podEvents: podEvents.flat() },
    ...{ persistentVolume, volume, volumeEvents: [...persistentVolumeEvents, ...lvmVolumeEvents] },
    ...{ nodeName, node, lvmNode, agentLeases, provisionerLease, resizerLease },
    capacities: capacities.filter(({ storageClassName }) => storageClassName === className),
    unread: [...new Set(reader.unread)].sort(),
  };
}

/** Returns the names of the claims that a pod uses; those of its ephemeral volumes, too. */
export function claimNamesOf({ metadata, spec }: Pod): string[] {
  return (spec?.volumes ?? []).flatMap(({ name, persistentVolumeClaim, ephemeral }) =>
    persistentVolumeClaim?.claimName ?? (ephemeral ? `${metadata.name}-${name}` : [])
  );
}

function findPersistentVolume(
  all: readonly PersistentVolume[],
  claim: PersistentVolumeClaim | undefined,
  { namespace, name, driver }: { namespace: string; name: string; driver: string },
): PersistentVolume | undefined {
  const bound = claim?.spec?.volumeName;
  if (bound) return all.find(({ metadata }) => metadata.name === bound);
  return all.find(({ spec }) =>
    spec?.csi?.driver === driver && spec.claimRef?.namespace === namespace && spec.claimRef.name === name &&
    (claim === undefined || spec.claimRef.uid === claim.metadata.uid)
  );
}

function findVolume(
  all: readonly LvmVolume[],
  persistentVolume: PersistentVolume | undefined,
  { key, driver }: { key: string; driver: string },
): LvmVolume | undefined {
  const own = all.filter(({ spec }) => spec.driverName === driver);
  const handle = persistentVolume?.spec?.csi?.volumeHandle;
  if (handle !== undefined) return own.find(({ metadata }) => metadata.name === handle);
  return own.find(({ metadata }) => metadata.annotations?.[CLAIM_ANNOTATION] === key);
}

/** Returns the size that a claim requests, in bytes. */
export function requestedBytes({ spec }: PersistentVolumeClaim): bigint {
  return quantityToBytes(spec?.resources?.requests?.["storage"]) ?? 0n;
}

/** Returns what the scheduler reads, as `NODE SIZE`, the largest first. */
export function capacityTexts({ capacities }: Pick<ClaimState, "capacities">): string[] {
  return capacities.map((capacity) => ({
    node: Object.values(capacity.nodeTopology?.matchLabels ?? {})[0] ?? "?",
    bytes: maximumVolumeSizeOf(capacity),
  })).sort((a, b) => a.bytes < b.bytes ? 1 : a.bytes > b.bytes ? -1 : a.node < b.node ? -1 : 1)
    .map(({ node, bytes }) => `${node} ${formatBytes(bytes)}`);
}
