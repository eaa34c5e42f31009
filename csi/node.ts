/**
 * The Node service.
 *
 * @module
 */

import { passphrasesOf } from "../lvm/encryption/passphrase.ts";
import { StorageError } from "../base/error.ts";
import type { HealthCheck } from "../lvm/health/health_check.ts";
import { type Locks, volumeLock } from "../base/locks.ts";
import type { VolumeId } from "../base/ids.ts";
import type { Staging, Stats } from "../lvm/staging/staging.ts";
import { type Capability, requireCapability, requireNodeCapability } from "./capability.ts";
import { type Node, NodeServiceCapability_RPC_Type as Rpc, VolumeUsage_Unit as Unit } from "./proto/csi_pb.ts";
import { storageHealthResponse, volumeHealthMessage } from "./health.ts";
import { isEncryptedContext } from "./parameters.ts";
import {
  invalidArgument,
  parseSizeRange,
  requireMountPath,
  requirePath,
  requireVolumeAndPath,
  requireVolumeId,
} from "./request.ts";
import type { Handlers } from "./service.ts";
import { topologyOf } from "./topology.ts";

/** Options of {@linkcode nodeHandlers}. */
export interface NodeOptions {
  /** Staged and published volumes of this machine. */
  readonly staging: Staging;
  /** Health of the volumes. */
  readonly health: HealthCheck;
  /** Name of this node. */
  readonly nodeId: string;
  /** Returns further labels for the topology of this node; none by default. */
  readonly labels?: () => Promise<Readonly<Record<string, string>>>;
  /** Directories below which volumes may be staged and published. */
  readonly mountRoots: readonly string[];
  /** Locks by volume and snapshot, shared with the Controller service of the same process. */
  readonly locks: Locks;
  /** Called with the statistics of a volume that kubelet asked for; may be absent. */
  readonly onStats?: (id: VolumeId, stats: Stats) => void;
  /** Called after a volume was unpublished at a target or unstaged, when its lock is released; may be absent. */
  readonly onUnmounted?: (id: VolumeId) => void;
}

const CAPABILITIES = [
  Rpc.STAGE_UNSTAGE_VOLUME,
  Rpc.GET_VOLUME_STATS,
  Rpc.EXPAND_VOLUME,
  Rpc.SINGLE_NODE_MULTI_WRITER,
  Rpc.GET_VOLUME_HEALTH,
  Rpc.GET_STORAGE_HEALTH,
];

/** Key by which kubelet marks an inline volume of a pod, if podInfoOnMount is set (Kubernetes, pkg/volume/csi). */
const EPHEMERAL_CONTEXT_KEY = "csi.storage.k8s.io/ephemeral";

const NO_INLINE_VOLUMES =
  "publishing a volume that is written into its pod (volumes[].csi): there are none; have a claim made for the pod, by " +
  "volumes[].ephemeral.volumeClaimTemplate";

/**
 * Creates the handlers of the Node service. Each checks the volume id last, so that an invalid request is refused as
 * such even for a volume that does not exist.
 */
