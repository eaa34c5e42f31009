/**
 * What a claim's volume is to be made from: found by what the claim names, as the official provisioner finds it.
 *
 * Everything is asked of the API server itself, at that moment: it is asked once, before a volume is begun.
 *
 * @module
 */

import { dataSourceOf } from "./claim.ts";
import { ClaimError } from "../sidecars/class_parameters.ts";
import { type ApiClient, isNotFound } from "../client/client.ts";
import type { ContentSource } from "../sidecars/csi_client.ts";
import {
  type KubeObject,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
} from "../api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";

/** Says on a VolumeSnapshotContent that volumes of another mode may be made from it. Only an administrator can write it. */
export const ALLOW_MODE_CHANGE = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/** Keeps a claim as long as others are made from it. The official provisioner has the same. */
export const CLONING_FINALIZER = "provisioner.storage.kubernetes.io/cloning-protection";

/** What {@linkcode findContentSource} works with. */
export interface SourceOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driverName: string;
  /** Ends the asking. */
  readonly signal: AbortSignal;
}

/**
 * What the claim's volume is to be made from; `undefined` for one that is made empty. A claim that is a source is protected
 * from then on.
 *
 * @throws {ClaimError} for a source that is not there, not ready, being deleted, of another driver or of another mode.
 */
export async function findContentSource(
  claim: PersistentVolumeClaim,
  options: SourceOptions,
): Promise<ContentSource | undefined> {
  const source = dataSourceOf(claim);
  if (source.kind !== "snapshot" && source.kind !== "claim") return undefined;
  const { namespace } = claim.metadata;
  if (source.namespace !== undefined && source.namespace !== namespace) {
    throw new ClaimError(`dataSourceRef: ${source.kind} ${source.namespace}/${source.name} is in another namespace`);
  }
  const at = { namespace, name: source.name };
  return source.kind === "snapshot" ? await snapshotSource(claim, at, options) : await claimSource(claim, at, options);
}

async function snapshotSource(
  claim: PersistentVolumeClaim,
  at: { namespace: string | undefined; name: string },
  options: SourceOptions,
): Promise<ContentSource> {
  const what = `dataSource: VolumeSnapshot ${at.name}`;
  const snapshot = await read(volumeSnapshots, at, options, what);
  if (snapshot.metadata.deletionTimestamp !== undefined) throw new ClaimError(`${what} is being deleted`);
  const { boundVolumeSnapshotContentName: name, readyToUse } = snapshot.status ?? {};
  if (name === undefined) throw new ClaimError(`${what} is not bound yet`);
  const content = await read(volumeSnapshotContents, { name }, options, `${what}: VolumeSnapshotContent ${name}`);
  const { driver, volumeSnapshotRef: ref, sourceVolumeMode } = content.spec;
  if (ref.uid !== snapshot.metadata.uid || ref.namespace !== at.namespace || ref.name !== at.name) {
    throw new ClaimError(`${what}: VolumeSnapshotContent ${name} belongs to another VolumeSnapshot`);
  }
  if (driver !== options.driverName) throw new ClaimError(`${what} is of the driver ${driver}`);
  if (readyToUse !== true) throw new ClaimError(`${what} is not ready yet`);
  const handle = content.status?.snapshotHandle;
  if (handle === undefined) throw new ClaimError(`${what} has no handle yet`);
  const mode = modeOf(claim.spec?.volumeMode);
  if (sourceVolumeMode !== undefined && sourceVolumeMode !== mode && !mayChangeMode(content)) {
    throw new ClaimError(
      `${what} is of a ${sourceVolumeMode} volume, asked for is ${mode}; an administrator may allow that by the annotation ` +
        `${ALLOW_MODE_CHANGE}=true on VolumeSnapshotContent ${name}`,
    );
  }
  return { of: "snapshot", handle };
}

async function claimSource(
  claim: PersistentVolumeClaim,
  at: { namespace: string | undefined; name: string },
  options: SourceOptions,
): Promise<ContentSource> {
  const what = `dataSource: PersistentVolumeClaim ${at.name}`;
  const original = await read(persistentVolumeClaims, at, options, what);
  if (original.metadata.deletionTimestamp !== undefined) throw new ClaimError(`${what} is being deleted`);
  const name = original.spec?.volumeName;
  if (original.status?.phase !== "Bound" || !name) throw new ClaimError(`${what} is not bound yet`);
  const volume = await read(persistentVolumes, { name }, options, `${what}: PersistentVolume ${name}`);
  const { csi, claimRef, volumeMode } = volume.spec ?? {};
  if (csi?.driver !== options.driverName) throw new ClaimError(`${what} is of the driver ${csi?.driver ?? "(none)"}`);
  if (claimRef?.uid !== original.metadata.uid || volume.status?.phase !== "Bound") {
    throw new ClaimError(`${what}: PersistentVolume ${name} is not bound to it`);
  }
  const [mode, its] = [modeOf(claim.spec?.volumeMode), modeOf(volumeMode)];
  if (mode !== its) throw new ClaimError(`${what} is a ${its} volume, asked for is ${mode}`);
  await protect(original, options);
  return { of: "volume", handle: csi.volumeHandle };
}

/** Puts the finalizer on a claim that others are made from. */
async function protect({ metadata }: PersistentVolumeClaim, { client, signal }: SourceOptions): Promise<void> {
  const { namespace, name, uid, resourceVersion, finalizers = [] } = metadata;
  if (finalizers.includes(CLONING_FINALIZER)) return;
  const merge = { metadata: { uid, finalizers: [...finalizers, CLONING_FINALIZER] } };
  await client.patch(persistentVolumeClaims, { namespace, name }, { merge, resourceVersion, signal });
}

async function read<T extends KubeObject>(
  resource: Resource<T>,
  at: { namespace?: string | undefined; name: string },
  { client, signal }: SourceOptions,
  what: string,
): Promise<T> {
  try {
    return await client.get(resource, at, { signal });
  } catch (error) {
    if (isNotFound(error)) throw new ClaimError(`${what}: there is none`);
    throw error;
  }
}

function modeOf(volumeMode: string | undefined): string {
  return volumeMode ?? "Filesystem";
}

/** What Go's ParseBool takes for true, as the official provisioner reads the annotation. */
function mayChangeMode({ metadata }: KubeObject): boolean {
  return /^(?:1|t|T|true|TRUE|True)$/.test(metadata.annotations?.[ALLOW_MODE_CHANGE] ?? "");
}
