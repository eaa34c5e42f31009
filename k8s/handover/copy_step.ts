/**
 * What the copy of a move needs next.
 *
 * Online, the copy is filled from a snapshot of the volume while that is used, and then from what differs in later ones. Only
 * the last snapshot is taken while the volume is held: its name has the generation of the volume, which changes when that is
 * released, so that no snapshot of an earlier time is ever taken for it. Offline, that snapshot is the only one. A copy whose
 * last snapshot is set gets no other one: it is made again (docs/adr/0029).
 *
 * @module
 */

import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import type { CopyGoal } from "../../lvm/model/tags.ts";
import { parseQuantity } from "../../base/size.ts";
import { heldCondition } from "../api/volume_conditions.ts";
import { isForgotten, type LvmVolume } from "../api/lvm_objects.ts";
import { grantsOf } from "../api/transfers.ts";
import { goalOf } from "../api/volume_mapping.ts";
import { isObserved } from "../service/remote_objects.ts";
import { type Wait, waitForAgent } from "./handover.ts";
import { copyIdOf, isHeldFor, type LvmMove, type MoveObjects, type MoveStep, type NamedGoal } from "./moves.ts";

/** The most differences that are sent while the volume is used. */
const MAX_ROUNDS = 4;

/** What is sent before a volume is held does not get smaller than this on purpose, in bytes: it takes a second or so. */
const SMALL_BYTES = 32n << 20n;

/** Returns the next step after which the volume is held and copied; `undefined` when it is. */
export function nextCopyStep(objects: MoveObjects, volume: LvmVolume): MoveStep | undefined {
  const { self: move, copy } = objects;
  const isOnline = (move.status?.copyMode ?? objects.copyMode?.mode) === "Online";
  if (copy !== undefined && (hasFailed(copy) || isLost(copy, volume))) {
    const error = copy.status?.error ?? { code: "CommandFailed", message: "" };
    // what is wrong with the volume for the other node is no matter of how it is copied
    if (isOnline && error.code !== "InvalidArgument") return { do: "go offline", reason: error.message };
    if (isOnline) return { do: "fail", error };
    const { round = 0, last = false } = copy.spec.copy ?? {};
    // one that was begun online may have failed for what is not needed offline
    return round === 0 && last ? { do: "fail", error } : { do: "delete copy" };
  }
  // a hold for an earlier move may end at any moment
  return isHeldFor(move, volume)
    ? nextHeldStep(objects, volume, isOnline)
    : isOnline
    ? nextRoundStep(objects)
    : copy === undefined
    ? holdStep(objects)
    : { do: "delete copy" };
}

/** Returns the step that holds the volume. What would keep it held for long is waited for before. */
function holdStep(objects: MoveObjects): MoveStep {
  return waitForDeletion(objects) ?? { do: "hold" };
}

function waitForDeletion({ self: { spec: { sourceNode } }, snapshots }: MoveObjects): Wait | undefined {
  if (snapshots.length === 0) return undefined;
  const message = `waits until snapshots ${snapshots.join(", ")} are deleted`;
  return { do: "wait", message, agents: [sourceNode], isBlocked: true };
}

/** Returns a wait for the copy. The source's agent comes first: without its data, there is nothing to do on the other node. */
function waitForCopy({ self: { spec: { sourceNode, targetNode } } }: MoveObjects, message: string): Wait {
  return { do: "wait", message, agents: [sourceNode, targetNode], state: "Copying" };
}

/** Returns the next step while the volume may be used. */
function nextRoundStep(objects: MoveObjects): MoveStep {
  const { self: move, copy } = objects;
  if (copy === undefined) return { do: "copy", goal: namedGoal(move, { round: 0 }) };
  const goal = goalOf(copy);
  // what was written while the volume was not held is not in a copy whose last snapshot was set before
  if (goal === undefined || goal.last || isReady(copy)) return { do: "delete copy" };
  const wait = nextWait(objects, copy, namedGoal(move, goal));
  if (wait !== undefined) return wait;
  // an agent that was restarted does not know what it received before: that may have been much
  const received = parseQuantity(copy.status?.copy?.received ?? "") ?? SMALL_BYTES + 1n;
  const isWorthwhile = goal.round < MAX_ROUNDS && received > SMALL_BYTES && objects.hasSpaceForSnapshot;
  return isWorthwhile ? { do: "difference", goal: nextGoal(move, goal) } : holdStep(objects);
}

/** Returns the next step while nobody may begin to use the volume. */
function nextHeldStep(objects: MoveObjects, volume: LvmVolume, isOnline: boolean): MoveStep | undefined {
  const { self: move, copy, temporary } = objects;
  // a snapshot that was under way when the volume was held; it may stay for long. The copy of one that is gone stays as it is
  const isUndecided = move.status?.persistentVolume === undefined && !isGone(volume);
  if (objects.isSnapshotted && isUndecided) return { do: "release" };
  const use = waitForUse(volume);
  if (use !== undefined) return use;
  const { generation = 0 } = volume.metadata;
  if (copy === undefined) return { do: "copy", goal: namedGoal(move, { round: 0, generation }) };
  const goal = goalOf(copy);
  const last = goal && namedGoal(move, { ...goal, generation });
  if (goal === undefined || (goal.last ? goal.snapshot !== last!.snapshot : !isOnline)) return { do: "delete copy" };
  if (!goal.last) {
    return nextWait(objects, copy, namedGoal(move, goal)) ??
      { do: "difference", goal: nextGoal(move, goal, generation) };
  }
  if (!isReady(copy)) {
    return nextWait(objects, copy, last!) ??
      waitForCopy(objects, "completes the copy");
  }
  if (temporary.length > 0) return { do: "discard snapshots" };
  return waitForDeletion(objects);
}

