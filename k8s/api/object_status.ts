/**
 * The status that an agent writes, in the parts that volumes and snapshots have in common.
 *
 * @module
 */

import { ERROR_KINDS, firstReason, StorageError, truncate } from "../../base/error.ts";
import { groupProblem } from "../../lvm/health/health.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { ConditionReason } from "./condition_reasons.ts";
import { type Condition, conditionsOf, withConditions } from "./conditions.ts";
import { timestamp } from "../../base/clock.ts";
import type {
  AgentManaged,
  AgentManagedStatus,
  LvmSnapshotStatus,
  LvmVolumeStatus,
  StatusError,
} from "./lvm_objects.ts";

/** The longest message that the status takes, of an error or a condition, in characters. */
const MAX_MESSAGE_LENGTH = 4_096;

/** A condition without its type. */
export interface ConditionState {
  /** The status of the condition: `True` if it holds. */
  readonly status: "True" | "False";
  /** The reason, in one CamelCase word. */
  readonly reason: ConditionReason;
  /** The reason, in a sentence. */
  readonly message: string;
}

/** Returns the status of an object whose LV was created, and then removed or replaced. */
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

/** Returns the status after a failure. An LV that was created before stays as it is. */
export function failedStatus<S extends AgentManagedStatus>(object: AgentManaged<S>, error: StorageError): S {
  const { metadata: { generation = 0 }, status } = object;
  const isCreated = status?.lvUUID !== undefined;
  const notCreated = { status: "False", reason: error.reason, message: `not created: ${error.message}` } as const;
  return {
    ...(status as S),
    state: isCreated ? status.state ?? "Ready" : "Failed",
    observedGeneration: generation,
    error: toStatusError(error),
    conditions: isCreated ? conditionsOf(object) : updatedConditions(object, { Ready: notCreated }),
  };
}

/** Returns the health of a volume group, as a condition. */
export function groupHealth(group: VolumeGroup): ConditionState {
  const problem = groupProblem(group);
  if (problem !== undefined) return { status: "False", ...problem };
  return { status: "True", reason: "PhysicalVolumesPresent", message: `volume group ${group.name} has all its disks` };
}

/**
 * Returns the conditions of an object with some of them set, for its current generation.
 *
 * @param states the conditions to set, by their types
 */
export function updatedConditions(object: AgentManaged, states: Readonly<Record<string, ConditionState>>): Condition[] {
  const { generation: observedGeneration = 0 } = object.metadata;
  const added = Object.entries(states).map(([type, { message, ...state }]) => {
    return { type, observedGeneration, ...state, message: truncate(message, MAX_MESSAGE_LENGTH) };
  });
  return withConditions(conditionsOf(object), added, timestamp(new Date()));
}

/** The fields of a status that this version knows. Others are of a newer version, and stay as they are. */
const KNOWN_FIELDS = {
  state: true,
  observedGeneration: true,
  volumeGroup: true,
  volumeGroupUUID: true,
  lvName: true,
  lvUUID: true,
  size: true,
  error: true,
  conditions: true,
  devicePath: true,
  maximumSectorSize: true,
  usedPercent: true,
  layout: true,
  problems: true,
  copy: true,
  restoreSize: true,
  creationTime: true,
  readyToUse: true,
  cowPercent: true,
} as const satisfies Record<keyof LvmVolumeStatus | keyof LvmSnapshotStatus, true>;

/** Reports whether two statuses have the same content, apart from fields that this version does not know. */
export function isSameStatus(a: AgentManagedStatus | undefined, b: AgentManagedStatus): boolean {
  return isSameContent(a && knownFieldsOf(a), knownFieldsOf(b));
}

/**
 * Returns a status with the fields that this version does not know as the object has them now: the status may have been
 * decided on an earlier copy of the object.
 */
export function withNewerFields<S extends AgentManagedStatus>(status: S, now: AgentManagedStatus | undefined): S {
  const newer = Object.entries(now ?? {}).filter(([field]) => !Object.hasOwn(KNOWN_FIELDS, field));
  return { ...Object.fromEntries(newer), ...knownFieldsOf(status) };
}

function knownFieldsOf<S extends AgentManagedStatus>(status: S): S {
  return Object.fromEntries(Object.entries(status).filter(([field]) => Object.hasOwn(KNOWN_FIELDS, field))) as S;
}

/**
 * Returns the error that an agent reported. One of a kind that only a newer agent knows is `CommandFailed`, and a reason that only
 * a newer one knows is left out.
 */
export function reportedError({ code, reason, message }: StatusError): StorageError {
  const kind = ERROR_KINDS.includes(code) ? code : "CommandFailed";
  return new StorageError(kind, message, { reason: firstReason([reason]) });
}

/** Returns an error as a status has it. */
export function toStatusError({ kind, reason, message }: StorageError): StatusError {
  return { code: kind, reason, message: truncate(message, MAX_MESSAGE_LENGTH) };
}

/** Reports whether two values have the same content, in any order of their fields. */
export function isSameContent(a: unknown, b: unknown): boolean {
  return JSON.stringify(sortKeys(a)) === JSON.stringify(sortKeys(b));
}

/** Returns the value with the keys of all objects sorted, so that equal content gives equal JSON. */
export function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, v]) => [key, sortKeys(v)]),
  );
}
