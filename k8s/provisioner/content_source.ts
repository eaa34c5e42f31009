/**
 * The content source of a claim's volume, found as the official provisioner finds it.
 *
 * All objects are read from the API server, not from a cache: that happens once, before a volume is created.
 *
 * @module
 */

import { dataSourceOf } from "./claim.ts";
import { ClaimError } from "../sidecars/class_parameters.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import type { VolumeContentSource } from "../sidecars/csi_client.ts";
import {
  type KubeObject,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
} from "../api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";

/** The annotation of a VolumeSnapshotContent that allows volumes of another mode. Only an administrator can set it. */
export const ALLOW_MODE_CHANGE_ANNOTATION = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/** The finalizer of a claim while others are cloned from it. The official provisioner uses the same. */
export const CLONING_FINALIZER = "provisioner.storage.kubernetes.io/cloning-protection";

/** Options of {@linkcode findContentSource}. */
export interface FindContentSourceOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driverName: string;
  /** Cancels the requests. */
  readonly signal: AbortSignal;
}

/**
 * Finds the content source of a claim's volume. A claim that is a source has the finalizer from then on.
 *
 * @returns the source, or `undefined` for an empty volume
 * @throws {ClaimError} for a source that does not exist, is not ready, is being deleted, or is of another driver or
 * another mode
 */
export async function findContentSource(
  claim: PersistentVolumeClaim,
  options: FindContentSourceOptions,
): Promise<VolumeContentSource | undefined> {
  const source = dataSourceOf(claim);
  if (source.kind !== "snapshot" && source.kind !== "claim") return undefined;
  const { namespace } = claim.metadata;
  if (source.namespace !== undefined && source.namespace !== namespace) {
    throw unsuitable(`dataSourceRef: ${source.kind} ${source.namespace}/${source.name} is in another namespace`);
  }
  const reference = { namespace, name: source.name };
  return source.kind === "snapshot"
    ? await sourceFromSnapshot(claim, reference, options)
    : await sourceFromClaim(claim, reference, options);
}

const unsuitable = (message: string) => new ClaimError(message, "SourceUnsuitable");
const notReady = (message: string) => new ClaimError(message, "SourceNotReady");

async function sourceFromSnapshot(
  claim: PersistentVolumeClaim,
  reference: { namespace: string | undefined; name: string },
  options: FindContentSourceOptions,
): Promise<VolumeContentSource> {
  const description = `dataSource: VolumeSnapshot ${reference.name}`;
  const snapshot = await getSourceObject(volumeSnapshots, reference, options, description);
  if (snapshot.metadata.deletionTimestamp !== undefined) throw unsuitable(`${description} is being deleted`);
  const { boundVolumeSnapshotContentName: name, readyToUse } = snapshot.status ?? {};
  if (name === undefined) throw notReady(`${description} is not bound yet`);
  const content = await getSourceObject(
    volumeSnapshotContents,
    { name },
    options,
    `${description}: VolumeSnapshotContent ${name}`,
  );
  const { driver, volumeSnapshotRef: ref, sourceVolumeMode } = content.spec;
  if (ref.uid !== snapshot.metadata.uid || ref.namespace !== reference.namespace || ref.name !== reference.name) {
    throw unsuitable(`${description}: VolumeSnapshotContent ${name} belongs to another VolumeSnapshot`);
  }
  if (driver !== options.driverName) throw unsuitable(`${description} is of the driver ${driver}`);
  if (readyToUse !== true) throw notReady(`${description} is not ready yet`);
  const handle = content.status?.snapshotHandle;
  if (handle === undefined) throw notReady(`${description} has no handle yet`);
  const mode = volumeModeOf(claim.spec?.volumeMode);
  if (sourceVolumeMode !== undefined && sourceVolumeMode !== mode && !allowsModeChange(content)) {
    throw unsuitable(
      `${description} is of a ${sourceVolumeMode} volume (requested: ${mode}); an administrator can allow that with the annotation ` +
        `${ALLOW_MODE_CHANGE_ANNOTATION}=true on VolumeSnapshotContent ${name}`,
    );
  }
  return { kind: "snapshot", handle };
}

async function sourceFromClaim(
  claim: PersistentVolumeClaim,
  reference: { namespace: string | undefined; name: string },
  options: FindContentSourceOptions,
): Promise<VolumeContentSource> {
  const description = `dataSource: PersistentVolumeClaim ${reference.name}`;
  const sourceClaim = await getSourceObject(persistentVolumeClaims, reference, options, description);
  if (isGoing(sourceClaim)) throw unsuitable(`${description} is being deleted`);
  const name = sourceClaim.spec?.volumeName;
  if (sourceClaim.status?.phase !== "Bound" || !name) throw notReady(`${description} is not bound yet`);
  const volume = await getSourceObject(
    persistentVolumes,
    { name },
    options,
    `${description}: PersistentVolume ${name}`,
  );
  const { csi, claimRef, volumeMode } = volume.spec ?? {};
  if (csi?.driver !== options.driverName) {
    throw unsuitable(`${description} is of the driver ${csi?.driver ?? "(none)"}`);
  }
  if (claimRef?.uid !== sourceClaim.metadata.uid || volume.status?.phase !== "Bound") {
    throw notReady(`${description}: PersistentVolume ${name} is not bound to it`);
  }
  const [mode, sourceMode] = [volumeModeOf(claim.spec?.volumeMode), volumeModeOf(volumeMode)];
  if (mode !== sourceMode) throw unsuitable(`${description} is a ${sourceMode} volume (requested: ${mode})`);
  await addCloningFinalizer(sourceClaim, options);
  return { kind: "volume", handle: csi.volumeHandle };
}

/** Reports whether a claim is being deleted, and does not wait for its clones. If these were refused, all would wait for each other. */
function isGoing({ metadata: { deletionTimestamp, finalizers } }: PersistentVolumeClaim): boolean {
  return deletionTimestamp !== undefined && !finalizers?.includes(CLONING_FINALIZER);
}

/** Adds the finalizer to a claim that others are cloned from. */
async function addCloningFinalizer(
  { metadata }: PersistentVolumeClaim,
  { client, signal }: FindContentSourceOptions,
): Promise<void> {
  const { namespace, name, uid, resourceVersion, finalizers = [] } = metadata;
  if (finalizers.includes(CLONING_FINALIZER)) return;
  const merge = { metadata: { uid, finalizers: [...finalizers, CLONING_FINALIZER] } };
  await client.patch(persistentVolumeClaims, { namespace, name }, { merge, resourceVersion, signal });
}

async function getSourceObject<T extends KubeObject>(
  resource: Resource<T>,
  reference: { namespace?: string | undefined; name: string },
  { client, signal }: FindContentSourceOptions,
  description: string,
): Promise<T> {
  const found = await orAbsent(client.get(resource, reference, { signal }));
  if (found === undefined) throw notReady(`${description}: does not exist`);
  return found;
}

function volumeModeOf(volumeMode: string | undefined): string {
  return volumeMode ?? "Filesystem";
}

/**
 * Reports whether an annotation allows another mode: a value that Go's ParseBool takes for true, as in the official
 * provisioner.
 */
function allowsModeChange({ metadata }: KubeObject): boolean {
  return /^(?:1|t|T|true|TRUE|True)$/.test(metadata.annotations?.[ALLOW_MODE_CHANGE_ANNOTATION] ?? "");
}
