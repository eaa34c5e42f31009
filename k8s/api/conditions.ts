/**
 * Conditions in the status of an object (Kubernetes' API conventions, "Typical status properties").
 *
 * @module
 */

import type { ConditionReason } from "./condition_reasons.ts";

/** A condition of one of our own kinds, whose schema requires all that is not optional here. */
export interface Condition<Reason extends string = ConditionReason> {
  /** Its type, such as `Ready`. */
  type: string;
  /** The status of the condition: `True` if it holds. */
  status: "True" | "False" | "Unknown";
  /** The generation of the object that it was observed for. */
  observedGeneration?: number;
  /** The time of the last change of `status` (RFC 3339). */
  lastTransitionTime: string;
  /** The reason, in one CamelCase word. */
  reason: Reason;
  /** The reason, in a sentence. */
  message: string;
}

/** A condition to be set, of which {@linkcode withConditions} finds out when its status changed. */
export type NewCondition<C extends AnyCondition = Condition> = Omit<C, "lastTransitionTime">;

/** The fields that conditions of all kinds have, Kubernetes' own included. */
export interface AnyCondition {
  /** Its type. */
  readonly type: string;
  /** The status of the condition: `True` if it holds. */
  readonly status: string;
  /** The time of the last change of `status` (RFC 3339). */
  readonly lastTransitionTime?: string;
}

/** Returns the conditions of an object; none while it has no status. */
export function conditionsOf<C extends AnyCondition>({ status }: { status?: { conditions?: C[] } }): C[] {
  return status?.conditions ?? [];
}

/**
 * Sets conditions. Each replaces the one of its type, and keeps that one's transition time where nothing changed.
 *
 * @param now the transition time of a condition that changed (RFC 3339)
 * @param isSame reports whether a condition is as it was; by default, when its status is the same
 * @returns all conditions, in the order of their types
 */
export function withConditions<C extends AnyCondition>(
  conditions: readonly C[],
  added: readonly NewCondition<C>[],
  now: string,
  isSame: (before: C, now: NewCondition<C>) => boolean = (before, now) => before.status === now.status,
): C[] {
  const others = conditions.filter(({ type }) => !added.some((one) => one.type === type));
  const changed = added.map((one) => {
    const before = conditions.find(({ type }) => type === one.type);
    const kept = before !== undefined && isSame(before, one) ? before.lastTransitionTime : undefined;
    return { ...one, lastTransitionTime: kept ?? now } as unknown as C;
  });
  return [...others, ...changed].sort((a, b) => a.type < b.type ? -1 : 1);
}
