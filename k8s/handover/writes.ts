/**
 * How handovers change objects: only as they were read, and so that each change may be repeated.
 *
 * @module
 */

import {
  type ApiClient,
  isAlreadyExists,
  type MergePatch,
  type NewObject,
  orAbsentOrChanged,
} from "../client/client.ts";
import { LVM_VOLUME_FINALIZER, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import type { KubeObject, Resource } from "../api/objects.ts";
import type { Handover } from "./handover.ts";

/** Changes an object, if it is still as it was read. @returns the object as it is then; `undefined` if it is not changed */
export async function patchAsRead<T extends KubeObject>(
  client: ApiClient,
  resource: Resource<T>,
  { metadata: { name, namespace, resourceVersion } }: T,
  merge: MergePatch<T>,
): Promise<T | undefined> {
  return await orAbsentOrChanged(client.patch(resource, { name, namespace }, { merge, resourceVersion }));
}

/** Writes a part of the status, if the handover is still as it was read. @returns the handover, if it was written */
export async function writeStatus<H extends Handover>(
  client: ApiClient,
  resource: Resource<H>,
  { metadata: { name, resourceVersion } }: H,
  status: MergePatch<NonNullable<H["status"]>>,
): Promise<H | undefined> {
  const merge = { status } as MergePatch<H>;
  return await orAbsentOrChanged(client.patch(resource, { name }, { merge, resourceVersion, subresource: "status" }));
}

/** Creates an object, unless one of the name exists. */
export async function createOnce<T extends KubeObject>(
  client: ApiClient,
  resource: Resource<T>,
  object: NewObject<T>,
): Promise<void> {
  await client.create(resource, object).catch((error) => {
    if (!isAlreadyExists(error)) throw error;
  });
}

/** Deletes an object, if it is still as it was read. */
export async function deleteAsRead(client: ApiClient, resource: Resource, { metadata }: KubeObject): Promise<void> {
  const { name, namespace, uid, resourceVersion } = metadata;
  await orAbsentOrChanged(client.delete(resource, { name, namespace }, { uid, resourceVersion }));
}

/** Removes an LVMVolume without its LV, which is that of another LVMVolume, or of another driver. */
export async function forgetVolume(client: ApiClient, volume: LvmVolume): Promise<void> {
  const { name, uid, finalizers = [] } = volume.metadata;
  const others = finalizers.filter((one) => one !== LVM_VOLUME_FINALIZER);
  const isFree = others.length === finalizers.length ||
    await patchAsRead(client, lvmVolumes, volume, { metadata: { finalizers: others } }) !== undefined;
  if (isFree) await orAbsentOrChanged(client.delete(lvmVolumes, { name }, { uid }));
}
