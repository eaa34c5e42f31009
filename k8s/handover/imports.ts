/**
 * LVMImports: volumes of other drivers that are to become volumes of this one, as deploy/chart/templates/crds declares them; with what an import is
 * about, its steps, and the other drivers.
 *
 * The name of an LVMImport is that of the LVMVolume which the volume becomes.
 *
 * @module
 */

import { LVM_API_VERSION, LVM_GROUP, type LvmVolume } from "../api/lvm_objects.ts";
import { clusterScoped, type KubeObject, namespaced, type Resource, type StorageClass } from "../api/objects.ts";
import type { CommonStep, HandoverObjects, HandoverSpec, HandoverStatus } from "./handover.ts";

/** The finalizer that keeps an LVMImport until it is complete, or undone. */
export const IMPORT_FINALIZER = `${LVM_GROUP}/import`;

/** The annotation of a StorageClass that was re-created under its name: the class that it replaces, as JSON. */
export const REPLACED_CLASS_ANNOTATION = `${LVM_GROUP}/replaced-class`;

/** The annotation of a PersistentVolume of the driver that an import retains: its policy is to be what it was before. */
export const RETAINED_ANNOTATION = `${LVM_GROUP}/retained-by-import`;

/** Whose a volume was: of a driver, or of nobody (a PersistentVolume of the type `local`). */
export type Origin = "OpenEBS" | "TopoLVM" | "Local";

/** The desired state of an import. */
export interface LvmImportSpec extends HandoverSpec {
  /** Whose the volume is. */
  from: Origin;
  /** The LV. */
  logicalVolume: { volumeGroupUUID: string; name: string };
  /** The spec of the LVMVolume, without what the agent is to do. */
  volume: LvmVolume["spec"];
  /** The class that is re-created under its name; absent if it stays as it is. */
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
export interface LvmImportStatus extends HandoverStatus {
  state?: ImportState;
  /** The class as it was, recorded before it is re-created; absent if it stays. */
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

/** The objects that an import is about, as the API server has them. */
export interface ImportObjects extends HandoverObjects<LvmImport> {
  /** The class of the name, of either driver. */
  readonly storageClass: StorageClass | undefined;
  /** The object of the other driver. */
  readonly object: KubeObject | undefined;
  /** The names of the snapshots without which the LV cannot be returned. */
  readonly snapshots: readonly string[];
  /** Whether another import needs the class as it was re-created. */
  readonly isClassShared: boolean;
  /** All imports: those of the API server as long as this one has changed nothing of others. */
  readonly others: readonly LvmImport[];
}

/** A step of an import alone. */
export type OwnImportStep =
  | {
    readonly do:
      | "create volume"
      | "set layout"
      | "record"
      | "delete class"
      | "create class"
      | "restore class"
      | "import"
      | "create persistent volume"
      | "begin use"
      | "begin finishing"
      | "remove object"
      | "inspect return"
      | "return"
      | "recreate persistent volume"
      | "forget volume";
  }
  /** The end. */
  | { readonly do: "finish"; readonly state: Extract<ImportState, "Complete" | "Failed"> };

/** A step of an import. */
export type ImportStep = OwnImportStep | CommonStep;

/** LVMImports. */
export const lvmImports: Resource<LvmImport> = clusterScoped(LVM_API_VERSION, "LVMImport");

/** An LVMVolume of OpenEBS LVM LocalPV, as far as it is read. */
export interface OpenEbsVolume extends KubeObject {
  spec?: {
    ownerNodeID?: string;
    volGroup?: string;
    shared?: string;
    thinProvision?: string;
  };
  status?: { state?: string };
}

/** A LogicalVolume of TopoLVM, as far as it is read. */
export interface TopoLvmVolume extends KubeObject {
  spec?: { name?: string; nodeName?: string; deviceClass?: string };
  status?: { volumeID?: string };
}

/** LVMVolumes of OpenEBS LVM LocalPV. */
export const openEbsVolumes: Resource<OpenEbsVolume> = namespaced("local.openebs.io/v1alpha1", "LVMVolume");

/** LogicalVolumes of TopoLVM. */
export const topoLvmVolumes: Resource<TopoLvmVolume> = clusterScoped("topolvm.io/v1", "LogicalVolume");

/** A driver whose volumes can be imported. */
export interface OriginDescription {
  /** What it is called. */
  readonly title: string;
  /** Its name as a CSI driver; absent where the volumes are of no driver. */
  readonly driver?: string;
  /** The objects by which it knows its volumes; absent if it has none. */
  readonly objects?: Resource;
  /** The topology keys by which it says on which node a volume is. */
  readonly topologyKeys: readonly string[];
}

/** The drivers, and PersistentVolumes of the type `local`, which have none. */
export const ORIGINS = {
  OpenEBS: {
    title: "OpenEBS LVM LocalPV",
    driver: "local.csi.openebs.io",
    objects: openEbsVolumes,
    topologyKeys: ["openebs.io/nodename", "kubernetes.io/hostname"],
  },
  TopoLVM: {
    title: "TopoLVM",
    driver: "topolvm.io",
    objects: topoLvmVolumes,
    topologyKeys: ["topology.topolvm.io/node"],
  },
  Local: { title: "a local volume", topologyKeys: ["kubernetes.io/hostname"] },
} as const satisfies Readonly<Record<Origin, OriginDescription>>;

/** Returns the objects by which a driver knows its volumes; `undefined` if it has none. */
export function objectsOf(origin: Origin): Resource | undefined {
  return (ORIGINS[origin] as OriginDescription).objects;
}
