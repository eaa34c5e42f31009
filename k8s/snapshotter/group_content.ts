/**
 * VolumeGroupSnapshotContents: the rules for one, and what its status says. The VolumeSnapshots of the members, and their
 * contents, are created by the official snapshot-controller from the status that is written here.
 *
 * @module
 */

import { timestamp } from "../../base/clock.ts";
import type { VolumeGroupSnapshotContent } from "../api/snapshot_objects.ts";
import type { MergePatch } from "../client/client.ts";
import type { CreatedGroupSnapshot } from "../sidecars/csi_client.ts";
import { ContentRules } from "./content.ts";

const PREFIX = "groupsnapshot.storage.kubernetes.io";

/** The finalizer of a VolumeGroupSnapshotContent until its group snapshot is deleted or given up. */
export const GROUP_CONTENT_FINALIZER = `${PREFIX}/volumegroupsnapshotcontent-bound-protection`;

/** The annotation of a content whose group snapshot was requested, until the outcome is known. */
export const GROUP_BEING_CREATED_ANNOTATION = `${PREFIX}/volumegroupsnapshot-being-created`;

/** The annotation by which the snapshot-controller says that the VolumeGroupSnapshot is being deleted. */
export const GROUP_BEING_DELETED_ANNOTATION = `${PREFIX}/volumegroupsnapshot-being-deleted`;

/** A change of a VolumeGroupSnapshotContent. */
export type GroupContentPatch = MergePatch<VolumeGroupSnapshotContent>;

/** The rules for VolumeGroupSnapshotContents. */
export const groupSnapshotRules: ContentRules<VolumeGroupSnapshotContent> = new ContentRules({
  finalizer: GROUP_CONTENT_FINALIZER,
  beingCreated: GROUP_BEING_CREATED_ANNOTATION,
  beingDeleted: GROUP_BEING_DELETED_ANNOTATION,
  deletionSecret: `${PREFIX}/deletion-secret`,
  handleOf: groupHandleOf,
  isUnbound: ({ spec: { source, volumeGroupSnapshotRef } }) =>
    source.groupSnapshotHandles !== undefined && !volumeGroupSnapshotRef.uid,
  isGroupMember: () => false,
  statusOfOthers: () => undefined,
});

/** Returns the name of the request for the group snapshot of a VolumeGroupSnapshot. */
export function groupSnapshotNameOf(uid: string): string {
  return `groupsnapshot-${uid}`;
}

function groupHandleOf({ spec, status }: VolumeGroupSnapshotContent): string | undefined {
  return status?.volumeGroupSnapshotHandle ?? spec.source.groupSnapshotHandles?.volumeGroupSnapshotHandle;
}

/** Returns the handles of the snapshots of the group, as far as the content names them. */
export function memberHandlesOf({ spec, status }: VolumeGroupSnapshotContent): string[] {
  const taken = status?.volumeSnapshotInfoList?.flatMap(({ snapshotHandle }) => snapshotHandle ?? []) ?? [];
  return taken.length > 0 ? taken : [...spec.source.groupSnapshotHandles?.volumeSnapshotHandles ?? []];
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
