/**
 * What the Controller service needs of volumes and snapshots, wherever they are: on this machine, or on the nodes of a
 * cluster.
 *
 * @module
 */

import type { FilesystemType } from "./spec/filesystem.ts";
import type { GroupCapacity } from "./model/groups.ts";
import type { VolumeHealth } from "./health/health.ts";
import type { IoLimits } from "./spec/io_limits.ts";
import type { SnapshotId, VolumeId } from "./ids.ts";
import type { SizeRange } from "./size.ts";
import type { Snapshot } from "./inventory/snapshot_finder.ts";
import type { SnapshotRequest } from "./snapshots/snapshots.ts";
import type { ContentSource } from "./model/tags.ts";
import type { CapacityRequest, VolumeRequest } from "./inventory/volume.ts";

/** A volume that exists. */
export interface StoredVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its size in bytes. */
  readonly size: bigint;
  /** What it was made for: a filesystem, or use as a block device. */
  readonly content: FilesystemType | "raw";
  /** The node that it is on. */
  readonly nodeId: string;
  /** What it was made from; nothing, for a volume that was made empty. */
  readonly source?: ContentSource;
}

/** Where a new volume or snapshot may be. */
export interface NodeChoice {
  /** The nodes that it may be on; without them, any. */
  readonly allowed?: readonly string[];
  /** Those to try first, best first. */
  readonly preferred: readonly string[];
}

/** The volumes. Each call fails with a `StorageError` whose kind says which status it is answered with. */
export interface VolumeService {
  /** Makes the volume that was asked for by the name, unless one exists that satisfies the request. */
  create(request: VolumeRequest & { readonly name: string }, nodes: NodeChoice): Promise<StoredVolume>;
  /** Deletes the volume; one that does not exist is deleted already. */
  delete(id: VolumeId): Promise<void>;
  /** Grows the volume to at least the size asked for; it never shrinks. */
  expand(id: VolumeId, range: SizeRange): Promise<StoredVolume>;
  /** Records limits of the volume's IO in place of those of the same names; the others stay. All, or none. */
  limit(id: VolumeId, limits: IoLimits): Promise<void>;
  /** The volume. */
  get(id: VolumeId): Promise<StoredVolume>;
  /** All volumes, in the order of their ids. */
  list(): Promise<StoredVolume[]>;
  /** The health of the volume. That it is Lost is its health, and no failure. */
  health(id: VolumeId): Promise<VolumeHealth>;
  /** The health of all volumes with which something is wrong, in the order of their ids. */
  listUnhealthy(): Promise<VolumeHealth[]>;
  /** What groups could still take of such volumes, on the node or, without one, on all of them. */
  capacity(request: CapacityRequest, nodeId?: string): Promise<GroupCapacity>;
}

/** A snapshot that exists, and where. */
export interface StoredSnapshot extends Snapshot {
  /** The node that it is on, and that volumes made from it are made on. */
  readonly nodeId: string;
}

/** The snapshots. Each call fails with a `StorageError` whose kind says which status it is answered with. */
export interface SnapshotService {
  /** Takes the snapshot that was asked for by the name, unless it exists. */
  create(request: SnapshotRequest & { readonly name: string }, nodes: NodeChoice): Promise<StoredSnapshot>;
  /** Deletes the snapshot; one that does not exist is deleted already. */
  delete(id: SnapshotId): Promise<void>;
  /** The snapshot. */
  get(id: SnapshotId): Promise<StoredSnapshot>;
  /** All snapshots, in the order of their ids. */
  list(): Promise<StoredSnapshot[]>;
}
