/**
 * LVMMoves: the volumes that are to be moved to another node, as deploy/crds/ declares them; with what a move is about, and its
 * steps.
 *
 * The name of an LVMMove is that of the LVMVolume, so that a volume has one at a time.
 *
 * @module
 */

import { parseVolumeId, type VolumeId, volumeIdOf } from "../../base/ids.ts";
import type { CopyGoal } from "../../lvm/model/remote_source.ts";
import { LVM_GROUP, type LvmSnapshot, type LvmVolume, MOVE_ANNOTATION, type StatusError } from "../api/lvm_objects.ts";
import type { KubeObject, PersistentVolume, PersistentVolumeClaim, Resource } from "../api/objects.ts";

/** The finalizer that keeps an LVMMove until it is complete, or undone. */
export const MOVE_FINALIZER = `${LVM_GROUP}/move`;

/** The desired state of a move. */
export interface LvmMoveSpec {
  /** The driver's name. */
  driverName: string;
  /** The name of the PersistentVolume. */
  persistentVolume: string;
  /** The claim that it is bound to. */
  claim: { namespace: string; name: string; uid: string };
  /** The node that the volume is on. */
  sourceNode: string;
  /** The node that it moves to. */
  targetNode: string;
  /** True when its logical volume is on that node already, because its disks were carried there; false by default. */
  adopt?: boolean;
  /** True to copy it only while nobody may use it; false by default. */
  offline?: boolean;
}

/** How a volume is copied: while it is used, but for what changed last, or while nobody may use it. */
export type MoveWay = "Online" | "Offline";

/** The states of a move: all before `Complete` can be undone, but `Removing`. */
export type MoveState =
  | "Pending"
  | "Holding"
  | "Copying"
  | "Switching"
  | "Removing"
  | "Complete"
  | "Undoing"
  | "Failed";

/** How the PersistentVolume gets the affinity to another node: it is made again, or patched. */
export type AffinityMethod = "Recreate" | "Patch";

/** The actual state of a move. */
export interface LvmMoveStatus {
  /** The state. */
  state?: MoveState;
  /** What happens, or what it waits for. */
  message?: string;
  /** Why it failed. */
  error?: StatusError;
  /** How the volume is copied. */
  way?: MoveWay;
  /** Why it is copied offline. */
  offlineReason?: string;
  /** The number of the last snapshot that the copy should have: how often it gets what changed. */
  differences?: number;
  /** What was sent of each snapshot that the copy has had. */
  stages?: MoveStage[];
  /** The progress of the copy, as the LVMVolume of the copy has it. */
  copy?: NonNullable<LvmVolume["status"]>["copy"];
  /** How the PersistentVolume gets its affinity. */
  affinityMethod?: AffinityMethod;
  /** The PersistentVolume as it was, recorded before it is changed. */
  persistentVolume?: RecordedPersistentVolume;
  /** The LVMVolume as it was, recorded before it is deleted. */
  volume?: RecordedVolume;
  /** True from when the volume on the source's node is removed: from then on, the move is not undone any more. */
  removing?: boolean;
  /** The time at which nobody used the volume any more (RFC 3339). */
  heldTime?: string;
  /** The time at which pods could use it again (RFC 3339). */
  releasedTime?: string;
}

/** What was sent of one snapshot. */
export interface MoveStage {
  /** The number of the snapshot: 0 was sent as a whole, and what differs of each later one. */
  difference: number;
  /** The bytes that were received, as a quantity; at least, where the agent of the target was restarted meanwhile. */
  received: string;
  /** Whether nobody could use the volume meanwhile. */
  held: boolean;
}

