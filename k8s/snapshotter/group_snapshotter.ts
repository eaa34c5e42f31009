/**
 * The group snapshotter: takes the group snapshots that VolumeGroupSnapshotContents ask for, and deletes those that are no
 * longer needed.
 *
 * VolumeGroupSnapshots, their contents, and the VolumeSnapshots of their members with theirs, are created by the official
 * snapshot-controller.
 *
 * @module
 */

import {
  volumeGroupSnapshotClasses,
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
} from "../api/snapshot_objects.ts";
import type { CreatedGroupSnapshot, GroupSnapshotClient } from "../sidecars/csi_client.ts";
import { ContentController } from "./content_controller.ts";
import type { ContentControllerOptions, ContentKind, Secrets } from "./content_kind.ts";
import { groupSnapshotNameOf, groupSnapshotRules, memberHandlesOf, observedGroupPatch } from "./group_content.ts";

/** Options of the group snapshotter. */
export interface GroupSnapshotterOptions extends ContentControllerOptions {
  /** The driver. */
  readonly csi: GroupSnapshotClient;
}

/** The group snapshotter. Two of them at the same time repeat each other's work without harm. */
export class GroupSnapshotter extends ContentController<VolumeGroupSnapshotContent, CreatedGroupSnapshot> {
  /** Creates it; nothing runs before {@linkcode ContentController.run}. */
  constructor(options: GroupSnapshotterOptions) {
    super(groupSnapshotKind(options.csi), options);
  }
}

function groupSnapshotKind(csi: GroupSnapshotClient): ContentKind<VolumeGroupSnapshotContent, CreatedGroupSnapshot> {
  const handleOf = (content: VolumeGroupSnapshotContent) => groupSnapshotRules.traits.handleOf(content)!;
  const existing = (content: VolumeGroupSnapshotContent, secrets: Secrets) => ({
    groupSnapshotId: handleOf(content),
    snapshotIds: memberHandlesOf(content),
    secrets,
  });
  return {
    name: "groupsnapshotter",
    ownerKind: "VolumeGroupSnapshot",
    contents: volumeGroupSnapshotContents,
    classes: volumeGroupSnapshotClasses,
    rules: groupSnapshotRules,
    reasons: {
      create: "GroupSnapshotCreationFailed",
      check: "GroupSnapshotContentCheckandUpdateFailed",
      delete: "GroupSnapshotDeleteError",
    },
    classNameOf: ({ spec }) => spec.volumeGroupSnapshotClassName,
    requestNameOf: ({ spec: { volumeGroupSnapshotRef: { uid } } }) => uid ? groupSnapshotNameOf(uid) : undefined,
    volumesOf: ({ spec: { source: { volumeHandles = [] } } }) => volumeHandles,
    snapshotsOf: memberHandlesOf,
    create: (request, options) => csi.createGroupSnapshot(request, options),
    find: (content, secrets, options) => csi.getGroupSnapshot(existing(content, secrets), options),
    delete: (content, secrets, options) => csi.deleteGroupSnapshot(existing(content, secrets), options),
    observedPatch: observedGroupPatch,
    lostMessage: (content, lost) =>
      `group snapshot ${handleOf(content)} was taken, but the content of ${lost.join(", ")} is lost (see the ` +
      "LVMSnapshots of these names): delete it",
  };
}
