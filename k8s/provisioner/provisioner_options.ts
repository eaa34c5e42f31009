/**
 * The options of the provisioner.
 *
 * @module
 */

import type { CapacityKey } from "../scheduling/capacity_object.ts";
import type { ClaimSidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { CsiClient, VolumeContentSource } from "../sidecars/csi_client.ts";
import type { Informer, WaitOptions } from "../runtime/informer.ts";
import type { Intents } from "./volume_intents.ts";
import type { CsiNode, Node, StorageClass } from "../api/objects.ts";

/** Options of the provisioner. The caller starts and shares the informers. */
export interface ProvisionerOptions extends ClaimSidecarOptions {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The driver. */
  readonly csi: Pick<CsiClient, "createVolume" | "deleteVolume">;
  /** The durable records of volumes that are being created. */
  readonly intents: Intents;
  /** The classes. */
  readonly classes: Informer<StorageClass>;
  /** The nodes; their names and labels are enough. */
  readonly nodes: Informer<Node>;
  /** The CSINodes, which list the drivers of each node. */
  readonly csiNodes: Informer<CsiNode>;
  /**
   * Waits until the published capacity (CSIStorageCapacity) of a node for a class is less than a number of bytes, no
   * longer than the options say. Without it, the provisioner does not wait.
   */
  readonly waitForCapacityBelow?:
    | ((key: CapacityKey, bytes: bigint, options: WaitOptions) => Promise<void>)
    | undefined;
  /** The time limit of that wait, in milliseconds; 5 s. */
  readonly capacityTimeoutMs?: number | undefined;
  /**
   * Returns the node of a content source, where the volume is created, or `undefined` when it is not known: then
   * every selected node is tried.
   */
  readonly nodeOfSource: (source: VolumeContentSource) => string | undefined;
  /** The interval at which a kind is looked for that the cluster does not have, in milliseconds; a minute. */
  readonly missingKindRetryMs?: number | undefined;
  /** The interval of garbage collection, in milliseconds; a minute. */
  readonly garbageCollectionIntervalMs?: number | undefined;
  /** The time that a volume must have been without a claim before it is deleted, in milliseconds; 2 min. */
  readonly garbageCollectionGraceMs?: number | undefined;
}
