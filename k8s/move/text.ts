/**
 * Texts about moves.
 *
 * @module
 */

import { formatBytes } from "../../lvm/size.ts";
import type { LvmMove } from "./objects.ts";
import type { MovePlan } from "./preview.ts";

/** Returns the plan of a move for people. */
export function movePlanText(plan: MovePlan): string {
  const { claim, persistentVolume, volume, size, thin, erase, sourceNode, targetNode, pods, refusal } = plan;
  const head = `Claim ${claim} (${thin ? "thin" : "thick"} volume ${volume}, ${formatBytes(size)})`;
  if (refusal !== undefined) return `${head} cannot be moved from node ${sourceNode} to node ${targetNode}: ${refusal}`;
  const erasure = erase === "none" ? "not erased" : erase === "zero" ? "overwritten with zeros" : "discarded";
  return [
    `${head} moves from node ${sourceNode} to node ${targetNode}:`,
    "",
    `  1. Nobody may begin to use it on node ${sourceNode}, and the move waits until nobody uses it.`,
    `     Pods that use it: ${pods.join(", ") || "none"}`,
    `  2. It is copied to node ${targetNode}, with a temporary snapshot, and compared.`,
    `  3. PersistentVolume ${persistentVolume} gets the affinity to node ${targetNode}. Where the API server does not allow`,
    "     to change it, it is deleted and created again with the same name; the claim is Lost for some seconds.",
    `  4. The volume on node ${sourceNode} is deleted, its data ${erasure}, and the copy takes its place.`,
    "",
    "Until step 4, --cancel undoes it.",
  ].join("\n");
}

/** Returns one line about the progress of a move. */
export function moveProgressText({ status = {} }: LvmMove): string {
  const { state = "Pending", message = "", copy } = status;
  const progress = state === "Copying" && copy !== undefined
    ? `${copy.percent ?? 0}% of ${copy.total ?? "?"}`
    : message;
  return progress === "" ? state : `${state}: ${progress}`;
}

/** Returns how long nobody could use the volume, in seconds; `undefined` when it is not known. */
export function downtimeSeconds({ status: { heldTime, releasedTime } = {} }: LvmMove): number | undefined {
  const ms = Date.parse(releasedTime ?? "") - Date.parse(heldTime ?? "");
  return Number.isNaN(ms) ? undefined : Math.max(0, Math.round(ms / 1000));
}