/** Returns the wait until nobody uses a volume that is held; `undefined` when nobody does, or it is gone. */
export function waitForUse(volume: LvmVolume): Wait | undefined {
  const { nodeName } = volume.spec;
  const held = heldCondition(volume);
  if (held?.status === "True" || isGone(volume)) return undefined;
  if (held !== undefined) return { do: "wait", message: held.message, agents: [nodeName], isBlocked: true };
  return waitForAgent(nodeName);
}

/** Returns the step until the copy has the snapshot that it should have; `undefined` when it has. */
function nextWait(objects: MoveObjects, copy: LvmVolume, goal: NamedGoal): MoveStep | undefined {
  if (copy.status?.copy?.snapshot === goal.snapshot) return undefined;
  const object = objects.temporary.find(({ metadata: { name } }) => name === goal.snapshot);
  const isAllowed = object !== undefined && grantsOf(object).some(({ volume }) => volume === copy.metadata.name);
  if (!isAllowed) return { do: "take snapshot", goal };
  const isAgain = goal.base !== undefined && copy.status?.copy?.snapshot === undefined;
  const what = isAgain
    ? "copies all of it again: what changed could not be had"
    : goal.base === undefined
    ? goal.last ? "copies it" : "copies it while it may be used"
    : goal.last
    ? "copies what changed since"
    : "copies what changed meanwhile";
  return waitForCopy(objects, what);
}

/** Returns the goal after another one, which the copy has. */
function nextGoal(move: LvmMove, { round, snapshot }: CopyGoal, generation?: number): NamedGoal {
  return namedGoal(move, { round: round + 1, base: snapshot, ...(generation !== undefined && { generation }) });
}

/** Returns a goal with the name of its snapshot. @param goal.generation that of the volume while it is held, for the last one */
function namedGoal(
  move: LvmMove,
  { round, base, generation }: Pick<CopyGoal, "round" | "base"> & { readonly generation?: number },
): NamedGoal {
  const name = transferSnapshotName(copyIdOf(move), round, ...(generation === undefined ? [] : [generation]));
  return { round, name, snapshot: snapshotIdOf(name), last: generation !== undefined, ...(base && { base }) };
}

/** Reports whether a copy cannot be made, for what it should have now. */
function hasFailed(copy: LvmVolume): boolean {
  return copy.status?.state === "Failed" && isObserved(copy);
}

/** Reports whether a copy is gone, and can be made again: its volume is there. */
function isLost(copy: LvmVolume, volume: LvmVolume): boolean {
  return copy.status?.state === "Lost" && !isGone(volume);
}

/** Reports whether the copy has all data of a volume that nobody has been able to use since. */
export function isCopied(objects: Pick<MoveObjects, "self" | "copy">, volume: LvmVolume): boolean {
  return hasLastOf(objects, volume) && waitForUse(volume) === undefined;
}

/** Reports whether the copy has the last snapshot of a volume, which has been held for the move since that was taken. */
export function hasLastOf({ self: move, copy }: Pick<MoveObjects, "self" | "copy">, volume: LvmVolume): boolean {
  if (!hasLastGoal(copy) || !isReady(copy) || !isHeldFor(move, volume)) return false;
  const goal = goalOf(copy)!;
  const { generation = 0 } = volume.metadata;
  return goal.snapshot === namedGoal(move, { ...goal, generation }).snapshot;
}

/**
 * Reports whether a copy may be all that is left of a volume: a complete one, or one that has an earlier snapshot of it; also one
 * whose own LV may come back with its disks.
 */
export function isAllThatIsLeft(copy: LvmVolume | undefined, volume: LvmVolume | undefined): boolean {
  if (copy === undefined || copy.metadata.deletionTimestamp !== undefined) return false;
  const isComplete = hasLastGoal(copy) && (isReady(copy) || isGone(copy));
  return (volume === undefined || isGone(volume)) && (isComplete || copy.status?.copy?.snapshot !== undefined);
}

/** Reports whether the LV of a volume is gone, as far as anybody knows: it may come back with its disks. */
export function isGone(volume: LvmVolume): boolean {
  return volume.status?.state === "Lost" || isForgotten(volume);
}

/** Reports whether a copy should get, or has, the last snapshot of a volume, and nobody deletes it. */
function hasLastGoal(copy: LvmVolume | undefined): copy is LvmVolume {
  return copy?.spec.copy?.last === true && copy.metadata.deletionTimestamp === undefined;
}

/** Reports whether the LV of a volume exists and is complete. */
export function isReady(object: LvmVolume | undefined): boolean {
  return object?.status?.state === "Ready" && object.status.lvUUID !== undefined;
}
