/**
 * The objects of a move from node `a` to node `b`, as the API server has them at some steps.
 *
 * @module
 */

import { snapshotIdOf, transferSnapshotName } from "../../../base/ids.ts";
import { heldConditions } from "../../../k8s/api/volume_conditions.ts";
import {
  FORGOTTEN_ANNOTATION,
  type LvmSnapshot,
  type LvmVolume,
  MOVE_ANNOTATION,
} from "../../../k8s/api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../../../k8s/api/objects.ts";
import {
  copyIdOf,
  type LvmMove,
  type LvmMoveStatus,
  MOVE_FINALIZER,
  type MoveObjects,
  type MoveStep,
} from "../../../k8s/handover/moves.ts";
import type { ImportStep } from "../../../k8s/handover/imports.ts";
import { affinityTo, recordOf } from "../../../k8s/handover/persistent_volume.ts";

/** The label of a node that is its topology. */
export const KEY = "node";
/** The volume that moves. */
export const NAME = `v1-${"a".repeat(32)}`;

/** Returns a move from node `a` to node `b` that has begun. */
export function move(status: LvmMoveStatus = {}, metadata: Partial<LvmMove["metadata"]> = {}): LvmMove {
  return {
    metadata: { name: NAME, uid: "m", finalizers: [MOVE_FINALIZER], ...metadata },
    spec: {
      driverName: "d",
      persistentVolume: "pv",
      claim: { namespace: "n", name: "c", uid: "u" },
      sourceNode: "a",
      targetNode: "b",
    },
    status,
  };
}

/** Returns the volume on a node, which is held for a move, and used by somebody if that is given. */
export function volume(
  nodeName: string,
  { held = true, by = "m", user }: { held?: boolean; by?: string; user?: string } = {},
): LvmVolume {
  const object = {
    metadata: { name: NAME, generation: 7, ...(held && { annotations: { [MOVE_ANNOTATION]: by } }) },
    spec: { nodeName, ...(held && { held }) },
    status: { state: "Ready", lvUUID: nodeName },
  } as unknown as LvmVolume;
  object.status!.conditions = held ? heldConditions(object, user === undefined ? {} : { user }) : [];
  return object;
}

/** Returns the copy, which is complete. */
export function copy(): LvmVolume {
  const snapshot = snapshotIdOf(transferSnapshotName(copyIdOf(move()), 0, 7));
  return {
    metadata: { name: copyIdOf(move()) },
    spec: { nodeName: "b", copy: { round: 0, snapshot, last: true } },
    status: { state: "Ready", lvUUID: "b" },
  } as unknown as LvmVolume;
}

/** Returns the PersistentVolume with a policy; one that is retained is so for a move. */
export function persistentVolume(node: string, policy: string, metadata: object = {}, by = "m"): PersistentVolume {
  const annotations = policy === "Retain" ? { [MOVE_ANNOTATION]: by } : {};
  return {
    metadata: { name: "pv", uid: "p", annotations, ...metadata },
    spec: { nodeAffinity: affinityTo(node, KEY), persistentVolumeReclaimPolicy: policy },
    status: { phase: "Bound" },
  } as PersistentVolume;
}

/** Returns the claim in a phase. */
export const claim = (phase: string, uid = "u") =>
  ({ metadata: { name: "c", uid }, status: { phase } }) as PersistentVolumeClaim;
/** What is recorded before the PersistentVolume is changed. */
export const RECORD = {
  persistentVolume: recordOf(persistentVolume("a", "Delete")),
  affinityMethod: "Recreate",
} as const;

/** The objects of a move that has not begun. */
export const START: MoveObjects = {
  self: move(),
  volume: volume("a", { held: false }),
  copy: undefined,
  persistentVolume: persistentVolume("a", "Delete"),
  claim: claim("Bound"),
  snapshots: [],
  temporary: [],
  copyMode: { mode: "Offline" },
  isSnapshotted: false,
  hasSpaceForSnapshot: true,
  topologyKey: KEY,
};
/** The objects when the copy is complete. */
export const COPIED = { volume: volume("a"), copy: copy() };
/** The objects when the PersistentVolume is recorded. */
export const SWITCHING = { ...COPIED, self: move(RECORD) };
/** The objects when the volume is to be removed. */
export const REMOVING = {
  ...COPIED,
  self: move({ ...RECORD, removing: true }),
  persistentVolume: persistentVolume("b", "Retain"),
};
/** The volume on the source's node, without its LV. */
export const lost = { ...volume("a", { held: false }), status: { state: "Lost", lvUUID: "a" } } as LvmVolume;
/** The volume on the target's node, which was forgotten. */
export const forgotten = {
  ...volume("b", { held: false }),
  metadata: { name: NAME, annotations: { [FORGOTTEN_ANNOTATION]: "dead" } },
} as LvmVolume;
/** Returns a move of a volume whose disks were carried. */
export const adoption = (status?: LvmMoveStatus) => ({ ...move(status), spec: { ...move().spec, adopt: true } });
/** The volume on the source's node, which is released, and has lost its LV. */
export const goneWith = (state: string, annotations: object = {}) =>
  ({
    ...volume("a", { held: false }),
    metadata: { ...volume("a").metadata, annotations },
    status: { state, lvUUID: "a" },
  }) as LvmVolume;
/** A temporary snapshot. */
export const SNAPSHOT = { metadata: { name: "s" } } as LvmSnapshot;
/** The metadata of what is being deleted. */
export const deleted = { deletionTimestamp: "now" };

/** Returns a step with what it says, in one line. */
export function stepText(step: MoveStep | ImportStep): string {
  const detail = "node" in step
    ? step.node
    : "message" in step
    ? step.message
    : "error" in step
    ? step.error.message
    : "state" in step
    ? step.state
    : undefined;
  return detail === undefined ? step.do : `${step.do}: ${detail}`;
}
