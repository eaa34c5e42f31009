/**
 * The Controller service.
 *
 * @module
 */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { quote } from "../base/error.ts";
import { parseSnapshotId, parseVolumeId, snapshotIdOf, volumeIdOf } from "../base/ids.ts";
import { smallestVolume } from "../lvm/settings/format.ts";
import { requireMountable } from "../lvm/settings/mount_flags.ts";
import { type Locks, snapshotCreationLocks, snapshotLock, volumeCreationLocks, volumeLock } from "../base/locks.ts";
import type { ContentSource } from "../lvm/model/tags.ts";
import type { CreateOptions, VolumeRequest } from "../lvm/inventory/volume.ts";
import { isUnsupportedCapability, requireCapabilities, requireCapability } from "./capability.ts";
import {
  type Controller,
  ControllerServiceCapability_RPC_Type as Rpc,
  type CreateVolumeRequest,
  type CreateVolumeResponseSchema,
  type SnapshotSchema,
  type VolumeContentSource,
  type VolumeContentSourceSchema,
} from "./proto/csi_pb.ts";
import { volumeHealthMessage } from "./health.ts";
import {
  invalidArgument,
  paginate,
  parseIdToDelete,
  parseSizeRange,
  requireName,
  requireSnapshotId,
  requireVolumeId,
  wrongParameter,
} from "./request.ts";
import {
  ENCRYPTED_CONTEXT,
  parseMutableParameters,
  parseSnapshotParameters,
  parseVolumeParameters,
  requireMkfsOptions,
  trimFor,
} from "./parameters.ts";
import type { Handlers } from "./service.ts";
import { nodeChoice, nodeOf, topologyOf } from "./topology.ts";
import type {
  NodeChoice,
  SnapshotService,
  StoredSnapshot,
  StoredVolume,
  VolumeService,
} from "../lvm/volume_service.ts";
import { defined } from "../base/defined.ts";

/** A PersistentVolumeClaim. */
export interface ClaimReference {
  /** Namespace. */
  readonly namespace: string;
  /** Name. */
  readonly name: string;
  /** UID. */
  readonly uid: string;
}

/**
 * The context that a caller in the same process adds to a CreateVolume request. A request on the socket has no context,
 * even if its parameters name a claim: only the driver's own provisioner certainly writes the PersistentVolume.
 */
export interface CreateVolumeContext {
  /** Claim that the caller creates the volume for, and whose PersistentVolume it writes afterwards. */
  readonly claim?: ClaimReference;
  /** Whether the request was read from the volume that it began, which is completed or fails, but not created anew. */
  readonly isRecorded?: boolean;
}

/** The calls of the Controller service, for the socket and for callers in the same process. */
export interface ControllerHandlers extends Omit<Handlers<typeof Controller>, "createVolume"> {
  /** Creates a volume. */
  createVolume?(
    request: CreateVolumeRequest,
    context?: CreateVolumeContext,
  ): Promise<MessageInitShape<typeof CreateVolumeResponseSchema>>;
}

/** The volumes of the Controller service. */
export interface ControllerVolumes extends VolumeService {
  /** Creates the volume of the request's name, unless one exists that satisfies the request. */
  create(
    request: VolumeRequest & { readonly name: string },
    nodes: NodeChoice,
    context?: CreateVolumeContext & CreateOptions,
  ): Promise<StoredVolume>;
}

/** Options of {@linkcode controllerHandlers}. */
export interface ControllerOptions {
  /** Volumes. */
  readonly volumes: ControllerVolumes;
  /** Snapshots; without them, the service has no calls for snapshots. */
  readonly snapshots?: SnapshotService;
  /** Locks by volume and snapshot, shared with the Node service of the same process. */
  readonly locks: Locks;
}

