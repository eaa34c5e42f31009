/**
 * The driver as the controllers call it, in the terms of CSI's Controller service. Whoever starts the controllers
 * supplies it.
 *
 * @module
 */

import { causeOf, type Reason, withReason } from "../../base/error.ts";
import { ClaimError } from "./class_parameters.ts";

/** A topology: labels of a node that has it. */
export type Segments = Readonly<Record<string, string>>;

/** An access mode, by its CSI name (csi.proto, VolumeCapability.AccessMode.Mode). */
export type AccessMode =
  | "SINGLE_NODE_SINGLE_WRITER"
  | "SINGLE_NODE_MULTI_WRITER"
  | "MULTI_NODE_READER_ONLY"
  | "MULTI_NODE_SINGLE_WRITER"
  | "MULTI_NODE_MULTI_WRITER";

/** The access type of a volume. */
export type AccessType =
  | { readonly kind: "block" }
  | {
    readonly kind: "mount";
    /** The filesystem; empty for the driver's own choice. */
    readonly fsType: string;
    /** Options of mount. */
    readonly flags: readonly string[];
  };

/** One way in which a volume is used. */
export interface VolumeCapability {
  /** The access mode. */
  readonly mode: AccessMode;
  /** The access type. */
  readonly access: AccessType;
}

/** The topologies where a volume may be. */
export interface TopologyRequirement {
  /** It must be in one of them. */
  readonly requisite: readonly Segments[];
  /** It should be in one of them, the first one best. */
  readonly preferred: readonly Segments[];
}

/** The claim that a volume is created for. */
export interface ClaimReference {
  /** Its namespace. */
  readonly namespace: string;
  /** Its name. */
  readonly name: string;
  /** Its UID. */
  readonly uid: string;
}

/** The source of a volume's content. */
export interface VolumeContentSource {
  /** The kind of the source. */
  readonly kind: "snapshot" | "volume";
  /** Its handle. */
  readonly handle: string;
}

/**
 * The parts of a request that decide about a volume. Once recorded, they are what is created, whatever happens to the
 * class.
 */
export interface VolumeIntentSpec {
  /** The parameters of the class, without those that are Kubernetes' own. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The parameters of the VolumeAttributesClass. */
  readonly mutableParameters: Readonly<Record<string, string>>;
  /** The minimum size, in bytes. */
  readonly requiredBytes: bigint;
  /** The ways in which the volume is used. It must support all of them at once. */
  readonly capabilities: readonly VolumeCapability[];
  /** The topologies where it may be. */
  readonly topology: TopologyRequirement;
  /** The source of its content; without one, the volume is empty. */
  readonly source?: VolumeContentSource;
}

