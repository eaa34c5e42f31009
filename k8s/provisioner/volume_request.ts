/**
 * The request for a claim's volume.
 *
 * @module
 */

import { classNameOf, selectedNodeOf, volumeNameOf } from "./claim.ts";
import { requireNodeOfSource, topologyOfAllNodes, topologyOfNode } from "../sidecars/claim_topology.ts";
import { ClaimError, type ClassParameters } from "../sidecars/class_parameters.ts";
import {
  accessModeOf,
  type CreateVolumeRequest,
  type TopologyRequirement,
  type VolumeCapability,
  type VolumeContentSource,
} from "../sidecars/csi_client.ts";
import type { AwaitedSpace } from "../runtime/wake_ups.ts";
import type { ApiClient } from "../client/client.ts";
import { type PersistentVolumeClaim, type StorageClass, volumeAttributesClasses } from "../api/objects.ts";
import { quantityToBytes } from "../api/quantity.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";

/** Options of {@linkcode createVolumeRequestFor}. */
export interface VolumeRequestOptions {
  /** The class's parameters, parsed. */
  readonly classParameters: ClassParameters;
  /** The topologies where the volume may be. */
  readonly topology: TopologyRequirement;
  /** The parameters of the VolumeAttributesClass. */
  readonly mutableParameters: Readonly<Record<string, string>>;
  /** The values of the provisioner's secret. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** Creates the request for a claim's volume. @throws {ClaimError} for a claim that cannot be served as it is */
export function createVolumeRequestFor(
  claim: PersistentVolumeClaim,
  storageClass: StorageClass,
  { classParameters, topology, mutableParameters, secrets }: VolumeRequestOptions,
): CreateVolumeRequest {
  const { namespace = "", name, uid = "" } = claim.metadata;
  const requiredBytes = quantityToBytes(claim.spec?.resources?.requests?.["storage"]);
  if (requiredBytes === undefined) throw new ClaimError("resources.requests.storage: missing, or no quantity");
  return {
    name: volumeNameOf(uid),
    claim: { namespace, name, uid },
    parameters: classParameters.parameters,
    mutableParameters,
    requiredBytes,
    capabilities: capabilitiesOf(claim, classParameters.fsType, storageClass.mountOptions ?? []),
    topology,
    secrets,
  };
}

/**
 * Returns the topologies where the volume of a claim may be.
 *
 * @throws {WrongNodeError} when the selected node is not that of the source
 * @throws {ClaimError} when the claim allows no node
 */
export function topologyFor(
  claim: PersistentVolumeClaim,
  { allowedTopologies }: StorageClass,
  source: VolumeContentSource | undefined,
  { driverName, topologyKey, nodes, csiNodes, nodeOfSource }: ProvisionerOptions,
): TopologyRequirement {
  const cluster = { driverName, topologyKey, nodes, csiNodes };
  const node = selectedNodeOf(claim);
  if (node !== undefined && source !== undefined) {
    requireNodeOfSource(node, nodeOfSource(source), allowedTopologies, cluster);
  }
  return node === undefined
    ? topologyOfAllNodes(allowedTopologies, cluster, claim.metadata.name)
    : topologyOfNode(node, allowedTopologies, cluster);
}

/** Requires that a volume can be created for a claim. @returns its class @throws {ClaimError} when none can */
export function requireProvisionable(
  claim: PersistentVolumeClaim,
  storageClass: StorageClass | undefined,
): StorageClass {
  if (storageClass === undefined) {
    const name = JSON.stringify(classNameOf(claim));
    throw new ClaimError(`storageClassName ${name}: there is no such class`, "NoSuchClass");
  }
  if (claim.spec?.selector !== undefined) {
    throw new ClaimError("selector: not supported for volumes that are to be made");
  }
  return storageClass;
}

/**
 * Reads the parameters of the VolumeAttributesClass of a claim; none when it names no class.
 *
 * @throws {ApiError} `NotFound`
 * @throws {ClaimError} for a class of another driver
 */
export async function mutableParametersOf(
  { spec }: PersistentVolumeClaim,
  { client, driverName, signal }: {
    readonly client: ApiClient;
    readonly driverName: string;
    readonly signal: AbortSignal;
  },
): Promise<Record<string, string>> {
  const name = spec?.volumeAttributesClassName;
  if (!name) return {};
  const attributesClass = await client.get(volumeAttributesClasses, { name }, { signal });
  if (attributesClass.driverName === driverName) return attributesClass.parameters ?? {};
  const message = `volumeAttributesClassName ${JSON.stringify(name)}: it is for ${attributesClass.driverName}`;
  throw new ClaimError(message, "WrongAttributesClass");
}

/** Returns the space that a request waits for: a copy is made on the node of its source. */
export function awaitedSpace(
  { source, topology, requiredBytes: bytes }: CreateVolumeRequest,
  { allowedTopologies = [] }: StorageClass,
  { nodeOfSource, topologyKey }: Pick<ProvisionerOptions, "nodeOfSource" | "topologyKey">,
): AwaitedSpace {
  const sourceNode = source && nodeOfSource(source);
  if (sourceNode !== undefined) return { nodeNames: [sourceNode], bytes };
  if (allowedTopologies.length === 0) return { bytes };
  return { nodeNames: topology.requisite.flatMap((segments) => segments[topologyKey] ?? []), bytes };
}

function capabilitiesOf({ spec }: PersistentVolumeClaim, fsType: string, flags: readonly string[]): VolumeCapability[] {
  const modes = spec?.accessModes ?? [];
  if (modes.length === 0) throw new ClaimError("accessModes: missing");
  const access = spec?.volumeMode === "Block" ? { kind: "block" } as const : { kind: "mount", fsType, flags } as const;
  return modes.map((mode) => ({ mode: accessModeOf([mode]), access }));
}
