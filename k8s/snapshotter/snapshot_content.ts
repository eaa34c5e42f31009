/**
 * VolumeSnapshotContents: the rules for one, and what its status says.
 *
 * @module
 */

import type { MergePatch } from "../client/client.ts";
import type { CreatedSnapshot } from "../sidecars/csi_client.ts";
import { snapshotHandleOf, type VolumeSnapshotContent } from "../api/snapshot_objects.ts";
import { ContentRules } from "./content.ts";

const PREFIX = "snapshot.storage.kubernetes.io";

/** The finalizer of a VolumeSnapshotContent until its snapshot is deleted or given up. */
export const CONTENT_FINALIZER = `${PREFIX}/volumesnapshotcontent-bound-protection`;

/** The annotation of a VolumeSnapshotContent whose snapshot was requested, until the outcome is known. */
export const BEING_CREATED_ANNOTATION = `${PREFIX}/volumesnapshot-being-created`;

/** The annotation by which the snapshot-controller says that the VolumeSnapshot is being deleted. */
export const BEING_DELETED_ANNOTATION = `${PREFIX}/volumesnapshot-being-deleted`;

/** The annotation by which the snapshot-controller says that the snapshot belongs to a group snapshot, with its handle. */
const GROUP_HANDLE_ANNOTATION = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";

/** A change of a VolumeSnapshotContent. */
export type ContentPatch = MergePatch<VolumeSnapshotContent>;

/** The rules for VolumeSnapshotContents. */
export const snapshotRules: ContentRules<VolumeSnapshotContent> = new ContentRules({
  finalizer: CONTENT_FINALIZER,
  beingCreated: BEING_CREATED_ANNOTATION,
  beingDeleted: BEING_DELETED_ANNOTATION,
  deletionSecret: `${PREFIX}/deletion-secret`,
  handleOf: snapshotHandleOf,
  isUnbound: ({ spec: { source, volumeSnapshotRef } }) => source.snapshotHandle !== undefined && !volumeSnapshotRef.uid,
  // the snapshot-controller creates its content with the annotation, and writes its handles later
  isGroupMember: ({ metadata, status }) =>
    (metadata.annotations?.[GROUP_HANDLE_ANNOTATION] ?? status?.volumeGroupSnapshotHandle) !== undefined,
  statusOfOthers: ({ status }) => status?.volumeGroupSnapshotHandle,
});

/** Returns the name of the request for the snapshot of a VolumeSnapshot. */
export function snapshotNameOf(uid: string): string {
  return `snapshot-${uid}`;
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
