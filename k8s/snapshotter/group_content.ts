/**
 * VolumeGroupSnapshotContents: what has to be done to one next, and what its status says. Names and meanings are those of the
 * official csi-snapshotter 8.7.0, so that either goes on with the other's work. The VolumeSnapshots of the members, and
 * their contents, are created by the official snapshot-controller from the status that is written here.
 *
 * @module
 */

import type { SecretReference } from "../sidecars/class_parameters.ts";
import type { MergePatch } from "../client/client.ts";
import { timestamp } from "../../lvm/clock.ts";
import type { CreatedGroupSnapshot } from "../sidecars/csi_client.ts";
import type { VolumeGroupSnapshotContent } from "../api/snapshot_objects.ts";

const PREFIX = "groupsnapshot.storage.kubernetes.io";

/** The finalizer of a content until its group snapshot is deleted or given up. The snapshot-controller adds it. */
export const GROUP_CONTENT_FINALIZER = `${PREFIX}/volumegroupsnapshotcontent-bound-protection`;

/** The annotation of a content whose group snapshot was requested, until the outcome is known. */
export const GROUP_BEING_CREATED_ANNOTATION = `${PREFIX}/volumegroupsnapshot-being-created`;

/** The annotation by which the snapshot-controller says that the VolumeGroupSnapshot is being deleted. */
export const GROUP_BEING_DELETED_ANNOTATION = `${PREFIX}/volumegroupsnapshot-being-deleted`;

const DELETION_SECRET_ANNOTATION = `${PREFIX}/deletion-secret`;

/** A change of a VolumeGroupSnapshotContent. */
export type GroupContentPatch = MergePatch<VolumeGroupSnapshotContent>;

/** Returns the name of the request for the group snapshot of a VolumeGroupSnapshot. */
export function groupSnapshotNameOf(uid: string): string {
  return `groupsnapshot-${uid}`;
}

/** Returns the handle of the group snapshot, or `undefined` before it was taken. */
export function groupHandleOf({ spec, status }: VolumeGroupSnapshotContent): string | undefined {
  return status?.volumeGroupSnapshotHandle ?? spec.source.groupSnapshotHandles?.volumeGroupSnapshotHandle;
}

/** Returns the handles of the snapshots of the group, as far as the content names them. */
export function memberHandlesOf({ spec, status }: VolumeGroupSnapshotContent): string[] {
  const taken = status?.volumeSnapshotInfoList?.flatMap(({ snapshotHandle }) => snapshotHandle ?? []) ?? [];
  return taken.length > 0 ? taken : [...spec.source.groupSnapshotHandles?.volumeSnapshotHandles ?? []];
}

/** Returns the secret for taking and deleting a group snapshot, or `undefined` when none is named. */
export function groupSecretOf({ metadata }: VolumeGroupSnapshotContent): SecretReference | undefined {
  const name = metadata.annotations?.[`${DELETION_SECRET_ANNOTATION}-name`];
  const namespace = metadata.annotations?.[`${DELETION_SECRET_ANNOTATION}-namespace`];
  return name && namespace ? { name, namespace } : undefined;
}

/** Reports whether a group snapshot was requested and the outcome is unknown. */
export function isGroupBeingCreated({ metadata }: VolumeGroupSnapshotContent): boolean {
  return metadata.annotations?.[GROUP_BEING_CREATED_ANNOTATION] !== undefined;
}

/** Reports whether a content has the finalizer. */
export function hasGroupFinalizer({ metadata }: VolumeGroupSnapshotContent): boolean {
  return metadata.finalizers?.includes(GROUP_CONTENT_FINALIZER) ?? false;
}

/**
 * Reports whether a content and its group snapshot are to be deleted. A content that is being deleted stays until its
 * VolumeGroupSnapshot is deleted, too; one without a VolumeGroupSnapshot need not wait.
 */
export function shouldDeleteGroup(content: VolumeGroupSnapshotContent): boolean {
  if (content.metadata.deletionTimestamp === undefined) return false;
  const { source, volumeGroupSnapshotRef } = content.spec;
  const isUnbound = source.groupSnapshotHandles !== undefined && !volumeGroupSnapshotRef.uid;
  return isUnbound || isOwnerBeingDeleted(content);
}

function isOwnerBeingDeleted({ metadata }: VolumeGroupSnapshotContent): boolean {
  return metadata.annotations?.[GROUP_BEING_DELETED_ANNOTATION] !== undefined;
}

