/**
 * A driver without machines: it creates volumes and snapshots at once, or as its faults say.
 *
 * @module
 */

import type {
  CallOptions,
  CreatedSnapshot,
  CreatedVolume,
  CreateSnapshotRequest,
  CreateVolumeRequest,
  CsiClient,
  DeleteVolumeRequest,
  ExistingSnapshotRequest,
  ExpandedVolume,
  ExpandVolumeRequest,
  ModifyVolumeRequest,
} from "../../../k8s/sidecars/csi_client.ts";
import { CallError, Code, isMaybeInProgress } from "../../../k8s/sidecars/csi_client.ts";
import type { Intent, Intents } from "../../../k8s/provisioner/volume_intents.ts";
import { snapshotIdOf, volumeIdOf } from "../../../base/ids.ts";
import { roundUp } from "../../../base/size.ts";

/** The calls of a driver. */
export type Call = keyof CsiClient;

/** The request of any of the calls. */
type Request = Parameters<CsiClient[Call]>[0];

/** The effect of a call that does not simply succeed. */
export interface CallFault {
  /** The error of the call. */
  readonly error?: Error;
  /** True if the call does its work in spite of the error. */
  readonly done?: boolean;
  /** A promise that the call awaits before it does anything. */
  readonly waitFor?: Promise<void>;
}

/** A volume as the driver has it. */
export interface FakeVolume {
  /** The request. */
  readonly request: CreateVolumeRequest;
  /** Its size. */
  bytes: bigint;
}

/** A snapshot as the driver has it. */
export interface FakeSnapshot {
  /** The request. */
  readonly request: CreateSnapshotRequest;
  /** True if a volume can be created from it. */
  ready: boolean;
}

/** The creation time of every snapshot of the driver, in nanoseconds since 1970. */
export const TAKEN_AT = 1_767_225_600_000_000_000n;

/** A driver without machines, and its records. */
export class FakeDriver implements CsiClient, Intents {
  /** The existing volumes, by handle. */
  readonly volumes = new Map<string, FakeVolume>();
  /** The existing snapshots, by handle. */
  readonly snapshots = new Map<string, FakeSnapshot>();
  /** The records, by request name. */
  readonly intents = new Map<string, Intent>();
  /** All calls, in order. */
  readonly calls: { call: Call; request: Request }[] = [];
  /** The largest size of a volume, in bytes. */
  maxVolumeBytes = 1n << 50n;
  /** The bytes that the sizes of expanded volumes are multiples of. */
  extentBytes = 1n;
  /** True if a node must resize the filesystem after an expansion. */
  nodeExpansionRequired = true;
  /** True if snapshots can be used as soon as they are created. */
  snapshotsReady = true;
  /** The group snapshot that all snapshots belong to. */
  groupOfSnapshots: string | undefined;
  readonly #faults: { call: Call; fault: CallFault }[] = [];
  readonly #waiters: { call: Call; resolve: () => void }[] = [];

  /** Makes the next call of a kind fail. A second fault applies to the call after it. */
  injectFault(call: Call, fault: CallFault): void {
    this.#faults.push({ call, fault });
  }

  /** Removes all faults. */
  clearFaults(): void {
    this.#faults.length = 0;
  }

