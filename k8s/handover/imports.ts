/**
 * LVMImports: volumes of other drivers that are to become volumes of this one, as deploy/crds/ declares them.
 *
 * The name of an LVMImport is that of the LVMVolume which the volume becomes.
 *
 * @module
 */

import { LVM_GROUP, type LvmVolume, type StatusError } from "../api/lvm_objects.ts";
import type { KubeObject, Resource, StorageClass } from "../api/objects.ts";
import type { RecordedPersistentVolume } from "./moves.ts";

/** The finalizer that keeps an LVMImport until it is complete, or undone. */
export const IMPORT_FINALIZER = `${LVM_GROUP}/import`;

/** The annotation of a StorageClass that was made anew under its name: the class that it replaces, as JSON. */
export const REPLACED_CLASS_ANNOTATION = `${LVM_GROUP}/replaced-class`;

/** The annotation of a PersistentVolume of the driver that an import retains: its policy is to be what it was before. */
export const RETAINED_ANNOTATION = `${LVM_GROUP}/retained-by-import`;

/** Whose a volume was: of a driver, or of nobody (a PersistentVolume of the type `local`). */
export type Origin = "OpenEBS" | "TopoLVM" | "Local";

/** The desired state of an import. */
export interface LvmImportSpec {
  /** The driver's name. */
  driverName: string;
  /** Whose the volume is. */
  from: Origin;
  /** The name of the PersistentVolume. */
  persistentVolume: string;
  /** The claim that it is bound to. */
  claim: { namespace: string; name: string; uid: string };
  /** The LV. */
  logicalVolume: { volumeGroupUUID: string; name: string };
  /** The spec of the LVMVolume, without what the agent is to do. */
  volume: LvmVolume["spec"];
  /** The class that is made anew under its name; absent if it stays as it is. */
  storageClass?: ImportedClass;
  /** The object by which the other driver knows the volume; absent where it has none. */
  object?: { namespace?: string; name: string; uid: string };
  /** True when what is left of the other driver is to be removed. From then on, the import is not undone. */
  finish?: boolean;
}

/** What a class becomes. Whatever is not here stays as it is. */
export interface ImportedClass {
  /** Its name. */
  name: string;
  /** Its parameters. */
  parameters: Record<string, string>;
  /** Its allowed topologies; absent if it has none. */
  allowedTopologies?: NonNullable<StorageClass["allowedTopologies"]>;
}

/** The states of an import. All before `Finishing` can be undone. */
export type ImportState =
  | "Pending"
  | "Inspecting"
  | "Switching"
  | "Imported"
  | "Finishing"
  | "Complete"
  | "Undoing"
  | "Failed";

/** The actual state of an import. */
export interface LvmImportStatus {
  /** The state. */
  state?: ImportState;
  /** What happens, or what it waits for. */
  message?: string;
  /** Why it failed. */
  error?: StatusError;
  /** The PersistentVolume as it was, recorded before it is changed. */
  persistentVolume?: RecordedPersistentVolume;
  /** The class as it was, recorded before it is made anew; absent if it stays. */
  storageClass?: RecordedClass;
  /** The object of the other driver as it was. */
  object?: Record<string, unknown>;
  /** True from when the claim is bound to the volume of the driver. */
  imported?: boolean;
  /** True from when what is left of the other driver is removed: from then on, the import is not undone any more. */
  finishing?: boolean;
}

/** A StorageClass, as far as it is made again. */
export type RecordedClass = Omit<StorageClass, "apiVersion" | "kind" | "metadata"> & {
  metadata: { labels?: Record<string, string>; annotations?: Record<string, string> };
};

/** An import. */
export interface LvmImport extends KubeObject {
  spec: LvmImportSpec;
  status?: LvmImportStatus;
}

/** LVMImports. */
export const lvmImports: Resource<LvmImport> = {
  ...{ group: LVM_GROUP, version: "v1alpha1", plural: "lvmimports", kind: "LVMImport", namespaced: false },
};

/** Reports whether nothing is left to do for an import. */
export function isFinished({ status }: LvmImport): boolean {
  return status?.state === "Complete" || status?.state === "Failed";
}
