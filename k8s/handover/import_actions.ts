/**
 * Executes the steps of an import. Each may be repeated, and each changes an object only as it was read.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ApiClient, isAlreadyExists, type MergePatch, orAbsentOrChanged } from "../client/client.ts";
import { LVM_VOLUME_FINALIZER, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import {
  type KubeObject,
  type PersistentVolume,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../api/objects.ts";
import { foreignFinalizers, recordOf } from "./persistent_volume.ts";
import {
  driverClassOf,
  driverVolumeOf,
  earlierClassOf,
  earlierVolumeOf,
  recordOfClass,
  volumeOf,
} from "./replacements.ts";
import { IMPORT_FINALIZER, type LvmImport, lvmImports, type LvmImportStatus, RETAINED_ANNOTATION } from "./imports.ts";
import { objectsOf } from "./origins.ts";
import { type ImportObjects, type ImportStep, isOurs } from "./import_step.ts";

/** Options of {@linkcode carryOut}. */
export interface ImportActionsOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
}

/** Carries out a step. @throws {ApiError} */
export async function carryOut(
  step: ImportStep,
  objects: ImportObjects,
  { client, topologyKey }: ImportActionsOptions,
): Promise<void> {
  const { import: self, volume, persistentVolume, storageClass, object } = objects;
  const { finalizers = [] } = self.metadata;
  switch (step.do) {
    case "add finalizer":
      return await patch(client, lvmImports, self, { metadata: { finalizers: [...finalizers, IMPORT_FINALIZER] } });
    case "remove finalizer":
      return await patch(client, lvmImports, self, {
        metadata: { finalizers: finalizers.filter((name) => name !== IMPORT_FINALIZER) },
      });
    case "create volume":
      return await create(client, lvmVolumes, volumeOf(self));
    case "set layout":
      return await patch(client, lvmVolumes, volume!, { spec: { layout: volume!.status!.layout! } });
    case "record":
      return await writeStatus(client, self, recordedStatus(objects));
    case "delete class":
      return await remove(client, storageClasses, storageClass!);
    case "create class":
      return await create(client, storageClasses, driverClassOf(self));
    case "restore class":
      return await create(client, storageClasses, earlierClassOf(self));
    case "retain":
      return await setPolicy(client, persistentVolume!, "Retain", isOurs(self, persistentVolume!) ? "true" : undefined);
    case "restore policy":
      return await setPolicy(
        client,
        persistentVolume!,
        self.status!.persistentVolume!.spec.persistentVolumeReclaimPolicy!,
        null,
      );
    case "delete persistent volume":
      return await deletePersistentVolume(client, persistentVolume!);
    case "create persistent volume":
      return await create(client, persistentVolumes, driverVolumeOf(self, topologyKey));
    case "recreate persistent volume":
      return await create(client, persistentVolumes, earlierVolumeOf(self));
    case "take":
      return await patch(client, lvmVolumes, volume!, { spec: { imports: { action: "Take" } } });
    case "inspect return":
      return await patch(client, lvmVolumes, volume!, { spec: { imports: { action: "InspectReturn" } } });
    case "return":
      return await patch(client, lvmVolumes, volume!, { spec: { imports: { action: "Return" } } });
    case "begin use":
      return await writeStatus(client, self, { imported: true });
    case "begin finishing":
      return await writeStatus(client, self, { finishing: true });
    case "remove object":
      return await removeObject(client, objectsOf(self.spec.from)!, object!);
    case "forget volume":
      return await forgetVolume(client, volume!);
    case "fail":
      return await writeStatus(client, self, { error: { code: "FailedPrecondition", message: step.message } });
    case "finish":
      return await writeStatus(client, self, {
        state: step.state,
        ...(step.state === "Complete" && { message: "" }),
      });
    case "nothing":
    case "wait":
  }
}

/** Writes a part of the status, if the import is still as it was read. */
export async function writeStatus(client: ApiClient, self: LvmImport, status: LvmImportStatus): Promise<void> {
  const { name, resourceVersion } = self.metadata;
  const merge = { status } as MergePatch<LvmImport>;
  await orAbsentOrChanged(client.patch(lvmImports, { name }, { merge, resourceVersion, subresource: "status" }));
}

/** Returns what is recorded before anything of another driver is changed. */
function recordedStatus({ import: { spec }, persistentVolume, storageClass, object }: ImportObjects): LvmImportStatus {
  const isReplaced = spec.storageClass !== undefined && storageClass !== undefined;
  return {
    persistentVolume: recordOf(persistentVolume!),
    ...defined({ storageClass: isReplaced ? recordOfClass(storageClass, spec.driverName) : undefined }),
    ...defined({ object: object as Record<string, unknown> | undefined }),
  };
}

async function patch<T extends KubeObject>(
  client: ApiClient,
  resource: Resource<T>,
  { metadata: { name, namespace, resourceVersion } }: T,
  merge: MergePatch<T>,
): Promise<void> {
  await orAbsentOrChanged(client.patch(resource, { name, namespace }, { merge, resourceVersion }));
}

async function create<T extends KubeObject>(
  client: ApiClient,
  resource: Resource<T>,
  object: Parameters<typeof client.create<T>>[1],
): Promise<void> {
  await client.create(resource, object).catch((error) => {
    if (!isAlreadyExists(error)) throw error;
  });
}

async function remove(client: ApiClient, resource: Resource, { metadata }: KubeObject): Promise<void> {
  const { name, namespace, uid } = metadata;
  await orAbsentOrChanged(client.delete(resource, { name, namespace }, { uid }));
}

/** Sets the policy. @param mark the value of the annotation that says that it is to be restored; `null` for none */
async function setPolicy(
  client: ApiClient,
  object: PersistentVolume,
  policy: string,
  mark: "true" | null | undefined,
): Promise<void> {
  await patch(client, persistentVolumes, object, {
    ...(mark !== undefined && { metadata: { annotations: { [RETAINED_ANNOTATION]: mark } } }),
    spec: { persistentVolumeReclaimPolicy: policy },
  });
}

/** Deletes a PersistentVolume although it is bound: what it stands for stays, because its policy is Retain. */
async function deletePersistentVolume(client: ApiClient, object: PersistentVolume): Promise<void> {
  if (object.metadata.deletionTimestamp === undefined) return await remove(client, persistentVolumes, object);
  await patch(client, persistentVolumes, object, { metadata: { finalizers: foreignFinalizers(object) } });
}

/**
 * Removes the object by which the other driver knows a volume. Its finalizers go first, so that no program of that driver
 * takes the deletion for the end of the volume.
 */
async function removeObject(client: ApiClient, resource: Resource, object: KubeObject): Promise<void> {
  if ((object.metadata.finalizers ?? []).length > 0) {
    return await patch(client, resource, object, { metadata: { finalizers: [] } });
  }
  await remove(client, resource, object);
}

/** Removes an LVMVolume whose LV is not the driver's, so that nothing is removed with it. */
async function forgetVolume(client: ApiClient, volume: LvmVolume): Promise<void> {
  const { finalizers = [] } = volume.metadata;
  if (!finalizers.includes(LVM_VOLUME_FINALIZER)) return await remove(client, lvmVolumes, volume);
  await patch(client, lvmVolumes, volume, {
    metadata: { finalizers: finalizers.filter((name) => name !== LVM_VOLUME_FINALIZER) },
  });
}
