/**
 * The durable records of volumes that are being created.
 *
 * @module
 */

import type { VolumeIntentSpec } from "../sidecars/csi_client.ts";

/** The record of a requested volume. It exists before the volume does. */
export interface Intent {
  /** The name of the request. */
  readonly requestName: string;
  /** The volume's handle. */
  readonly volumeId: string;
  /**
   * True if the request came from the provisioner, and no PersistentVolume was seen for it yet. Once one was seen, only
   * its deletion may delete the volume: it may have been retained by its policy, and hold data.
   */
  readonly pending: boolean;
  /** The fields that a repeated request must have as they were in the first one. */
  readonly spec: Partial<VolumeIntentSpec>;
}

/** A pending record. What was requested is not read: one of a newer version does not keep the others from the list. */
export type PendingIntent = Omit<Intent, "spec">;

/** The records. They are read from a cache, which is complete when the controllers start. */
export interface Intents {
  /**
   * Finds the record of a request.
   *
   * @returns the record, or `undefined` when there is none, or the request failed and nothing of it is left, so that
   * the next request may differ
   */
  find(requestName: string): Intent | undefined;
  /** Returns the pending records. Their number does not depend on the number of volumes. */
  listPending(): PendingIntent[];
  /** Records that the PersistentVolume exists: the intent is no longer pending. */
  clearPending(requestName: string, options: { signal: AbortSignal }): Promise<void>;
}
