/**
 * VolumeSnapshotContents: what has to be done to one next, and what its status says. Names and meanings are those of the
 * official csi-snapshotter 8.7.0, so that either goes on with the other's work.
 *
 * @module
 */

import { ClaimError, readSnapshotClassParameters } from "../sidecars/class_parameters.ts";
import type { SecretReference, SnapshotClassParameters } from "../sidecars/class_parameters.ts";
import type { MergePatch } from "../client/client.ts";
import { timestamp } from "../../lvm/clock.ts";
import type { CreatedSnapshot } from "../sidecars/csi_client.ts";
import { snapshotHandleOf, type VolumeSnapshotClass, type VolumeSnapshotContent } from "../api/snapshot_objects.ts";

const PREFIX = "snapshot.storage.kubernetes.io";

/**
 * The finalizer of a VolumeSnapshotContent until its snapshot is deleted or given up. The snapshot-controller adds it.
 */
export const CONTENT_FINALIZER = `${PREFIX}/volumesnapshotcontent-bound-protection`;

/** The annotation of a VolumeSnapshotContent whose snapshot was requested, until the outcome is known. */
export const BEING_CREATED_ANNOTATION = `${PREFIX}/volumesnapshot-being-created`;

/** The annotation by which the snapshot-controller says that the VolumeSnapshot is being deleted. */
export const BEING_DELETED_ANNOTATION = `${PREFIX}/volumesnapshot-being-deleted`;

/** The annotation by which the snapshot-controller says that the snapshot belongs to a group snapshot, with its handle. */
const GROUP_HANDLE_ANNOTATION = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";

const DELETION_SECRET_ANNOTATION = `${PREFIX}/deletion-secret`;

/** A change of a VolumeSnapshotContent. */
export type ContentPatch = MergePatch<VolumeSnapshotContent>;

/** Reports whether the driver manages a VolumeSnapshotContent, whichever node its labels name. */
export function isManagedBy({ spec }: VolumeSnapshotContent, driverName: string): boolean {
  return spec.driver === driverName;
}

/** Returns the name of the request for the snapshot of a VolumeSnapshot. */
export function snapshotNameOf(uid: string): string {
  return `snapshot-${uid}`;
}

/** Returns the secret for taking and deleting a snapshot, or `undefined` when none is named. */
export function snapshotSecretOf({ metadata }: VolumeSnapshotContent): SecretReference | undefined {
  const name = metadata.annotations?.[`${DELETION_SECRET_ANNOTATION}-name`];
  const namespace = metadata.annotations?.[`${DELETION_SECRET_ANNOTATION}-namespace`];
  return name && namespace ? { name, namespace } : undefined;
}

/** Reports whether a snapshot was requested and the outcome is unknown. */
export function isBeingCreated({ metadata }: VolumeSnapshotContent): boolean {
  return metadata.annotations?.[BEING_CREATED_ANNOTATION] !== undefined;
}

/** Reports whether a VolumeSnapshotContent has the finalizer. */
export function hasFinalizer({ metadata }: VolumeSnapshotContent): boolean {
  return metadata.finalizers?.includes(CONTENT_FINALIZER) ?? false;
}

/**
 * Reports whether the snapshot belongs to a group snapshot. Then it is taken and deleted with the group. The
 * snapshot-controller creates its content with the annotation, and writes its handles later.
 */
function isGroupMember({ metadata, status }: VolumeSnapshotContent): boolean {
  return (metadata.annotations?.[GROUP_HANDLE_ANNOTATION] ?? status?.volumeGroupSnapshotHandle) !== undefined;
}

/**
 * Reports whether a VolumeSnapshotContent and its snapshot are to be deleted. A content that is being deleted stays
 * until its VolumeSnapshot is deleted, too; one without a VolumeSnapshot need not wait.
 */
export function shouldDelete({ metadata, spec }: VolumeSnapshotContent): boolean {
  if (metadata.deletionTimestamp === undefined) return false;
  const isUnbound = spec.source.snapshotHandle !== undefined && !spec.volumeSnapshotRef.uid;
  return isUnbound || isVolumeSnapshotBeingDeleted({ metadata });
}

/** Reports whether the VolumeSnapshot is being deleted, or was deleted. */
function isVolumeSnapshotBeingDeleted({ metadata }: Pick<VolumeSnapshotContent, "metadata">): boolean {
  return metadata.annotations?.[BEING_DELETED_ANNOTATION] !== undefined;
}

/**
 * Returns the parameters of the class for the request of a content's snapshot. For a content that is to be deleted only
 * the outcome of a request is needed, and its class may have been deleted before it.
 *
 * @param found the class that the content names, if it exists
 * @throws {ClaimError} when the class does not exist, or is invalid
 */
export function classParametersOf(
  content: VolumeSnapshotContent,
  found: VolumeSnapshotClass | undefined,
  driverName: string,
): Pick<SnapshotClassParameters, "parameters"> {
  const { metadata: { name: contentName }, spec: { volumeSnapshotClassName: name } } = content;
  if (found?.driver !== driverName && shouldDelete(content)) return { parameters: {} };
  if (!name) throw new ClaimError("volumeSnapshotClassName: none is named");
  const description = `volumeSnapshotClassName ${JSON.stringify(name)}`;
  if (found === undefined) throw new ClaimError(`${description}: there is no such VolumeSnapshotClass`);
  if (found.driver !== driverName) throw new ClaimError(`${description}: it is for ${found.driver}`);
  return readSnapshotClassParameters(found.parameters ?? {}, { contentName });
}

