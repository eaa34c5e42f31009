/**
 * Imports volumes of other drivers, as LVMImports request.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ApiClient, ApiError, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { namesOfBlocking } from "../api/snapshot_mapping.ts";
import { type ImportedLvSpec, lvmVolumes } from "../api/lvm_objects.ts";
import { type KubeObject, persistentVolumes, type Resource, storageClasses } from "../api/objects.ts";
import { type BoundVolumeInformers, sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import { isFinished, messageBefore, refused } from "./handover.ts";
import {
  HandoverController,
  type HandoverControllerOptions,
  type HandoverKind,
  readCommon,
} from "./handover_controller.ts";
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
export interface ImporterOptions extends SidecarOptions, HandoverControllerOptions, BoundVolumeInformers {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** All LVMImports. */
  readonly imports: Informer<LvmImport>;
}

/** Carries out LVMImports. */
export class Importer {
  readonly #options: ImporterOptions;

  /** Creates it; nothing runs before {@linkcode Importer.run}. */
  constructor(options: ImporterOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { imports, lvmVolumes, snapshots, claims, persistentVolumes, classes } = this.#options;
    const having = (matches: (spec: LvmImport["spec"]) => boolean) =>
      imports.list().filter((one) => !isFinished(one) && matches(one.spec)).map(({ metadata: { name } }) => name);
    const changes = { replay: false };
    const handovers = new HandoverController(this.#kind(), this.#options);
    await sidecarController("importer", this.#options, (name) => handovers.reconcile(name))
      .watch(imports)
      .watch(lvmVolumes, ({ metadata: { name } }) => imports.get(name) === undefined ? [] : [name], changes)
      .watch(snapshots, ({ spec }) => imports.get(spec.sourceVolume) === undefined ? [] : [spec.sourceVolume], changes)
      .watch(persistentVolumes, ({ metadata }) => having((spec) => spec.persistentVolume === metadata.name), changes)
      .watch(claims, ({ metadata: { uid } }) => having((spec) => spec.claim.uid === uid), changes)
      .watch(classes, ({ metadata }) => having((spec) => spec.storageClass?.name === metadata.name), changes)
      .run(signal);
  }

  #kind(): HandoverKind<LvmImport, ImportObjects, OwnImportStep> {
    return {
      name: "importer",
      resource: lvmImports,
      finalizer: IMPORT_FINALIZER,
      marks: [RETAINED_ANNOTATION],
      // what is restored of the PersistentVolume of another driver is recorded, and no mark is left on that
      marksOf: ({ self, persistentVolume }): Record<string, string> =>
        isOurs(self, persistentVolume!) ? { [RETAINED_ANNOTATION]: "true" } : {},
      read: (self) => this.#read(self),
      nextStep: (objects) => {
        const message = isUndone(objects.self) ? undefined : refusalOf(objects);
        if (message !== undefined) return refused(message);
        return nextStep(objects);
      },
      statusBefore: ({ self }, step, failure) => ({
        state: stateOf(step, self),
        message: messageBefore(self, step, failure),
      }),
      carryOut: (step, objects) => carryOut(step, objects, this.#options),
      refusalText: (error) =>
        error instanceof ApiError && error.status === 403
          ? `the controller lacks a right for imports (value controller.importRights): ${error.message}`
          : error.message,
    };
  }

  async #read(self: LvmImport): Promise<ImportObjects> {
    const { client, snapshots } = this.#options;
    const { from, storageClass, object } = self.spec;
    const resource = objectsOf(from);
    const mayConflict = !isUndone(self) && self.status?.persistentVolume === undefined;
    const [common, currentClass, currentObject, isClassShared, others] = await Promise.all([
      readCommon(client, self),
      storageClass && orAbsent(client.get(storageClasses, { name: storageClass.name })),
      resource && object && orAbsent(client.get(resource, object)),
      storageClass !== undefined && this.#isClassShared(self, storageClass.name),
      mayConflict ? client.list(lvmImports).then(({ items }) => items) : [],
    ]);
    const { volume } = common;
    return {
      ...common,
      storageClass: currentClass,
      object: currentObject,
      snapshots: volume === undefined ? [] : namesOfBlocking(volume, snapshots.list()),
      isClassShared,
      others,
    };
  }

  /** Reports whether another import, which is not undone, has taken over a volume of a class. */
  async #isClassShared(self: LvmImport, className: string): Promise<boolean> {
    const { client, imports } = this.#options;
    // what is undone would take away the class of one that the cache does not show yet
    const all = isUndone(self) ? (await client.list(lvmImports)).items : imports.list();
    return all.some((other) =>
      other.metadata.uid !== self.metadata.uid && other.spec.storageClass?.name === className &&
      other.status?.persistentVolume !== undefined && !isUndone(other)
    );
  }
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
    case "take":
      return await request("Take");
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
