/**
 * Decides the next step of a move from the current objects. Its only state is the LVMMove, so that it continues after the end of
 * any process (docs/adr/0029).
 *
 * @module
 */

import { isForgotten, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import type { PersistentVolume } from "../api/objects.ts";
import { hasLastOf, isAllThatIsLeft, isCopied, isReady, nextCopyStep, waitForUse } from "./copy_step.ts";
import { waitForAgent, waitUntilGone } from "./handover.ts";
import { isMarkedFor, type LvmMove, type MoveObjects, type MoveState, type MoveStep } from "./moves.ts";
import { bindingWait, deletionStep, nodeOfVolume, recordedPolicyOf } from "./persistent_volume.ts";

/** Returns the next step of a move that has its finalizer, and is not finished. */
export function nextStep(objects: MoveObjects): MoveStep {
  const step = nextStepOf(objects);
  if (step.do !== "delete copy") return step;
  return isCopyKept(objects) ? keepCopy(objects) : waitUntilGone(objects.copy!) ?? step;
}

/** Reports whether the copy may be all that is left of a volume. One that nobody claims any more was deleted on purpose. */
function isCopyKept({ self: { spec }, copy, volume, claim }: MoveObjects): boolean {
  return isAllThatIsLeft(copy, volume) && (volume !== undefined || claim?.metadata.uid === spec.claim.uid);
}

function keepCopy({ self: { metadata, spec: { sourceNode, targetNode } }, copy, volume }: MoveObjects): MoveStep {
  const why = volume === undefined
    ? `LVMVolume ${metadata.name} was deleted, and its claim was not. Save the data`
    : `the volume on node ${sourceNode} is Lost. Bring the disks of node ${sourceNode} back, or save the data`;
  const message =
    `keeps LVMVolume ${copy!.metadata.name} on node ${targetNode}, which may be all that is left, because ` +
    `${why} and delete that LVMVolume`;
  return { do: "wait", message, agents: [], isBlocked: true };
}

function nextStepOf(objects: MoveObjects): MoveStep {
  if (objects.self.status?.removing) return nextRemovalStep(objects);
  return isUndone(objects.self) ? nextUndoStep(objects) : nextForwardStep(objects);
}

/** Reports whether a move is undone, because it was deleted or failed. */
export function isUndone({ metadata, status }: LvmMove): boolean {
  return !status?.removing && (metadata.deletionTimestamp !== undefined || status?.error !== undefined);
}

/** The steps by which the copy is filled. */
const COPY_STEPS: readonly MoveStep["do"][] = [
  ...["copy", "difference", "take snapshot", "delete copy", "discard snapshots", "go offline"] as const,
];

/** Returns the state that a step belongs to. */
export function stateOf(next: MoveStep, move: LvmMove): MoveState {
  const { do: step } = next;
  if (step === "stop removing") return "Undoing";
  if (move.status?.removing || step === "begin removing") return "Removing";
  if (isUndone(move)) return "Undoing";
  if (move.status?.persistentVolume !== undefined || step === "record") return "Switching";
  if (COPY_STEPS.includes(step)) return "Copying";
  if (step === "wait" && next.state !== undefined) return next.state;
  return ["hold", "release", "wait"].includes(step) ? "Holding" : "Pending";
}

function nextForwardStep(objects: MoveObjects): MoveStep {
  const { self: { spec }, volume } = objects;
  if (volume === undefined) return { do: "wait", message: "its LVMVolume is gone", agents: [] };
  return (spec.adopt ? undefined : nextCopyStep(objects, volume)) ?? nextSwitch(objects);
}

/** Returns the next step after which the claim is bound on the other node, and the first step after that. */
function nextSwitch(objects: MoveObjects): MoveStep {
  const { self: move, persistentVolume } = objects;
  const { spec, status } = move;
  if (status?.persistentVolume === undefined) return { do: "record" };
  const step = nextSwitchStep(objects, spec.targetNode);
  if (step !== undefined) return step;
  // somebody may have set another policy: while there is no volume, nobody may take that for deleted
  if (!isRetainedFor(move, persistentVolume!)) return { do: "retain" };
  return bindingWait(objects) ?? { do: "begin removing" };
}

/** Returns the next step after which the PersistentVolume is on a node; `undefined` when it is. */
function nextSwitchStep(
  { self: move, persistentVolume, topologyKey }: MoveObjects,
  node: string,
): MoveStep | undefined {
  if (persistentVolume === undefined) return { do: "create persistent volume", node };
  const isDeleting = persistentVolume.metadata.deletionTimestamp !== undefined;
  if (!isDeleting && nodeOfVolume(persistentVolume, topologyKey) === node) return undefined;
  // also one whose policy is Retain: what an earlier controller decided about it must not happen after the move
  const isRetained = isRetainedFor(move, persistentVolume);
  const isPatched = isRetained && !isDeleting && move.status?.affinityMethod === "Patch";
  return isPatched ? { do: "patch affinity", node } : deletionStep(persistentVolume, { isRetained });
}

/** Returns the next step when the copy is used in place of the volume. */
function nextRemovalStep(objects: MoveObjects): MoveStep {
  const { self, volume, copy } = objects;
  const { spec } = self;
  if (volume?.spec.nodeName === spec.sourceNode) {
    const isSafe = spec.adopt || volume.metadata.deletionTimestamp !== undefined || isCopied(objects, volume);
    if (isSafe) return waitUntilGone(volume) ?? { do: "remove source" };
    // a program that looks at devices may open it for a moment
    const use = hasLastOf(objects, volume) ? waitForUse(volume) : undefined;
    if (use !== undefined) return use;
    // first: a removal that a controller which stalled sends late is refused then
    if (volume.spec.held) return { do: "release" };
    const message = `the copy on node ${spec.targetNode} is gone, or older than the volume on node ${spec.sourceNode}`;
    return { do: "stop removing", error: { code: "FailedPrecondition", message } };
  }
  if (volume === undefined) return { do: "create volume" };
  const restore = restoreStep(objects);
  if (isForgotten(volume)) {
    const message = `node ${spec.targetNode} was forgotten, and the volume with it`;
    return restore ?? { do: "finish", state: "Failed", message };
  }
  if (!isReady(volume)) return waitForAgent(spec.targetNode);
  if (copy !== undefined) return waitUntilGone(copy) ?? { do: "forget copy" };
  return restore ?? { do: "finish", state: "Complete" };
}

function nextUndoStep(objects: MoveObjects): MoveStep {
  const { self: { metadata, spec, status }, volume, copy, temporary } = objects;
  // of a volume that was deleted with its claim meanwhile, nothing is made again
  const isSwitched = status?.persistentVolume !== undefined && volume !== undefined;
  const step = (isSwitched ? nextSwitchStep(objects, spec.sourceNode) : undefined) ?? restoreStep(objects);
  if (step !== undefined) return step;
  // first, so that it can be used while the node of the copy is away
  if (volume?.spec.held) return { do: "release" };
  if (copy !== undefined) return { do: "delete copy" };
  if (temporary.length > 0) return { do: "discard snapshots" };
  return metadata.deletionTimestamp === undefined ? { do: "finish", state: "Failed" } : { do: "remove finalizer" };
}

function restoreStep({ self, persistentVolume }: MoveObjects): MoveStep | undefined {
  const policy = recordedPolicyOf(self);
  if (persistentVolume === undefined || policy === undefined) return undefined;
  const isMarked = persistentVolume.metadata.annotations?.[MOVE_ANNOTATION] !== undefined;
  const isRestored = persistentVolume.spec?.persistentVolumeReclaimPolicy === policy && !isMarked;
  return isRestored ? undefined : { do: "restore policy" };
}

function isRetainedFor(move: LvmMove, persistentVolume: PersistentVolume): boolean {
  return persistentVolume.spec?.persistentVolumeReclaimPolicy === "Retain" && isMarkedFor(move, persistentVolume);
}
