/**
 * The objects of our own kinds, as deploy/chart/templates/crds declares them.
 *
 * @module
 */

import type { ErrorKind, Reason } from "../../base/error.ts";
import type { FilesystemType } from "../../lvm/settings/filesystem.ts";
import type { CachedLayoutName } from "../../lvm/settings/layouts.ts";
import type { Encryption } from "../../lvm/settings/format.ts";
import type { GroupPreference } from "../../lvm/model/groups.ts";
import type { Erasure } from "../../lvm/model/tags.ts";
import { currentRequestId } from "../../base/request_id.ts";
import type { Condition } from "./conditions.ts";
import { clusterScoped, type KubeObject, type Resource } from "./objects.ts";

/** The API group of our kinds. */
export const LVM_GROUP = "lvm.denolith.dev";

/** The `apiVersion` of its objects. */
export const LVM_API_VERSION: string = `${LVM_GROUP}/v1alpha1`;

/** The finalizer that keeps an LVMVolume until its node has removed the LV. */
export const LVM_VOLUME_FINALIZER = `${LVM_GROUP}/volume`;

/** The finalizer that keeps an LVMSnapshot until its node has removed the LV. */
export const LVM_SNAPSHOT_FINALIZER = `${LVM_GROUP}/snapshot`;

/**
 * The annotation by which the controller asks for the removal of the LV of a volume or a snapshot. Somebody who deletes
 * only the object, or all objects with their CRD, has not asked for that: the LVs stay.
 */
export const REMOVE_ANNOTATION = `${LVM_GROUP}/remove`;

/** Reports whether the removal of the LV of an object is requested. No other value than `true` requests it. */
export function isRemovalRequested({ metadata }: KubeObject): boolean {
  return metadata.annotations?.[REMOVE_ANNOTATION] === "true";
}

/**
 * The annotation that says whether the LV of a volume or a snapshot was created. The controller begins with `false`, and the
 * agent writes `true` when the LV exists. Backups keep it where they drop the status: what was created is not created again.
 */
export const CREATED_ANNOTATION = `${LVM_GROUP}/created`;

/** Reports whether the LV of an object was created, by the record that backups keep. */
export function wasCreated({ metadata: { annotations } }: KubeObject): boolean {
  return annotations?.[CREATED_ANNOTATION] === "true";
}

/**
 * Reports whether the LV of an object may be created, if it has none. Without the annotation, a volume may be while a claim
 * waits for it, and a snapshot always: those of controllers of early versions have none.
 */
export function isToBeCreated({ metadata: { annotations = {} }, spec }: AgentManaged): boolean {
  const created = annotations[CREATED_ANNOTATION];
  if (created !== undefined) return created === "false";
  return "sourceVolume" in spec || annotations[PENDING_ANNOTATION] !== undefined;
}

/**
 * The annotation of a volume whose node an administrator removed for good, with the time and the reason. While that
 * node has no agent, the volume may be deleted without it. An agent that comes back removes the annotation.
 */
export const FORGOTTEN_ANNOTATION = `${LVM_GROUP}/forgotten`;

/**
 * The annotation of an LVMVolume that is held, and of a PersistentVolume that is retained, for a move: the uid of the LVMMove.
 * When that is over, they are released.
 */
export const MOVE_ANNOTATION = `${LVM_GROUP}/move-uid`;

/** The annotation of a PersistentVolume that is retained for a move: the reclaim policy that it has otherwise. */
export const RECLAIM_POLICY_ANNOTATION = `${LVM_GROUP}/reclaim-policy`;

/** The annotation of a volume that names the claim it was created for, as `namespace/name`. */
export const CLAIM_ANNOTATION = `${LVM_GROUP}/claim`;

/** The annotation of a volume that the provisioner started, until its PersistentVolume is seen: the uid of the claim. */
export const PENDING_ANNOTATION = `${LVM_GROUP}/pending-claim-uid`;

/** The annotation with the id of the request that last asked for a change: it is in the log lines of the controller. */
export const REQUEST_ANNOTATION = `${LVM_GROUP}/request-id`;

