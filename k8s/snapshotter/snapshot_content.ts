/**
 * VolumeSnapshotContents: what has to be done to one next, and what its status says. Names and meanings are those of the
 * official csi-snapshotter 8.7.0, so that either goes on with the other's work.
 *
 * @module
 */

import type { SecretReference } from "../sidecars/class_parameters.ts";
import type { MergePatch } from "../client/client.ts";
import { timestamp } from "../../lvm/clock.ts";
import type { CreatedSnapshot } from "../sidecars/csi_client.ts";
import { snapshotHandleOf, type VolumeSnapshotContent } from "../api/snapshot_objects.ts";

const PREFIX = "snapshot.storage.kubernetes.io";

/** Keeps a VolumeSnapshotContent until its snapshot is removed, or given up. The snapshot-controller puts it on. */
export const CONTENT_FINALIZER = `${PREFIX}/volumesnapshotcontent-bound-protection`;

/** The annotation of a snapshot that was asked for, as long as nobody knows what came of it. */
export const BEING_CREATED_ANNOTATION = `${PREFIX}/volumesnapshot-being-created`;

/** The annotation by which the snapshot-controller says that the VolumeSnapshot is being deleted. */
export const BEING_DELETED_ANNOTATION = `${PREFIX}/volumesnapshot-being-deleted`;

const DELETION_SECRET_ANNOTATION = `${PREFIX}/deletion-secret`;

/** A change of a VolumeSnapshotContent. */
export type ContentPatch = MergePatch<VolumeSnapshotContent>;

/** Whether a driver of that name has to see to a VolumeSnapshotContent, whichever node its labels name. */
export function isManagedBy({ spec }: VolumeSnapshotContent, driverName: string): boolean {
  return spec.driver === driverName;
}

/** The name of the request for the snapshot of a VolumeSnapshot. */
export function snapshotNameOf(uid: string): string {
  return `snapshot-${uid}`;
}

/** The secret for taking and for removing a snapshot. */
export function snapshotSecretOf({ metadata }: VolumeSnapshotContent): SecretReference | undefined {
  const name = metadata.annotations?.[`${DELETION_SECRET_ANNOTATION}-name`];
  const namespace = metadata.annotations?.[`${DELETION_SECRET_ANNOTATION}-namespace`];
  return name && namespace ? { name, namespace } : undefined;
}

/** Whether a snapshot was asked for, and it is not known what came of it. */
export function isBeingCreated({ metadata }: VolumeSnapshotContent): boolean {
  return metadata.annotations?.[BEING_CREATED_ANNOTATION] !== undefined;
}

/** Whether a VolumeSnapshotContent waits for its snapshot to be removed or given up. */
export function hasFinalizer({ metadata }: VolumeSnapshotContent): boolean {
  return metadata.finalizers?.includes(CONTENT_FINALIZER) ?? false;
}

/**
 * Whether a VolumeSnapshotContent is to go. One that is being deleted while its VolumeSnapshot is not stays until that is
 * deleted, too; one that no VolumeSnapshot has taken yet need not wait.
 */
export function shouldDelete({ metadata, spec }: VolumeSnapshotContent): boolean {
  if (metadata.deletionTimestamp === undefined) return false;
  const isUnbound = spec.source.snapshotHandle !== undefined && !spec.volumeSnapshotRef.uid;
  return isUnbound || isVolumeSnapshotBeingDeleted({ metadata });
}

/** Whether the VolumeSnapshot is being deleted, or is gone. */
function isVolumeSnapshotBeingDeleted({ metadata }: Pick<VolumeSnapshotContent, "metadata">): boolean {
  return metadata.annotations?.[BEING_DELETED_ANNOTATION] !== undefined;
}

/** What has to be done to a VolumeSnapshotContent next. */
export type ContentStep =
  | "nothing"
  /** Take the snapshot, or find out what came of taking it. */
  | "create"
  /** Say that what came of taking it is known. */
  | "clear being-created"
  /** See whether the snapshot is there and can be used. */
  | "check"
  /** Remove the snapshot, and let the object go. */
  | "delete snapshot"
  /** Let the object go. */
  | "remove finalizer";

