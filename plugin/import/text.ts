/**
 * Texts about imports.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import type { LostParameter } from "./class_mapping.ts";
import type { LvmImport } from "../../k8s/handover/imports.ts";
import type { ImportPlan } from "./plan.ts";

/** Returns the plan of an import for people. */
export function importPlanText(plan: ImportPlan, pods: readonly string[]): string {
  const { claim, from, size, node = "?", logicalVolume = "?", newName, volume, thinPool, refusals } = plan;
  const head = `Claim ${claim} (${formatBytes(size)}, of ${from}, ${logicalVolume} on node ${node})`;
  if (refusals.length > 0) {
    return [`${head} cannot be imported:`, ...refusals.map((refusal) => `  - ${refusal}`)].join("\n");
  }
  const pool = thinPool === undefined
    ? []
    : [`     It stays in thin pool ${thinPool}, which the driver neither extends nor removes.`];
  return [
    `${head} becomes volume ${volume}:`,
    "",
    ...classLines(plan),
    `  2. PersistentVolume ${plan.persistentVolume} gets the policy Retain, and is deleted; the claim is Lost, and no new pod starts.`,
    `     Pods that use it: ${pods.join(", ") || "none"}`,
    `  3. When nobody uses it, the logical volume gets the tags of the driver, and the name ${newName}.`,
    ...pool,
    `  4. PersistentVolume ${plan.persistentVolume} is created again for the driver; the claim is Bound.`,
    ...plan.lost.map((lost) => `     ${lostText(lost)}`),
    "  5. With --finish, the object of the other driver is removed.",
    "",
    "Until step 5, --cancel returns it.",
  ].join("\n");
}

function classLines({ storageClass }: ImportPlan): string[] {
  if (storageClass === undefined) return ["  1. The StorageClass stays as it is."];
  const { name, parameters, lost } = storageClass;
  return [
    `  1. StorageClass ${name} is created again for the driver, with ${parametersText(parameters)}.`,
    ...lost.map((one) => `     ${lostText(one)}`),
  ];
}

function parametersText(parameters: Readonly<Record<string, string>>): string {
  return Object.entries(parameters).map(([name, value]) => `${name}: ${value}`).join(", ") || "no parameters";
}

function lostText({ name, value, why }: LostParameter): string {
  return `Lost: ${name}: ${value} (${why})`;
}

/** Returns one line about the progress of an import. */
export function importProgressText({ status = {} }: LvmImport): string {
  const { state = "Pending", message = "" } = status;
  return message === "" ? state : `${state}: ${message}`;
}
