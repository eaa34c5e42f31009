/**
 * The condition of an LVMVolume that imports a foreign LV, or returns it.
 *
 * @module
 */

import type { Condition } from "./conditions.ts";
import { conditionsOf } from "./conditions.ts";
import type { ImportedLvSpec, LvmVolume } from "./lvm_objects.ts";

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
  const condition = importedCondition(object);
  if (imports.action === "Import" && condition?.status === "True") return undefined;
  return imports.action === "Return" && isReturned(object) ? undefined : imports;
}

/** Returns the LV of which the agent is to report whether it can be returned; `undefined` when it is not. */
export function inspectedReturn(object: LvmVolume): ImportedLvSpec | undefined {
  const { metadata, spec: { imports } } = object;
  if (metadata.deletionTimestamp !== undefined || isArriving(object)) return undefined;
  return imports?.action === "InspectReturn" && !isReturned(object) ? imports : undefined;
}

/** Reports whether the agent has given the LV of a volume back, even if its return is to be inspected by now. */
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
