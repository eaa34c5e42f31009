/**
 * PersistentVolumes: what is written into them, and what they ask for.
 *
 * @module
 */

import { formatQuantity } from "../../base/size.ts";
import { classNameOf } from "./claim.ts";
import type { ClassParameters } from "../sidecars/class_parameters.ts";
import type { NewObject } from "../client/client.ts";
import type { CreatedVolume, CreateVolumeRequest, Segments } from "../sidecars/csi_client.ts";
import { secretAnnotations } from "../sidecars/volume_secrets.ts";
import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { defined } from "../../base/defined.ts";

/** The finalizer of a PersistentVolume until its volume is deleted. The official provisioner uses the same. */
export const VOLUME_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer";

/** The annotation with the name of the driver that created a volume. */
export const PROVISIONED_BY_ANNOTATION = "pv.kubernetes.io/provisioned-by";

/** The inputs that decide about a volume. */
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

/** Creates the PersistentVolume of a volume. */
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

/** Reports whether the driver manages a PersistentVolume: it created it, or it serves one that was written by hand. */
export function isManagedBy({ metadata, spec }: PersistentVolume, driverName: string): boolean {
  if (spec?.csi?.driver !== driverName) return false;
  return (metadata.annotations?.[PROVISIONED_BY_ANNOTATION] ?? driverName) === driverName;
}

/** The next step for a PersistentVolume. */
export type ReclaimStep = "nothing" | "add finalizer" | "remove finalizer" | "delete volume";

/**
 * Returns the next step for a PersistentVolume. With the policy Delete, its volume is deleted when its claim was
 * deleted, or when it is itself being deleted and is not bound. Without the finalizer a deletion is complete: the
 * volume was deleted or given up.
 *
 * A released volume is Failed when kube-controller-manager has tried to delete it. It does so when the annotation
 * `pv.kubernetes.io/provisioned-by` is missing, and cannot delete a CSI volume (Kubernetes, pv_controller.go,
 * `reclaimVolume`).
 */
export function nextReclaimStep({ metadata, spec, status }: PersistentVolume): ReclaimStep {
  const hasFinalizer = metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false;
  const deleting = metadata.deletionTimestamp !== undefined;
  if (spec?.persistentVolumeReclaimPolicy !== "Delete") return hasFinalizer ? "remove finalizer" : "nothing";
  const phase = status?.phase;
  if (phase === "Bound") return hasFinalizer || deleting ? "nothing" : "add finalizer";
  if (deleting) return hasFinalizer ? "delete volume" : "nothing";
  return phase === "Released" || phase === "Failed" ? "delete volume" : "nothing";
}

/** Returns the finalizers of a PersistentVolume without our own. */
export function otherFinalizers({ metadata }: PersistentVolume): string[] {
  return (metadata.finalizers ?? []).filter((name) => name !== VOLUME_FINALIZER);
}
