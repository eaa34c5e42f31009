/**
 * Decides the next step of an import from the current objects. Its only state is the LVMImport, so that it continues after the end of
 * any process (docs/adr/0031).
 *
 * @module
 */

import { importedCondition } from "../api/volume_conditions.ts";
import { type LvmVolume, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import type { PersistentVolume, StorageClass } from "../api/objects.ts";
import { refused, waitForAgent, waitForFinalizers, waitUntilGone } from "./handover.ts";
import {
  type ImportObjects,
  type ImportState,
  type ImportStep,
  type LvmImport,
  objectsOf,
  ORIGINS,
  REPLACED_CLASS_ANNOTATION,
  RETAINED_ANNOTATION,
} from "./imports.ts";
import { bindingWait, deletionStep, recordedPolicyOf } from "./persistent_volume.ts";

/** Returns the next step of an import that has its finalizer, and is not finished. */
export function nextStep(objects: ImportObjects): ImportStep {
  const { self, self: { status } } = objects;
  if (status?.finishing) return nextFinishingStep(objects);
  if (isUndone(self)) return nextUndoStep(objects);
  return status?.imported ? nextImportedStep(objects) : nextForwardStep(objects);
}

/** Reports whether an import is undone, because it was deleted or failed. */
export function isUndone({ metadata, status }: LvmImport): boolean {
  return !status?.finishing && (metadata.deletionTimestamp !== undefined || status?.error !== undefined);
}

/** Returns the state that a step belongs to. */
export function stateOf({ do: step }: ImportStep, self: LvmImport): ImportState {
  const { status } = self;
  if (status?.finishing || step === "begin finishing") return "Finishing";
  if (isUndone(self) || step === "fail") return "Undoing";
  if (status?.imported && step !== "restore policy") return "Imported";
  if (status?.persistentVolume !== undefined || step === "record") return "Switching";
  return "Inspecting";
}

/** Returns the next step after which the claim is bound to the volume of the driver. */
function nextForwardStep(objects: ImportObjects): ImportStep {
  const { self: { spec, status }, volume } = objects;
  if (volume === undefined) return { do: "create volume" };
  const condition = importedCondition(volume);
  if (condition?.reason === "Refused") return refused(condition.message);
  if (condition === undefined) return waitForAgent(spec.volume.nodeName);
  if (volume.status?.layout !== undefined && volume.spec.layout === undefined) return { do: "set layout" };
  if (status?.persistentVolume === undefined) {
    const { storageClass: replaced } = spec;
    return replaced !== undefined && objects.storageClass === undefined && objects.isClassShared
      ? waitForOthers(`waits until StorageClass ${replaced.name} is re-created for another claim`)
      : { do: "record" };
  }
  return nextClassStep(objects) ?? nextSwitchStep(objects, volume);
}

/** Returns the next step after which the class is the driver's; `undefined` when it is, or stays as it is. */
function nextClassStep({ self: { spec, status }, storageClass }: ImportObjects): ImportStep | undefined {
  if (spec.storageClass === undefined || status?.storageClass === undefined) return undefined;
  if (storageClass === undefined) return { do: "create class" };
  return storageClass.provisioner === spec.driverName ? undefined : classDeletionStep(storageClass);
}

/** Returns the next step after which the PersistentVolume is the driver's, and the first step after that. */
function nextSwitchStep(objects: ImportObjects, volume: LvmVolume): ImportStep {
  const { self, persistentVolume } = objects;
  const { nodeName } = self.spec.volume;
  if (persistentVolume !== undefined && !isOurs(self, persistentVolume)) return deletionOf(persistentVolume);
  const condition = importedCondition(volume);
  if (condition?.status !== "True") {
    return volume.spec.imports?.action === "Import" ? waitForAgent(nodeName, condition?.message) : { do: "import" };
  }
  if (volume.status?.lvUUID === undefined) return waitForAgent(nodeName, "waits for the state of the volume");
  if (persistentVolume === undefined) return { do: "create persistent volume" };
  if (persistentVolume.metadata.deletionTimestamp !== undefined) return deletionOf(persistentVolume);
  return bindingWait(objects) ?? { do: "begin use" };
}

/** Returns the next step of an import whose volume is used as one of the driver. */
function nextImportedStep(objects: ImportObjects): ImportStep {
  const restore = policyStep(objects);
  if (restore !== undefined) return restore;
  if (objects.self.spec.finish) return { do: "begin finishing" };
  return waitForOthers("it can be returned, or finished");
}

/** Returns the next step after which nothing is left of the other driver. */
function nextFinishingStep({ self: { spec }, object }: ImportObjects): ImportStep {
  const isLeft = object !== undefined && object.metadata.uid === spec.object?.uid;
  return isLeft ? { do: "remove object" } : { do: "finish", state: "Complete" };
}

/** Returns the next step of an import that is undone. Whatever is in the way of it, the claim gets a PersistentVolume. */
function nextUndoStep(objects: ImportObjects): ImportStep {
  const { self: { metadata, spec, status }, volume } = objects;
  if (status?.imported && volume !== undefined && volume.spec.nodeName !== spec.volume.nodeName) {
    return waitForOthers(`the volume was moved to node ${volume.spec.nodeName}; move it back, or finish`);
  }
  if (status?.imported && isMoving(objects)) {
    return spec.finish ? { do: "begin finishing" } : waitForOthers("waits until the volume is not moved any more");
  }
  // of a volume that was deleted with its claim meanwhile, nothing is created again
  const isGone = status?.imported && volume === undefined;
  if (isGone && isStillOurs(objects)) {
    if (spec.finish) return { do: "begin finishing" };
    return waitForOthers("its LVMVolume is gone, or being moved to another node");
  }
  if (status?.persistentVolume !== undefined) {
    // a PersistentVolume that was to be replaced, when its volume was deleted, goes by its policy
    const step = isGone ? policyStep(objects) : nextReturnStep(objects);
    if (step !== undefined) return step;
  }
  // without its record, the LVMImport was restored, or the volume is not its own: what it would undo may be used
  const isOwn = status?.persistentVolume !== undefined || volume?.spec.imports?.action === "Inspect";
  if (volume !== undefined && isOwn) {
    return returnStep(objects, volume) ?? waitUntilGone(volume) ?? { do: "forget volume" };
  }
  return classRestoreStep(objects) ??
    (metadata.deletionTimestamp === undefined ? { do: "finish", state: "Failed" } : { do: "remove finalizer" });
}

/** Reports whether a move has begun to change the volume, or its PersistentVolume. */
function isMoving({ volume, persistentVolume }: ImportObjects): boolean {
  return volume?.spec.held === true || persistentVolume?.metadata.annotations?.[MOVE_ANNOTATION] !== undefined;
}

/** Reports whether the claim has the PersistentVolume of the driver. */
function isStillOurs({ self, persistentVolume, claim }: ImportObjects): boolean {
  return claim?.metadata.uid === self.spec.claim.uid && persistentVolume !== undefined &&
    isOurs(self, persistentVolume);
}

/** Returns the next step after which the PersistentVolume is as it was; `undefined` when it is. */
function nextReturnStep(objects: ImportObjects): ImportStep | undefined {
  const { self, persistentVolume, volume } = objects;
  if (persistentVolume === undefined) {
    return (volume && returnStep(objects, volume)) ?? { do: "recreate persistent volume" };
  }
  const isDeleting = persistentVolume.metadata.deletionTimestamp !== undefined;
  if (isOurs(self, persistentVolume)) {
    // as long as its PersistentVolume exists, the volume can be used
    const isReturning = isDeleting || volume === undefined || volume.spec.imports?.action === "Return";
    return (isReturning ? undefined : inspectionStep(objects, volume)) ?? deletionOf(persistentVolume);
  }
  return isDeleting ? deletionOf(persistentVolume) : bindingWait(objects) ?? policyStep(objects);
}

/** Returns the next step after which the LV is not the driver's; `undefined` when it is not. */
function returnStep(objects: ImportObjects, volume: LvmVolume): ImportStep | undefined {
  const { spec: { imports, nodeName } } = volume;
  const condition = importedCondition(volume);
  if (imports === undefined || imports.action === "Inspect") return undefined;
  // an attempt of the agent may have succeeded while another inspection was asked for
  if (condition?.reason === "Returned") return undefined;
  if (imports.action === "Return") {
    return condition?.reason === "Refused" ? { do: "inspect return" } : waitForAgent(nodeName, condition?.message);
  }
  // what the agent has not imported yet, it may import until it knows of the return
  if (imports.action === "Import" && condition?.status !== "True") return { do: "return" };
  return inspectionStep(objects, volume) ?? { do: "return" };
}

/** Returns the next step after which it is known that the LV can be returned; `undefined` when it can. */
function inspectionStep(objects: ImportObjects, volume: LvmVolume): ImportStep | undefined {
  const { spec: { imports, nodeName } } = volume;
  const condition = importedCondition(volume);
  const obstacle = obstacleOf(objects);
  // the agent is not asked while the objects alone say it: their end is observed, and its next report comes with the minute
  if (obstacle !== undefined && condition?.status === "True") return keepStep(objects, obstacle);
  if (imports?.action !== "InspectReturn") return { do: "inspect return" };
  if (condition?.reason === "Returnable" || condition?.reason === "Returned") return undefined;
  if (condition?.reason === "NotReturnable") return keepStep(objects, condition.message);
  return waitForAgent(nodeName);
}

/** Returns what of the objects is in the way of a return; `undefined` when nothing is. */
function obstacleOf({ self: { spec }, object, snapshots }: ImportObjects): string | undefined {
  if (snapshots.length > 0) return `waits until snapshots ${snapshots.join(", ")} are deleted`;
  if (spec.object === undefined) return undefined;
  const resource = objectsOf(spec.from);
  const name = `${resource?.kind}.${resource?.group} ${spec.object.name}`;
  const { title } = ORIGINS[spec.from];
  // TopoLVM finds the LV by the uid of the object
  if (object?.metadata.uid !== spec.object.uid) return `${title} does not know the volume any more: ${name} is gone`;
  if (object.metadata.deletionTimestamp === undefined) return undefined;
  return `${title} would remove the logical volume: ${name} is being deleted`;
}

/** Returns the next step after which the claim is bound to the volume of the driver, which cannot be returned now. */
function keepStep(objects: ImportObjects, obstacle: string): ImportStep {
  const { self: { spec, status }, persistentVolume } = objects;
  if (persistentVolume === undefined) return { do: "create persistent volume" };
  const step = bindingWait(objects) ?? (status?.imported ? policyStep(objects) : { do: "begin use" as const });
  if (step !== undefined) return step;
  return spec.finish
    ? { do: "begin finishing" }
    : waitForAgent(spec.volume.nodeName, `it cannot be returned: ${obstacle}`);
}

/** Returns the next step of the deletion of a PersistentVolume. */
function deletionOf(persistentVolume: PersistentVolume): ImportStep {
  return deletionStep(persistentVolume, {
    isRetained: persistentVolume.spec?.persistentVolumeReclaimPolicy === "Retain",
  });
}

function waitForOthers(message: string): ImportStep {
  return { do: "wait", message, agents: [] };
}

/**
 * Returns the next step after which a PersistentVolume has its policy again. Of one of the driver, that is done once: what a move
 * or a user sets stays.
 */
function policyStep({ self, persistentVolume }: ImportObjects): ImportStep | undefined {
  const policy = recordedPolicyOf(self);
  if (persistentVolume === undefined || policy === undefined) return undefined;
  const { metadata: { annotations = {} }, spec } = persistentVolume;
  const isDue = isOurs(self, persistentVolume)
    ? annotations[RETAINED_ANNOTATION] !== undefined && annotations[MOVE_ANNOTATION] === undefined
    : spec?.persistentVolumeReclaimPolicy !== policy;
  return isDue ? { do: "restore policy" } : undefined;
}

/** Returns the next step after which the class is as it was; `undefined` when it is, or others need it. */
function classRestoreStep(objects: ImportObjects): ImportStep | undefined {
  const { self: { status }, storageClass, isClassShared } = objects;
  if (status?.storageClass === undefined || isClassShared) return undefined;
  if (storageClass === undefined) return { do: "restore class" };
  const isReplaced = storageClass.metadata.annotations?.[REPLACED_CLASS_ANNOTATION] !== undefined;
  return isReplaced ? classDeletionStep(storageClass) : undefined;
}

function classDeletionStep(storageClass: StorageClass): ImportStep {
  const { name, finalizers = [] } = storageClass.metadata;
  return waitForFinalizers(`StorageClass ${name}`, storageClass, finalizers) ?? { do: "delete class" };
}

/** Reports whether a PersistentVolume is the one of the driver. */
export function isOurs({ metadata, spec }: LvmImport, { spec: { csi } = {} }: PersistentVolume): boolean {
  return csi?.driver === spec.driverName && csi.volumeHandle === metadata.name;
}
