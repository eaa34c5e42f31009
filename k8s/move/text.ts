/**
 * Texts about moves.
 *
 * @module
 */

import { formatBytes, parseQuantity } from "../../lvm/size.ts";
import type { LvmMove } from "./objects.ts";
import type { MovePlan } from "./preview.ts";

/** Returns the plan of a move for people. */
export function movePlanText(plan: MovePlan): string {
  const { claim, persistentVolume, volume, size, thin, erase, sourceNode, targetNode, refusal } = plan;
  const head = `Claim ${claim} (${thin ? "thin" : "thick"} volume ${volume}, ${formatBytes(size)})`;
  if (refusal !== undefined) return `${head} cannot be moved from node ${sourceNode} to node ${targetNode}: ${refusal}`;
  const erasure = erase === "none" ? "not erased" : erase === "zero" ? "overwritten with zeros" : "discarded";
  const steps = [
    ...copySteps(plan),
    [
      `PersistentVolume ${persistentVolume} gets the affinity to node ${targetNode}. Where the API server does not allow`,
      "to change it, it is deleted and created again with the same name; the claim is Lost for some seconds.",
    ],
    [`The volume on node ${sourceNode} is deleted, its data ${erasure}, and the copy takes its place.`],
  ];
  return [
    `${head} moves from node ${sourceNode} to node ${targetNode}:`,
    "",
    ...steps.flatMap((lines, index) => lines.map((line, at) => `${at === 0 ? `  ${index + 1}. ` : "     "}${line}`)),
    "",
    `Until step ${steps.length}, --cancel undoes it.`,
  ].join("\n");
}

/** Returns the steps after which the copy is complete. */
function copySteps({ sourceNode, targetNode, pods, way, offlineReason }: MovePlan): string[][] {
  const hold = [
    `Nobody may begin to use it on node ${sourceNode}, and the move waits until nobody uses it.`,
    `Pods that use it: ${pods.join(", ") || "none"}`,
  ];
  if (way === "Offline") {
    return [hold, [
      `It is copied to node ${targetNode} while nobody can use it, and compared. It cannot be copied before:`,
      `${offlineReason}.`,
    ]];
  }
  return [
    [
      `It is copied to node ${targetNode} while it is used, from a temporary snapshot, and compared. Then what changed`,
      "meanwhile is copied, where that is much.",
    ],
    hold,
    ["What changed last is copied, while nobody can use it."],
  ];
}

/** Returns one line about the progress of a move. */
export function moveProgressText({ status = {} }: LvmMove): string {
  const { state = "Pending", message = "", copy } = status;
  const isCopied = state === "Copying" && copy !== undefined && copy.snapshot === undefined;
  const percent = isCopied ? `${copy.percent ?? 0}% of ${copy.total ?? "?"}` : "";
  const progress = [percent, message].filter((part) => part !== "").join(", ");
  return progress === "" ? state : `${state}: ${progress}`;
}

/** Returns how much was sent while nobody could use the volume, in words; `undefined` when it is not known. */
export function lastCopyText({ status: { way, copy } = {} }: LvmMove): string | undefined {
  const bytes = parseQuantity(copy?.received ?? "");
  if (bytes === undefined || way === undefined) return undefined;
  return `${formatBytes(bytes)} were sent meanwhile${way === "Offline" ? ", all of it" : ""}`;
}

/** Returns how long nobody could use the volume, in seconds; `undefined` when it is not known. */
export function downtimeSeconds({ status: { heldTime, releasedTime } = {} }: LvmMove): number | undefined {
  const ms = Date.parse(releasedTime ?? "") - Date.parse(heldTime ?? "");
  return Number.isNaN(ms) ? undefined : Math.max(0, Math.round(ms / 1000));
}
