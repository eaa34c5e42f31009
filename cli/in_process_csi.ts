/**
 * The Controller service's calls as the loops of the same process make them: without a socket in between.
 *
 * @module
 */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Controller,
  ControllerExpandVolumeRequestSchema,
  ControllerModifyVolumeRequestSchema,
  CreateSnapshotRequestSchema,
  CreateVolumeRequestSchema,
  DeleteSnapshotRequestSchema,
  DeleteVolumeRequestSchema,
  GetCapacityRequestSchema,
  ListSnapshotsRequestSchema,
  type SnapshotSchema,
  VolumeCapability_AccessMode_Mode as Mode,
  type VolumeCapabilitySchema,
  type VolumeContentSourceSchema,
} from "../csi/proto/csi_pb.ts";
import type { Answered, Handlers } from "../csi/service.ts";
import { statusOf } from "../csi/status.ts";
import {
  CallError,
  type Capability,
  type CapacityCalls,
  type ClaimName,
  Code,
  type ContentSource,
  type CsiCalls,
  type Segments,
  type TakenSnapshot,
} from "../k8s/sidecars/csi_client.ts";

/** What {@linkcode loopCalls} needs. */
export interface LoopCallsOptions {
  /** The Controller service. */
  readonly handlers: Handlers<typeof Controller>;
  /** The claims whose volumes are being asked for now, by the names of the requests. */
  readonly claims: Map<string, ClaimName>;
  /** Is told what came of each call. */
  readonly onAnswer: (answered: Answered) => void;
}

/** The calls as the loops make them. */
export function loopCalls({ handlers, claims, onAnswer }: LoopCallsOptions): CsiCalls & CapacityCalls {
  const service = handlers as Required<Handlers<typeof Controller>>;
  const call = async <T>(method: string, signal: AbortSignal, body: () => Promise<T>): Promise<T> => {
    const start = performance.now();
    const told = (code: number) => onAnswer({ method, code, ms: performance.now() - start });
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    const abort = () => reject(new CallError(Code.Canceled, "the loop ends; the call goes on"));
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    try {
      const answer = await Promise.race([body(), aborted]);
      told(0);
      return answer;
    } catch (error) {
      const { code, details } = error instanceof CallError
        ? { code: error.code, details: error.message }
        : statusOf(error);
      told(code);
      throw new CallError(code, details);
    } finally {
      signal.removeEventListener("abort", abort); // the signal outlives thousands of calls
    }
  };
  return {
    createVolume: ({ name, claim, requiredBytes, capabilities, topology, source, ...request }, { signal }) =>
      call("CreateVolume", signal, async () => {
        claims.set(name, claim);
        const { volume } = await service.createVolume(create(CreateVolumeRequestSchema, {
          ...request,
          name,
          capacityRange: { requiredBytes },
          volumeCapabilities: capabilities.map(capabilityOf),
          accessibilityRequirements: {
            requisite: topology.requisite.map(segmentsOf),
            preferred: topology.preferred.map(segmentsOf),
          },
          ...(source && { volumeContentSource: sourceOf(source) }),
        })).finally(() => claims.delete(name));
        return {
          volumeId: volume?.volumeId ?? "",
          capacityBytes: volume?.capacityBytes ?? 0n,
          context: volume?.volumeContext ?? {},
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
            volumeCapability: capabilityOf(capability),
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
        return takenSnapshot(snapshot);
      }),
    deleteSnapshot: (request, { signal }) =>
      call("DeleteSnapshot", signal, async () => {
        await service.deleteSnapshot(create(DeleteSnapshotRequestSchema, request));
      }),
    findSnapshot: (request, { signal }) =>
      call("ListSnapshots", signal, async () => {
        const { entries = [] } = await service.listSnapshots(create(ListSnapshotsRequestSchema, request));
        return entries[0] === undefined ? undefined : takenSnapshot(entries[0].snapshot);
      }),
    getCapacity: ({ parameters, fsType, topology }, { signal }) =>
      call("GetCapacity", signal, async () => {
        const mode = "SINGLE_NODE_MULTI_WRITER";
        const { availableCapacity = 0n, maximumVolumeSize = 0n, minimumVolumeSize = 0n } = await service.getCapacity(
          create(GetCapacityRequestSchema, {
            parameters,
            volumeCapabilities: [capabilityOf({ mode, access: { kind: "mount", fsType, flags: [] } })],
            accessibleTopology: segmentsOf(topology),
          }),
        );
        return { available: availableCapacity, largest: maximumVolumeSize, smallest: minimumVolumeSize };
      }),
  };
}

function takenSnapshot(snapshot: MessageInitShape<typeof SnapshotSchema> = {}): TakenSnapshot {
  const { snapshotId = "", creationTime: { seconds = 0n, nanos = 0 } = {}, sizeBytes = 0n, readyToUse = false } =
    snapshot;
  return { snapshotId, takenAt: seconds * 1_000_000_000n + BigInt(nanos), bytes: sizeBytes, ready: readyToUse };
}

function capabilityOf({ mode, access }: Capability): MessageInitShape<typeof VolumeCapabilitySchema> {
  return {
    accessMode: { mode: Mode[mode] },
    accessType: access.kind === "block"
      ? { case: "block", value: {} }
      : { case: "mount", value: { fsType: access.fsType, mountFlags: [...access.flags] } },
  };
}

function sourceOf({ of, handle }: ContentSource): MessageInitShape<typeof VolumeContentSourceSchema> {
  return of === "snapshot"
    ? { type: { case: of, value: { snapshotId: handle } } }
    : { type: { case: of, value: { volumeId: handle } } };
}

function segmentsOf(segments: Segments) {
  return { segments: { ...segments } };
}
