/**
 * The kinds of snapshots (snapshot.storage.k8s.io/v1), which come into a cluster with the official snapshot-controller. The
 * official client has no types of them; here is what the driver reads and writes.
 *
 * @module
 */

import type { KubeObject, Resource } from "./objects.ts";

/** A VolumeSnapshotContent: a snapshot as the cluster's administrators see it. */
export interface VolumeSnapshotContent extends KubeObject {
  /** What is wanted. */
  spec: {
    /** The driver that has the snapshot. */
    driver: string;
    /** What becomes of the snapshot when the VolumeSnapshot goes. */
    deletionPolicy: "Delete" | "Retain";
    /** The volume that a snapshot is to be taken of, or a snapshot that is there already: one of both. */
    source: { volumeHandle?: string; snapshotHandle?: string };
    /** The class, where one is named. */
    volumeSnapshotClassName?: string;
    /** The VolumeSnapshot; without a uid as long as none has taken this content. */
    volumeSnapshotRef: { namespace?: string; name?: string; uid?: string };
    /** How the volume was used that the snapshot is of, where that is known. */
    sourceVolumeMode?: "Filesystem" | "Block";
  };
  /** What there is. */
  status?: {
    /** The snapshot's handle. */
    snapshotHandle?: string;
    /** When it was taken, in nanoseconds since 1970. Larger than what numbers tell apart: good to be written, not to be read. */
    creationTime?: number;
    /** The least size of a volume made from it, in bytes. */
    restoreSize?: number;
    /** Whether a volume can be made from it. */
    readyToUse?: boolean;
    /** What went wrong last. */
    error?: { time?: string; message?: string };
  };
}

/** A VolumeSnapshot: a snapshot as its user sees it. */
export interface VolumeSnapshot extends KubeObject {
  /** What there is. */
  status?: {
    /** The VolumeSnapshotContent. */
    boundVolumeSnapshotContentName?: string;
    /** Whether a volume can be made from it. */
    readyToUse?: boolean;
  };
}

/** A VolumeSnapshotClass. */
export interface VolumeSnapshotClass extends KubeObject {
  /** The driver that it is for. */
  driver: string;
  /** What the driver is told, and which secrets. */
  parameters?: Record<string, string>;
}

/** VolumeSnapshots. */
export const volumeSnapshots: Resource<VolumeSnapshot> = {
  group: "snapshot.storage.k8s.io",
  version: "v1",
  plural: "volumesnapshots",
  kind: "VolumeSnapshot",
  namespaced: true,
};

/** VolumeSnapshotContents. */
export const volumeSnapshotContents: Resource<VolumeSnapshotContent> = {
  group: "snapshot.storage.k8s.io",
  version: "v1",
  plural: "volumesnapshotcontents",
  kind: "VolumeSnapshotContent",
  namespaced: false,
};

/** VolumeSnapshotClasses. */
export const volumeSnapshotClasses: Resource<VolumeSnapshotClass> = {
  group: "snapshot.storage.k8s.io",
  version: "v1",
  plural: "volumesnapshotclasses",
  kind: "VolumeSnapshotClass",
  namespaced: false,
};

/** Returns the handle of the snapshot of a VolumeSnapshotContent, or `undefined` before it was taken. */
export function snapshotHandleOf({ spec, status }: VolumeSnapshotContent): string | undefined {
  return status?.snapshotHandle ?? spec.source.snapshotHandle;
}
