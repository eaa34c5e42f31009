/**
 * What a node writes into the status of any object that it makes something of.
 *
 * @module
 */

import type { StorageError } from "../../lvm/error.ts";
import { groupProblem } from "../../lvm/health/health.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { type Condition, type NodeMade, type NodeMadeStatus, withCondition } from "./lvm_objects.ts";

/** The longest message that the status takes, in characters. */
const LONGEST_MESSAGE = 4_096;

/** What a condition says, but for its type. */
export interface Finding {
  /** Whether it holds. */
  readonly status: "True" | "False";
  /** Why, in one word. */
  readonly reason: string;
  /** Why, in a sentence. */
  readonly message: string;
}

/** The status of an object whose LV was there and is gone, or was replaced. */
export function lostStatus<S extends NodeMadeStatus>(object: NodeMade<S>, error: StorageError): S {
  const { metadata: { generation = 0 }, status } = object;
  return {
    ...(status as S),
    state: "Lost",
    observedGeneration: generation,
    error: inWords(error),
    conditions: conditionsOf(object, { Ready: { status: "False", reason: "Lost", message: error.message } }),
  };
}

/** The status after something failed: what was made is as it was. */
export function failedStatus<S extends NodeMadeStatus>(object: NodeMade<S>, error: StorageError): S {
  const { metadata: { generation = 0 }, status } = object;
  const made = status?.lvUUID !== undefined;
  const unmade = { status: "False", reason: error.kind, message: `not made: ${error.message}` } as const;
  return {
    ...(status as S),
    state: made ? status.state ?? "Ready" : "Failed",
    observedGeneration: generation,
    error: inWords(error),
    conditions: made ? status.conditions ?? [] : conditionsOf(object, { Ready: unmade }),
  };
}

/** Whether a volume group is fit for use. */
export function groupHealth(group: VolumeGroup): Finding {
  const problem = groupProblem(group);
  if (problem !== undefined) return { status: "False", ...problem };
  return { status: "True", reason: "DisksThere", message: `volume group ${group.name} has all its disks` };
}

/** The conditions of an object with those findings, by their types, about its present generation. */
export function conditionsOf(object: NodeMade, findings: Readonly<Record<string, Finding>>): Condition[] {
  const { metadata: { generation = 0 }, status } = object;
  const now = new Date();
  return Object.entries(findings).reduce(
    (conditions, [type, finding]) =>
      withCondition(conditions, { type, observedGeneration: generation, ...finding }, now),
    status?.conditions ?? [],
  );
}

/** Whether two statuses say the same. */
export function isSame(a: NodeMadeStatus | undefined, b: NodeMadeStatus): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

function inWords({ kind, message }: StorageError) {
  return { code: kind, message: message.slice(0, LONGEST_MESSAGE) };
}

/** The value with the keys of all objects in order, so that the same content is the same text. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, v]) => [key, sorted(v)]),
  );
}
