/**
 * What the provisioner works with.
 *
 * @module
 */

import type { Place } from "../scheduling/capacity_object.ts";
import type { ClaimLoopOptions } from "../sidecars/controller_options.ts";
import type { CsiCalls } from "../sidecars/csi_client.ts";
import type { Informer, WaitOptions } from "../runtime/informer.ts";
import type { Intents } from "./intents.ts";
import type { CsiNode, Node, StorageClass } from "../api/objects.ts";

/** What the provisioner works with. The informers are started, and shared, by whoever supplies them. */
export interface ProvisionerOptions extends ClaimLoopOptions {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The driver. */
  readonly csi: Pick<CsiCalls, "createVolume" | "deleteVolume">;
  /** The records of volumes that are being made. */
  readonly intents: Intents;
  /** The classes. */
  readonly classes: Informer<StorageClass>;
  /** The nodes; their names and labels are enough. */
  readonly nodes: Informer<Node>;
  /** What is registered on the nodes. */
  readonly csiNodes: Informer<CsiNode>;
  /**
   * Waits until the scheduler is told that a node has no room for so many bytes of a class, no longer than the options say; by
   * default it is told nothing.
   */
  readonly withdrawn?: ((place: Place, bytes: bigint, options: WaitOptions) => Promise<void>) | undefined;
  /** How long a claim that its node has no room for waits for that, in milliseconds; 5 s. */
  readonly withdrawnWithinMs?: number | undefined;
  /** How often it is looked for volumes that no claim wants, in milliseconds; every minute. */
  readonly sweepEveryMs?: number | undefined;
  /** How long a volume must have been wanted by no claim before it is removed, in milliseconds; 2 min. */
  readonly sweepGraceMs?: number | undefined;
}
