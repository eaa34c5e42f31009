/**
 * Passes on what happens on a machine in the background: to the reconcilers, as events of objects, and to metrics.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import type { MachineListener } from "../../lvm/machine.ts";
import type { CowUsage } from "../../lvm/snapshots/cow_autoextend.ts";
import type { StagingWarning } from "../../lvm/staging/formatting.ts";
import type { TrimmedVolume } from "../../lvm/staging/trimmer.ts";
import type { Controller } from "../runtime/controller.ts";
import type { NodeReconciler } from "./node_reconciler.ts";
import type { PoolConditions } from "./node_conditions.ts";
import type { SnapshotReconciler } from "./snapshot_reconciler.ts";
import type { VolumeReconciler } from "./volume_reconciler.ts";

/** Counters of background work. */
export interface MachineCounters {
  /** Counts an extension of the COW space of a snapshot. */
  readonly onSnapshotExtended: () => void;
  /** Counts a successful fstrim. */
  readonly onTrimmed: (bytes: number) => void;
  /** Counts a failed fstrim. */
  readonly onTrimFailed: () => void;
}

/** Receivers of the events of a machine. */
export interface MachineEventReceivers {
  /** Reconciler of the LVMNode. */
  readonly node: Pick<NodeReconciler, "requeue">;
  /** Conditions of thin pools. */
  readonly pools: Pick<PoolConditions, "onExtended">;
  /** Reconciler of LVMVolumes. */
  readonly volumes: Pick<
    VolumeReconciler,
    "recordWarning" | "recordTrimFailed" | "recordTrimUnsupported" | "reportLimits"
  >;
  /** Reconciler of LVMSnapshots. */
  readonly snapshots: Pick<SnapshotReconciler, "recordCowExtended" | "recordCowCannotExtend">;
  /** Controller of LVMVolumes. */
  readonly volumeController: Pick<Controller, "add" | "wake">;
  /** Controller of LVMSnapshots. */
  readonly snapshotController: Pick<Controller, "wake">;
  /** Counters. */
  readonly counters: MachineCounters;
}

/**
 * The listener of a machine. It exists before the machine, which the receivers need, so the receivers are connected
 * afterwards, and before the background work starts.
 */
export class MachineEvents implements MachineListener {
  #connected: MachineEventReceivers | undefined;

  /** Sets the receivers. Call it before the background work of the machine starts. */
  connect(receivers: MachineEventReceivers): void {
    this.#connected = receivers;
  }

  /** The receivers. @throws {Error} before {@linkcode MachineEvents.connect} */
  get receivers(): MachineEventReceivers {
    if (this.#connected === undefined) throw new Error("the events of the machine are not connected yet");
    return this.#connected;
  }

  /** Called after the space of a volume group or a volume changed. */
  readonly onChange = (): void => this.receivers.node.requeue();

  /** Called after a logical volume was removed. */
  readonly onRemoved = (): void => this.onChange();

  /** Called after a thin pool was extended. @param message a description of the extension */
  readonly onPoolExtended = (message: string): void => {
    this.receivers.pools.onExtended(message);
    this.onChange();
  };

  /** Called after the COW space of a snapshot was extended. @param size the new size in bytes */
  readonly onSnapshotExtended = (cow: CowUsage, size: bigint): void => {
    this.receivers.counters.onSnapshotExtended();
    this.receivers.snapshots.recordCowExtended(cow, size);
  };

  /** Called when the COW space of a snapshot is due for an extension that is not possible. */
  readonly onSnapshotCannotExtend = (cow: CowUsage, reason: string): void =>
    this.receivers.snapshots.recordCowCannotExtend(cow, reason);

  /** Called when the copy of a volume has progressed, is complete, or cannot be made. */
  readonly onProgress = (id: VolumeId): void => this.receivers.volumeController.add(id);

  /** Called when the state of the keys of a volume has changed. */
  readonly onKeyChange = (): void => this.onChange();

  /** Called when the largest sectors are known on which what is on a volume can be used. */
  readonly onSectorsRead = (): void => this.onChange();

  /** Called when a volume is staged although something is wrong with its filesystem. */
  readonly onStagingWarning = (id: VolumeId, warning: StagingWarning): void =>
    this.receivers.volumes.recordWarning(id, warning);

  /** Called after a successful fstrim. @param bytes the bytes that it discarded */
  readonly onTrimmed = (_: TrimmedVolume, bytes: number): void => this.receivers.counters.onTrimmed(bytes);

  /** Called after a failed fstrim. @param failures the number of failures in a row */
  readonly onTrimFailed = (volume: TrimmedVolume, reason: string, failures: number): void => {
    this.receivers.counters.onTrimFailed();
    this.receivers.volumes.recordTrimFailed(volume, reason, failures);
  };

  /** Called when the device of a volume does not support discards. */
  readonly onTrimUnsupported = (volume: TrimmedVolume): void => this.receivers.volumes.recordTrimUnsupported(volume);
}
