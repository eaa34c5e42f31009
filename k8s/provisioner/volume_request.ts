/**
 * The request for a claim's volume.
 *
 * @module
 */

import { classNameOf, volumeNameOf } from "./claim.ts";
import { ClaimError, type ClassParameters } from "../sidecars/class_parameters.ts";
import { accessModeOf } from "../sidecars/access_mode.ts";
import type { CreateVolumeRequest, TopologyRequirement, VolumeCapability } from "../sidecars/csi_client.ts";
import type { PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { quantityToBytes } from "../api/quantity.ts";

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

/** Requires that a volume can be created for a claim. @returns its class @throws {ClaimError} when none can */
export function requireProvisionable(
  claim: PersistentVolumeClaim,
  storageClass: StorageClass | undefined,
): StorageClass {
  if (storageClass === undefined) {
    throw new ClaimError(`storageClassName ${JSON.stringify(classNameOf(claim))}: there is no such class`);
  }
  if (claim.spec?.selector !== undefined) {
    throw new ClaimError("selector: not supported for volumes that are to be made");
  }
  return storageClass;
}

function capabilitiesOf({ spec }: PersistentVolumeClaim, fsType: string, flags: readonly string[]): VolumeCapability[] {
  const modes = spec?.accessModes ?? [];
  if (modes.length === 0) throw new ClaimError("accessModes: missing");
  const access = spec?.volumeMode === "Block" ? { kind: "block" } as const : { kind: "mount", fsType, flags } as const;
  return modes.map((mode) => ({ mode: accessModeOf([mode]), access }));
}
