/**
 * LVMMoves: the volumes that are to be moved to another node, as deploy/crds/ declares them.
 *
 * The name of an LVMMove is that of the LVMVolume, so that a volume has one at a time.
 *
 * @module
 */

import { parseVolumeId, type VolumeId, volumeIdOf } from "../../lvm/ids.ts";
import { LVM_GROUP, type LvmVolume, MOVE_ANNOTATION, type StatusError } from "../api/lvm_objects.ts";
import type { KubeObject, PersistentVolume, Resource } from "../api/objects.ts";

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
}

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
