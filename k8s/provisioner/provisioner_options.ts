/**
 * What the provisioner works with.
 *
 * @module
 */

import type { CapacityKey } from "../scheduling/capacity_object.ts";
import type { ClaimSidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { CsiClient } from "../sidecars/csi_client.ts";
import type { Informer, WaitOptions } from "../runtime/informer.ts";
import type { Intents } from "./intents.ts";
import type { CsiNode, Node, StorageClass } from "../api/objects.ts";

/** What the provisioner works with. The informers are started, and shared, by whoever supplies them. */
export interface ProvisionerOptions extends ClaimSidecarOptions {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The driver. */
  readonly csi: Pick<CsiClient, "createVolume" | "deleteVolume">;
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
  readonly waitUntilWithdrawn?: ((key: CapacityKey, bytes: bigint, options: WaitOptions) => Promise<void>) | undefined;
  /** How long a claim that its node has no room for waits for that, in milliseconds; 5 s. */
  readonly withdrawalTimeoutMs?: number | undefined;
  /** How often it is looked for volumes that no claim wants, in milliseconds; every minute. */
  readonly garbageCollectionIntervalMs?: number | undefined;
  /** How long a volume must have been wanted by no claim before it is removed, in milliseconds; 2 min. */
  readonly garbageCollectionGraceMs?: number | undefined;
}
