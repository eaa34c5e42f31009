/**
 * PersistentVolumes: what is written into them, and what they ask for.
 *
 * @module
 */

import { formatQuantity } from "../../lvm/size.ts";
import { classNameOf } from "./claim.ts";
import type { ClassParameters } from "../sidecars/class_parameters.ts";
import type { NewObject } from "../client/client.ts";
import type { CreatedVolume, CreateVolumeRequest, Segments } from "../sidecars/csi_client.ts";
import { secretAnnotations } from "../sidecars/volume_secrets.ts";
import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { defined } from "../../lvm/defined.ts";

/** Keeps a PersistentVolume until its volume is removed. The official provisioner has the same. */
export const VOLUME_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer";

/** Says who made a volume. */
export const PROVISIONED_BY_ANNOTATION = "pv.kubernetes.io/provisioned-by";

/** All that decided about a volume. */
export interface ProvisioningInputs {
  /** The claim. */
  readonly claim: PersistentVolumeClaim;
  /** Its class, as it was when the request was made. */
  readonly storageClass: StorageClass;
  /** The parameters of the class, read. */
  readonly classParameters: ClassParameters;
  /** The request. */
  readonly request: CreateVolumeRequest;
}

/** The PersistentVolume of a volume that was made for a claim. */
export function persistentVolumeFor(
  driverName: string,
  inputs: ProvisioningInputs,
  created: CreatedVolume,
): NewObject<PersistentVolume> {
  const { claim, storageClass, classParameters, request } = inputs;
  const { volumeMode, accessModes, volumeAttributesClassName } = claim.spec ?? {};
  const { namespace, name, uid, resourceVersion } = claim.metadata;
  const { mountOptions, reclaimPolicy } = storageClass;
  const bytes = created.capacityBytes > 0n ? created.capacityBytes : request.requiredBytes;
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: {
      name: request.name,
      annotations: { [PROVISIONED_BY_ANNOTATION]: driverName, ...secretAnnotations(classParameters) },
      ...(reclaimPolicy === "Retain" ? {} : { finalizers: [VOLUME_FINALIZER] }),
    },
    spec: {
      ...defined({ accessModes, mountOptions, volumeMode }),
      capacity: { storage: formatQuantity(bytes) },
      persistentVolumeReclaimPolicy: reclaimPolicy ?? "Delete",
      storageClassName: classNameOf(claim),
      ...(volumeAttributesClassName ? { volumeAttributesClassName } : {}),
      claimRef: {
        apiVersion: "v1",
        kind: "PersistentVolumeClaim",
        ...defined({ namespace, name, uid, resourceVersion }),
      },
      csi: csiPersistentVolumeSource(driverName, inputs, created),
      ...(created.topology.length === 0 ? {} : { nodeAffinity: nodeAffinityTo(created.topology) }),
    },
  };
}

function csiPersistentVolumeSource(
  driverName: string,
  { classParameters, request }: ProvisioningInputs,
  { volumeId, volumeContext }: CreatedVolume,
) {
  const access = request.capabilities[0]?.access;
  const { secrets } = classParameters;
  return {
    driver: driverName,
    volumeHandle: volumeId,
    ...(access?.kind === "mount" && access.fsType !== "" ? { fsType: access.fsType } : {}),
    ...(Object.keys(volumeContext).length === 0 ? {} : { volumeAttributes: { ...volumeContext } }),
    ...defined({
      controllerPublishSecretRef: secrets["controller-publish"],
      controllerExpandSecretRef: secrets["controller-expand"],
      nodeStageSecretRef: secrets["node-stage"],
      nodePublishSecretRef: secrets["node-publish"],
      nodeExpandSecretRef: secrets["node-expand"],
    }),
  };
}

function nodeAffinityTo(topology: readonly Segments[]) {
  const nodeSelectorTerms = topology.map((segments) => ({
    matchExpressions: Object.entries(segments).sort(([a], [b]) => a < b ? -1 : 1)
      .map(([key, value]) => ({ key, operator: "In", values: [value] })),
  }));
  return { required: { nodeSelectorTerms } };
}

/** Whether a driver of that name has to see to a PersistentVolume: it made it, or it serves one that was written by hand. */
export function isManagedBy({ metadata, spec }: PersistentVolume, driverName: string): boolean {
  if (spec?.csi?.driver !== driverName) return false;
  return (metadata.annotations?.[PROVISIONED_BY_ANNOTATION] ?? driverName) === driverName;
}

/** What has to be done to a PersistentVolume next. */
export type ReclaimStep = "nothing" | "add finalizer" | "remove finalizer" | "delete volume";

/**
 * What has to be done to a PersistentVolume next. Its volume is removed when its claim is gone, or when it is itself being
 * deleted and is not bound, and the policy is Delete. Without the finalizer a deletion is over: the volume is gone, or was
 * given up.
 */
export function nextReclaimStep({ metadata, spec, status }: PersistentVolume): ReclaimStep {
  const hasFinalizer = metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false;
  const deleting = metadata.deletionTimestamp !== undefined;
  if (spec?.persistentVolumeReclaimPolicy !== "Delete") return hasFinalizer ? "remove finalizer" : "nothing";
  const phase = status?.phase;
  if (phase === "Bound") return hasFinalizer || deleting ? "nothing" : "add finalizer";
  if (deleting) return hasFinalizer ? "delete volume" : "nothing";
  return phase === "Released" ? "delete volume" : "nothing";
}

/** A PersistentVolume's finalizers without ours. */
export function otherFinalizers({ metadata }: PersistentVolume): string[] {
  return (metadata.finalizers ?? []).filter((name) => name !== VOLUME_FINALIZER);
}