  /** Waits for the next call of this kind. */
  waitForCall(call: Call): Promise<void> {
    return new Promise((resolve) => this.#waiters.push({ call, resolve }));
  }

  /** Returns how often a call came. */
  callCount(call: Call): number {
    return this.calls.filter((one) => one.call === call).length;
  }

  /** See {@linkcode CsiClient}. */
  createVolume(request: CreateVolumeRequest, { signal }: CallOptions): Promise<CreatedVolume> {
    const { name, parameters, mutableParameters, requiredBytes, capabilities, topology } = request;
    const volumeId = volumeIdOf(name);
    return this.#call("createVolume", request, signal, {
      onStart: () => {
        const spec = { parameters, mutableParameters, requiredBytes, capabilities, topology };
        if (!this.intents.has(name)) this.intents.set(name, { requestName: name, volumeId, pending: true, spec });
      },
      onFailure: () => this.intents.delete(name),
      work: () => {
        const made = this.volumes.get(volumeId);
        if (made === undefined && requiredBytes > this.maxVolumeBytes) {
          throw new CallError(Code.ResourceExhausted, "no space");
        }
        if (made === undefined) this.volumes.set(volumeId, { request, bytes: requiredBytes });
        const { bytes, request: { topology: { requisite, preferred } } } = this.volumes.get(volumeId)!;
        const topology = [...preferred, ...requisite].slice(0, 1);
        return { volumeId, capacityBytes: bytes, volumeContext: { made: "once" }, topology };
      },
    });
  }

  /** See {@linkcode CsiClient}. */
  deleteVolume(request: DeleteVolumeRequest, { signal }: CallOptions): Promise<void> {
    return this.#call("deleteVolume", request, signal, {
      work: () => {
        this.volumes.delete(request.volumeId);
        for (const [name, { volumeId }] of this.intents) if (volumeId === request.volumeId) this.intents.delete(name);
      },
    });
  }

  /** See {@linkcode CsiClient}. */
  expandVolume(request: ExpandVolumeRequest, { signal }: CallOptions): Promise<ExpandedVolume> {
    return this.#call("expandVolume", request, signal, {
      work: () => {
        const volume = this.volumes.get(request.volumeId);
        if (volume === undefined) throw new CallError(Code.NotFound, "no such volume");
        if (request.requiredBytes > this.maxVolumeBytes) throw new CallError(Code.OutOfRange, "no space to grow");
        if (volume.bytes < request.requiredBytes) volume.bytes = roundUp(request.requiredBytes, this.extentBytes);
        return { capacityBytes: volume.bytes, nodeExpansionRequired: this.nodeExpansionRequired };
      },
    });
  }

  /** See {@linkcode CsiClient}. */
  modifyVolume(request: ModifyVolumeRequest, { signal }: CallOptions): Promise<void> {
    return this.#call("modifyVolume", request, signal, {
      work: () => {
        if (!this.volumes.has(request.volumeId)) throw new CallError(Code.NotFound, "no such volume");
      },
    });
  }

  /** See {@linkcode CsiClient}. */
  createSnapshot(request: CreateSnapshotRequest, { signal }: CallOptions): Promise<CreatedSnapshot> {
    const snapshotId = snapshotIdOf(request.name);
    return this.#call("createSnapshot", request, signal, {
      work: () => {
        if (!this.snapshots.has(snapshotId)) this.snapshots.set(snapshotId, { request, ready: this.snapshotsReady });
        return this.#snapshotOf(snapshotId)!;
      },
    });
  }

  /** See {@linkcode CsiClient}. */
  deleteSnapshot(request: ExistingSnapshotRequest, { signal }: CallOptions): Promise<void> {
    return this.#call("deleteSnapshot", request, signal, {
      work: () => void this.snapshots.delete(request.snapshotId),
    });
  }

  /** See {@linkcode CsiClient}. */
  findSnapshot(request: ExistingSnapshotRequest, { signal }: CallOptions): Promise<CreatedSnapshot | undefined> {
    return this.#call("findSnapshot", request, signal, { work: () => this.#snapshotOf(request.snapshotId) });
  }

  #snapshotOf(snapshotId: string): CreatedSnapshot | undefined {
    const snapshot = this.snapshots.get(snapshotId);
    if (snapshot === undefined) return undefined;
    const groupSnapshotId = this.groupOfSnapshots;
    return {
      ...{ snapshotId, creationTimeNs: TAKEN_AT, sizeBytes: 1n << 30n, readyToUse: snapshot.ready },
      ...(groupSnapshotId !== undefined && { groupSnapshotId }),
    };
  }

  /** See {@linkcode Intents}. */
  find(requestName: string): Intent | undefined {
    return this.intents.get(requestName);
  }

  /** See {@linkcode Intents}. */
  listPending(): Intent[] {
    return [...this.intents.values()].filter(({ pending }) => pending);
  }

  /** See {@linkcode Intents}. */
  clearPending(requestName: string): Promise<void> {
    const intent = this.intents.get(requestName);
    if (intent !== undefined) this.intents.set(requestName, { ...intent, pending: false });
    return Promise.resolve();
  }

  async #call<T>(
    call: Call,
    request: Request,
    signal: AbortSignal,
    { onStart, onFailure, work }: { onStart?: () => void; onFailure?: () => void; work: () => T },
  ): Promise<T> {
    this.calls.push({ call, request });
    onStart?.();
    const index = this.#faults.findIndex((one) => one.call === call);
    const { fault = {} } = index < 0 ? {} : this.#faults.splice(index, 1)[0]!;
    for (const one of [...this.#waiters]) {
      if (one.call === call) {
        this.#waiters.splice(this.#waiters.indexOf(one), 1);
        one.resolve();
      }
    }
    await fault.waitFor;
    if (signal.aborted) throw new CallError(Code.Canceled, "the waiting ended");
    try {
      if (fault.error === undefined) return work();
      if (fault.done) work();
      throw fault.error;
    } catch (error) {
      if (!isMaybeInProgress(error)) onFailure?.();
      throw error;
    }
  }
}