/** The next step for a VolumeGroupSnapshotContent. */
export type GroupContentStep =
  | "nothing"
  /** Take the group snapshot, or find out the outcome of an earlier request. */
  | "create"
  /** Remove the annotation, since the outcome is known. */
  | "clear being-created"
  /** Check whether the group snapshot exists and is ready. */
  | "check"
  /** Delete the group snapshot, and remove the finalizer. */
  | "delete group snapshot"
  /** Remove the finalizer. */
  | "remove finalizer";

/**
 * Returns the next step for a content, by the rules for that of a single snapshot: what was requested is followed until the
 * outcome is known, and nothing is requested before the finalizer is set.
 */
export function nextGroupStep(content: VolumeGroupSnapshotContent): GroupContentStep {
  const deleting = shouldDeleteGroup(content);
  if (deleting && !hasGroupFinalizer(content)) return "nothing";
  if (deleting && content.spec.deletionPolicy !== "Delete") return "remove finalizer";
  if (groupHandleOf(content) === undefined) {
    if (isGroupBeingCreated(content)) return "create";
    if (deleting) return "remove finalizer";
    return hasGroupFinalizer(content) && !isOwnerBeingDeleted(content) ? "create" : "nothing";
  }
  if (deleting) return "delete group snapshot";
  if (isGroupBeingCreated(content)) return "clear being-created";
  return content.status?.readyToUse ? "nothing" : "check";
}

/** Returns the fields that others write and that decide about a content, as text. */
export function groupReconcileInputs(content: VolumeGroupSnapshotContent): string {
  const { metadata: { uid }, spec } = content;
  return JSON.stringify([
    uid,
    spec,
    shouldDeleteGroup(content),
    isOwnerBeingDeleted(content),
    hasGroupFinalizer(content),
    groupSecretOf(content),
  ]);
}

/** Returns the patch that adds the annotation of a requested group snapshot, or `undefined` when none is to be added. */
export function setGroupBeingCreatedPatch(content: VolumeGroupSnapshotContent): GroupContentPatch | undefined {
  if (nextGroupStep(content) !== "create" || isGroupBeingCreated(content)) return undefined;
  return { metadata: { annotations: { [GROUP_BEING_CREATED_ANNOTATION]: "yes" } } };
}

/** Returns the patch that removes the annotation of a requested group snapshot, or `undefined` when it is not set. */
export function clearGroupBeingCreatedPatch(content: VolumeGroupSnapshotContent): GroupContentPatch | undefined {
  if (!isGroupBeingCreated(content)) return undefined;
  return { metadata: { annotations: { [GROUP_BEING_CREATED_ANNOTATION]: null } } };
}

/** Returns the patch that removes the finalizer, or `undefined` when it is not set. */
export function removeGroupFinalizerPatch(content: VolumeGroupSnapshotContent): GroupContentPatch | undefined {
  if (!hasGroupFinalizer(content)) return undefined;
  return { metadata: { finalizers: content.metadata.finalizers!.filter((name) => name !== GROUP_CONTENT_FINALIZER) } };
}

/**
 * Returns the patch of the status for the state of a group snapshot, or `undefined` when nothing changes. The snapshots are
 * listed once, and not for a group snapshot that was there before: its contents name them.
 */
export function observedGroupPatch(
  { spec, status = {} }: VolumeGroupSnapshotContent,
  { groupSnapshotId, creationTimeNs, readyToUse, snapshots }: CreatedGroupSnapshot,
  now: Date,
): GroupContentPatch | undefined {
  const createdAt = creationTimeNs > 0n ? new Date(Number(creationTimeNs / 1_000_000n)) : now;
  const isListed = (status.volumeSnapshotInfoList ?? []).length > 0 || spec.source.volumeHandles === undefined;
  const changes = {
    ...(status.volumeGroupSnapshotHandle === undefined ? { volumeGroupSnapshotHandle: groupSnapshotId } : {}),
    ...(status.creationTime === undefined ? { creationTime: timestamp(createdAt) } : {}),
    ...(isListed ? {} : {
      volumeSnapshotInfoList: snapshots.map((snapshot) => ({
        volumeHandle: snapshot.volumeId,
        snapshotHandle: snapshot.snapshotId,
        creationTime: Number(snapshot.creationTimeNs),
        readyToUse: snapshot.readyToUse,
        restoreSize: Number(snapshot.sizeBytes),
      })),
    }),
    ...(status.readyToUse === readyToUse ? {} : { readyToUse }),
    ...(status.error === undefined ? {} : { error: null }),
  };
  return Object.keys(changes).length === 0 ? undefined : { status: changes };
}

/** Returns the patch of the status for a failure, or `undefined` when nothing changes, or the group snapshot is ready. */
export function failedGroupPatch(
  { status }: VolumeGroupSnapshotContent,
  message: string,
  now: Date,
): GroupContentPatch | undefined {
  if (status?.readyToUse || status?.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}