/** The capabilities of the service. */
const CAPABILITIES = [
  Rpc.CREATE_DELETE_VOLUME,
  Rpc.CLONE_VOLUME,
  Rpc.LIST_VOLUMES,
  Rpc.GET_CAPACITY,
  Rpc.EXPAND_VOLUME,
  Rpc.GET_VOLUME,
  Rpc.MODIFY_VOLUME,
  Rpc.SINGLE_NODE_MULTI_WRITER,
  Rpc.GET_VOLUME_HEALTH,
  Rpc.LIST_VOLUME_HEALTH,
];

/** The further capabilities of a service with snapshots. */
const SNAPSHOT_CAPABILITIES = [Rpc.CREATE_DELETE_SNAPSHOT, Rpc.LIST_SNAPSHOTS, Rpc.GET_SNAPSHOT];

/** Size of a volume whose request names none, in bytes. */
const DEFAULT_BYTES = 1n << 30n;

/** Creates the handlers of the Controller service. */
export function controllerHandlers(options: ControllerOptions): ControllerHandlers {
  const { volumes, snapshots, locks } = options;

  return {
    createVolume: async (request, context) => {
      const wanted = parseVolumeRequest(request);
      const nodes = nodeChoice(request.accessibilityRequirements);
      const { id, source } = wanted;
      const [own, ...ofSource] = volumeCreationLocks(id, source);
      const volume = await locks.run(
        "creation",
        [own!, ...ofSource],
        // pods of the source start and end while a copy is made
        (release) => volumes.create(wanted, nodes, { ...context, onSourceUsable: () => release(ofSource) }),
      );
      return volumeResponse(volume);
    },

    deleteVolume: async (request) => {
      const id = parseIdToDelete("volume_id", request.volumeId, parseVolumeId);
      if (id !== undefined) await locks.run("deletion", [volumeLock(id)], () => volumes.delete(id));
      return {};
    },

    controllerExpandVolume: async (request) => {
      if (request.capacityRange === undefined) throw invalidArgument("capacity_range: missing");
      const range = parseSizeRange(request.capacityRange, 1n);
      if (request.volumeCapability !== undefined) requireCapability(request.volumeCapability);
      const id = requireVolumeId(request.volumeId);
      const volume = await locks.run("expansion", [volumeLock(id)], () => volumes.expand(id, range));
      return {
        capacityBytes: volume.size,
        nodeExpansionRequired: volume.content !== "raw" || volume.encrypted === true,
      };
    },

    controllerModifyVolume: async (request) => {
      const limits = parseMutableParameters(request.mutableParameters);
      const id = requireVolumeId(request.volumeId);
      await locks.run("modification", [volumeLock(id)], () => volumes.setLimits(id, limits));
      return {};
    },

    controllerGetVolume: async (request) => {
      return { ...volumeResponse(await volumes.get(requireVolumeId(request.volumeId))), status: {} };
    },

    validateVolumeCapabilities: async (request) => {
      if (request.volumeCapabilities.length === 0) throw invalidArgument("volume_capabilities: missing");
      const id = requireVolumeId(request.volumeId);
      const volume = await volumes.get(id);
      const { content } = volume;
      try {
        const capability = requireCapabilities(request.volumeCapabilities);
        if ((capability.kind === "block") !== (content === "raw")) {
          return { message: `the volume is ${content === "raw" ? "a block device" : "for a filesystem"}` };
        }
        if (capability.kind === "mount" && (capability.type ?? content) !== content) {
          return { message: `the volume is for ${content}` };
        }
        parseVolumeParameters(request.parameters);
        parseMutableParameters(request.mutableParameters);
        const own = contextOf(volume);
        const other = Object.keys(request.volumeContext).find((key) => request.volumeContext[key] !== own[key]);
        if (other !== undefined) return { message: `volume_context: the volume has another ${quote(other)}` };
      } catch (error) {
        if (isUnsupportedCapability(error)) return { message: error.message };
        throw error;
      }
      // the parameters are not compared with those that the volume was created with, so they are not confirmed
      const { volumeContext, volumeCapabilities } = request;
      return { confirmed: { volumeContext, volumeCapabilities } };
    },

    listVolumes: async (request) => {
      const all = await volumes.list();
      const { items, nextToken } = paginate(all, ({ id }) => id, request.startingToken, request.maxEntries);
      return { entries: items.map((volume) => ({ ...volumeResponse(volume), status: {} })), nextToken };
    },

    controllerGetVolumeHealth: async (request) => {
      return { volumeHealth: volumeHealthMessage(await volumes.health(requireVolumeId(request.volumeId))) };
    },

    controllerListVolumeHealth: async (request) => {
      const all = await volumes.listUnhealthy();
      const { items, nextToken } = paginate(all, ({ id }) => id, request.startingToken, request.maxEntries);
      return { entries: items.map(volumeHealthMessage), nextToken };
    },

    getCapacity: async (request) => {
      const { groups, layout, type, thin, encryption } = parseVolumeParameters(request.parameters);
      const { volumeCapabilities } = request;
      const capability = volumeCapabilities.length > 0 ? requireCapabilities(volumeCapabilities) : undefined;
      const mounted = capability?.kind === "mount" ? capability.type ?? type : undefined;
      const contentMinimum = smallestVolume(mounted, encryption);
      const node = request.accessibleTopology === undefined ? undefined : nodeOf(request.accessibleTopology);
      const { available, maximumVolumeSize, minimumVolumeSize } = await volumes.capacity({
        groups,
        layout,
        ...defined({ thin }),
      }, node);
      if (available === 0n) return { availableCapacity: 0n };
      return {
        availableCapacity: available,
        maximumVolumeSize: maximumVolumeSize,
        minimumVolumeSize: contentMinimum > minimumVolumeSize ? contentMinimum : minimumVolumeSize,
      };
    },

    ...(snapshots === undefined ? {} : snapshotHandlers(snapshots, locks)),

    controllerGetCapabilities: () => {
      const all = snapshots === undefined ? CAPABILITIES : [...CAPABILITIES, ...SNAPSHOT_CAPABILITIES];
      return Promise.resolve({ capabilities: all.map((type) => ({ type: { case: "rpc", value: { type } } })) });
    },
  };
}

