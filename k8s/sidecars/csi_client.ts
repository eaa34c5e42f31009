/**
 * What the loops ask of the driver, in the terms of CSI's Controller service. Whoever starts the loops supplies it.
 *
 * @module
 */

/** A topology: labels of a node that has it. */
export type Segments = Readonly<Record<string, string>>;

/** How a volume is used; CSI's names (csi.proto, VolumeCapability.AccessMode.Mode). */
export type AccessMode =
  | "SINGLE_NODE_SINGLE_WRITER"
  | "SINGLE_NODE_MULTI_WRITER"
  | "MULTI_NODE_READER_ONLY"
  | "MULTI_NODE_SINGLE_WRITER"
  | "MULTI_NODE_MULTI_WRITER";

/** What a volume is used as. */
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
  /** By whom. */
  readonly mode: AccessMode;
  /** As what. */
  readonly access: AccessType;
}

/** Where a volume may be. */
export interface TopologyRequirement {
  /** It must be in one of them. */
  readonly requisite: readonly Segments[];
  /** In this order, if it can be. */
  readonly preferred: readonly Segments[];
}

/** The claim that a volume is made for. */
export interface ClaimReference {
  /** Its namespace. */
  readonly namespace: string;
  /** Its name. */
  readonly name: string;
  /** Its identity. */
  readonly uid: string;
}

/** What a volume is filled with when it is made. */
export interface VolumeContentSource {
  /** What it is. */
  readonly of: "snapshot" | "volume";
  /** Its handle. */
  readonly handle: string;
}

/** What decides about a volume: this, once recorded, is what is made, whatever happens to the class. */
export interface VolumeIntentSpec {
  /** The parameters of the class, without those that are Kubernetes' own. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The parameters of the VolumeAttributesClass. */
  readonly mutableParameters: Readonly<Record<string, string>>;
  /** At least so many bytes. */
  readonly requiredBytes: bigint;
  /** All of them at once. */
  readonly capabilities: readonly VolumeCapability[];
  /** Where it may be. */
  readonly topology: TopologyRequirement;
  /** What it is filled with; nothing by default. */
  readonly source?: VolumeContentSource;
}

