/**
 * The condition of an LVMVolume that nobody may begin to use, because it is being moved.
 *
 * @module
 */

import type { Condition } from "./conditions.ts";
import { conditionsOf } from "./conditions.ts";
import type { LvmVolume } from "./lvm_objects.ts";
import { type ConditionState, updatedConditions } from "./object_status.ts";

/** The type of the condition: whether the volume is held and nobody uses it any more. It is absent while it is not held. */
export const HELD_CONDITION = "Held";

/** The time for which nobody may be able to use a volume without that being a problem, in milliseconds. */
const MAX_HELD_MS = 300_000;

/** Returns the time since which nobody has been able to use a volume (RFC 3339); `undefined` unless that is minutes ago. */
export function heldForLongSince(object: LvmVolume, now: Date): string | undefined {
  const { status, lastTransitionTime: since = "" } = heldCondition(object) ?? {};
  if (!object.spec.held || status !== "True" || now.getTime() - Date.parse(since) < MAX_HELD_MS) return undefined;
  return since;
}

/** What is known of a volume that is held. */
export interface HeldState {
  /** What still uses it, in words; absent when nothing does. */
  readonly user?: string;
}

/** Returns the condition of a volume; `undefined` while its agent does not hold it. */
export function heldCondition(object: LvmVolume): Condition | undefined {
  return conditionsOf(object).find(({ type }) => type === HELD_CONDITION);
}

/** Returns the conditions of a volume with the one about its being held, or without it where nothing is known. */
export function heldConditions(object: LvmVolume, state: HeldState | undefined): Condition[] {
  if (state === undefined) return updatedConditions(object, {}).filter(({ type }) => type !== HELD_CONDITION);
  return updatedConditions(object, { [HELD_CONDITION]: conditionOf(state) });
}

function conditionOf({ user }: HeldState): ConditionState {
  return user === undefined
    ? { status: "True", reason: "NotInUse", message: "nobody uses it, and nobody may begin to" }
    : { status: "False", reason: "InUse", message: `nobody else may begin to use it, but ${user} still does` };
}
