/**
 * The kinds of snapshots (snapshot.storage.k8s.io/v1) and of their groups (groupsnapshot.storage.k8s.io/v1), which come into a cluster with the official snapshot-controller. The
 * official client has no types of them; here is what the driver reads and writes.
 *
 * @module
 */

import { clusterScoped, type KubeObject, namespaced, type Resource } from "./objects.ts";

/** A VolumeSnapshotContent: a snapshot as the cluster's administrators see it. */
export interface VolumeSnapshotContent extends KubeObject {
  /** The desired state. */
  spec: {
    /** The driver that has the snapshot. */
    driver: string;
    /** `Delete` if the snapshot is deleted with its VolumeSnapshot. */
    deletionPolicy: "Delete" | "Retain";
    /** The volume to create a snapshot of, or an existing snapshot: one of both. */
    source: { volumeHandle?: string; snapshotHandle?: string };
    /** The class, where one is named. */
    volumeSnapshotClassName?: string;
    /** The VolumeSnapshot; without a uid as long as none has taken this content. */
    volumeSnapshotRef: { namespace?: string; name?: string; uid?: string };
    /** The volume mode of the source, where it is known. */
    sourceVolumeMode?: "Filesystem" | "Block";
  };
  /** The actual state. */
  status?: {
    /** The snapshot's handle. */
    snapshotHandle?: string;
    /** Its creation time, in nanoseconds since 1970. It exceeds the safe integers, so it is written but not read. */
    creationTime?: number;
    /** The minimum size of a volume that is created from it, in bytes. */
    restoreSize?: number;
    /** True if a volume can be created from it. */
    readyToUse?: boolean;
    /** The handle of the group snapshot that it belongs to. */
    volumeGroupSnapshotHandle?: string;
    /** The last failure. */
    error?: { time?: string; message?: string };
  };
}

/** A VolumeSnapshot: a snapshot as its user sees it. */
export interface VolumeSnapshot extends KubeObject {
  /** The actual state. */
  status?: {
    /** The VolumeSnapshotContent. */
    boundVolumeSnapshotContentName?: string;
    /** True if a volume can be created from it. */
    readyToUse?: boolean;
  };
}

/** A VolumeSnapshotClass. */
export interface VolumeSnapshotClass extends KubeObject {
  /** The driver that it is for. */
  driver: string;
  /** Parameters for the driver, and names of secrets. */
  parameters?: Record<string, string>;
}

/** A VolumeGroupSnapshotContent: a group snapshot as the cluster's administrators see it. */
export interface VolumeGroupSnapshotContent extends KubeObject {
  /** The desired state. */
  spec: {
    /** The driver that has the group snapshot. */
    driver: string;
    /** `Delete` if the group snapshot is deleted with its VolumeGroupSnapshot. */
    deletionPolicy: "Delete" | "Retain";
    /** The volumes to take snapshots of, or an existing group snapshot: one of both. */
    source: {
      volumeHandles?: string[];
      groupSnapshotHandles?: { volumeGroupSnapshotHandle: string; volumeSnapshotHandles: string[] };
    };
    /** The class, where one is named. */
    volumeGroupSnapshotClassName?: string;
    /** The VolumeGroupSnapshot; without a uid as long as none has taken this content. */
    volumeGroupSnapshotRef: { namespace?: string; name?: string; uid?: string };
  };
  /** The actual state. */
  status?: {
    /** The group snapshot's handle. */
    volumeGroupSnapshotHandle?: string;
    /** Its creation time. */
    creationTime?: string;
    /** True if volumes can be created from all its snapshots. */
    readyToUse?: boolean;
    /** Its snapshots. Creation times exceed the safe integers, so they are written but not read. */
    volumeSnapshotInfoList?: {
      volumeHandle?: string;
      snapshotHandle?: string;
      creationTime?: number;
      readyToUse?: boolean;
      restoreSize?: number;
    }[];
    /** The last failure. */
    error?: { time?: string; message?: string };
  };
}

/** A VolumeGroupSnapshot: a group snapshot as its user sees it. */
export interface VolumeGroupSnapshot extends KubeObject {
  /** The actual state. */
  status?: {
    /** True if volumes can be created from all its snapshots. */
    readyToUse?: boolean;
  };
}

/** A VolumeGroupSnapshotClass. */
export type VolumeGroupSnapshotClass = VolumeSnapshotClass;

/** VolumeSnapshots. */
export const volumeSnapshots: Resource<VolumeSnapshot> = namespaced("snapshot.storage.k8s.io/v1", "VolumeSnapshot");

/** VolumeSnapshotContents. */
export const volumeSnapshotContents: Resource<VolumeSnapshotContent> = clusterScoped(
  "snapshot.storage.k8s.io/v1",
  "VolumeSnapshotContent",
);

/** VolumeSnapshotClasses. */
export const volumeSnapshotClasses: Resource<VolumeSnapshotClass> = clusterScoped(
  "snapshot.storage.k8s.io/v1",
  "VolumeSnapshotClass",
);

/** VolumeGroupSnapshots. */
export const volumeGroupSnapshots: Resource<VolumeGroupSnapshot> = namespaced(
  "groupsnapshot.storage.k8s.io/v1",
  "VolumeGroupSnapshot",
);

/** VolumeGroupSnapshotContents. */
export const volumeGroupSnapshotContents: Resource<VolumeGroupSnapshotContent> = clusterScoped(
  "groupsnapshot.storage.k8s.io/v1",
  "VolumeGroupSnapshotContent",
);

/** VolumeGroupSnapshotClasses. */
export const volumeGroupSnapshotClasses: Resource<VolumeGroupSnapshotClass> = clusterScoped(
  "groupsnapshot.storage.k8s.io/v1",
  "VolumeGroupSnapshotClass",
);

/** Returns the handle of the snapshot of a VolumeSnapshotContent, or `undefined` before it was taken. */
export function snapshotHandleOf({ spec, status }: VolumeSnapshotContent): string | undefined {
  return status?.snapshotHandle ?? spec.source.snapshotHandle;
}
