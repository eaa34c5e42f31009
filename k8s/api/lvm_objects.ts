/**
 * The objects of our own kinds, as deploy/crds/ declares them.
 *
 * @module
 */

import type { ErrorKind } from "../../lvm/error.ts";
import type { FilesystemType } from "../../lvm/spec/filesystem.ts";
import type { GroupPreference } from "../../lvm/model/groups.ts";
import type { Erasure } from "../../lvm/model/tags.ts";
import type { Condition } from "./conditions.ts";
import type { KubeObject, Resource } from "./objects.ts";

/** The API group of our kinds. */
export const LVM_GROUP = "lvm.denolith.dev";

/** What keeps an LVMVolume until its node has removed the LV. */
export const LVM_VOLUME_FINALIZER = `${LVM_GROUP}/volume`;

/** What keeps an LVMSnapshot until its node has removed the LV. */
export const LVM_SNAPSHOT_FINALIZER = `${LVM_GROUP}/snapshot`;

/**
 * The annotation by which the controller says that the LV of a volume or a snapshot is to go. Who deletes the object alone, or
 * with it the definition of its kind and so all of them, has not said that: the LVs stay.
 */
export const REMOVE_ANNOTATION = `${LVM_GROUP}/remove`;

/**
 * The annotation of a volume whose node an administrator gave up for good, and when and why. As long as that node has no agent
 * the volume may be deleted without it; an agent that comes back takes it off.
 */
export const FORGOTTEN_ANNOTATION = `${LVM_GROUP}/forgotten`;

/** The annotation of a volume that names the claim it was created for, as `namespace/name`. */
export const CLAIM_ANNOTATION = `${LVM_GROUP}/claim`;

/** The annotation of a volume that the provisioner started, until its PersistentVolume is seen: the uid of the claim. */
export const PENDING_ANNOTATION = `${LVM_GROUP}/pending-claim-uid`;

/** What went wrong. */
export interface StatusError {
  /** The kind of failure. */
  code: ErrorKind;
  /** The failure in words. */
  message: string;
}

/** What a node says of whatever it makes of an object: a volume or a snapshot. Sizes are quantities. */
export interface AgentManagedStatus {
  state?: string;
  observedGeneration?: number;
  volumeGroup?: string;
  volumeGroupUUID?: string;
  lvName?: string;
  lvUUID?: string;
  size?: string;
  error?: StatusError;
  conditions?: Condition[];
}

/** An object that a node is to make something of. */
export interface AgentManaged<S extends AgentManagedStatus = AgentManagedStatus> extends KubeObject {
  spec: { driverName: string; requestName: string; nodeName: string };
  status?: S;
}

/** How a volume is laid out on disks, when it is not linear. Sizes are quantities. */
export type LayoutSpec =
  | { type: "raid1"; mirrors: number }
  | { type: "striped" | "raid10" | "raid5" | "raid6"; stripes: number; stripeSize: string };

/** What is wanted of a volume. Sizes are quantities. */
export interface LvmVolumeSpec {
  driverName: string;
  requestName: string;
  nodeName: string;
  size: string;
  sizeLimit?: string;
  volumeGroups?: string;
  volumeGroupPreference: GroupPreference;
  volumeMode: "Filesystem" | "Block";
  fsType?: FilesystemType;
  mkfsOptions?: string[];
  shared: boolean;
  erase: Erasure;
  layout?: LayoutSpec;
  /** Limits of its IO, as its parameters say them. */
  ioLimits?: Record<string, string>;
  /** Whether it takes its space out of a thin pool, as it is written; no, when absent. */
  thinProvision?: boolean;
  /** The pool, if it is not the group's own. */
  thinPool?: string;
  /** How large the group's own pool is when it is made for this volume: a quantity, or a percentage of what is free. */
  thinPoolSize?: string;
  /** What it is filled with: one of both; nothing, for a volume that is made empty. */
  source?: { snapshot?: string; volume?: string };
  /** Whether it is mounted so that disks are told of what its filesystem frees; no, when absent. */
  discard?: boolean;
  /** How often fstrim is run while it is staged, such as `24h`; never, when absent. */
  fstrim?: string;
}

