/**
 * What the provisioner works with.
 *
 * @module
 */

import type { ApiClient } from "./client.ts";
import type { Backoff, Clock } from "./clock.ts";
import type { CsiCalls } from "./csi_calls.ts";
import type { EventRecorder } from "./events.ts";
import type { Informer } from "./informer.ts";
import type { Intents } from "./intents.ts";
import type { Turn } from "./loop.ts";
import type { CsiNode, Node, PersistentVolume, PersistentVolumeClaim, StorageClass } from "./objects.ts";

/** What the provisioner works with. The informers are started, and shared, by whoever supplies them. */
export interface ProvisionerOptions {
  /** The driver's name. */
  readonly driverName: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The API server. */
  readonly client: ApiClient;
  /** The driver. */
  readonly csi: CsiCalls;
  /** The records of volumes that are being made. */
  readonly intents: Intents;
  /** Where events go. */
  readonly events: EventRecorder;
  /** The claims of all namespaces. */
  readonly claims: Informer<PersistentVolumeClaim>;
  /** The PersistentVolumes. */
  readonly volumes: Informer<PersistentVolume>;
  /** The classes. */
  readonly classes: Informer<StorageClass>;
  /** The nodes; their names and labels are enough. */
  readonly nodes: Informer<Node>;
  /** What is registered on the nodes. */
  readonly csiNodes: Informer<CsiNode>;
  /** How many claims are served at once; 10. */
  readonly parallel?: number | undefined;
  /** How waiting grows with the failures of a claim or a volume; from 1 s to 5 min. */
  readonly backoff?: Backoff | undefined;
  /** How often it is looked for volumes that no claim wants, in milliseconds; every minute. */
  readonly sweepEveryMs?: number | undefined;
  /** How long a volume must have been wanted by no claim before it is removed, in milliseconds; 2 min. */
  readonly sweepGraceMs?: number | undefined;
  /** Told of every turn of the loops. */
  readonly onTurn?: ((turn: Turn) => void) | undefined;
  /** Told how many keys wait for a worker of a loop. */
  readonly onDepth?: ((loop: string, depth: number) => void) | undefined;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** Milliseconds that begun work has when the loops are stopped, so that another replica goes on within 3 s. */
export const DRAIN_MS = 2_000;