/**
 * The annotation of an LVMNode by which a person asks its agent for a diagnosis of the node: any id of the request. The
 * agent answers each id once, in the status.
 */
export const DOCTOR_ANNOTATION = `${LVM_GROUP}/doctor`;

/** Returns the annotation for the request that the running code works for; none when it works for no request. */
export function requestAnnotations(): Record<string, string> {
  const id = currentRequestId();
  return id === undefined ? {} : { [REQUEST_ANNOTATION]: id };
}

/** Returns the id of the request that last asked for a change of an object; `undefined` for none, or a strange one. */
export function requestIdOf({ metadata }: KubeObject): string | undefined {
  const id = metadata.annotations?.[REQUEST_ANNOTATION];
  return id !== undefined && /^[\w-]{1,64}$/.test(id) ? id : undefined;
}

/** A failure. */
export interface StatusError {
  /** The kind of failure. */
  code: ErrorKind;
  /** The cause, as programs tell it apart; absent in what an older agent wrote. */
  reason?: Reason;
  /** The failure in words. */
  message: string;
}

/** The status that an agent writes for an object, a volume or a snapshot. Sizes are quantities. */
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

/** An object that the agent of a node carries out: a volume or a snapshot. */
export interface AgentManaged<S extends AgentManagedStatus = AgentManagedStatus> extends KubeObject {
  spec: { driverName: string; requestName: string; nodeName: string };
  status?: S;
}

/** A layout that is not linear. Sizes are quantities. */
export type LayoutSpec =
  | { type: "raid1"; mirrors: number; integrity?: boolean }
  | { type: "striped" | "raid10" | "raid5" | "raid6"; stripes: number; stripeSize: string; integrity?: boolean }
  | { type: CachedLayoutName; cacheSize: string };

/** The foreign LV that a volume imports. */
export interface ImportedLvSpec {
  /** The UUID of its volume group. */
  volumeGroupUUID: string;
  /** The name that it had before, and gets again when it is returned. */
  lvName: string;
  /** What the agent does with it. */
  action: "Inspect" | "Import" | "InspectReturn" | "Return";
}

/** The desired state of a volume. Sizes are quantities. */
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
  /** Its encryption; none by default. */
  encryption?: Encryption;
  shared: boolean;
  erase: Erasure;
  layout?: LayoutSpec;
  /** Limits of its IO, as parameters of a StorageClass. */
  ioLimits?: Record<string, string>;
  /** True if it is a thin volume; false by default. */
  thinProvision?: boolean;
  /** The pool, if it is not the group's own. */
  thinPool?: string;
  /**
   * The size of the group's own pool when it is created for this volume: a quantity, or a percentage of the free space.
   */
  thinPoolSize?: string;
  /** Its content source, a snapshot or a volume; absent for a volume that is created empty. */
  source?: { snapshot?: string; volume?: string };
  /** The node of its content source, if that is another one; absent if the source is on the node of the volume. */
  sourceNode?: string;
  /** What it should have next, while it is filled from several snapshots of that node, one after the other. */
  copy?: {
    /** The number of the snapshot, which grows. */
    round: number;
    /** The LVMSnapshot. */
    snapshot: string;
    /** The LVMSnapshot before, which it has; absent to read all of the snapshot. */
    base?: string;
    /** True for the last one, after which it is complete. */
    last?: boolean;
  };
  /** True while nobody may begin to use it, because it is being moved. */
  held?: boolean;
  /** The volume of the same node whose LV becomes its own; itself, if it is there already; absent if it is created. */
  adoptsVolume?: string;
  /** The foreign LV that it imports, or returns; absent if it is created. */
  imports?: ImportedLvSpec;
  /** True if it is mounted with the option `discard`; false by default. */
  discard?: boolean;
  /** The interval of fstrim while it is staged, such as `24h`; absent if fstrim is never run. */
  fstrim?: string;
}