/** The next step for a VolumeSnapshotContent. */
export type ContentStep =
  | "nothing"
  /** Take the snapshot, or find out the outcome of an earlier request. */
  | "create"
  /** Remove the annotation, since the outcome is known. */
  | "clear being-created"
  /** Check whether the snapshot exists and is ready. */
  | "check"
  /** Delete the snapshot, and remove the finalizer. */
  | "delete snapshot"
  /** Remove the finalizer. */
  | "remove finalizer";

/**
 * Returns the next step for a VolumeSnapshotContent. A snapshot that was requested is followed until the outcome is
 * known, even when it is no longer needed: otherwise an unknown snapshot would be left. No snapshot is requested before
 * the finalizer is set: until then the object may be removed at any time. Without the finalizer a deletion is complete.
 * The snapshot of a group is neither taken nor deleted here.
 */
export function nextContentStep(content: VolumeSnapshotContent): ContentStep {
  const handle = snapshotHandleOf(content);
  const deleting = shouldDelete(content);
  if (deleting && !hasFinalizer(content)) return "nothing";
  const isMember = isGroupMember(content);
  if (deleting && (isMember || content.spec.deletionPolicy !== "Delete")) return "remove finalizer";
  if (handle === undefined) {
    if (isMember) return "nothing";
    if (isBeingCreated(content)) return "create";
    if (deleting) return "remove finalizer";
    return hasFinalizer(content) && !isVolumeSnapshotBeingDeleted(content) ? "create" : "nothing";
  }
  if (deleting) return "delete snapshot";
  if (isBeingCreated(content)) return "clear being-created";
  return content.status?.readyToUse ? "nothing" : "check";
}

/**
 * Returns the fields that others write and that decide about a VolumeSnapshotContent. Other changes are no reason to
 * reconcile it: the snapshotter's own writes are not, or a failure would be retried at once.
 */
export function reconcileInputs(content: VolumeSnapshotContent): string {
  const { metadata: { uid }, spec, status } = content;
  return JSON.stringify([
    uid,
    spec,
    status?.volumeGroupSnapshotHandle,
    shouldDelete(content),
    isVolumeSnapshotBeingDeleted(content),
    hasFinalizer(content),
    snapshotSecretOf(content),
  ]);
}

/**
 * Returns the patch that adds the annotation of a requested snapshot, or `undefined` when it is set, or no snapshot is
 * to be requested.
 */
export function setBeingCreatedPatch(content: VolumeSnapshotContent): ContentPatch | undefined {
  if (nextContentStep(content) !== "create" || isBeingCreated(content)) return undefined;
  return { metadata: { annotations: { [BEING_CREATED_ANNOTATION]: "yes" } } };
}

/** Returns the patch that removes the annotation of a requested snapshot, or `undefined` when it is not set. */
export function clearBeingCreatedPatch(content: VolumeSnapshotContent): ContentPatch | undefined {
  return isBeingCreated(content) ? { metadata: { annotations: { [BEING_CREATED_ANNOTATION]: null } } } : undefined;
}

/** Returns the patch that removes the finalizer, or `undefined` when it is not set. */
export function removeFinalizerPatch(content: VolumeSnapshotContent): ContentPatch | undefined {
  if (!hasFinalizer(content)) return undefined;
  return { metadata: { finalizers: content.metadata.finalizers!.filter((name) => name !== CONTENT_FINALIZER) } };
}

/** Returns the patch of the status for the state of a snapshot, or `undefined` when nothing changes. */
export function observedPatch(
  { status = {} }: VolumeSnapshotContent,
  { snapshotId, creationTimeNs, sizeBytes, readyToUse, groupSnapshotId }: CreatedSnapshot,
  now: Date,
): ContentPatch | undefined {
  const changes = {
    ...(status.snapshotHandle === undefined ? { snapshotHandle: snapshotId } : {}),
    ...(status.creationTime === undefined
      ? { creationTime: creationTimeNs > 0n ? Number(creationTimeNs) : now.getTime() * 1e6 }
      : {}),
    ...(status.restoreSize === undefined && sizeBytes > 0n ? { restoreSize: Number(sizeBytes) } : {}),
    ...(status.readyToUse === readyToUse ? {} : { readyToUse: readyToUse }),
    ...(status.volumeGroupSnapshotHandle === undefined && groupSnapshotId !== undefined
      ? { volumeGroupSnapshotHandle: groupSnapshotId }
      : {}),
    ...(status.error === undefined ? {} : { error: null }),
  };
  return Object.keys(changes).length === 0 ? undefined : { status: changes };
}

/** Returns the patch of the status for a snapshot that lost its content, or `undefined` when nothing changes. */
export function unusablePatch({ status }: VolumeSnapshotContent, message: string, now: Date): ContentPatch | undefined {
  if (status?.readyToUse === false && status.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}

/**
 * Returns the patch of the status for a failure, or `undefined` when nothing changes, or when the snapshot is ready:
 * then another snapshotter was at work, too.
 */
export function failedPatch({ status }: VolumeSnapshotContent, message: string, now: Date): ContentPatch | undefined {
  if (status?.readyToUse || status?.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}
