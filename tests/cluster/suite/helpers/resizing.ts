/**
 * Sizes of claims.
 *
 * @module
 */

import type { PersistentVolumeClaim } from "../../../../k8s/api/objects.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** Returns a claim's size and conditions. */
export function resizeState(claim: PersistentVolumeClaim | undefined) {
  const { capacity, conditions = [], allocatedResourceStatuses } = claim?.status ?? {};
  return {
    size: capacity?.["storage"],
    conditions: conditions.map(({ type }) => type).sort(),
    state: allocatedResourceStatuses?.["storage"],
  };
}

/** Requests a size for a claim. */
export async function requestSize(ns: TestNamespace, claim: string, storage: string): Promise<void> {
  await ns.patch("PersistentVolumeClaim", claim, { spec: { resources: { requests: { storage } } } });
}

/** Waits until a claim has a size and its expansion is complete. */
export async function waitForSize(ns: TestNamespace, claim: string, size: string): Promise<void> {
  const isResized = (now: PersistentVolumeClaim | undefined) => {
    const state = resizeState(now);
    return state.size === size && state.conditions.length === 0 && state.state === undefined;
  };
  await ns.waitFor("PersistentVolumeClaim", claim, isResized, `has ${size}`);
}
