/**
 * The Controller service.
 *
 * @module
 */

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { parseVolumeId, snapshotIdOf, type VolumeId, volumeIdOf } from "../lvm/ids.ts";
import { minimumBytes } from "../lvm/filesystem.ts";
import type { LockRequest, Locks } from "../lvm/locks.ts";
import type { Snapshot, Snapshots } from "../lvm/snapshots.ts";
import type { Volumes } from "../lvm/volumes.ts";
import { isUnsupported, requireCapabilities, requireCapability } from "./capability.ts";
import {
  type Controller,
  ControllerServiceCapability_RPC_Type as Rpc,
  type CreateVolumeRequest,
  type VolumeContentSource,
} from "./csi_pb.ts";
import { page } from "./paging.ts";
import { mkfsOptions, parseSnapshotParameters, parseVolumeParameters } from "./parameters.ts";
import {
  invalid,
  requireName,
  requireSnapshotId,
  requireVolumeId,
  sizeRange,
  snapshotIdToDelete,
  volumeIdToDelete,
} from "./request.ts";
import type { Handlers } from "./service.ts";
import { requireReachable, topologyOf } from "./topology.ts";

/** The volumes as the Controller service needs them: on this machine, or anywhere else. */
export type VolumeService = Pick<Volumes, "create" | "delete" | "expand" | "get" | "list" | "capacity">;

/** The snapshots as the Controller service needs them. */
export type SnapshotService = Pick<Snapshots, "create" | "delete" | "get" | "list">;

/** What the Controller service needs. */
export interface ControllerOptions {
  /** The volumes. */
  readonly volumes: VolumeService;
  /** The snapshots. */
  readonly snapshots: SnapshotService;
  /** The node on which the volumes are. */
  readonly nodeId: string;
  /** Locks by volume and snapshot, shared with the Node service of the same process. */
  readonly locks: Locks;
}

/** What the service can do; what is not here is answered with UNIMPLEMENTED or INVALID_ARGUMENT. */
const CAPABILITIES = [
  Rpc.CREATE_DELETE_VOLUME,
  Rpc.LIST_VOLUMES,
  Rpc.GET_CAPACITY,
  Rpc.CREATE_DELETE_SNAPSHOT,
  Rpc.LIST_SNAPSHOTS,
  Rpc.EXPAND_VOLUME,
  Rpc.GET_VOLUME,
  Rpc.SINGLE_NODE_MULTI_WRITER,
  Rpc.GET_SNAPSHOT,
];

/** The size of a volume for which a request names none, in bytes. */
const DEFAULT_BYTES = 1n << 30n;

/** The lock that an operation on a volume needs: those that copy from it may run together. */
export function volumeLock(id: VolumeId, mode: LockRequest["mode"] = "exclusive"): LockRequest {
  return { key: `volume ${id}`, mode };
}

