/**
 * The CSI client of the controllers: it calls the Controller service of the same process without a socket.
 *
 * @module
 */

import type { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { defined } from "../base/defined.ts";
import { create, type DescService, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import {
  Controller,
  ControllerExpandVolumeRequestSchema,
  ControllerModifyVolumeRequestSchema,
  CreateSnapshotRequestSchema,
  CreateVolumeGroupSnapshotRequestSchema,
  CreateVolumeRequestSchema,
  DeleteSnapshotRequestSchema,
  DeleteVolumeGroupSnapshotRequestSchema,
  DeleteVolumeRequestSchema,
  GetCapacityRequestSchema,
  GetVolumeGroupSnapshotRequestSchema,
  GroupController,
  ListSnapshotsRequestSchema,
  type SnapshotSchema,
  VolumeCapability_AccessMode_Mode as Mode,
  type VolumeCapabilitySchema,
  type VolumeGroupSnapshotSchema,
} from "../csi/proto/csi_pb.ts";
import { contentSourceMessage, type ControllerHandlers } from "../csi/controller.ts";
import { type CompletedCall, type Handlers, loggedCall, unaryMethods } from "../csi/service.ts";
import { statusOf } from "../csi/status.ts";
import {
  CallError,
  type CapacityClient,
  Code,
  type CreatedGroupSnapshot,
  type CreatedSnapshot,
  type CsiClient,
  type GroupSnapshotClient,
  type Segments,
  type VolumeCapability,
} from "../k8s/sidecars/csi_client.ts";

/** Options of {@linkcode inProcessCsi}. */
export interface InProcessCsiOptions {
  /** The Controller service. */
  readonly handlers: ControllerHandlers;
  /** Called after each call. */
  readonly onCallCompleted: (call: CompletedCall) => void;
}

/**
 * Creates a client of the Controller service of this process. Its calls fail with a `CallError` whose code is the one
 * that a client on the socket gets. When its signal is aborted, a call fails with CANCELLED, but the operation
 * continues.
 */
export function inProcessCsi({ handlers, onCallCompleted }: InProcessCsiOptions): CsiClient & CapacityClient {
  const service: Required<ControllerHandlers> = logged(Controller, handlers);
  const call = inProcessCall(onCallCompleted);
  return {
    createVolume: (
      { claim, isRecorded = false, requiredBytes, capabilities, topology, source, ...request },
      { signal },
    ) =>
      call("CreateVolume", signal, async () => {
        const message = create(CreateVolumeRequestSchema, {
          ...request,
          capacityRange: { requiredBytes },
          volumeCapabilities: capabilities.map(capabilityMessage),
          accessibilityRequirements: {
            requisite: topology.requisite.map(topologyMessage),
            preferred: topology.preferred.map(topologyMessage),
          },
          ...(source && { volumeContentSource: contentSourceMessage({ ...source, id: source.handle }) }),
        });
        const { volume } = await service.createVolume(message, { claim, ...defined({ isRecorded }) });
        return {
          volumeId: volume?.volumeId ?? "",
          capacityBytes: volume?.capacityBytes ?? 0n,
          volumeContext: volume?.volumeContext ?? {},
          topology: (volume?.accessibleTopology ?? []).map(({ segments }) => segments ?? {}),
        };
      }),
    deleteVolume: (request, { signal }) =>
      call("DeleteVolume", signal, async () => {
        await service.deleteVolume(create(DeleteVolumeRequestSchema, request));
      }),
    expandVolume: ({ requiredBytes, capability, ...request }, { signal }) =>
      call("ControllerExpandVolume", signal, async () => {
        const { capacityBytes = 0n, nodeExpansionRequired = false } = await service.controllerExpandVolume(
          create(ControllerExpandVolumeRequestSchema, {
            ...request,
            capacityRange: { requiredBytes },
            volumeCapability: capabilityMessage(capability),
          }),
        );
        return { capacityBytes, nodeExpansionRequired };
      }),
    modifyVolume: (request, { signal }) =>
      call("ControllerModifyVolume", signal, async () => {
        await service.controllerModifyVolume(create(ControllerModifyVolumeRequestSchema, request));
      }),
    createSnapshot: ({ volumeId: sourceVolumeId, ...request }, { signal }) =>
      call("CreateSnapshot", signal, async () => {
        const { snapshot } = await service.createSnapshot(
          create(CreateSnapshotRequestSchema, { ...request, sourceVolumeId }),
        );
        return toCreatedSnapshot(snapshot);
      }),
    deleteSnapshot: (request, { signal }) =>
      call("DeleteSnapshot", signal, async () => {
        await service.deleteSnapshot(create(DeleteSnapshotRequestSchema, request));
      }),
    findSnapshot: (request, { signal }) =>
      call("ListSnapshots", signal, async () => {
        const { entries = [] } = await service.listSnapshots(create(ListSnapshotsRequestSchema, request));
        return entries[0] === undefined ? undefined : toCreatedSnapshot(entries[0].snapshot);
      }),
    getCapacity: ({ parameters, fsType, topology }, { signal }) =>
      call("GetCapacity", signal, async () => {
        const mode = "SINGLE_NODE_MULTI_WRITER";
        const { availableCapacity = 0n, maximumVolumeSize = 0n, minimumVolumeSize = 0n } = await service.getCapacity(
          create(GetCapacityRequestSchema, {
            parameters,
            volumeCapabilities: [capabilityMessage({ mode, access: { kind: "mount", fsType, flags: [] } })],
            accessibleTopology: topologyMessage(topology),
          }),
        );
        return { available: availableCapacity, largest: maximumVolumeSize, smallest: minimumVolumeSize };
      }),
  };
}

/** Creates the client of the GroupController service of this process. See {@linkcode inProcessCsi}. */
export function inProcessGroupCsi({ handlers, onCallCompleted }: {
  readonly handlers: Handlers<typeof GroupController>;
  readonly onCallCompleted: (call: CompletedCall) => void;
}): GroupSnapshotClient {
  const service: Required<Handlers<typeof GroupController>> = logged(GroupController, handlers);
  const call = inProcessCall(onCallCompleted);
  return {
    createGroupSnapshot: ({ volumeIds, ...request }, { signal }) =>
      call("CreateVolumeGroupSnapshot", signal, async () => {
        const message = create(CreateVolumeGroupSnapshotRequestSchema, { ...request, sourceVolumeIds: [...volumeIds] });
        return toCreatedGroupSnapshot((await service.createVolumeGroupSnapshot(message)).groupSnapshot);
      }),
    deleteGroupSnapshot: ({ snapshotIds, ...request }, { signal }) =>
      call("DeleteVolumeGroupSnapshot", signal, async () => {
        const message = create(DeleteVolumeGroupSnapshotRequestSchema, { ...request, snapshotIds: [...snapshotIds] });
        await service.deleteVolumeGroupSnapshot(message);
      }),
    getGroupSnapshot: ({ snapshotIds, ...request }, { signal }) =>
      call("GetVolumeGroupSnapshot", signal, async () => {
        const message = create(GetVolumeGroupSnapshotRequestSchema, { ...request, snapshotIds: [...snapshotIds] });
        return toCreatedGroupSnapshot((await service.getVolumeGroupSnapshot(message)).groupSnapshot);
      }),
  };
}

/** Returns a function that makes a call, reports its end, and fails as a call on the socket does. */
function inProcessCall(onCallCompleted: (call: CompletedCall) => void) {
  return async <T>(method: string, signal: AbortSignal, body: () => Promise<T>): Promise<T> => {
    const start = performance.now();
    const reportCompleted = (code: number) => onCallCompleted({ method, code, durationMs: performance.now() - start });
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    const abort = () => reject(new CallError(Code.Canceled, "the controller stops; the call goes on"));
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    try {
      const response = await Promise.race([body(), aborted]);
      reportCompleted(0);
      return response;
    } catch (error) {
      const { code, details, reason } = statusOf(error);
      const failure = error instanceof CallError ? error : new CallError(code, details, reason);
      reportCompleted(failure.code);
      throw failure;
    } finally {
      signal.removeEventListener("abort", abort); // the signal outlives many calls
    }
  };
}

function toCreatedSnapshot(snapshot: MessageInitShape<typeof SnapshotSchema> = {}): CreatedSnapshot {
  const { snapshotId = "", creationTime, sizeBytes = 0n, readyToUse = false, groupSnapshotId } = snapshot;
  return {
    snapshotId,
    creationTimeNs: nanosecondsOf(creationTime),
    sizeBytes,
    readyToUse,
    ...defined({ groupSnapshotId: groupSnapshotId || undefined }),
  };
}

function nanosecondsOf({ seconds = 0n, nanos = 0 }: MessageInitShape<typeof TimestampSchema> = {}): bigint {
  return seconds * 1_000_000_000n + BigInt(nanos);
}

function toCreatedGroupSnapshot(
  group: MessageInitShape<typeof VolumeGroupSnapshotSchema> = {},
): CreatedGroupSnapshot {
  const { groupSnapshotId = "", creationTime, readyToUse = false, snapshots = [] } = group;
  return {
    groupSnapshotId,
    creationTimeNs: nanosecondsOf(creationTime),
    readyToUse,
    snapshots: snapshots.map((each) => ({ ...toCreatedSnapshot(each), volumeId: each.sourceVolumeId ?? "" })),
  };
}

function capabilityMessage({ mode, access }: VolumeCapability): MessageInitShape<typeof VolumeCapabilitySchema> {
  return {
    accessMode: { mode: Mode[mode] },
    accessType: access.kind === "block"
      ? { case: "block", value: {} }
      : { case: "mount", value: { fsType: access.fsType, mountFlags: [...access.flags] } },
  };
}

function topologyMessage(segments: Segments) {
  return { segments: { ...segments } };
}

/** Returns the handlers with a log line for each call. */
function logged<S extends DescService, H>(service: S, handlers: H): Required<H> {
  const byName = handlers as Record<string, ((request: Message, context: unknown) => Promise<unknown>) | undefined>;
  const entries = unaryMethods(service).flatMap((method) => {
    const handler = byName[method.localName];
    if (handler === undefined) return [];
    const call = (request: Message, context: unknown) => loggedCall(method, request, () => handler(request, context));
    return [[method.localName, call]];
  });
  return Object.fromEntries(entries);
}
