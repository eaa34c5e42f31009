/**
 * The volumes and snapshots of this machine, for the Controller service of a standalone driver.
 *
 * @module
 */

import type { Copies } from "../lvm/copies/copies.ts";
import { StorageError } from "../base/error.ts";
import type { HealthCheck } from "../lvm/health/health_check.ts";
import type { GroupSnapshot } from "../lvm/group_snapshots/groups.ts";
import type { GroupSnapshots } from "../lvm/group_snapshots/group_snapshots.ts";
import type { IoLimiter } from "../lvm/staging/io_limiter.ts";
import type { Snapshot } from "../lvm/inventory/snapshot_finder.ts";
import type { Snapshots } from "../lvm/snapshots/snapshots.ts";
import type { CreateOptions, Volume } from "../lvm/inventory/volume.ts";
import type { Volumes } from "../lvm/volumes/volumes.ts";
import type {
  GroupSnapshotService,
  NodeChoice,
  SnapshotService,
  StoredSnapshot,
  StoredVolume,
  VolumeService,
} from "../lvm/volume_service.ts";
import type { FormatState } from "../lvm/settings/format.ts";
import { defined } from "../base/defined.ts";

/** Options of {@linkcode localVolumeService}. */
export interface LocalVolumeServiceOptions {
  /** Volumes of this machine. */
  readonly volumes: Volumes;
  /** Copies of volumes and snapshots. */
  readonly copies: Copies;
  /** Applies IO limits to pods. */
  readonly limiter: Pick<IoLimiter, "wake">;
  /** Health of the volumes. */
  readonly health: HealthCheck;
  /** Name of this node. */
  readonly nodeId: string;
}

/** Returns the volumes of this machine as a service with one node. */
export function localVolumeService(
  { volumes, copies, limiter, health, nodeId }: LocalVolumeServiceOptions,
): VolumeService {
  const toStoredVolume = ({ id, size, tags: { format, source } }: Volume): StoredVolume => ({
    id,
    size,
    ...contentOf(format),
    nodeId,
    ...defined({ source }),
  });
  return {
    create: async (request, nodes, options?: CreateOptions) => {
      requireAllowedNode(nodeId, nodes);
      const { id, format, source } = request;
      const size =
        await (source === undefined ? volumes.create(request) : copies.create({ ...request, source }, options));
      return { id, size, ...contentOf(format), nodeId, ...defined({ source }) };
    },
    delete: (id) => volumes.delete(id),
    expand: async (id, range) => {
      const volume = await volumes.expand(id, range);
      if (volume.tags.limits !== undefined) limiter.wake(); // limits may be set for each GiB
      return toStoredVolume(volume);
    },
    setLimits: async (id, limits) => {
      await volumes.setLimits(id, limits);
      limiter.wake();
    },
    get: async (id) => toStoredVolume(await volumes.get(id)),
    list: async () => (await volumes.list()).map(toStoredVolume),
    health: (id) => health.volume(id),
    listUnhealthy: () => health.volumes(),
    capacity: async (wanted, node = nodeId) =>
      node === nodeId
        ? await volumes.capacity(wanted)
        : { available: 0n, maximumVolumeSize: 0n, minimumVolumeSize: 0n },
  };
}

/** Returns the snapshots of this machine as a service with one node. */
export function localSnapshotService(snapshots: Snapshots, nodeId: string): SnapshotService {
  const toStoredSnapshot = (snapshot: Snapshot): StoredSnapshot => ({ ...snapshot, nodeId });
  return {
    create: async (request, nodes) => {
      requireAllowedNode(nodeId, nodes);
      return toStoredSnapshot(await snapshots.create(request));
    },
    delete: (id) => snapshots.delete(id),
    get: async (id) => toStoredSnapshot(await snapshots.get(id)),
    list: async () => (await snapshots.list()).map(toStoredSnapshot),
  };
}

/** Returns the group snapshots of this machine as a service with one node. */
export function localGroupSnapshotService(groups: GroupSnapshots, nodeId: string): GroupSnapshotService {
  const toStored = ({ id, snapshots }: GroupSnapshot) => ({
    id,
    snapshots: snapshots.map((snapshot) => ({ ...snapshot, nodeId })),
  });
  return {
    create: async (request) => toStored(await groups.create(request)),
    members: (id) => groups.members(id),
    delete: (id, snapshots) => groups.delete(id, snapshots),
    get: async (id, snapshots) => toStored(await groups.get(id, snapshots)),
  };
}

/** Checks that a request allows this node. @throws {StorageError} `NoSpace` when it does not */
function requireAllowedNode(nodeId: string, { allowed }: NodeChoice): void {
  if (allowed === undefined || allowed.includes(nodeId)) return;
  throw new StorageError(
    "NoSpace",
    `accessibility_requirements: only the nodes ${allowed.join(", ")} are allowed; this one is ${nodeId}`,
  );
}

function contentOf(format: FormatState): Pick<StoredVolume, "content" | "encrypted"> {
  const content = format.state === "raw" ? "raw" : format.type;
  return { content, ...(format.luks !== undefined && { encrypted: true }) };
}
