/**
 * The volumes of this machine, for the Controller service of a driver that is alone.
 *
 * @module
 */

import type { Copies } from "../lvm/copies.ts";
import { StorageError } from "../lvm/error.ts";
import type { IoLimiter } from "../lvm/io_limiter.ts";
import type { Volume } from "../lvm/volume.ts";
import type { Volumes } from "../lvm/volumes.ts";
import type { StoredVolume, VolumeService } from "./volume_service.ts";

/** What {@linkcode localVolumes} needs. */
export interface LocalVolumesOptions {
  /** The volumes. */
  readonly volumes: Volumes;
  /** Makes volumes from others. */
  readonly copies: Copies;
  /** Holds pods to the limits of their volumes. */
  readonly limiter: Pick<IoLimiter, "look">;
  /** The name of this node. */
  readonly nodeId: string;
}

/** The volumes of this machine, as those of its only node. */
export function localVolumes({ volumes, copies, limiter, nodeId }: LocalVolumesOptions): VolumeService {
  const stored = ({ id, size, tags: { content, source } }: Volume): StoredVolume => ({
    id,
    size,
    content: content.state === "raw" ? "raw" : content.type,
    nodeId,
    ...(source && { source }),
  });
  return {
    create: async (request, { allowed }) => {
      if (allowed !== undefined && !allowed.includes(nodeId)) {
        throw new StorageError(
          "NoSpace",
          `accessibility_requirements: asked for are the nodes ${allowed.join(", ")}, this one is ${nodeId}`,
        );
      }
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
    capacity: async (wanted, node = nodeId) =>
      node === nodeId ? await volumes.capacity(wanted) : { available: 0n, largest: 0n, smallest: 0n },
  };
}
