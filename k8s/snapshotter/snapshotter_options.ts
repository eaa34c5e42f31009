/**
 * The options of the snapshotter.
 *
 * @module
 */

import type { EventRecorder } from "../runtime/events.ts";
import type { CsiClient } from "../sidecars/csi_client.ts";
import type { SidecarOptions } from "../sidecars/sidecar_controller.ts";

/** Options of the snapshotter. */
export interface SnapshotterOptions extends SidecarOptions {
  /** The driver. */
  readonly csi: Pick<CsiClient, "createSnapshot" | "deleteSnapshot" | "findSnapshot">;
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** Reports whether a snapshot that was ready may not be so any more; never by default. */
  readonly needsRecheck?: (handle: string) => boolean;
  /**
   * Returns the node of a volume, by its handle; `undefined` when it is not known: then a snapshot that waits for
   * space is retried when any node has more.
   */
  readonly nodeOfVolume: (volumeHandle: string) => string | undefined;
  /** The interval at which missing kinds are looked for, in milliseconds; a minute. */
  readonly missingKindRetryMs?: number | undefined;
}
