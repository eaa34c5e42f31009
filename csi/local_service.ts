/**
 * The volumes and snapshots of this machine, for the Controller service of a driver that is alone.
 *
 * @module
 */

import type { Copies } from "../lvm/copies/copies.ts";
import { StorageError } from "../lvm/error.ts";
import type { HealthCheck } from "../lvm/health/health_check.ts";
import type { IoLimiter } from "../lvm/staging/io_limiter.ts";
import type { Snapshot, Snapshots } from "../lvm/snapshots/snapshots.ts";
import type { Volume } from "../lvm/inventory/volume.ts";
import type { Volumes } from "../lvm/volumes/volumes.ts";
import type {
  NodeChoice,
  SnapshotService,
  StoredSnapshot,
  StoredVolume,
  VolumeService,
} from "../lvm/volume_service.ts";

/** What {@linkcode localVolumes} needs. */
export interface LocalVolumesOptions {
  /** The volumes. */
  readonly volumes: Volumes;
  /** Makes volumes from others. */
  readonly copies: Copies;
  /** Holds pods to the limits of their volumes. */
  readonly limiter: Pick<IoLimiter, "look">;
  /** Looks at their health. */
  readonly health: HealthCheck;
  /** The name of this node. */
  readonly nodeId: string;
}

/** The volumes of this machine, as those of its only node. */
export function localVolumes({ volumes, copies, limiter, health, nodeId }: LocalVolumesOptions): VolumeService {
  const stored = ({ id, size, tags: { content, source } }: Volume): StoredVolume => ({
    id,
    size,
    content: content.state === "raw" ? "raw" : content.type,
    nodeId,
    ...(source && { source }),
  });
  return {
    create: async (request, nodes) => {
      requireNode(nodeId, nodes);
      const { id, content, source } = request;
      const size = await (source === undefined ? volumes.create(request) : copies.create({ ...request, source }));
      return { id, size, content: content.state === "raw" ? "raw" : content.type, nodeId, ...(source && { source }) };
    },
    delete: (id) => volumes.delete(id),
    expand: async (id, range) => {
      const volume = await volumes.expand(id, range);
      if (volume.tags.limits !== undefined) limiter.look(); // some may be for each GiB
      return stored(volume);
    },
    limit: async (id, limits) => {
      await volumes.limit(id, limits);
      limiter.look();
    },
    get: async (id) => stored(await volumes.get(id)),
    list: async () => (await volumes.list()).map(stored),
    health: (id) => health.volume(id),
    unhealthy: () => health.volumes(),
    capacity: async (wanted, node = nodeId) =>
      node === nodeId ? await volumes.capacity(wanted) : { available: 0n, largest: 0n, smallest: 0n },
  };
}

/** The snapshots of this machine, as those of its only node. */
export function localSnapshots(snapshots: Snapshots, nodeId: string): SnapshotService {
  const stored = (snapshot: Snapshot): StoredSnapshot => ({ ...snapshot, nodeId });
  return {
    create: async (request, nodes) => {
      requireNode(nodeId, nodes);
      return stored(await snapshots.create(request));
    },
    delete: (id) => snapshots.delete(id),
    get: async (id) => stored(await snapshots.get(id)),
    list: async () => (await snapshots.list()).map(stored),
  };
}

/** Makes sure that this node may have what is asked for. @throws {StorageError} `NoSpace`. */
function requireNode(nodeId: string, { allowed }: NodeChoice): void {
  if (allowed === undefined || allowed.includes(nodeId)) return;
  throw new StorageError(
    "NoSpace",
    `accessibility_requirements: asked for are the nodes ${allowed.join(", ")}, this one is ${nodeId}`,
  );
}
