/**
 * LVMMoves: the volumes that are to be moved to another node, as deploy/chart/templates/crds declares them; with what a move is about, and its
 * steps.
 *
 * The name of an LVMMove is that of the LVMVolume, so that a volume has one at a time.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { parseVolumeId, type VolumeId, volumeIdOf } from "../../base/ids.ts";
import type { CopyGoal } from "../../lvm/model/tags.ts";
import {
  LVM_API_VERSION,
  LVM_GROUP,
  type LvmSnapshot,
  type LvmVolume,
  MOVE_ANNOTATION,
  RECLAIM_POLICY_ANNOTATION,
  type StatusError,
} from "../api/lvm_objects.ts";
import { clusterScoped, type KubeObject, type Resource } from "../api/objects.ts";
import type { CommonStep, HandoverObjects, HandoverSpec, HandoverStatus } from "./handover.ts";
import { recordedPolicyOf } from "./persistent_volume.ts";

/** The finalizer that keeps an LVMMove until it is complete, or undone. */
export const MOVE_FINALIZER = `${LVM_GROUP}/move`;

/** The desired state of a move. */
export interface LvmMoveSpec extends HandoverSpec {
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
export type CopyMode = "Online" | "Offline";

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
export interface LvmMoveStatus extends HandoverStatus {
  state?: MoveState;
  /** How the volume is copied. */
  copyMode?: CopyMode;
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
  /** The LVMVolume as it was, recorded before it is deleted. */
  volume?: RecordedVolume;
  /** True from when the volume on the source's node is removed: from then on, the move is not undone any more. */
  removing?: boolean;
  /** The time at which nobody used the volume any more (RFC 3339); `null` to remove it when it is released for a while. */
  heldTime?: string | null;
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

/** A copy mode, and why it is not the other one. */
export interface ChosenCopyMode {
  /** The mode. */
  readonly mode: CopyMode;
  /** Why it is offline. */
  readonly reason?: string;
}

/** A snapshot that a copy should have, and the name under which it is requested. */
export interface NamedGoal extends CopyGoal {
  /** The name. */
  readonly name: string;
}

/** The objects that a move is about, as the API server has them. */
export interface MoveObjects extends HandoverObjects<LvmMove> {
  /** The LVMVolume of the copy. */
  readonly copy: LvmVolume | undefined;
  /** The names of the snapshots that keep the volume from deletion. */
  readonly snapshots: readonly string[];
  /** Whether one of them is somebody's, and nobody deletes it. */
  readonly isSnapshotted: boolean;
  /** The temporary snapshots from which the copy is filled, without those that are being deleted. */
  readonly temporary: readonly LvmSnapshot[];
  /** How the volume would be copied now; absent when that is not known. */
  readonly copyMode?: ChosenCopyMode;
  /** Whether another snapshot of the volume in use can be taken. */
  readonly hasSpaceForSnapshot: boolean;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
}

/** A step of a move alone. */
export type OwnMoveStep =
  | {
    readonly do:
      | "hold"
      | "release"
      | "delete copy"
      | "discard snapshots"
      | "record"
      | "begin removing"
      | "remove source"
      | "create volume"
      | "forget copy";
  }
  /** Set the affinity of the PersistentVolume, or make it again with it. */
  | { readonly do: "patch affinity" | "create persistent volume"; readonly node: string }
  /** Begin the copy, take its first snapshot again, or take another one that it should have next. */
  | { readonly do: "copy" | "take snapshot" | "difference"; readonly goal: NamedGoal }
  /** Record that the volume is moved offline, because it cannot be moved online. */
  | { readonly do: "go offline"; readonly reason: string }
  /** Record why a move fails whose volume was to be removed, and is still there. */
  | { readonly do: "stop removing"; readonly error: StatusError }
  /** The end; `message` says why it is another one than the LVMMove has recorded. */
  | { readonly do: "finish"; readonly state: Extract<MoveState, "Complete" | "Failed">; readonly message?: string };

/** A step of a move. */
export type MoveStep = OwnMoveStep | CommonStep;

/** LVMMoves. */
export const lvmMoves: Resource<LvmMove> = clusterScoped(LVM_API_VERSION, "LVMMove");

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

/** The annotations of a PersistentVolume that a move retains: the move, and the policy that is restored. */
export const MOVE_MARKS = [MOVE_ANNOTATION, RECLAIM_POLICY_ANNOTATION] as const;

/** Returns these annotations. */
export function marksOf(move: LvmMove): Record<string, string> {
  const { uid = "" } = move.metadata;
  return { [MOVE_ANNOTATION]: uid, ...defined({ [RECLAIM_POLICY_ANNOTATION]: recordedPolicyOf(move) }) };
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
