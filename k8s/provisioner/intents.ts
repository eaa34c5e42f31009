/**
 * What was begun: the durable records of volumes that are being made.
 *
 * @module
 */

import type { VolumeIntentSpec } from "../sidecars/csi_client.ts";

/** The record of a volume that was asked for. */
export interface Intent {
  /** The name of the request. */
  readonly requestName: string;
  /** The volume's handle. */
  readonly volumeId: string;
  /**
   * Whether the request came from this loop, and no PersistentVolume was seen for it yet. From the moment one was, only that
   * one's end may end the volume: it may have been kept by its policy, and hold data.
   */
  readonly pending: boolean;
  /** What was asked for, as far as it binds. */
  readonly spec: Partial<VolumeIntentSpec>;
}

/** The records. They are looked up in a cache, which is complete when the loops start. */
export interface Intents {
  /** The record of a request; undefined also when it failed and nothing of it is left, so that anything may be asked anew. */
  find(requestName: string): Intent | undefined;
  /** All records of requests. */
  list(): Intent[];
  /** Remembers that there is a PersistentVolume: the intent is no longer pending. */
  clearPending(requestName: string, options: { signal: AbortSignal }): Promise<void>;
}