/** Creates the handlers of the calls for snapshots. */
function snapshotHandlers(snapshots: SnapshotService, locks: Locks): Handlers<typeof Controller> {
  return {
    createSnapshot: async (request) => {
      const name = requireName(request.name);
      const id = snapshotIdOf(name);
      const source = requireVolumeId(request.sourceVolumeId, "source_volume_id");
      const cowSize = parseSnapshotParameters(request.parameters);
      const nodes = nodeChoice(request.accessibilityRequirements);
      const snapshot = await locks.run(
        "snapshot",
        snapshotCreationLocks(id, source),
        () => snapshots.create({ id, name, source, cowSize }, nodes),
      );
      return { snapshot: snapshotMessage(snapshot) };
    },

    deleteSnapshot: async (request) => {
      const id = parseIdToDelete("snapshot_id", request.snapshotId, parseSnapshotId);
      if (id !== undefined) await locks.run("deletion", [snapshotLock(id)], () => snapshots.delete(id));
      return {};
    },

    getSnapshot: async (request) => {
      return { snapshot: snapshotMessage(await snapshots.get(requireSnapshotId(request.snapshotId))) };
    },

    listSnapshots: async (request) => {
      const { sourceVolumeId, snapshotId, startingToken, maxEntries } = request;
      const source = parseVolumeId(sourceVolumeId);
      const all = (await snapshots.list()).filter((snapshot) =>
        (sourceVolumeId === "" || snapshot.source === source) && (snapshotId === "" || snapshot.id === snapshotId)
      );
      const { items, nextToken } = paginate(all, ({ id }) => id, startingToken, maxEntries);
      return { entries: items.map((snapshot) => ({ snapshot: snapshotMessage(snapshot) })), nextToken };
    },
  };
}