/** A request for a volume. */
export interface CreateVolumeRequest extends VolumeIntentSpec {
  /** The request's name, which is that of the PersistentVolume to be. */
  readonly name: string;
  /** The claim. */
  readonly claim: ClaimReference;
  /** Secrets that the class names. Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A volume that was made. */
export interface CreatedVolume {
  /** Its handle, for ever. */
  readonly volumeId: string;
  /** Its size in bytes; 0 when that is not known. */
  readonly capacityBytes: bigint;
  /** What the node service wants to be told; the same for ever. */
  readonly volumeContext: Readonly<Record<string, string>>;
  /** Where it is. */
  readonly topology: readonly Segments[];
}

/** A request to remove a volume. */
export interface DeleteVolumeRequest {
  /** Its handle. */
  readonly volumeId: string;
  /** Secrets. Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A request for a larger volume. */
export interface ExpandVolumeRequest {
  /** Its handle. */
  readonly volumeId: string;
  /** At least so many bytes. */
  readonly requiredBytes: bigint;
  /** How it is used. */
  readonly capability: VolumeCapability;
  /** Secrets. Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** What came of an expansion. */
export interface ExpandedVolume {
  /** The size now, in bytes. */
  readonly capacityBytes: bigint;
  /** Whether the node has to grow a filesystem. */
  readonly nodeExpansionRequired: boolean;
}

/** A request for other attributes of a volume. */
export interface ModifyVolumeRequest {
  /** Its handle. */
  readonly volumeId: string;
  /** The parameters of the VolumeAttributesClass. */
  readonly mutableParameters: Readonly<Record<string, string>>;
  /** Secrets. Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A request for a snapshot. */
export interface CreateSnapshotRequest {
  /** The request's name. */
  readonly name: string;
  /** The handle of the volume. */
  readonly volumeId: string;
  /** The parameters of the class, without those that are Kubernetes' own. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Secrets. Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A request about a snapshot that was made. */
export interface ExistingSnapshotRequest {
  /** Its handle. */
  readonly snapshotId: string;
  /** Secrets. Never to be logged. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A snapshot that was made. */
export interface CreatedSnapshot {
  /** Its handle, for ever. */
  readonly snapshotId: string;
  /** When it was taken, in nanoseconds since 1970; 0 when that is not known. */
  readonly creationTimeNs: bigint;
  /** The least size of a volume made from it, in bytes; 0 when that is not known. */
  readonly sizeBytes: bigint;
  /** Whether a volume can be made from it. */
  readonly readyToUse: boolean;
}

/** What can be said about any call. */
export interface CallOptions {
  /** Ends the waiting, not what was begun: the call then fails with `Canceled`. */
  readonly signal: AbortSignal;
}

/**
 * The driver. Each promise settles as soon as the outcome is known, and within minutes even if a node is dead: a worker waits
 * for it. Calls with the same name or handle may be repeated at any time. All fail with {@linkcode CallError}.
 */
export interface CsiClient {
  /** Makes a volume, or goes on making the one of that name. A group that is full is `ResourceExhausted`. */
  createVolume(request: CreateVolumeRequest, options: CallOptions): Promise<CreatedVolume>;
  /** Removes a volume; one that is not there is no failure. */
  deleteVolume(request: DeleteVolumeRequest, options: CallOptions): Promise<void>;
  /** Grows a volume; never shrinks it. A group that is full is `OutOfRange`. */
  expandVolume(request: ExpandVolumeRequest, options: CallOptions): Promise<ExpandedVolume>;
  /** Changes what can change of a volume while it is used: all that is named, or nothing. */
  modifyVolume(request: ModifyVolumeRequest, options: CallOptions): Promise<void>;
  /** Takes a snapshot, or goes on taking the one of that name. A group that is full is `ResourceExhausted`. */
  createSnapshot(request: CreateSnapshotRequest, options: CallOptions): Promise<CreatedSnapshot>;
  /** Removes a snapshot; one that is not there is no failure. */
  deleteSnapshot(request: ExistingSnapshotRequest, options: CallOptions): Promise<void>;
  /** The snapshot of a handle (CSI's ListSnapshots with its id); `undefined` when there is none. */
  findSnapshot(request: ExistingSnapshotRequest, options: CallOptions): Promise<CreatedSnapshot | undefined>;
}

/** A question for what there is room for. */
export interface GetCapacityRequest {
  /** The parameters of the class. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The filesystem; empty for the driver's own choice. */
  readonly fsType: string;
  /** The node. */
  readonly topology: Segments;
}

/** What there is room for, in bytes. */
export interface Capacity {
  /** In all. */
  readonly available: bigint;
  /** In one volume. */
  readonly largest: bigint;
  /** The least that a volume can have. */
  readonly smallest: bigint;
}

/** What the loop that tells of capacity asks of the driver. */
export interface CapacityClient {
  /** What a node has room for, without what is promised already. Parameters that are wrong are `InvalidArgument`. */
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

/** A call failed with a gRPC code. The message is for people. */
export class CallError extends Error {
  /** What kind of error this is, for those who only see its name. */
  override readonly name = "CallError";
  /** The gRPC code. */
  readonly code: number;

  /** Makes an error of a gRPC code. */
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The name of the code that a failure has; `Unknown` where that decides nothing here. */
export function codeName(error: unknown): string {
  const code = error instanceof CallError ? error.code : undefined;
  return Object.entries(Code).find(([, value]) => value === code)?.[0] ?? "Unknown";
}

const UNCERTAIN_CODES: readonly number[] = [Code.Canceled, Code.DeadlineExceeded, Code.Unavailable, Code.Aborted];
const INFEASIBLE_CODES: readonly number[] = [Code.InvalidArgument, Code.OutOfRange, Code.NotFound];

/**
 * Whether what was asked for may still be happening: then only the same request may follow. True also of whatever is no
 * {@linkcode CallError}, since nothing is known about it.
 */
export function isMaybeInProgress(error: unknown): boolean {
  return !(error instanceof CallError) || UNCERTAIN_CODES.includes(error.code);
}

/** Whether nothing was made because there is no room for it. */
export function isResourceExhausted(error: unknown): boolean {
  return error instanceof CallError && error.code === Code.ResourceExhausted;
}

/** Whether an expansion cannot succeed until something changes. */
export function isInfeasible(error: unknown): boolean {
  return error instanceof CallError && INFEASIBLE_CODES.includes(error.code);
}

/** Whether another call for the same volume is under way: it passes by itself, and is nothing that a person has to know. */
export function isOperationPending(error: unknown): boolean {
  return error instanceof CallError && error.code === Code.Aborted;
}

/** What an error says to people. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : `${error}`;
}