export function nodeHandlers(options: NodeOptions): Handlers<typeof Node> {
  const { staging, health, nodeId, labels, mountRoots, locks, onStats, onUnmounted } = options;
  const withVolumeLock = <T>(operation: string, id: VolumeId, body: () => Promise<T>): Promise<T> =>
    locks.run(operation, [volumeLock(id)], body);

  return {
    nodeStageVolume: async (request) => {
      const path = requireMountPath("staging_target_path", request.stagingTargetPath, mountRoots);
      const { access } = requireNodeCapability(request.volumeCapability);
      const encryption = {
        ...passphrasesOf(request.secrets),
        isRequired: isEncryptedContext(request.volumeContext),
      };
      const id = requireVolumeId(request.volumeId);
      await withVolumeLock("staging", id, () => staging.stage(id, path, access, encryption));
      return {};
    },

    nodeUnstageVolume: async (request) => {
      const path = requireMountPath("staging_target_path", request.stagingTargetPath, mountRoots);
      const id = requireVolumeId(request.volumeId);
      await withVolumeLock("unstaging", id, () => staging.unstage(id, path));
      onUnmounted?.(id);
      return {};
    },

    nodePublishVolume: async (request) => {
      if (request.volumeContext[EPHEMERAL_CONTEXT_KEY] === "true") throw invalidArgument(NO_INLINE_VOLUMES);
      const target = requireMountPath("target_path", request.targetPath, mountRoots);
      const capability = requireNodeCapability(request.volumeCapability);
      if (request.stagingTargetPath === "") {
        throw new StorageError("FailedPrecondition", "staging_target_path: missing; stage the volume first");
      }
      const stagingPath = requireMountPath("staging_target_path", request.stagingTargetPath, mountRoots);
      const id = requireVolumeId(request.volumeId);
      await withVolumeLock("publishing", id, () =>
        staging.publish(id, {
          stagingPath,
          target,
          access: capability.access,
          readOnly: request.readonly || isReadOnly(capability),
          exclusive: capability.exclusive,
          passphrases: passphrasesOf(request.secrets),
        }));
      return {};
    },

    nodeUnpublishVolume: async (request) => {
      const target = requireMountPath("target_path", request.targetPath, mountRoots);
      const id = requireVolumeId(request.volumeId);
      await withVolumeLock("unpublishing", id, () => staging.unpublish(id, target));
      onUnmounted?.(id);
      return {};
    },

    nodeGetVolumeStats: async (request) => {
      const { id, path } = requireVolumeAndPath(request.volumeId, request.volumePath);
      const stats = await staging.stats(id, path);
      onStats?.(id, stats);
      return { usage: volumeUsage(stats) };
    },

    nodeGetVolumeHealth: async (request) => {
      const { volumePublishPath, stagingTargetPath } = request;
      // the health does not depend on the paths, so they are only validated
      if (volumePublishPath !== "") requirePath("volume_publish_path", volumePublishPath);
      if (stagingTargetPath !== "") requirePath("staging_target_path", stagingTargetPath);
      return { volumeHealth: volumeHealthMessage(await health.volume(requireVolumeId(request.volumeId))) };
    },

    nodeGetStorageHealth: async () => storageHealthResponse(await health.storage()),

    nodeExpandVolume: async (request) => {
      const { required, limit } = parseSizeRange(request.capacityRange, 0n);
      if (request.volumeCapability !== undefined) requireCapability(request.volumeCapability);
      const { id, path } = requireVolumeAndPath(request.volumeId, request.volumePath);
      const capacityBytes = await withVolumeLock("expansion", id, () => staging.expand(id, path, required));
      if (limit === undefined || capacityBytes <= limit) return { capacityBytes };
      throw new StorageError(
        "OutOfRange",
        `expanding volume ${id}: it has ${capacityBytes} bytes, more than limit_bytes ${limit}, and cannot shrink`,
      );
    },

    nodeGetCapabilities: () =>
      Promise.resolve({ capabilities: CAPABILITIES.map((type) => ({ type: { case: "rpc", value: { type } } })) }),

    nodeGetInfo: async () => ({ nodeId, accessibleTopology: topologyOf(nodeId, await labels?.()) }),
  };
}

function isReadOnly({ readOnly, access }: Capability): boolean {
  return readOnly || (access.kind === "mount" && access.flags.includes("ro"));
}

function volumeUsage(stats: Stats) {
  if ("blockBytes" in stats) return [{ unit: Unit.BYTES, total: stats.blockBytes }];
  const { bytes, inodes } = stats.filesystem;
  return [{ unit: Unit.BYTES, ...bytes }, ...(inodes === undefined ? [] : [{ unit: Unit.INODES, ...inodes }])];
}
