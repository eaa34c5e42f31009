/**
 * What an import does next, by the objects as they are. Nothing else is remembered but what the LVMImport records, so it goes
 * on where it was after the death of any process (docs/adr/0031).
 *
 * @module
 */

import { importedCondition } from "../api/imported.ts";
import { type LvmVolume, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import type { KubeObject, PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { foreignFinalizers } from "./persistent_volume.ts";
import { objectsOf, ORIGINS } from "./origins.ts";
import {
  IMPORT_FINALIZER,
  type ImportState,
  isFinished,
  type LvmImport,
  REPLACED_CLASS_ANNOTATION,
  RETAINED_ANNOTATION,
} from "./imports.ts";

/** The objects that an import is about, as the API server has them. */
export interface ImportObjects {
  /** The import. */
  readonly import: LvmImport;
  /** The LVMVolume that the volume becomes. */
  readonly volume: LvmVolume | undefined;
  /** The PersistentVolume of the name, of either driver. */
  readonly persistentVolume: PersistentVolume | undefined;
  /** The claim of the name. */
  readonly claim: PersistentVolumeClaim | undefined;
  /** The class of the name, of either driver. */
  readonly storageClass: StorageClass | undefined;
  /** The object of the other driver. */
  readonly object: KubeObject | undefined;
  /** The names of the snapshots without which the LV cannot be given back. */
  readonly snapshots: readonly string[];
  /** Whether another import needs the class as it was made anew. */
  readonly isClassShared: boolean;
  /** The other imports, as long as this one has changed nothing of others. */
  readonly others: readonly LvmImport[];
}

/** A step of an import. */
export type ImportStep =
  | {
    readonly do:
      | "nothing"
      | "add finalizer"
      | "remove finalizer"
      | "create volume"
      | "set layout"
      | "record"
      | "delete class"
      | "create class"
      | "restore class"
      | "retain"
      | "delete persistent volume"
      | "take"
      | "create persistent volume"
      | "begin use"
      | "restore policy"
      | "begin finishing"
      | "remove object"
      | "inspect return"
      | "return"
      | "recreate persistent volume"
      | "forget volume";
  }
  /** Record why the import cannot go on. */
  | { readonly do: "fail"; readonly message: string }
  /** Write the state, and wait for a change of the objects, which the agent has to bring about, or somebody else. */
  | { readonly do: "wait"; readonly message: string; readonly isForAgent: boolean }
  /** The end. */
  | { readonly do: "finish"; readonly state: Extract<ImportState, "Complete" | "Failed"> };

/** Returns the next step of an import. */
export function nextStep(objects: ImportObjects): ImportStep {
  const { import: { metadata, status }, import: self } = objects;
  const { finalizers = [], deletionTimestamp } = metadata;
  const isDeleting = deletionTimestamp !== undefined;
  if (!finalizers.includes(IMPORT_FINALIZER)) {
    return { do: isDeleting || isFinished(self) ? "nothing" : "add finalizer" };
  }
  if (isFinished(self)) return { do: isDeleting ? "remove finalizer" : "nothing" };
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
  if (step === "finish" || isFinished(self)) return status?.state ?? "Pending";
  if (status?.finishing || step === "begin finishing") return "Finishing";
  if (isUndone(self) || step === "fail") return "Undoing";
  if (status?.imported && step !== "restore policy") return "Imported";
  if (status?.persistentVolume !== undefined || step === "record") return "Switching";
  return step === "add finalizer" ? "Pending" : "Inspecting";
}

/** Returns the next step after which the claim is bound to the volume of the driver. */
function nextForwardStep(objects: ImportObjects): ImportStep {
  const { import: { spec, status }, volume } = objects;
  if (volume === undefined) return { do: "create volume" };
  const condition = importedCondition(volume);
  if (condition?.reason === "Refused") return { do: "fail", message: condition.message };
  if (condition === undefined) {
    return { do: "wait", message: `waits for the agent of node ${spec.volume.nodeName}`, isForAgent: true };
  }
  if (volume.status?.layout !== undefined && volume.spec.layout === undefined) return { do: "set layout" };
  if (status?.persistentVolume === undefined) {
    const { storageClass: replaced } = spec;
    return replaced !== undefined && objects.storageClass === undefined && objects.isClassShared
      ? {
        do: "wait",
        message: `waits until StorageClass ${replaced.name} is made anew for another claim`,
        isForAgent: false,
      }
      : { do: "record" };
  }
  return nextClassStep(objects) ?? nextSwitchStep(objects, volume);
}

/** Returns the next step after which the class is the driver's; `undefined` when it is, or stays as it is. */
function nextClassStep({ import: { spec, status }, storageClass }: ImportObjects): ImportStep | undefined {
  if (spec.storageClass === undefined || status?.storageClass === undefined) return undefined;
  if (storageClass === undefined) return { do: "create class" };
  return storageClass.provisioner === spec.driverName ? undefined : { do: "delete class" };
}

/** Returns the next step after which the PersistentVolume is the driver's, and the first step after that. */
function nextSwitchStep(objects: ImportObjects, volume: LvmVolume): ImportStep {
  const { import: self, persistentVolume } = objects;
  if (persistentVolume !== undefined && !isOurs(self, persistentVolume)) return deletionStep(persistentVolume);
  const condition = importedCondition(volume);
  if (condition?.status !== "True") {
    if (volume.spec.imports?.action !== "Take") return { do: "take" };
    return {
      do: "wait",
      message: condition?.message ?? `waits for the agent of node ${self.spec.volume.nodeName}`,
      isForAgent: true,
    };
  }
  if (volume.status?.lvUUID === undefined) {
    return { do: "wait", message: "waits for the state of the volume", isForAgent: true };
  }
  if (persistentVolume === undefined) return { do: "create persistent volume" };
  if (persistentVolume.metadata.deletionTimestamp !== undefined) return deletionStep(persistentVolume);
  return bindingStep(objects) ?? { do: "begin use" };
}

/** Returns the next step of an import whose volume is used as one of the driver. */
function nextImportedStep(objects: ImportObjects): ImportStep {
  const restore = policyStep(objects);
  if (restore !== undefined) return restore;
  if (objects.import.spec.finish) return { do: "begin finishing" };
  return { do: "wait", message: "it can be given back, or finished", isForAgent: false };
}

/** Returns the next step after which nothing is left of the other driver. */
function nextFinishingStep({ import: { spec }, object }: ImportObjects): ImportStep {
  const isLeft = object !== undefined && object.metadata.uid === spec.object?.uid;
  return isLeft ? { do: "remove object" } : { do: "finish", state: "Complete" };
}

/** Returns the next step of an import that is undone. Whatever is in the way of it, the claim gets a PersistentVolume. */
function nextUndoStep(objects: ImportObjects): ImportStep {
  const { import: { metadata, spec, status }, volume } = objects;
  if (status?.imported && volume !== undefined && volume.spec.nodeName !== spec.volume.nodeName) {
    return {
      do: "wait",
      message: `the volume was moved to node ${volume.spec.nodeName}; move it back, or finish`,
      isForAgent: false,
    };
  }
  if (status?.imported && isMoving(objects)) {
    if (spec.finish) return { do: "begin finishing" };
    return { do: "wait", message: "waits until the volume is not moved any more", isForAgent: false };
  }
  // of a volume that was deleted with its claim meanwhile, nothing is made again
  const isGone = status?.imported && volume === undefined;
  if (isGone && isStillOurs(objects)) {
    if (spec.finish) return { do: "begin finishing" };
    return { do: "wait", message: "its LVMVolume is gone, or being moved to another node", isForAgent: false };
  }
  if (!isGone && status?.persistentVolume !== undefined) {
    const step = nextReturnStep(objects);
    if (step !== undefined) return step;
  }
  if (volume !== undefined) return returnStep(objects, volume) ?? { do: "forget volume" };
  return classRestoreStep(objects) ??
    (metadata.deletionTimestamp === undefined ? { do: "finish", state: "Failed" } : { do: "remove finalizer" });
}

/** Reports whether a move has begun to change the volume, or its PersistentVolume. */
function isMoving({ volume, persistentVolume }: ImportObjects): boolean {
  return volume?.spec.held === true || persistentVolume?.metadata.annotations?.[MOVE_ANNOTATION] !== undefined;
}

/** Reports whether the claim has the PersistentVolume of the driver. */
function isStillOurs({ import: self, persistentVolume, claim }: ImportObjects): boolean {
  return claim?.metadata.uid === self.spec.claim.uid && persistentVolume !== undefined &&
    isOurs(self, persistentVolume);
}

/** Returns the next step after which the PersistentVolume is as it was; `undefined` when it is. */
function nextReturnStep(objects: ImportObjects): ImportStep | undefined {
  const { import: self, persistentVolume, volume } = objects;
  if (persistentVolume === undefined) {
    return (volume && returnStep(objects, volume)) ?? { do: "recreate persistent volume" };
  }
  const isDeleting = persistentVolume.metadata.deletionTimestamp !== undefined;
  if (isOurs(self, persistentVolume)) {
    // as long as its PersistentVolume exists, the volume can be used
    const isReturning = isDeleting || volume === undefined || volume.spec.imports?.action === "Return";
    return (isReturning ? undefined : inspectionStep(objects, volume)) ?? deletionStep(persistentVolume);
  }
  return isDeleting ? deletionStep(persistentVolume) : bindingStep(objects) ?? policyStep(objects);
}

/** Returns the next step after which the LV is not the driver's; `undefined` when it is not. */
function returnStep(objects: ImportObjects, volume: LvmVolume): ImportStep | undefined {
  const { spec: { imports, nodeName } } = volume;
  const condition = importedCondition(volume);
  if (imports === undefined || imports.action === "Inspect") return undefined;
  // an attempt of the agent may have succeeded while another inspection was asked for
  if (condition?.reason === "Returned") return undefined;
  if (imports.action === "Return") {
    if (condition?.reason === "Refused") return { do: "inspect return" };
    return { do: "wait", message: condition?.message ?? `waits for the agent of node ${nodeName}`, isForAgent: true };
  }
  // what the agent has not taken over yet, it may take over until it knows of the return
  if (imports.action === "Take" && condition?.status !== "True") return { do: "return" };
  return inspectionStep(objects, volume) ?? { do: "return" };
}

/** Returns the next step after which it is known that the LV can be given back; `undefined` when it can. */
function inspectionStep(objects: ImportObjects, volume: LvmVolume): ImportStep | undefined {
  const { spec: { imports, nodeName } } = volume;
  const condition = importedCondition(volume);
  const obstacle = obstacleOf(objects);
  // the agent is not asked while the objects alone say it: their end is observed, and its next report comes with the minute
  if (obstacle !== undefined && condition?.status === "True") return keepStep(objects, obstacle);
  if (imports?.action !== "InspectReturn") return { do: "inspect return" };
  if (condition?.reason === "Returnable" || condition?.reason === "Returned") return undefined;
  if (condition?.reason === "NotReturnable") return keepStep(objects, condition.message);
  return { do: "wait", message: `waits for the agent of node ${nodeName}`, isForAgent: true };
}

/** Returns what of the objects is in the way of a return; `undefined` when nothing is. */
function obstacleOf({ import: { spec }, object, snapshots }: ImportObjects): string | undefined {
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

/** Returns the next step after which the claim is bound to the volume of the driver, which cannot be given back now. */
function keepStep(objects: ImportObjects, obstacle: string): ImportStep {
  const { import: { spec, status }, persistentVolume } = objects;
  if (persistentVolume === undefined) return { do: "create persistent volume" };
  const step = bindingStep(objects) ?? (status?.imported ? policyStep(objects) : { do: "begin use" as const });
  if (step !== undefined) return step;
  return spec.finish
    ? { do: "begin finishing" }
    : { do: "wait", message: `it cannot be given back: ${obstacle}`, isForAgent: true };
}

/** Returns the next step of the deletion of a PersistentVolume. Until it is made again, the claim is Lost, and no pod starts. */
function deletionStep(persistentVolume: PersistentVolume): ImportStep {
  const { metadata: { deletionTimestamp }, spec } = persistentVolume;
  if (spec?.persistentVolumeReclaimPolicy !== "Retain") return { do: "retain" };
  const foreign = foreignFinalizers(persistentVolume).join(", ");
  if (deletionTimestamp === undefined || foreign === "") return { do: "delete persistent volume" };
  return {
    do: "wait",
    isForAgent: false,
    message: `waits for others to remove the finalizers ${foreign} of the PersistentVolume`,
  };
}

/** Returns a wait until the claim is bound again; a claim that was deleted meanwhile is not waited for. */
function bindingStep({ import: { spec }, persistentVolume, claim }: ImportObjects): ImportStep | undefined {
  const { namespace, name, uid } = spec.claim;
  if (claim?.metadata.uid !== uid) return undefined;
  if (claim.status?.phase === "Bound" && persistentVolume?.status?.phase === "Bound") return undefined;
  return { do: "wait", message: `waits until claim ${namespace}/${name} is Bound again`, isForAgent: false };
}

/**
 * Returns the next step after which a PersistentVolume has its policy again. Of one of the driver, that is done once: what a move
 * or a user sets stays.
 */
function policyStep({ import: self, persistentVolume }: ImportObjects): ImportStep | undefined {
  const policy = self.status?.persistentVolume?.spec.persistentVolumeReclaimPolicy;
  if (persistentVolume === undefined || policy === undefined) return undefined;
  const { metadata: { annotations = {} }, spec } = persistentVolume;
  const isDue = isOurs(self, persistentVolume)
    ? annotations[RETAINED_ANNOTATION] !== undefined && annotations[MOVE_ANNOTATION] === undefined
    : spec?.persistentVolumeReclaimPolicy !== policy;
  return isDue ? { do: "restore policy" } : undefined;
}

/** Returns the next step after which the class is as it was; `undefined` when it is, or others need it. */
function classRestoreStep(objects: ImportObjects): ImportStep | undefined {
  const { import: { status }, storageClass, isClassShared } = objects;
  if (status?.storageClass === undefined || isClassShared) return undefined;
  if (storageClass === undefined) return { do: "restore class" };
  const isReplaced = storageClass.metadata.annotations?.[REPLACED_CLASS_ANNOTATION] !== undefined;
  return isReplaced ? { do: "delete class" } : undefined;
}

/** Reports whether a PersistentVolume is the one of the driver. */
export function isOurs({ metadata, spec }: LvmImport, { spec: { csi } = {} }: PersistentVolume): boolean {
  return csi?.driver === spec.driverName && csi.volumeHandle === metadata.name;
}
