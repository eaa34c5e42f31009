/**
 * The drivers whose volumes can be taken over: their names, and the objects by which they know their volumes.
 *
 * @module
 */

import type { KubeObject, Resource } from "../api/objects.ts";
import type { Origin } from "./imports.ts";

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
export const openEbsVolumes: Resource<OpenEbsVolume> = {
  ...{ group: "local.openebs.io", version: "v1alpha1", plural: "lvmvolumes", kind: "LVMVolume", namespaced: true },
};

/** LogicalVolumes of TopoLVM. */
export const topoLvmVolumes: Resource<TopoLvmVolume> = {
  ...{ group: "topolvm.io", version: "v1", plural: "logicalvolumes", kind: "LogicalVolume", namespaced: false },
};

/** A driver whose volumes can be taken over. */
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