/** What a volume's node made of it. Sizes are quantities. */
export interface LvmVolumeStatus extends AgentManagedStatus {
  state?: "Pending" | "Ready" | "Failed" | "Lost";
  devicePath?: string;
  /** How far it is filled, until it is. */
  copy?: { copied: string; total?: string; percent?: number; lastError?: string };
}

/** A volume. Its name is the volume's id. */
export interface LvmVolume extends AgentManaged<LvmVolumeStatus> {
  spec: LvmVolumeSpec;
}

/** What is wanted of a snapshot. */
export interface LvmSnapshotSpec {
  driverName: string;
  requestName: string;
  nodeName: string;
  sourceVolume: string;
  cowSize?: string;
}

/** What a snapshot's node made of it. Sizes are quantities; `size` is that of its store. */
export interface LvmSnapshotStatus extends AgentManagedStatus {
  state?: "Pending" | "Ready" | "Failed" | "Overflowed" | "Lost";
  restoreSize?: string;
  creationTime?: string;
  readyToUse?: boolean;
  cowPercent?: number;
}

/** A snapshot. Its name is the snapshot's id. */
export interface LvmSnapshot extends AgentManaged<LvmSnapshotStatus> {
  spec: LvmSnapshotSpec;
}

/** A volume group of a node. Sizes are quantities. */
export interface NodeVolumeGroup {
  name: string;
  uuid: string;
  size: string;
  free: string;
  extentSize: string;
  lvCount: number;
  pvCount: number;
  snapshotCount: number;
  missingPVCount: number;
  /** Whether LVM would make an LV in it now. */
  writeable: boolean;
  allocationPolicy?: string;
  metadata?: { size: string; free: string };
  /** Its disks, and what of them LVM would give to a volume now. Agents that know linear volumes alone do not tell. */
  physicalVolumes?: { uuid: string; free: string }[];
  /** The volumes of the driver whose LVs `free` does not count, by the names of their LVMVolumes. */
  volumes?: { name: string; size: string }[];
  thinPools?: NodeThinPool[];
}

/** A thin pool of a node. Sizes are quantities. */
export interface NodeThinPool {
  name: string;
  size: string;
  /** Whether the driver made it. */
  owned?: boolean;
  /** How much it may promise, in its own sizes. */
  overcommit?: string;
  /** What it may still promise. */
  availableVirtual?: string;
  dataPercent?: number;
  metadataPercent?: number;
}

/** What a node's agent sees. */
export interface LvmNodeStatus {
  total?: { volumeGroups: number; size: string; free: string };
  volumeGroups?: NodeVolumeGroup[];
  /** How much a thin pool may promise that is yet to be made, in its own sizes. */
  thinPoolOvercommit?: string;
  conditions?: Condition[];
  lastUpdateTime?: string;
}

/** What a node has. Its name is the node's. */
export interface LvmNode extends KubeObject {
  spec: { driverName: string };
  status?: LvmNodeStatus;
}

/** LVMVolumes. */
export const lvmVolumes: Resource<LvmVolume> = lvmResource("lvmvolumes", "LVMVolume");
/** LVMSnapshots. */
export const lvmSnapshots: Resource<LvmSnapshot> = lvmResource("lvmsnapshots", "LVMSnapshot");
/** LVMNodes. */
export const lvmNodes: Resource<LvmNode> = lvmResource("lvmnodes", "LVMNode");

function lvmResource(plural: string, kind: string) {
  return { group: LVM_GROUP, version: "v1alpha1", plural, kind, namespaced: false };
}

/** Whether an administrator gave up the node of a volume. */
export function isForgotten({ metadata }: KubeObject): boolean {
  return metadata.annotations?.[FORGOTTEN_ANNOTATION] !== undefined;
}