/**
 * What has to be done to a VolumeSnapshotContent next. A snapshot that was asked for is followed until it is known what came of
 * it, also when nobody wants it any more: else one would be left of which nobody knows. None is begun before the finalizer is
 * there: until then the object may vanish at any time. Without the finalizer a deletion is over.
 */
export function nextContentStep(content: VolumeSnapshotContent): ContentStep {
  const handle = snapshotHandleOf(content);
  const deleting = shouldDelete(content);
  if (deleting && !hasFinalizer(content)) return "nothing";
  if (deleting && content.spec.deletionPolicy !== "Delete") return "remove finalizer";
  if (handle === undefined) {
    if (isBeingCreated(content)) return "create";
    if (deleting) return "remove finalizer";
    return hasFinalizer(content) && !isVolumeSnapshotBeingDeleted(content) ? "create" : "nothing";
  }
  if (deleting) return "delete snapshot";
  if (isBeingCreated(content)) return "clear being-created";
  return content.status?.readyToUse ? "nothing" : "check";
}

/**
 * What others write that decides about a VolumeSnapshotContent. A change of anything else is no reason to look at it again: the
 * loop's own writes are not, or what fails would be tried again at once.
 */
export function reconcileInputs(content: VolumeSnapshotContent): string {
  const { metadata: { uid }, spec } = content;
  return JSON.stringify([
    uid,
    spec,
    shouldDelete(content),
    isVolumeSnapshotBeingDeleted(content),
    hasFinalizer(content),
    snapshotSecretOf(content),
  ]);
}

/** The mark that a snapshot is being asked for; `undefined` when there is one, or none is to be asked for. */
export function setBeingCreatedPatch(content: VolumeSnapshotContent): ContentPatch | undefined {
  if (nextContentStep(content) !== "create" || isBeingCreated(content)) return undefined;
  return { metadata: { annotations: { [BEING_CREATED_ANNOTATION]: "yes" } } };
}

/** What takes that mark away; `undefined` when there is none. */
export function clearBeingCreatedPatch(content: VolumeSnapshotContent): ContentPatch | undefined {
  return isBeingCreated(content) ? { metadata: { annotations: { [BEING_CREATED_ANNOTATION]: null } } } : undefined;
}

/** What takes the finalizer away; `undefined` when there is none. */
export function removeFinalizerPatch(content: VolumeSnapshotContent): ContentPatch | undefined {
  if (!hasFinalizer(content)) return undefined;
  return { metadata: { finalizers: content.metadata.finalizers!.filter((name) => name !== CONTENT_FINALIZER) } };
}

/** The status of a VolumeSnapshotContent whose snapshot was seen; `undefined` when it says so already. */
export function observedPatch(
  { status = {} }: VolumeSnapshotContent,
  { snapshotId, creationTimeNs, sizeBytes, readyToUse }: CreatedSnapshot,
  now: Date,
): ContentPatch | undefined {
  const changes = {
    ...(status.snapshotHandle === undefined ? { snapshotHandle: snapshotId } : {}),
    ...(status.creationTime === undefined
      ? { creationTime: creationTimeNs > 0n ? Number(creationTimeNs) : now.getTime() * 1e6 }
      : {}),
    ...(status.restoreSize === undefined && sizeBytes > 0n ? { restoreSize: Number(sizeBytes) } : {}),
    ...(status.readyToUse === readyToUse ? {} : { readyToUse: readyToUse }),
    ...(status.error === undefined ? {} : { error: null }),
  };
  return Object.keys(changes).length === 0 ? undefined : { status: changes };
}

/** The status of a VolumeSnapshotContent whose snapshot lost its content; `undefined` when it says so already. */
export function unusablePatch({ status }: VolumeSnapshotContent, message: string, now: Date): ContentPatch | undefined {
  if (status?.readyToUse === false && status.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}

/**
 * The status of a VolumeSnapshotContent when something went wrong; `undefined` when it says so already, and of a snapshot that
 * can be used: then somebody else was at work, too.
 */
export function failedPatch({ status }: VolumeSnapshotContent, message: string, now: Date): ContentPatch | undefined {
  if (status?.readyToUse || status?.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}