/** The actual state of a volume, as its agent reports it. Sizes are quantities. */
export interface LvmVolumeStatus extends AgentManagedStatus {
  state?: "Pending" | "Ready" | "Failed" | "Lost";
  devicePath?: string;
  /**
   * The size of the largest logical sectors of disks on which what is on the volume can be used; absent while it is not known, as
   * before it was used.
   */
  maximumSectorSize?: string;
  /** The used share of its filesystem in percent, as last seen, in steps; absent before it was mounted. */
  usedPercent?: number;
  /** The layout of a foreign LV that was inspected; absent for a linear or thin one. */
  layout?: LayoutSpec;
  /** Its health problems, the most severe first; absent without problems, and for agents of early versions. */
  problems?: { reason: string; message: string }[];
  /** The progress of the copy, while it is created from another volume or a snapshot. */
  copy?: {
    copied: string;
    total?: string;
    percent?: number;
    lastError?: string;
    /** The LVMSnapshot of another node whose data it has, while it is filled from several. */
    snapshot?: string;
    /** What was received from that node for the last one of these. */
    received?: string;
  };
}

/** A volume. Its name is the volume's id. */
export interface LvmVolume extends AgentManaged<LvmVolumeStatus> {
  spec: LvmVolumeSpec;
}

/** The desired state of a snapshot. */
export interface LvmSnapshotSpec {
  driverName: string;
  requestName: string;
  nodeName: string;
  sourceVolume: string;
  cowSize?: string;
  /** The group snapshot that it belongs to; absent for a snapshot that is taken alone. */
  groupSnapshot?: {
    /** Its id. */
    name: string;
    /** The volumes of all its snapshots, each once. */
    sourceVolumes: string[];
  };
}

/** The actual state of a snapshot, as its agent reports it. Sizes are quantities; `size` is that of its COW space. */
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
  /** Its space that volumes may get now. */
  free: string;
  /** Its space that LVM would allocate now, and that volumes never get; absent for none. */
  spare?: string;
  /** The deleted volumes and snapshots that are to be erased and removed, and the space that this frees; absent for none. */
  erasing?: { volumes: number; space: string };
  /**
   * What the node itself uses of it. Only classes that name it use it then. Absent for nothing, and where the flag of the agent
   * names the group.
   */
  hostUse?: string;
  /** The size of the largest logical sectors of its disks; absent while it is not known, and for agents of early versions. */
  sectorSize?: string;
  extentSize: string;
  lvCount: number;
  pvCount: number;
  snapshotCount: number;
  missingPVCount: number;
  /** True if LVM can create an LV in it now. */
  writeable: boolean;
  /** Why LVM creates no LV in it now, although it may have space; absent where nothing is known. */
  refusal?: string;
  /** The reason of the refusal. */
  refusalReason?: Reason;
  allocationPolicy?: string;
  metadata?: { size: string; free: string };
  /**
   * Its PVs, with the space that LVM would allocate to a volume now. Agents that only know linear volumes do not report
   * them.
   */
  physicalVolumes?: NodePhysicalVolume[];
  /** The volumes of the driver whose LVs `free` does not count, by the names of their LVMVolumes. */
  volumes?: { name: string; size: string }[];
  thinPools?: NodeThinPool[];
}

/** A physical volume of a node. Sizes are quantities. Agents of early versions report `uuid` and `free` alone. */
export interface NodePhysicalVolume {
  uuid: string;
  /** Its path; `[unknown]` while LVM cannot find it. */
  path?: string;
  /** The space of its extents, used and free. */
  size?: string;
  free: string;
  /** Its allocatable free space for caches; absent if it is not for caches alone. */
  cacheFree?: string;
  missing?: boolean;
}

/** A disk of a node that a rule names. Sizes are quantities. */
export interface NodeDisk {
  /** Its name in /dev/disk/by-id. */
  name: string;
  path: string;
  size: string;
  rotational?: boolean;
  /** Tells it from another disk that has its name later. */
  identity?: string;
  /** The volume group of the rule. */
  volumeGroup: string;
  /** True if nobody uses it. */
  proposed: boolean;
  /** Why it is not proposed. */
  reason?: string;
}

