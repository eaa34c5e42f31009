/**
 * The options that the controllers in place of the official sidecars have in common, and those of controllers for
 * claims.
 *
 * @module
 */

import type { ApiClient } from "../client/client.ts";
import type { Backoff, Clock } from "../../base/clock.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import { Controller, type ControllerOptions, type ReconcileResult } from "../runtime/controller.ts";
import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { backoffOf, type ControllerName } from "../runtime/backoffs.ts";
import type { WakeUps } from "../runtime/wake_ups.ts";

/** Options of a controller. */
export interface SidecarOptions {
  /** The driver's name. */
  readonly driverName: string;
  /** The API server. */
  readonly client: ApiClient;
  /** The number of objects that are reconciled at the same time; 100. Those that wait for a node for long do not count. */
  readonly parallel?: number | undefined;
  /** The delay after consecutive failures of an object; that of {@linkcode backoffOf} by default. */
  readonly backoff?: Backoff | undefined;
  /** Called after every reconcile attempt. */
  readonly onReconciled?: ((result: ReconcileResult) => void) | undefined;
  /** Called when the number of keys that wait for a worker changes. */
  readonly onDepth?: ((controller: string, depth: number) => void) | undefined;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** Options of a controller for claims. The caller starts and shares the informers. */
export interface ClaimSidecarOptions extends SidecarOptions {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The claims of all namespaces. */
  readonly claims: Informer<PersistentVolumeClaim>;
  /** The PersistentVolumes. */
  readonly volumes: Informer<PersistentVolume>;
  /** Wakes what waits. */
  readonly wakeUps: WakeUps;
}

/** What a controller watches that changes volumes of claims. The caller starts and shares the informers. */
export interface BoundVolumeInformers {
  /** All LVMVolumes. */
  readonly lvmVolumes: Informer<LvmVolume>;
  /** All LVMSnapshots. */
  readonly snapshots: Informer<LvmSnapshot>;
  /** The claims of all namespaces. */
  readonly claims: Informer<PersistentVolumeClaim>;
  /** The PersistentVolumes. */
  readonly persistentVolumes: Informer<PersistentVolume>;
  /** The StorageClasses. */
  readonly classes: Informer<StorageClass>;
}

/**
 * The time for operations in progress when the controllers are stopped, in milliseconds, so that another replica
 * continues within 3 s.
 */
const DRAIN_MS = 2_000;

/**
 * The time after which a call waits for a node, in milliseconds. From then on it takes no worker: calls to nodes that are
 * down take a minute each, and healthy nodes are not to wait for them.
 */
const SLOW_AFTER_MS = 1_000;

/** Options of {@linkcode sidecarController}. */
export interface SidecarControllerOptions extends SidecarOptions, Pick<ControllerOptions, "isUrgent" | "cacheWaitMs"> {
  /**
   * Whether an attempt may wait for a node, and then takes no worker; yes, when absent. Of a controller that waits for
   * the API server alone, `parallel` limits the requests, also while the server is slow.
   */
  readonly waitsForNodes?: boolean | undefined;
}

/** Creates a controller of a name, which watches nothing yet. */
export function sidecarController(
  name: ControllerName,
  options: SidecarControllerOptions,
  reconcile: ControllerOptions["reconcile"],
): Controller {
  const { parallel = 100, waitsForNodes = true, isUrgent, cacheWaitMs, onReconciled, onDepth, clock } = options;
  return new Controller({
    name,
    reconcile,
    parallel,
    backoff: options.backoff ?? backoffOf(name),
    drainMs: DRAIN_MS,
    cacheWaitMs,
    isUrgent,
    onReconciled,
    onDepth,
    clock,
    ...(waitsForNodes && { slowAfterMs: SLOW_AFTER_MS }),
  });
}
