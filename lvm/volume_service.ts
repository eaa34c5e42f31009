/**
 * Services for volumes and snapshots, which CSI's Controller service calls. csi/local_service.ts implements
 * them for this machine, and k8s/service/ for the nodes of a cluster.
 *
 * @module
 */

import type { FilesystemType } from "./settings/filesystem.ts";
import type { GroupCapacity } from "./model/groups.ts";
import type { VolumeHealth } from "./health/health.ts";
import type { IoLimits } from "./settings/io_limits.ts";
import type { GroupSnapshotId, SnapshotId, VolumeId } from "../base/ids.ts";
import type { SizeRange } from "../base/size.ts";
import type { Snapshot } from "./inventory/snapshot_finder.ts";
import type { GroupSnapshotRequest } from "./group_snapshots/group_snapshots.ts";
import type { SnapshotRequest } from "./snapshots/snapshots.ts";
import type { ContentSource } from "./model/tags.ts";
import type { CapacityRequest, VolumeRequest } from "./inventory/volume.ts";

/** An existing volume. */
export interface StoredVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its size in bytes. */
  readonly size: bigint;
  /** The type of its filesystem, or `raw` for a block volume. */
  readonly content: FilesystemType | "raw";
  /** True if it is encrypted. */
  readonly encrypted?: true;
  /** The node that it is on. */
  readonly nodeId: string;
  /** Its content source; absent for a volume that was created empty. */
  readonly source?: ContentSource;
}

/** The nodes for a new volume or snapshot. */
export interface NodeChoice {
  /** The allowed nodes; by default all. */
  readonly allowed?: readonly string[];
  /** The nodes to try first, in the order of preference. */
  readonly preferred: readonly string[];
}

/** A service for volumes. Each method throws a `StorageError`, whose kind determines the status of the CSI call. */
export interface VolumeService {
  /** Creates the volume that was requested by the name, unless a volume exists that satisfies the request. */
  create(request: VolumeRequest & { readonly name: string }, nodes: NodeChoice): Promise<StoredVolume>;
  /** Deletes the volume. A volume that does not exist is deleted already. */
  delete(id: VolumeId): Promise<void>;
  /** Expands the volume to at least the required size of a range, in bytes. A volume never becomes smaller. */
  expand(id: VolumeId, range: SizeRange): Promise<StoredVolume>;
  /** Records IO limits of the volume, all or none. They replace limits of the same names; other limits stay. */
  setLimits(id: VolumeId, limits: IoLimits): Promise<void>;
  /** Returns the volume. */
  get(id: VolumeId): Promise<StoredVolume>;
  /** Returns all volumes, in the order of their ids. */
  list(): Promise<StoredVolume[]>;
  /** Returns the health of the volume. For a Lost volume, the loss is its problem, and not an error. */
  health(id: VolumeId): Promise<VolumeHealth>;
  /** Returns the health of all volumes with problems, in the order of their ids. */
  listUnhealthy(): Promise<VolumeHealth[]>;
  /** Returns the capacity for volumes with the given parameters, on the node or, without one, on all nodes. */
  capacity(request: CapacityRequest, nodeId?: string): Promise<GroupCapacity>;
}

/** An existing snapshot, and its node. */
export interface StoredSnapshot extends Snapshot {
  /** The node that it is on. Volumes from the snapshot are created on the same node. */
  readonly nodeId: string;
}

/** A service for snapshots. Each method throws a `StorageError`, whose kind determines the status of the CSI call. */
export interface SnapshotService {
  /** Creates the snapshot that was requested by the name, unless it exists. */
  create(request: SnapshotRequest & { readonly name: string }, nodes: NodeChoice): Promise<StoredSnapshot>;
  /** Deletes the snapshot. A snapshot that does not exist is deleted already. */
  delete(id: SnapshotId): Promise<void>;
  /** Returns the snapshot. */
  get(id: SnapshotId): Promise<StoredSnapshot>;
  /** Returns all snapshots, in the order of their ids. */
  list(): Promise<StoredSnapshot[]>;
}

/** An existing group snapshot. */
export interface StoredGroupSnapshot {
  /** Its id. */
  readonly id: GroupSnapshotId;
  /** Its snapshots, in the order of their ids. */
  readonly snapshots: readonly StoredSnapshot[];
}

/** A service for group snapshots. Each method throws a `StorageError`, whose kind determines the status of the CSI call. */
export interface GroupSnapshotService {
  /** Creates the group snapshot that was requested by the name, unless it exists. */
  create(request: GroupSnapshotRequest & { readonly name: string }): Promise<StoredGroupSnapshot>;
  /** Returns what exists of the snapshots of the group snapshot. */
  members(id: GroupSnapshotId): Promise<readonly SnapshotId[]>;
  /** Deletes the group snapshot with its snapshots, which are those that the caller knows. One that does not exist is deleted. */
  delete(id: GroupSnapshotId, snapshots: readonly SnapshotId[]): Promise<void>;
  /** Returns the group snapshot, whose snapshots are those that the caller knows. */
  get(id: GroupSnapshotId, snapshots: readonly SnapshotId[]): Promise<StoredGroupSnapshot>;
}
