/**
 * A driver without machines: it makes volumes and snapshots at once, or as it is told to.
 *
 * @module
 */

import type {
  CallOptions,
  CreatedVolume,
  CreateSnapshotRequest,
  CreateVolumeRequest,
  CsiCalls,
  DeleteVolumeRequest,
  ExpandedVolume,
  ExpandVolumeRequest,
  ModifyVolumeRequest,
  SnapshotRequest,
  TakenSnapshot,
} from "../../k8s/sidecars/csi_client.ts";
import { CallError, Code, isMaybeInProgress } from "../../k8s/sidecars/csi_client.ts";
import type { Intent, Intents } from "../../k8s/provisioner/intents.ts";
import { snapshotIdOf, volumeIdOf } from "../../lvm/ids.ts";

/** The calls of a driver. */
export type Call = keyof CsiCalls;

/** What is asked in any of them. */
type Request = Parameters<CsiCalls[Call]>[0];

/** What a call does instead of just succeeding. */
export interface Mishap {
  /** What it fails with. */
  readonly error?: Error;
  /** Whether it does its work all the same. */
  readonly done?: boolean;
  /** What it waits for before it does anything. */
  readonly until?: Promise<void>;
}

/** A volume as the driver has it. */
export interface FakeVolume {
  /** What was asked for. */
  readonly request: CreateVolumeRequest;
  /** Its size. */
  bytes: bigint;
}

/** A snapshot as the driver has it. */
export interface FakeSnapshot {
  /** What was asked for. */
  readonly request: CreateSnapshotRequest;
  /** Whether a volume can be made from it. */
  ready: boolean;
}

/** When every snapshot of the driver was taken, in nanoseconds since 1970. */
export const TAKEN_AT = 1_767_225_600_000_000_000n;

/** A driver without machines, and its records. */
export class FakeDriver implements CsiCalls, Intents {
  /** The volumes that there are, by handle. */
  readonly volumes = new Map<string, FakeVolume>();
  /** The snapshots that there are, by handle. */
  readonly snapshots = new Map<string, FakeSnapshot>();
  /** The records, by request name. */
  readonly intents = new Map<string, Intent>();
  /** All calls, in order. */
  readonly calls: { call: Call; request: Request }[] = [];
  /** Bytes for which there is room in one volume. */
  largest = 1n << 50n;
  /** Whether a node has to grow what is in a volume. */
  nodeExpansionRequired = true;
  /** Whether snapshots can be used as soon as they are taken. */
  snapshotsReady = true;
  readonly #mishaps: { call: Call; mishap: Mishap }[] = [];
  readonly #waiting: { call: Call; resolve: () => void }[] = [];

  /** Has the next call of a kind go wrong; told again, the one after it. */
  next(call: Call, mishap: Mishap): void {
    this.#mishaps.push({ call, mishap });
  }

  /** Has nothing go wrong any more. */
  forget(): void {
    this.#mishaps.length = 0;
  }

