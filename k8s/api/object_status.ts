/**
 * What a node writes into the status of any object that it makes something of.
 *
 * @module
 */

import type { StorageError } from "../../lvm/error.ts";
import { groupProblem } from "../../lvm/health/health.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { ConditionReason } from "./condition_reasons.ts";
import { type Condition, conditionsOf, withConditions } from "./conditions.ts";
import { timestamp } from "../../lvm/clock.ts";
import type { AgentManaged, AgentManagedStatus } from "./lvm_objects.ts";

/** The longest message that the status takes, in characters. */
const MAX_MESSAGE_LENGTH = 4_096;

/** What a condition says, but for its type. */
export interface ConditionState {
  /** Whether it holds. */
  readonly status: "True" | "False";
  /** Why, in one word. */
  readonly reason: ConditionReason;
  /** Why, in a sentence. */
  readonly message: string;
}

/** The status of an object whose LV was there and is gone, or was replaced. */
export function lostStatus<S extends AgentManagedStatus>(object: AgentManaged<S>, error: StorageError): S {
  const { metadata: { generation = 0 }, status } = object;
  return {
    ...(status as S),
    state: "Lost",
    observedGeneration: generation,
    error: toStatusError(error),
    conditions: updatedConditions(object, { Ready: { status: "False", reason: "Lost", message: error.message } }),
  };
}

/** The status after something failed: what was made is as it was. */
export function failedStatus<S extends AgentManagedStatus>(object: AgentManaged<S>, error: StorageError): S {
  const { metadata: { generation = 0 }, status } = object;
  const isCreated = status?.lvUUID !== undefined;
  const notCreated = { status: "False", reason: error.kind, message: `not made: ${error.message}` } as const;
  return {
    ...(status as S),
    state: isCreated ? status.state ?? "Ready" : "Failed",
    observedGeneration: generation,
    error: toStatusError(error),
    conditions: isCreated ? conditionsOf(object) : updatedConditions(object, { Ready: notCreated }),
  };
}

/** Whether a volume group is fit for use. */
export function groupHealth(group: VolumeGroup): ConditionState {
  const problem = groupProblem(group);
  if (problem !== undefined) return { status: "False", ...problem };
  return { status: "True", reason: "PhysicalVolumesPresent", message: `volume group ${group.name} has all its disks` };
}

/** The conditions of an object with those findings, by their types, about its present generation. */
export function updatedConditions(object: AgentManaged, states: Readonly<Record<string, ConditionState>>): Condition[] {
  const { generation: observedGeneration = 0 } = object.metadata;
  const added = Object.entries(states).map(([type, state]) => ({ type, observedGeneration, ...state }));
  return withConditions(conditionsOf(object), added, timestamp(new Date()));
}

/** Whether two statuses say the same. */
export function isSameStatus(a: AgentManagedStatus | undefined, b: AgentManagedStatus): boolean {
  return JSON.stringify(sortKeys(a)) === JSON.stringify(sortKeys(b));
}

function toStatusError({ kind, message }: StorageError) {
  return { code: kind, message: message.slice(0, MAX_MESSAGE_LENGTH) };
}

/** The value with the keys of all objects in order, so that the same content is the same text. */
function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, v]) => [key, sortKeys(v)]),
  );
}
