/**
 * The helpers that the resizer and the modifier share: claims with their volumes, and patches of the status of a claim.
 *
 * @module
 */

import type { ApiClient, MergePatch } from "../client/client.ts";
import { type PersistentVolume, type PersistentVolumeClaim, persistentVolumeClaims } from "../api/objects.ts";
import type { ClaimSidecarOptions } from "../sidecars/sidecar_controller.ts";
import { patchWithRetry } from "../client/patches.ts";

/** The time limit for the caches to show a change, in milliseconds. */
export const CACHE_WAIT_MS = 1_000;

/** A patch of a claim's status, and of its annotations. */
export type StatusPatch = MergePatch<PersistentVolumeClaim>;

/** A condition of a claim. */
export type ClaimCondition = NonNullable<NonNullable<PersistentVolumeClaim["status"]>["conditions"]>[number];

/** A failed change of a claim's volume. */
export interface Failure {
  /** The error, in a sentence. */
  readonly message: string;
  /** True if a repetition cannot succeed until something changes. */
  readonly infeasible: boolean;
  /** The time at which it failed (RFC 3339). */
  readonly now: string;
}

/**
 * Returns the key of the claim that a volume is for, as `namespace/name`.
 *
 * @returns the key, or `undefined` for a volume of another driver or without a claim
 */
export function claimKeyOf({ spec }: PersistentVolume, driverName: string): string | undefined {
  if (spec?.csi?.driver !== driverName || spec.claimRef === undefined) return undefined;
  return `${spec.claimRef.namespace}/${spec.claimRef.name}`;
}

/** Returns the claim of a key and its volume, or `undefined` when it has none of the driver's whose `claimRef` names it. */
export function boundClaim(
  key: string,
  { claims, volumes, driverName }: ClaimSidecarOptions,
): { readonly claim: PersistentVolumeClaim; readonly volume: PersistentVolume } | undefined {
  const claim = claims.get(key);
  const volume = volumes.get(claim?.spec?.volumeName ?? "");
  const { namespace, uid } = volume?.spec?.claimRef ?? {};
  if (claim === undefined || volume?.spec?.csi?.driver !== driverName) return undefined;
  return namespace === claim.metadata.namespace && uid === claim.metadata.uid ? { claim, volume } : undefined;
}

/** Changes a claim and its status. Conditions can only be written all at once, so what others wrote has to be known. */
export function patchStatus(
  client: ApiClient,
  claim: PersistentVolumeClaim,
  patch: (now: PersistentVolumeClaim) => StatusPatch | undefined,
  signal: AbortSignal,
): Promise<PersistentVolumeClaim> {
  return patchWithRetry(client, persistentVolumeClaims, claim, patch, { subresource: "status", signal });
}

/** Changes a claim and its status at the revision that was decided on: somebody may have asked for something else meanwhile. */
export function patchAtRevision(
  client: ApiClient,
  { metadata: { namespace, name, resourceVersion } }: PersistentVolumeClaim,
  merge: StatusPatch,
  signal: AbortSignal,
): Promise<PersistentVolumeClaim> {
  const options = { merge, resourceVersion, subresource: "status", signal } as const;
  return client.patch(persistentVolumeClaims, { namespace, name }, options);
}
