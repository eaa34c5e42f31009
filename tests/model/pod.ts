/**
 * Pods, as far as they use a claim.
 *
 * @module
 */

import type { PersistentVolume } from "../../k8s/api/objects.ts";

/** A pod. */
export interface Pod {
  readonly name: string;
  readonly claim: string;
  readonly claimUid: string;
  /** The node that the scheduler has chosen. */
  node: string | undefined;
  /** What kubelet has begun to mount, and not unmounted yet. */
  mounted: PersistentVolume | undefined;
  /** Whether it is unmounted for the pod, and perhaps still staged. */
  isUnmounted: boolean;
  isRunning: boolean;
  /** Whether somebody has deleted it. */
  isDeleted: boolean;
  /** Whether kubelet has seen that. */
  knowsDeletion: boolean;
  isGone: boolean;
  /** The last failure of kubelet. */
  waitsFor: string | undefined;
}
