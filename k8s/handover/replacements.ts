/**
 * The PersistentVolume and the class of an imported volume, which replace those of the other driver under their names.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import type { NewObject } from "../client/client.ts";
import { CLAIM_ANNOTATION, LVM_VOLUME_FINALIZER, type LvmVolume } from "../api/lvm_objects.ts";
import type { PersistentVolume, StorageClass } from "../api/objects.ts";
import { affinityTo, volumeFrom } from "./persistent_volume.ts";
import { PROVISIONED_BY_ANNOTATION } from "../provisioner/persistent_volume.ts";
import { type LvmImport, type RecordedClass, REPLACED_CLASS_ANNOTATION, RETAINED_ANNOTATION } from "./imports.ts";

/** What kubectl keeps of a class; it would refuse to apply it to one of another provisioner. */
const LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration";

/** The annotations of a PersistentVolume that are about its driver. */
const DRIVER_ANNOTATIONS = [
  PROVISIONED_BY_ANNOTATION,
  "pv.kubernetes.io/migrated-to",
  "volume.kubernetes.io/provisioner-deletion-secret-name",
  "volume.kubernetes.io/provisioner-deletion-secret-namespace",
];

/** Returns the LVMVolume of an import, whose agent is to inspect the LV. */
export function volumeOf({ metadata: { name }, spec }: LvmImport): NewObject<LvmVolume> {
  const { claim, logicalVolume, volume } = spec;
  return {
    metadata: {
      name,
      finalizers: [LVM_VOLUME_FINALIZER],
      annotations: { [CLAIM_ANNOTATION]: `${claim.namespace}/${claim.name}` },
    },
    spec: {
      ...volume,
      imports: { volumeGroupUUID: logicalVolume.volumeGroupUUID, lvName: logicalVolume.name, action: "Inspect" },
    },
  };
}

/** Returns the PersistentVolume for the driver, bound to the same claim. Nobody deletes its volume: its policy is Retain. */
export function driverVolumeOf(self: LvmImport, topologyKey: string): NewObject<PersistentVolume> {
  const { metadata, spec: { driverName, volume: { fsType, nodeName } }, status } = self;
  const { metadata: { annotations = {}, ...recorded }, spec } = status!.persistentVolume!;
  const { local: _, ...rest } = spec;
  const kept = Object.entries(annotations).filter(([name]) => !DRIVER_ANNOTATIONS.includes(name));
  return volumeFrom(self, { metadata: { ...recorded, annotations: Object.fromEntries(kept) }, spec: rest }, {
    annotations: { [PROVISIONED_BY_ANNOTATION]: driverName, [RETAINED_ANNOTATION]: "true" },
    spec: {
      csi: { driver: driverName, volumeHandle: metadata.name, ...defined({ fsType }) },
      nodeAffinity: affinityTo(nodeName, topologyKey),
    },
  });
}

/**
 * Returns what is recorded of a class, which may have been re-created for another claim already; `undefined` when it is one of
 * the driver that replaces none.
 */
export function recordOfClass(storageClass: StorageClass, driverName: string): RecordedClass | undefined {
  const { apiVersion: _, kind: _kind, metadata: { labels, annotations }, ...rest } = storageClass;
  if (rest.provisioner !== driverName) return { ...rest, metadata: defined({ labels, annotations }) };
  const replaced = annotations?.[REPLACED_CLASS_ANNOTATION];
  return replaced === undefined ? undefined : JSON.parse(replaced) as RecordedClass;
}

/** Returns the class for the driver. It carries what it replaces. */
export function driverClassOf({ spec, status }: LvmImport): NewObject<StorageClass> {
  const { name, parameters, allowedTopologies } = spec.storageClass!;
  const recorded = status!.storageClass!;
  const { metadata: { labels, annotations = {} }, allowedTopologies: _, ...rest } = recorded;
  const kept = Object.entries(annotations).filter(([annotation]) => annotation !== LAST_APPLIED_ANNOTATION);
  return {
    ...rest,
    ...defined({ allowedTopologies }),
    provisioner: spec.driverName,
    parameters,
    metadata: {
      name,
      ...defined({ labels }),
      annotations: { ...Object.fromEntries(kept), [REPLACED_CLASS_ANNOTATION]: JSON.stringify(recorded) },
    },
  };
}

/** Returns the class as it was. */
export function earlierClassOf({ spec, status }: LvmImport): NewObject<StorageClass> {
  const { metadata, ...rest } = status!.storageClass!;
  return { ...rest, metadata: { name: spec.storageClass!.name, ...metadata } };
}