/** The secrets of a request. */
interface RequestSecrets {
  /** Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A request for a volume. */
export interface CreateVolumeRequest extends VolumeIntentSpec, RequestSecrets {
  /** The request's name, which is that of the PersistentVolume to be. */
  readonly name: string;
  /** The claim. */
  readonly claim: ClaimReference;
  /**
   * Whether it goes on with a recorded request. A record has only what must not differ, so when its volume failed, the
   * call fails, and creates no other one; no, when absent.
   */
  readonly isRecorded?: boolean | undefined;
}

/** A volume that was created. */
export interface CreatedVolume {
  /** Its handle, which never changes. */
  readonly volumeId: string;
  /** Its size in bytes; 0 when that is not known. */
  readonly capacityBytes: bigint;
  /** The parameters for the node service, which never change. */
  readonly volumeContext: Readonly<Record<string, string>>;
  /** Its topology. */
  readonly topology: readonly Segments[];
}

/** A request to delete a volume. */
export interface DeleteVolumeRequest extends RequestSecrets {
  /** Its handle. */
  readonly volumeId: string;
}

/** A request for a larger volume. */
export interface ExpandVolumeRequest extends RequestSecrets {
  /** Its handle. */
  readonly volumeId: string;
  /** At least so many bytes. */
  readonly requiredBytes: bigint;
  /** Its capability. */
  readonly capability: VolumeCapability;
}

/** The result of an expansion. */
export interface ExpandedVolume {
  /** The size now, in bytes. */
  readonly capacityBytes: bigint;
  /** True if the node has to expand a filesystem. */
  readonly nodeExpansionRequired: boolean;
}

/** A request for other attributes of a volume. */
export interface ModifyVolumeRequest extends RequestSecrets {
  /** Its handle. */
  readonly volumeId: string;
  /** The parameters of the VolumeAttributesClass. */
  readonly mutableParameters: Readonly<Record<string, string>>;
}

/** A request for a snapshot. */
export interface CreateSnapshotRequest extends RequestSecrets {
  /** The request's name. */
  readonly name: string;
  /** The handle of the volume. */
  readonly volumeId: string;
  /** The parameters of the class, without those that are Kubernetes' own. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** A request about a snapshot that was made. */
export interface ExistingSnapshotRequest extends RequestSecrets {
  /** Its handle. */
  readonly snapshotId: string;
}

/** A snapshot that was made. */
export interface CreatedSnapshot {
  /** Its handle, which never changes. */
  readonly snapshotId: string;
  /** The time of its creation, in nanoseconds since 1970; 0 when that is not known. */
  readonly creationTimeNs: bigint;
  /** The minimum size of a volume that is created from it, in bytes; 0 when that is not known. */
  readonly sizeBytes: bigint;
  /** True if a volume can be created from it. */
  readonly readyToUse: boolean;
  /** The handle of the group snapshot that it belongs to; absent for a snapshot that was taken alone. */
  readonly groupSnapshotId?: string;
}

/** Options of any call. */
export interface CallOptions {
  /** Ends the wait, but not the operation: the call then fails with `Canceled`. */
  readonly signal: AbortSignal;
}

/**
 * The driver. Each promise settles as soon as the outcome is known, and within minutes even if a node is dead: a worker waits
 * for it. Calls with the same name or handle may be repeated at any time. All fail with {@linkcode CallError}.
 */
export interface CsiClient {
  /**
   * Creates a volume, or continues to create the one of that name. When no group has the space, it fails with
   * `ResourceExhausted`.
   */
  createVolume(request: CreateVolumeRequest, options: CallOptions): Promise<CreatedVolume>;
  /** Deletes a volume; one that does not exist is no failure. */
  deleteVolume(request: DeleteVolumeRequest, options: CallOptions): Promise<void>;
  /** Expands a volume; never shrinks it. When the group has no space, it fails with `OutOfRange`. */
  expandVolume(request: ExpandVolumeRequest, options: CallOptions): Promise<ExpandedVolume>;
  /** Changes the mutable parameters of a volume: all that are named, or none. */
  modifyVolume(request: ModifyVolumeRequest, options: CallOptions): Promise<void>;
  /**
   * Takes a snapshot, or continues to take the one of that name. When the group has no space, it fails with
   * `ResourceExhausted`.
   */
  createSnapshot(request: CreateSnapshotRequest, options: CallOptions): Promise<CreatedSnapshot>;
  /** Deletes a snapshot; one that does not exist is no failure. */
  deleteSnapshot(request: ExistingSnapshotRequest, options: CallOptions): Promise<void>;
  /**
   * Finds the snapshot of a handle (CSI's ListSnapshots with its id).
   *
   * @returns the snapshot, or `undefined` when it does not exist
   */
  findSnapshot(request: ExistingSnapshotRequest, options: CallOptions): Promise<CreatedSnapshot | undefined>;
}

/** A request for snapshots of several volumes at one point in time. */
export interface CreateGroupSnapshotRequest extends RequestSecrets {
  /** The request's name. */
  readonly name: string;
  /** The handles of the volumes. */
  readonly volumeIds: readonly string[];
  /** The parameters of the class, without those that are Kubernetes' own. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** A request about a group snapshot that was made. */
export interface ExistingGroupSnapshotRequest extends RequestSecrets {
  /** Its handle. */
  readonly groupSnapshotId: string;
  /** The handles of its snapshots. */
  readonly snapshotIds: readonly string[];
}

/** A group snapshot that was made. */
export interface CreatedGroupSnapshot {
  /** Its handle, which never changes. */
  readonly groupSnapshotId: string;
  /** The time of its creation, in nanoseconds since 1970; 0 when that is not known. */
  readonly creationTimeNs: bigint;
  /** True if volumes can be created from all its snapshots. */
  readonly readyToUse: boolean;
  /** Its snapshots, each with the handle of its volume. */
  readonly snapshots: readonly (CreatedSnapshot & { readonly volumeId: string })[];
}

/** The calls of the driver about group snapshots. As for {@linkcode CsiClient}, each may be repeated at any time. */
export interface GroupSnapshotClient {
  /** Takes a group snapshot, or continues to take the one of that name. */
  createGroupSnapshot(request: CreateGroupSnapshotRequest, options: CallOptions): Promise<CreatedGroupSnapshot>;
  /** Deletes a group snapshot with its snapshots; one that does not exist is no failure. */
  deleteGroupSnapshot(request: ExistingGroupSnapshotRequest, options: CallOptions): Promise<void>;
  /** Returns a group snapshot. One that does not exist is `NotFound`. */
  getGroupSnapshot(request: ExistingGroupSnapshotRequest, options: CallOptions): Promise<CreatedGroupSnapshot>;
}

/** A request for the capacity of a node. */
export interface GetCapacityRequest {
  /** The parameters of the class. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The filesystem; empty for the driver's own choice. */
  readonly fsType: string;
  /** The node. */
  readonly topology: Segments;
}

/** The capacity for volumes, in bytes. */
export interface Capacity {
  /** In all. */
  readonly available: bigint;
  /** In one volume. */
  readonly largest: bigint;
  /** The least that a volume can have. */
  readonly smallest: bigint;
}

/** The call of the driver that the capacity publisher makes. */
export interface CapacityClient {
  /**
   * Returns the capacity of a node, without what is already allocated to pending volumes. Wrong parameters are
   * `InvalidArgument`.
   */
  getCapacity(request: GetCapacityRequest, options: CallOptions): Promise<Capacity>;
}

/** gRPC's codes that decide something here (grpc's statuscodes.md). */
export const Code = {
  Canceled: 1,
  InvalidArgument: 3,
  DeadlineExceeded: 4,
  NotFound: 5,
  ResourceExhausted: 8,
  FailedPrecondition: 9,
  Aborted: 10,
  OutOfRange: 11,
  Internal: 13,
  Unavailable: 14,
} as const;

/** A call failed with a gRPC code. The message is for people, and ends with the reason in brackets. */
export class CallError extends Error {
  /** The name of the error class, for code that cannot use `instanceof`. */
  override readonly name = "CallError";
  /** The gRPC code. */
  readonly code: number;
  /** The reason, as a code; absent of failures of the protocol. */
  readonly reason: Reason | undefined;

