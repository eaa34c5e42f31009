/**
 * The helpers that the resizer and the modifier share: claims with their volumes, and patches of the status of a claim.
 *
 * @module
 */

import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import type { MergePatch } from "../client/client.ts";

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

/** Reports whether a volume is one of the driver's and its `claimRef` names the claim. */
export function isBoundToClaim(claim: PersistentVolumeClaim, { spec }: PersistentVolume, driverName: string): boolean {
  const { namespace, uid } = claim.metadata;
  return spec?.csi?.driver === driverName && spec.claimRef?.namespace === namespace && spec.claimRef?.uid === uid;
}