/** A disk that an administrator accepted: it may become a physical volume. */
export interface AcceptedDisk {
  /** Its name in /dev/disk/by-id. */
  name: string;
  volumeGroup: string;
  /** The UUID of the volume group; absent for one that is to be created. */
  volumeGroupUUID?: string;
  /** What the agent reported of the disk as `identity` when it was accepted. */
  identity: string;
}

/** What became of a disk that was accepted. */
export interface AcceptedDiskStatus {
  /** Its name in /dev/disk/by-id. */
  name: string;
  volumeGroup: string;
  state: "Refused" | "Taking" | "Taken" | "Lost";
  /** The UUID of its physical volume, recorded before anything is written to it. */
  physicalVolumeUUID?: string;
  /** The UUID of the volume group, when the physical volume is in it. */
  volumeGroupUUID?: string;
  /** Why it is not taken, or what is wrong. */
  message?: string;
}

/** A thin pool of a node. Sizes are quantities. */
export interface NodeThinPool {
  name: string;
  size: string;
  /** True if the driver created it. */
  owned?: boolean;
  /** Its overcommit: the largest sum of virtual sizes, as a multiple of its size. */
  overcommit?: string;
  /** The virtual size that may still be allocated. */
  availableVirtual?: string;
  dataPercent?: number;
  metadataPercent?: number;
}

/** The level of a check of the doctor, and of a finding. */
type DoctorLevel = "ok" | "info" | "warning" | "error";

/** What the doctor found on a node, for a request. All but the request is absent once the answer has expired. */
export interface NodeDiagnosis {
  /** The id of the request. */
  request: string;
  /** The time of the answer (RFC 3339). */
  time?: string;
  /** The highest level of the findings. */
  level?: DoctorLevel;
  /** The checks, each with its highest level. */
  checks?: { check: string; level: DoctorLevel; summary: string }[];
  /** The findings, the worst of them where there are many. */
  findings?: { check: string; level: DoctorLevel; subject: string; message: string; remedy?: string }[];
  /** The number of findings that are not listed. */
  omitted?: number;
}

/** The storage of a node, as its agent reports it (k8s/agent/node_reconciler.ts). */
export interface LvmNodeStatus {
  total?: { volumeGroups: number; names?: string; size: string; free: string };
  volumeGroups?: NodeVolumeGroup[];
  /** The overcommit of a thin pool that is not created yet, as a multiple of its size. */
  thinPoolOvercommit?: string;
  conditions?: Condition[];
  lastUpdateTime?: string;
  /** Whether its agent lives, as the controller sees it, and the last sign of life of a silent one (RFC 3339). */
  agent?: { state: "Alive" | "Silent"; lastSeen?: string };
  /** The answer to a request for a diagnosis. */
  doctor?: NodeDiagnosis;
  /** The disks that the rules of its agent name; absent without rules. */
  disks?: NodeDisk[];
  /** What became of the disks that were accepted. */
  acceptedDisks?: AcceptedDiskStatus[];
  /** Where its agent sends snapshots to other agents; absent where transfers are off. */
  transfer?: { address: string; certificate: string; validUntil: string };
}

/** The storage of a node. Its name is that of the node. */
export interface LvmNode extends KubeObject {
  spec: {
    driverName: string;
    /** The disks that administrators accepted. A policy keeps agents from writing it. */
    acceptedDisks?: AcceptedDisk[];
  };
  status?: LvmNodeStatus;
}

/** LVMVolumes. */
export const lvmVolumes: Resource<LvmVolume> = clusterScoped(LVM_API_VERSION, "LVMVolume");
/** LVMSnapshots. */
export const lvmSnapshots: Resource<LvmSnapshot> = clusterScoped(LVM_API_VERSION, "LVMSnapshot");
/** LVMNodes. */
export const lvmNodes: Resource<LvmNode> = clusterScoped(LVM_API_VERSION, "LVMNode");

/** Reports whether an administrator removed the node of a volume for good. */
export function isForgotten({ metadata }: KubeObject): boolean {
  return metadata.annotations?.[FORGOTTEN_ANNOTATION] !== undefined;
}
