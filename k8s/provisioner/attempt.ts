/**
 * Attempts to create the volumes of claims, and the keys of these claims.
 *
 * @module
 */

import type { PersistentVolumeClaim } from "../api/objects.ts";
import type { CreatedVolume } from "../sidecars/csi_client.ts";
import { systemClock } from "../../base/clock.ts";
import type { SidecarOptions } from "../sidecars/sidecar_controller.ts";
import { volumeNameOf } from "./claim.ts";
import type { ProvisioningInputs } from "./persistent_volume.ts";

/** A request that was possibly sent. It is repeated without changes until its outcome is known and handled. */
export interface Attempt extends ProvisioningInputs {
  /** The volume, once it is created. */
  created?: CreatedVolume;
  /** True once the deletion of the volume has begun: it may go at any time, so nobody gets it any more. */
  isGivenUp?: true;
  /** The number of times that its PersistentVolume was rejected. */
  refusals: number;
}

/** Returns the key of a claim: `namespace/name/uid`. */
export function keyOfClaim({ metadata }: PersistentVolumeClaim): string {
  return `${metadata.namespace}/${metadata.name}/${metadata.uid}`;
}

/** Returns the name of the request for the volume of the claim of a key. */
export function requestNameOf(key: string): string {
  return volumeNameOf(key.slice(key.lastIndexOf("/") + 1));
}

/** The time after which a volume that is not created yet is announced, in milliseconds. */
const ANNOUNCE_AFTER_MS = 5_000;

/** The number of times that the API server may reject a PersistentVolume before its volume is deleted. */
export const MAX_REFUSALS = 5;

/**
 * Announces later that the volume of a claim is being created. Most volumes are created by then, and an event is a
 * request.
 *
 * @returns a function that cancels it
 */
export function announceLater(
  { driverName, clock = systemClock }: Pick<SidecarOptions, "driverName" | "clock">,
  { metadata: { namespace, name } }: PersistentVolumeClaim,
  announce: (message: string) => void,
): () => void {
  const message = `${driverName} is creating a volume for claim ${namespace}/${name}`;
  return clock.after(ANNOUNCE_AFTER_MS, () => announce(message));
}
