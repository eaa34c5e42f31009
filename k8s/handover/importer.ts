/**
 * Imports volumes of other drivers, as LVMImports request.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ApiClient, ApiError, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { type ImportedLvSpec, lvmVolumes } from "../api/lvm_objects.ts";
import { namesOfBlocking } from "../api/snapshot_mapping.ts";
import { type KubeObject, persistentVolumes, type Resource, storageClasses } from "../api/objects.ts";
import { type HandoverObjects, messageBefore } from "./handover.ts";
import { HandoverController, type HandoverControllerOptions, type HandoverKind } from "./handover_controller.ts";
import { refusalOf } from "./import_checks.ts";
import { isOurs, isUndone, nextStep, stateOf } from "./import_step.ts";
import {
  IMPORT_FINALIZER,
  type ImportObjects,
  type LvmImport,
  lvmImports,
  type LvmImportStatus,
  objectsOf,
  type OwnImportStep,
  RETAINED_ANNOTATION,
} from "./imports.ts";
import { recordOf, volumeFrom } from "./persistent_volume.ts";
import { driverClassOf, driverVolumeOf, earlierClassOf, recordOfClass, volumeOf } from "./replacements.ts";
import { createOnce, deleteAsRead, forgetVolume, patchAsRead, writeStatus } from "./writes.ts";

/** Options of {@linkcode Importer}. The caller starts and shares the informers. */
export interface ImporterOptions extends HandoverControllerOptions {
  /** All LVMImports. */
  readonly imports: Informer<LvmImport>;
}

/** Carries out LVMImports. */
export class Importer extends HandoverController<LvmImport, ImportObjects, OwnImportStep> {
  /** Creates it; nothing runs before {@linkcode HandoverController.run}. */
  constructor(options: ImporterOptions) {
    super(importKind(options), options);
  }
}

function importKind(options: ImporterOptions): HandoverKind<LvmImport, ImportObjects, OwnImportStep> {
  return {
    name: "importer",
    resource: lvmImports,
    informer: options.imports,
    finalizer: IMPORT_FINALIZER,
    // what is restored of the PersistentVolume of another driver is recorded, and no mark is left on that
    marksOf: ({ self, persistentVolume }): Record<string, string> =>
      isOurs(self, persistentVolume!) ? { [RETAINED_ANNOTATION]: "true" } : {},
    watch: (controller, named) => {
      const importsOf = (className: string) => named((spec) => spec.storageClass?.name === className);
      controller.watch(options.classes, ({ metadata: { name } }) => importsOf(name), { replay: false });
    },
    read: (self, common) => readObjects(self, common, options),
    refusalOf: (objects) => isUndone(objects.self) ? undefined : refusalOf(objects),
    nextStep,
    statusBefore: ({ self }, step, failure) => ({
      state: stateOf(step, self),
      message: messageBefore(self, step, failure),
    }),
    carryOut: (step, objects) => carryOut(step, objects, options),
    failureText: (error) =>
      error instanceof ApiError && error.status === 403
        ? `the controller lacks a right for imports (value controller.importRights): ${error.message}`
        : error.message,
  };
}

async function readObjects(
  self: LvmImport,
  common: Promise<HandoverObjects<LvmImport>>,
  { client, snapshots, imports }: ImporterOptions,
): Promise<ImportObjects> {
  const { from, storageClass, object } = self.spec;
  const resource = objectsOf(from);
  // what is undone would take away the class of one that the cache does not show yet
  const isExact = isUndone(self) ? storageClass !== undefined : self.status?.persistentVolume === undefined;
  const [objects, currentClass, currentObject, others] = await Promise.all([
    common,
    storageClass && orAbsent(client.get(storageClasses, { name: storageClass.name })),
    resource && object && orAbsent(client.get(resource, object)),
    isExact ? client.list(lvmImports).then(({ items }) => items) : imports.list(),
  ]);
  const { volume } = objects;
  return {
    ...objects,
    storageClass: currentClass,
    object: currentObject,
    snapshots: volume === undefined ? [] : namesOfBlocking(volume, snapshots.list()),
    isClassShared: storageClass !== undefined &&
      others.some((other) =>
        other.metadata.uid !== self.metadata.uid && other.spec.storageClass?.name === storageClass.name &&
        other.status?.persistentVolume !== undefined && !isUndone(other)
      ),
    others,
  };
}

/** Carries out a step. @throws {ApiError} */
async function carryOut(
  step: OwnImportStep,
  objects: ImportObjects,
  { client, topologyKey }: ImporterOptions,
): Promise<LvmImport | undefined | void> {
  const { self, volume, storageClass, object } = objects;
  const write = (status: LvmImportStatus) => writeStatus(client, lvmImports, self, status);
  const request = async (action: ImportedLvSpec["action"]) =>
    void await patchAsRead(client, lvmVolumes, volume!, { spec: { imports: { action } } });
  switch (step.do) {
    case "create volume":
      return await createOnce(client, lvmVolumes, volumeOf(self));
    case "set layout":
      return void await patchAsRead(client, lvmVolumes, volume!, { spec: { layout: volume!.status!.layout! } });
    case "record":
      return await write(recordedStatus(objects));
    case "delete class":
      return await deleteAsRead(client, storageClasses, storageClass!);
    case "create class":
      return await createOnce(client, storageClasses, driverClassOf(self));
    case "restore class":
      return await createOnce(client, storageClasses, earlierClassOf(self));
    case "create persistent volume":
      return await createOnce(client, persistentVolumes, driverVolumeOf(self, topologyKey));
    case "recreate persistent volume":
      return await createOnce(client, persistentVolumes, volumeFrom(self, self.status!.persistentVolume!));
    case "import":
      return await request("Import");
    case "inspect return":
      return await request("InspectReturn");
    case "return":
      return await request("Return");
    case "begin use":
      return await write({ imported: true });
    case "begin finishing":
      return await write({ finishing: true });
    case "remove object":
      return await removeObject(client, objectsOf(self.spec.from)!, object!);
    case "forget volume":
      return await forgetVolume(client, volume!);
    case "finish":
      return await write({ state: step.state, ...(step.state === "Complete" && { message: "" }) });
  }
}

/** Returns what is recorded before anything of another driver is changed. */
function recordedStatus({ self: { spec }, persistentVolume, storageClass, object }: ImportObjects): LvmImportStatus {
  const isReplaced = spec.storageClass !== undefined && storageClass !== undefined;
  return {
    persistentVolume: recordOf(persistentVolume!),
    ...defined({
      storageClass: isReplaced ? recordOfClass(storageClass, spec.driverName) : undefined,
      object: object as Record<string, unknown> | undefined,
    }),
  };
}

/**
 * Removes the object by which the other driver knows a volume. Its finalizers go first, so that no program of that driver
 * takes the deletion for the end of the volume.
 */
async function removeObject(client: ApiClient, resource: Resource, object: KubeObject): Promise<void> {
  if ((object.metadata.finalizers ?? []).length === 0) return await deleteAsRead(client, resource, object);
  await patchAsRead(client, resource, object, { metadata: { finalizers: [] } });
}