/** The calls of the Controller service. */
export function controllerHandlers(options: ControllerOptions): Handlers<typeof Controller> {
  const { volumes, snapshots, nodeId, locks } = options;
  const volumeAnswer = (volumeId: VolumeId, capacityBytes: bigint) => ({
    volume: { volumeId, capacityBytes, accessibleTopology: [topologyOf(nodeId)] },
  });

  /** Copies are not supported yet; one of something that does not exist is told so first. */
  const refuseSource = async ({ type }: VolumeContentSource): Promise<never> => {
    if (type.case === "snapshot") await snapshots.get(requireSnapshotId(type.value.snapshotId));
    if (type.case === "volume") await volumes.get(requireVolumeId(type.value.volumeId));
    throw invalid("volume_content_source: making a volume from a snapshot or another volume is not supported yet");
  };

  return {
    createVolume: async (request) => {
      const wanted = volumeRequest(request, nodeId);
      if (request.volumeContentSource !== undefined) await refuseSource(request.volumeContentSource);
      const size = await locks.run("creation", [volumeLock(wanted.id)], () => volumes.create(wanted));
      return volumeAnswer(wanted.id, size);
    },

    deleteVolume: async (request) => {
      const id = volumeIdToDelete(request.volumeId);
      if (id !== undefined) await locks.run("deletion", [volumeLock(id)], () => volumes.delete(id));
      return {};
    },

    controllerExpandVolume: async (request) => {
      if (request.capacityRange === undefined) throw invalid("capacity_range: missing");
      const range = sizeRange(request.capacityRange, 1n);
      if (request.volumeCapability !== undefined) requireCapability(request.volumeCapability);
      const id = requireVolumeId(request.volumeId);
      const volume = await locks.run("expansion", [volumeLock(id)], () => volumes.expand(id, range));
      return { capacityBytes: volume.size, nodeExpansionRequired: volume.tags.content.state !== "raw" };
    },

    controllerGetVolume: async (request) => {
      const { id, size } = await volumes.get(requireVolumeId(request.volumeId));
      return { ...volumeAnswer(id, size), status: {} };
    },

    validateVolumeCapabilities: async (request) => {
      if (request.volumeCapabilities.length === 0) throw invalid("volume_capabilities: missing");
      const id = requireVolumeId(request.volumeId);
      const { tags } = await volumes.get(id);
      try {
        const wanted = requireCapabilities(request.volumeCapabilities);
        if ((wanted.kind === "block") !== (tags.content.state === "raw")) {
          return { message: `the volume is ${tags.content.state === "raw" ? "a block device" : "for a filesystem"}` };
        }
        if (
          wanted.kind === "mount" && tags.content.state !== "raw" &&
          (wanted.type ?? tags.content.type) !== tags.content.type
        ) {
          return { message: `the volume is for ${tags.content.type}` };
        }
        parseVolumeParameters(request.parameters);
      } catch (error) {
        if (isUnsupported(error)) return { message: error.message };
        throw error;
      }
      const { volumeContext, volumeCapabilities, parameters, mutableParameters } = request;
      return { confirmed: { volumeContext, volumeCapabilities, parameters, mutableParameters } };
    },

    listVolumes: async (request) => {
      const all = await volumes.list();
      const { items, nextToken } = page(all, ({ id }) => id, request.startingToken, request.maxEntries);
      return { entries: items.map(({ id, size }) => ({ ...volumeAnswer(id, size), status: {} })), nextToken };
    },

    getCapacity: async (request) => {
      const { groups, type } = parseVolumeParameters(request.parameters);
      const { volumeCapabilities } = request;
      const wanted = volumeCapabilities.length > 0 ? requireCapabilities(volumeCapabilities) : undefined;
      const least = wanted?.kind === "mount" ? minimumBytes(wanted.type ?? type) : 0n;
      const topology = request.accessibleTopology;
      if (topology !== undefined) {
        try {
          requireReachable({ $typeName: "csi.v1.TopologyRequirement", requisite: [topology], preferred: [] }, nodeId);
        } catch {
          return { availableCapacity: 0n };
        }
      }
      const { available, largest, smallest } = await volumes.capacity(groups);
      return {
        availableCapacity: available,
        maximumVolumeSize: largest,
        minimumVolumeSize: least > smallest ? least : smallest,
      };
    },

    createSnapshot: async (request) => {
      const id = snapshotIdOf(requireName(request.name));
      if (request.sourceVolumeId === "") throw invalid("source_volume_id: missing");
      const source = requireVolumeId(request.sourceVolumeId);
      const store = parseSnapshotParameters(request.parameters);
      const held: LockRequest[] = [{ key: `snapshot ${id}`, mode: "exclusive" }, volumeLock(source, "shared")];
      const snapshot = await locks.run("snapshot", held, () => snapshots.create(id, source, store));
      return { snapshot: snapshotAnswer(snapshot) };
    },

    deleteSnapshot: async (request) => {
      const id = snapshotIdToDelete(request.snapshotId);
      if (id !== undefined) {
        await locks.run("deletion", [{ key: `snapshot ${id}`, mode: "exclusive" }], () => snapshots.delete(id));
      }
      return {};
    },

    getSnapshot: async (request) => {
      return { snapshot: snapshotAnswer(await snapshots.get(requireSnapshotId(request.snapshotId))) };
    },

    listSnapshots: async (request) => {
      const { sourceVolumeId, snapshotId, startingToken, maxEntries } = request;
      const source = parseVolumeId(sourceVolumeId);
      const all = (await snapshots.list()).filter((snapshot) =>
        (sourceVolumeId === "" || snapshot.source === source) && (snapshotId === "" || snapshot.id === snapshotId)
      );
      const { items, nextToken } = page(all, ({ id }) => id, startingToken, maxEntries);
      return { entries: items.map((snapshot) => ({ snapshot: snapshotAnswer(snapshot) })), nextToken };
    },

    controllerGetCapabilities: () =>
      Promise.resolve({ capabilities: CAPABILITIES.map((type) => ({ type: { case: "rpc", value: { type } } })) }),
  };
}

/** The volume that a request describes. @throws {StorageError} for whatever in it is wrong or not supported. */
function volumeRequest(request: CreateVolumeRequest, nodeId: string): Parameters<VolumeService["create"]>[0] {
  const id = volumeIdOf(requireName(request.name));
  const wanted = requireCapabilities(request.volumeCapabilities);
  const parameters = parseVolumeParameters(request.parameters);
  const [mutable] = Object.keys(request.mutableParameters);
  if (mutable !== undefined) {
    throw invalid(`mutable parameter ${JSON.stringify(mutable)}: volumes have none that can change`);
  }
  const type = wanted.kind === "mount" ? wanted.type ?? parameters.type : undefined;
  const range = sizeRange(request.capacityRange, DEFAULT_BYTES);
  requireReachable(request.accessibilityRequirements, nodeId);
  return {
    id,
    range: type === undefined ? range : atLeast(range, minimumBytes(type)),
    groups: parameters.groups,
    preference: parameters.preference,
    content: type === undefined ? { state: "raw" } : { state: "wanted", type },
    mkfsOptions: mkfsOptions(parameters, type),
    shared: parameters.shared,
    erase: parameters.erase,
  };
}

/** The range with a lower bound; where that passes the limit, making the volume answers OUT_OF_RANGE. */
function atLeast<R extends { required: bigint }>(range: R, bytes: bigint): R {
  return range.required >= bytes ? range : { ...range, required: bytes };
}

function snapshotAnswer(snapshot: Snapshot) {
  return {
    snapshotId: snapshot.id,
    sourceVolumeId: snapshot.source,
    sizeBytes: snapshot.size,
    creationTime: timestampFromMs(snapshot.createdAt * 1000),
    readyToUse: snapshot.ready,
  };
}
