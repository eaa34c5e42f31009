/**
 * The conditions of an LVMVolume that nobody may begin to use, because it is being moved, and of one that imports a foreign
 * LV, or returns it.
 *
 * @module
 */

import { type Condition, conditionsOf } from "./conditions.ts";
import { type ImportedLvSpec, type LvmVolume, wasCreated } from "./lvm_objects.ts";
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

/** The type of the condition. */
export const IMPORTED_CONDITION = "Imported";

/** Returns what the agent last reported of the import of a volume; `undefined` when it has reported nothing. */
export function importedCondition(object: LvmVolume): Condition | undefined {
  return conditionsOf(object).find(({ type }) => type === IMPORTED_CONDITION);
}

/**
 * Returns the LV that the agent is to inspect, import or return; `undefined` when nothing of that is left to do, or the LV
 * stays that of the volume meanwhile.
 */
export function pendingImport(object: LvmVolume): ImportedLvSpec | undefined {
  const { spec: { imports } } = object;
  if (imports === undefined || (isMoved(object) && imports.action !== "Return") || isArriving(object)) return undefined;
  if (imports.action === "InspectReturn") return undefined;
  // one that was restored without its status has an LV already: another one may have the name by now
  const isImported = importedCondition(object)?.status === "True" || wasCreated(object);
  if (imports.action === "Import" && isImported) return undefined;
  return imports.action === "Return" && isReturned(object) ? undefined : imports;
}

/** Returns the LV of which the agent is to report whether it can be returned; `undefined` when it is not. */
export function inspectedReturn(object: LvmVolume): ImportedLvSpec | undefined {
  const { metadata, spec: { imports } } = object;
  if (metadata.deletionTimestamp !== undefined || isArriving(object)) return undefined;
  return imports?.action === "InspectReturn" && !isReturned(object) ? imports : undefined;
}

/** Reports whether the agent has returned the LV of a volume, even if its return is to be inspected by now. */
export function isReturned(object: LvmVolume): boolean {
  return importedCondition(object)?.reason === "Returned";
}

/** Reports whether the LV of a volume came from a copy, after a move: it is the driver's, and not to be imported again. */
function isMoved({ spec: { adoptsVolume } }: LvmVolume): boolean {
  return adoptsVolume !== undefined;
}

/** Reports whether the LV of a volume is still to come from a copy. */
function isArriving(object: LvmVolume): boolean {
  return isMoved(object) && object.status?.lvUUID === undefined;
}

/** Reports whether the LV of a volume is somebody else's, because it is not imported, or is returned. */
export function isForeign(object: LvmVolume): boolean {
  return pendingImport(object) !== undefined || isReturned(object) ||
    (object.spec.imports?.action === "Return" && !isArriving(object));
}
