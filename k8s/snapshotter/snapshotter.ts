/**
 * The snapshotter: takes the snapshots that VolumeSnapshotContents ask for, and deletes those that are no longer needed.
 *
 * VolumeSnapshots, and the VolumeSnapshotContents that belong to them, are created by the official snapshot-controller.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import {
  snapshotHandleOf,
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../api/snapshot_objects.ts";
import type { CreatedSnapshot, CsiClient } from "../sidecars/csi_client.ts";
import { ContentController } from "./content_controller.ts";
import type { ContentControllerOptions, ContentKind } from "./content_kind.ts";
import { observedPatch, snapshotNameOf, snapshotRules } from "./snapshot_content.ts";

/** Options of the snapshotter. */
export interface SnapshotterOptions extends ContentControllerOptions {
  /** The driver. */
  readonly csi: Pick<CsiClient, "createSnapshot" | "deleteSnapshot" | "findSnapshot">;
}

/** The snapshotter. Two of them at the same time repeat each other's work without harm. */
export class Snapshotter extends ContentController<VolumeSnapshotContent, CreatedSnapshot> {
  /** Creates it; nothing runs before {@linkcode ContentController.run}. */
  constructor(options: SnapshotterOptions) {
    super(snapshotKind(options), options);
  }
}

function snapshotKind(
  { csi, driverName }: SnapshotterOptions,
): ContentKind<VolumeSnapshotContent, CreatedSnapshot> {
  return {
    name: "snapshotter",
    ownerKind: "VolumeSnapshot",
    contents: volumeSnapshotContents,
    classes: volumeSnapshotClasses,
    rules: snapshotRules,
    reasons: {
      create: "SnapshotCreationFailed",
      check: "SnapshotContentCheckandUpdateFailed",
      delete: "SnapshotDeleteError",
    },
    classNameOf: ({ spec }) => spec.volumeSnapshotClassName,
    requestNameOf: ({ spec: { volumeSnapshotRef: { uid } } }) => uid ? snapshotNameOf(uid) : undefined,
    volumesOf: ({ spec: { source: { volumeHandle } } }) => volumeHandle ? [volumeHandle] : [],
    snapshotsOf: (content) => [snapshotHandleOf(content) ?? []].flat(),
    create: ({ volumeIds: [volumeId], ...request }, options) =>
      csi.createSnapshot({ ...request, volumeId: volumeId! }, options),
    find: async (content, secrets, options) => {
      const snapshotId = snapshotHandleOf(content)!;
      const found = await csi.findSnapshot({ snapshotId, secrets }, options);
      if (found !== undefined) return found;
      const message = `looking for snapshot ${snapshotId}: ${driverName} has none of that handle`;
      throw new StorageError("NotFound", message, { reason: "NoSuchSnapshot" });
    },
    delete: (content, secrets, options) =>
      csi.deleteSnapshot({ snapshotId: snapshotHandleOf(content)!, secrets }, options),
    observedPatch,
    lostMessage: (_, [id]) => `snapshot ${id} was taken, but its content is lost (see LVMSnapshot ${id}): delete it`,
  };
}