/** A PersistentVolume, as far as it is made again. */
export interface RecordedPersistentVolume {
  /** Its metadata. */
  metadata: { uid: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  /** Its spec. */
  spec: NonNullable<PersistentVolume["spec"]>;
}

/** An LVMVolume, as far as it is made again. */
export interface RecordedVolume {
  /** Its metadata. */
  metadata: { labels?: Record<string, string>; annotations?: Record<string, string> };
  /** Its spec. */
  spec: LvmVolume["spec"];
}

/** A move. */
export interface LvmMove extends KubeObject {
  spec: LvmMoveSpec;
  status?: LvmMoveStatus;
}

/** A way, and why it is not the other one. */
export interface ChosenWay {
  /** The way. */
  readonly way: MoveWay;
  /** Why it is offline. */
  readonly reason?: string;
}

/** A snapshot that a copy should have, and the name under which it is requested. */
export interface NamedGoal extends CopyGoal {
  /** The name. */
  readonly name: string;
}

/** The objects that a move is about, as the API server has them. */
export interface MoveObjects {
  /** The move. */
  readonly move: LvmMove;
  /** The LVMVolume of the volume that moves, on either node. */
  readonly volume: LvmVolume | undefined;
  /** The LVMVolume of the copy. */
  readonly copy: LvmVolume | undefined;
  /** The PersistentVolume of the name. */
  readonly persistentVolume: PersistentVolume | undefined;
  /** The claim of the name. */
  readonly claim: PersistentVolumeClaim | undefined;
  /** The names of the snapshots that keep the volume from deletion. */
  readonly snapshots: readonly string[];
  /** The temporary snapshots from which the copy is filled, without those that are being deleted. */
  readonly temporary: readonly LvmSnapshot[];
  /** The way in which the volume would be moved now; absent when that is not known. */
  readonly way?: ChosenWay;
  /** Whether another snapshot of the volume in use can be taken. */
  readonly hasSpaceForSnapshot: boolean;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
}

/** A step of a move. */
export type MoveStep =
  | {
    readonly do:
      | "nothing"
      | "add finalizer"
      | "remove finalizer"
      | "hold"
      | "release"
      | "delete copy"
      | "discard snapshots"
      | "record"
      | "retain"
      | "delete persistent volume"
      | "begin removing"
      | "remove source"
      | "create volume"
      | "forget copy"
      | "restore policy";
  }
  /** Set the affinity of the PersistentVolume, or make it again with it. */
  | { readonly do: "patch affinity" | "create persistent volume"; readonly node: string }
  /** Begin the copy, take its first snapshot again, or take another one that it should have next. */
  | { readonly do: "copy" | "take snapshot" | "difference"; readonly goal: NamedGoal }
  /** Record that the volume is moved offline, because it cannot be moved online. */
  | { readonly do: "go offline"; readonly reason: string }
  /** Record why the move fails; also one whose volume was to be removed, and is still there. */
  | { readonly do: "fail" | "stop removing"; readonly error: StatusError }
  /**
   * Write the state, and wait for a change of the objects, which agents have to bring about, or, if `isBlocked`, somebody else. What
   * it waits for is named: a wait for an agent that is away, too, says so.
   */
  | {
    readonly do: "wait";
    readonly message: string;
    readonly agents: readonly ("source" | "target")[];
    readonly state?: MoveState;
    readonly isBlocked?: true;
  }
  /** The end; `message` says why it is another one than the LVMMove has recorded. */
  | { readonly do: "finish"; readonly state: Extract<MoveState, "Complete" | "Failed">; readonly message?: string };

/** LVMMoves. */
export const lvmMoves: Resource<LvmMove> = {
  ...{ group: LVM_GROUP, version: "v1alpha1", plural: "lvmmoves", kind: "LVMMove", namespaced: false },
};

/** The beginning of the names under which copies are requested. */
const COPY_PREFIX = "denolith-move-";

/** Returns the name under which the copy of a move is requested. Another move of the same volume has another one. */
export function copyRequestName({ metadata: { uid = "" } }: LvmMove): string {
  return `${COPY_PREFIX}${uid}`;
}

/** Returns the uid of the move that a copy was requested for; `undefined` for a volume that is no copy of a move. */
export function moveUidOf({ spec: { requestName } }: LvmVolume): string | undefined {
  return requestName?.startsWith(COPY_PREFIX) ? requestName.slice(COPY_PREFIX.length) : undefined;
}

/** Reports whether an object is held, or retained, for a move. */
export function isMarkedFor({ metadata: { uid } }: LvmMove, object: KubeObject): boolean {
  return uid !== undefined && object.metadata.annotations?.[MOVE_ANNOTATION] === uid;
}

/** Reports whether a volume is held for a move. */
export function isHeldFor(move: LvmMove, volume: LvmVolume): boolean {
  return volume.spec.held === true && isMarkedFor(move, volume);
}

/** Returns the id of the volume that is filled on the target's node, and whose LV becomes that of the volume. */
export function copyIdOf(move: LvmMove): VolumeId {
  return volumeIdOf(copyRequestName(move));
}

/** Returns the id of the volume that moves; `undefined` for an object that somebody gave another name. */
export function movedVolumeOf({ metadata: { name } }: LvmMove): VolumeId | undefined {
  return parseVolumeId(name);
}

/** Reports whether nothing is left to do for a move. */
export function isFinished({ status }: LvmMove): boolean {
  return status?.state === "Complete" || status?.state === "Failed";
}
