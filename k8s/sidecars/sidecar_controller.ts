/**
 * What the loops of the controller have in common, and those over claims and PersistentVolumes beyond that.
 *
 * @module
 */

import type { ApiClient } from "../client/client.ts";
import type { Backoff, Clock } from "../../lvm/clock.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import { Controller, type ControllerOptions, type ReconcileResult } from "../runtime/controller.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";

/** What a loop of the controller works with. */
export interface SidecarOptions {
  /** The driver's name. */
  readonly driverName: string;
  /** The API server. */
  readonly client: ApiClient;
  /** How many objects are served at once; 100. Most of that time they wait for a node. */
  readonly parallel?: number | undefined;
  /** How waiting grows with the failures of an object; from 1 s to 5 min. */
  readonly backoff?: Backoff | undefined;
  /** Told of every turn of the loops. */
  readonly onReconciled?: ((result: ReconcileResult) => void) | undefined;
  /** Told how many keys wait for a worker of a loop. */
  readonly onDepth?: ((controller: string, depth: number) => void) | undefined;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** What a loop over claims works with. The informers are started, and shared, by whoever supplies them. */
export interface ClaimSidecarOptions extends SidecarOptions {
  /** Where events go. */
  readonly events: EventRecorder;
  /** The claims of all namespaces. */
  readonly claims: Informer<PersistentVolumeClaim>;
  /** The PersistentVolumes. */
  readonly volumes: Informer<PersistentVolume>;
}

/** Milliseconds that begun work has when the loops are stopped, so that another replica goes on within 3 s. */
const DRAIN_MS = 2_000;

/** Makes a loop of that name, which follows nothing yet. */
export function sidecarController(
  name: string,
  options: SidecarOptions,
  reconcile: ControllerOptions["reconcile"],
): Controller {
  const { parallel = 100, backoff, onReconciled, onDepth, clock } = options;
  return new Controller({ name, reconcile, parallel, backoff, drainMs: DRAIN_MS, onReconciled, onDepth, clock });
}