/** Parses a request for a volume. @throws {StorageError} when something in it is invalid or not supported */
function parseVolumeRequest(request: CreateVolumeRequest): VolumeRequest & { name: string } {
  const name = requireName(request.name);
  const capability = requireCapabilities(request.volumeCapabilities);
  const parameters = parseVolumeParameters(request.parameters);
  // these take precedence (CSI spec, mutable_parameters)
  const mutableLimits = parseMutableParameters(request.mutableParameters);
  const type = capability.kind === "mount" ? capability.type ?? parameters.type : undefined;
  const mkfsOptions = requireMkfsOptions(parameters, type);
  for (const { accessType: { case: kind, value } } of request.volumeCapabilities) {
    if (kind === "mount" && type !== undefined) requireMountable(type, value.mountFlags, mkfsOptions);
  }
  const trim = trimFor(parameters, type);
  const source = parseContentSource(request.volumeContentSource);
  if (source !== undefined && parameters.layout.type === "writecache") {
    throw wrongParameter(
      "parameter layout writecache: such a volume cannot be filled from a snapshot or a volume, whose filesystem may have " +
        "smaller blocks than LVM gives the cache",
    );
  }
  // a copy without a size has the size of its source, which is large enough
  const range = parseSizeRange(request.capacityRange, source === undefined ? DEFAULT_BYTES : 0n);
  return {
    id: volumeIdOf(name),
    name,
    range: range.required === 0n ? range : withMinimum(range, smallestVolume(type, parameters.encryption)),
    groups: parameters.groups,
    preference: parameters.preference,
    format: {
      ...(type === undefined ? { state: "raw" } as const : { state: "unformatted", type } as const),
      ...(parameters.encryption === "luks2" && { luks: { state: "wanted" } as const }),
    },
    mkfsOptions,
    shared: parameters.shared,
    erase: parameters.erase,
    layout: parameters.layout,
    limits: { ...parameters.limits, ...mutableLimits },
    ...defined({ thin: parameters.thin, source, trim }),
  };
}

/** Parses the content source. @throws {StorageError} `InvalidArgument`, or `NotFound` for an id of another driver */
function parseContentSource(source: VolumeContentSource | undefined): ContentSource | undefined {
  if (source === undefined) return undefined;
  const { type } = source;
  if (type.case === "snapshot") return { kind: "snapshot", id: requireSnapshotId(type.value.snapshotId) };
  if (type.case === "volume") return { kind: "volume", id: requireVolumeId(type.value.volumeId) };
  throw invalidArgument("volume_content_source: neither a snapshot nor a volume");
}

/** Raises the required size of a range to a minimum. If that exceeds its limit, creating the volume fails. */
function withMinimum<R extends { required: bigint }>(range: R, bytes: bigint): R {
  return range.required >= bytes ? range : { ...range, required: bytes };
}

function volumeResponse({ id, size, nodeId, source = undefined, encrypted }: StoredVolume) {
  const volume = {
    volumeId: id,
    capacityBytes: size,
    volumeContext: contextOf({ encrypted }),
    accessibleTopology: [topologyOf(nodeId)],
  };
  return { volume: source === undefined ? volume : { ...volume, contentSource: contentSourceMessage(source) } };
}

function contextOf({ encrypted }: { readonly encrypted?: true | undefined }): Record<string, string> {
  return encrypted ? ENCRYPTED_CONTEXT : {};
}

/** Returns a content source as a message. */
export function contentSourceMessage(
  { kind, id }: { readonly kind: ContentSource["kind"]; readonly id: string },
): MessageInitShape<typeof VolumeContentSourceSchema> {
  return {
    type: kind === "snapshot" ? { case: kind, value: { snapshotId: id } } : { case: kind, value: { volumeId: id } },
  };
}

/** Returns a snapshot as a message. */
export function snapshotMessage(snapshot: StoredSnapshot): MessageInitShape<typeof SnapshotSchema> {
  return {
    snapshotId: snapshot.id,
    sourceVolumeId: snapshot.source,
    sizeBytes: snapshot.size,
    creationTime: timestampFromMs(snapshot.createdAt * 1000),
    readyToUse: snapshot.ready,
    groupSnapshotId: snapshot.groupSnapshot ?? "",
    accessibleTopology: [topologyOf(snapshot.nodeId)],
  };
}