  /** Settles when the next call of a kind came. */
  called(call: Call): Promise<void> {
    return new Promise((resolve) => this.#waiting.push({ call, resolve }));
  }

  /** How often a call came. */
  count(call: Call): number {
    return this.calls.filter((one) => one.call === call).length;
  }

  /** See {@linkcode CsiCalls}. */
  createVolume(request: CreateVolumeRequest, { signal }: CallOptions): Promise<CreatedVolume> {
    const { name, parameters, mutableParameters, requiredBytes, capabilities, topology } = request;
    const volumeId = volumeIdOf(name);
    return this.#call("createVolume", request, signal, {
      begin: () => {
        const recorded = { parameters, mutableParameters, requiredBytes, capabilities, topology };
        if (!this.intents.has(name)) this.intents.set(name, { requestName: name, volumeId, pending: true, recorded });
      },
      undo: () => this.intents.delete(name),
      work: () => {
        const made = this.volumes.get(volumeId);
        if (made === undefined && requiredBytes > this.largest) throw new CallError(Code.ResourceExhausted, "no space");
        if (made === undefined) this.volumes.set(volumeId, { request, bytes: requiredBytes });
        const { bytes, request: { topology: { requisite, preferred } } } = this.volumes.get(volumeId)!;
        const topology = [...preferred, ...requisite].slice(0, 1);
        return { volumeId, capacityBytes: bytes, context: { made: "once" }, topology };
      },
    });
  }

  /** See {@linkcode CsiCalls}. */
  deleteVolume(request: DeleteVolumeRequest, { signal }: CallOptions): Promise<void> {
    return this.#call("deleteVolume", request, signal, {
      work: () => {
        this.volumes.delete(request.volumeId);
        for (const [name, { volumeId }] of this.intents) if (volumeId === request.volumeId) this.intents.delete(name);
      },
    });
  }

  /** See {@linkcode CsiCalls}. */
  expandVolume(request: ExpandVolumeRequest, { signal }: CallOptions): Promise<ExpandedVolume> {
    return this.#call("expandVolume", request, signal, {
      work: () => {
        const volume = this.volumes.get(request.volumeId);
        if (volume === undefined) throw new CallError(Code.NotFound, "no such volume");
        if (request.requiredBytes > this.largest) throw new CallError(Code.OutOfRange, "no space to grow");
        if (volume.bytes < request.requiredBytes) volume.bytes = request.requiredBytes;
        return { capacityBytes: volume.bytes, nodeExpansionRequired: this.nodeExpansionRequired };
      },
    });
  }

  /** See {@linkcode CsiCalls}. */
  modifyVolume(request: ModifyVolumeRequest, { signal }: CallOptions): Promise<void> {
    return this.#call("modifyVolume", request, signal, {
      work: () => {
        if (!this.volumes.has(request.volumeId)) throw new CallError(Code.NotFound, "no such volume");
      },
    });
  }

  /** See {@linkcode CsiCalls}. */
  createSnapshot(request: CreateSnapshotRequest, { signal }: CallOptions): Promise<TakenSnapshot> {
    const snapshotId = snapshotIdOf(request.name);
    return this.#call("createSnapshot", request, signal, {
      work: () => {
        if (!this.snapshots.has(snapshotId)) this.snapshots.set(snapshotId, { request, ready: this.snapshotsReady });
        return this.#taken(snapshotId)!;
      },
    });
  }

  /** See {@linkcode CsiCalls}. */
  deleteSnapshot(request: SnapshotRequest, { signal }: CallOptions): Promise<void> {
    return this.#call("deleteSnapshot", request, signal, {
      work: () => void this.snapshots.delete(request.snapshotId),
    });
  }

  /** See {@linkcode CsiCalls}. */
  findSnapshot(request: SnapshotRequest, { signal }: CallOptions): Promise<TakenSnapshot | undefined> {
    return this.#call("findSnapshot", request, signal, { work: () => this.#taken(request.snapshotId) });
  }

  #taken(snapshotId: string): TakenSnapshot | undefined {
    const snapshot = this.snapshots.get(snapshotId);
    return snapshot && { snapshotId, takenAt: TAKEN_AT, bytes: 1n << 30n, ready: snapshot.ready };
  }

  /** See {@linkcode Intents}. */
  find(requestName: string): Intent | undefined {
    return this.intents.get(requestName);
  }

  /** See {@linkcode Intents}. */
  list(): Intent[] {
    return [...this.intents.values()];
  }

  /** See {@linkcode Intents}. */
  handOver(requestName: string): Promise<void> {
    const intent = this.intents.get(requestName);
    if (intent !== undefined) this.intents.set(requestName, { ...intent, pending: false });
    return Promise.resolve();
  }

  async #call<T>(
    call: Call,
    request: Request,
    signal: AbortSignal,
    { begin, undo, work }: { begin?: () => void; undo?: () => void; work: () => T },
  ): Promise<T> {
    this.calls.push({ call, request });
    begin?.();
    const index = this.#mishaps.findIndex((one) => one.call === call);
    const { mishap = {} } = index < 0 ? {} : this.#mishaps.splice(index, 1)[0]!;
    for (const one of [...this.#waiting]) {
      if (one.call === call) {
        this.#waiting.splice(this.#waiting.indexOf(one), 1);
        one.resolve();
      }
    }
    await mishap.until;
    if (signal.aborted) throw new CallError(Code.Canceled, "the waiting ended");
    try {
      if (mishap.error === undefined) return work();
      if (mishap.done) work();
      throw mishap.error;
    } catch (error) {
      if (!isMaybeInProgress(error)) undo?.();
      throw error;
    }
  }
}