  /** Creates an error with a gRPC code. */
  constructor(code: number, message: string, reason?: Reason) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

/** Returns the name of the gRPC code of a failure; `Unknown` for codes that decide nothing here. */
export function codeName(error: unknown): keyof typeof Code | "Unknown" {
  const code = error instanceof CallError ? error.code : undefined;
  const [name] = Object.entries(Code).find(([, value]) => value === code) ?? ["Unknown"];
  return name as keyof typeof Code | "Unknown";
}

/**
 * Reports whether the operation may still be in progress: then only the same request may follow. This also holds for
 * any error that is no {@linkcode CallError}, since its outcome is unknown.
 */
export function isMaybeInProgress(error: unknown): boolean {
  return !(error instanceof CallError) ||
    ["Canceled", "DeadlineExceeded", "Unavailable", "Aborted"].includes(codeName(error));
}

/** Reports whether an expansion cannot succeed until something changes. */
export function isInfeasible(error: unknown): boolean {
  return ["InvalidArgument", "OutOfRange", "NotFound"].includes(codeName(error));
}

/** Returns the message of an error for people, with its reason at the end. */
export function errorMessage(error: unknown): string {
  if (error instanceof CallError) return error.message; // it has it
  return error instanceof Error ? withReason(error.message, causeOf(error)) : `${error}`;
}

/**
 * Returns the CSI access mode that stands for a list of Kubernetes' access modes.
 *
 * @throws {ClaimError} when the list has no known mode, or ReadWriteOncePod beside another one
 */
export function accessModeOf(modes: readonly string[]): AccessMode {
  const includesMode = (mode: string) => modes.includes(mode);
  if (includesMode("ReadWriteOncePod")) {
    if (modes.length === 1) return "SINGLE_NODE_SINGLE_WRITER";
    throw new ClaimError("accessModes: ReadWriteOncePod goes with no other");
  }
  if (includesMode("ReadWriteMany")) return "MULTI_NODE_MULTI_WRITER";
  if (includesMode("ReadOnlyMany")) {
    return includesMode("ReadWriteOnce") ? "MULTI_NODE_SINGLE_WRITER" : "MULTI_NODE_READER_ONLY";
  }
  if (includesMode("ReadWriteOnce")) return "SINGLE_NODE_MULTI_WRITER";
  throw new ClaimError(`accessModes ${modes.join(", ")}: none that is known`);
}
