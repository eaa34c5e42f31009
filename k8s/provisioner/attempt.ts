/**
 * Attempts to create the volumes of claims, and the keys of these claims.
 *
 * @module
 */

import type { PersistentVolumeClaim } from "../api/objects.ts";
import type { CreatedVolume } from "../sidecars/csi_client.ts";
import { volumeNameOf } from "./claim.ts";
import type { ProvisioningInputs } from "./persistent_volume.ts";

/** A request that was possibly sent. It is repeated without changes until its outcome is known and handled. */
export interface Attempt extends ProvisioningInputs {
  /** The volume, once it is created. */
  created?: CreatedVolume;
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
