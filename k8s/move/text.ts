/**
 * Texts about moves.
 *
 * @module
 */

import { formatBytes, parseQuantity } from "../../base/size.ts";
import type { LvmMove, LvmMoveStatus } from "./objects.ts";
import type { MovePlan } from "../../plugin/move/preview.ts";

/** Returns the plan of a move for people. */
export function movePlanText(plan: MovePlan): string {
  const { claim, persistentVolume, volume, size, thin, erase, sourceNode, targetNode, companions, refusal } = plan;
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
    ...(companions.length === 0 ? [] : [
      "",
      `Its pods also use the claims ${companions.join(", ")} on node ${sourceNode}. They start only where all of their`,
      "volumes are: move these, too.",
    ]),
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
  const { state = "Pending", message = "", copy, way } = status;
  const isCopied = state === "Copying" && copy !== undefined && copy.snapshot === undefined;
  const parts = [
    way?.toLowerCase(),
    isCopied ? `${copy.percent ?? 0}% of ${copy.total ?? "?"}` : undefined,
    sentText(status),
    message,
  ];
  const progress = parts.filter((part) => part !== undefined && part !== "").join(", ");
  return progress === "" || isOver(state) ? state : `${state}: ${progress}`;
}

function isOver(state: string): boolean {
  return state === "Complete" || state === "Failed";
}

/** Returns the way of a move, in words, with the reason why it is offline. */
export function wayText({ way, offlineReason }: LvmMoveStatus): string {
  if (way === "Offline") return `offline, so that it is copied while nobody can use it: ${offlineReason ?? ""}`;
  return "online, so that it is copied while it is used";
}

/** Returns what was sent, and whether the volume could be used meanwhile; `undefined` while nothing was sent. */
export function sentText({ stages = [] }: LvmMoveStatus): string | undefined {
  const sent = (isHeld: boolean) =>
    stages.filter(({ held }) => held === isHeld).map(({ received }) => formatBytes(parseQuantity(received) ?? 0n))
      .join(" and ");
  const [used, held] = [sent(false), sent(true)];
  const texts = [used && `${used} while it was used`, held && `${held} while nobody could use it`];
  return stages.length === 0 ? undefined : `sent ${texts.filter((text) => text !== "").join(", ")}`;
}

/** Returns what a complete move took, in words. */
export function outcomeText(status: LvmMoveStatus): string {
  const seconds = downtimeSeconds({ status });
  const { way } = status;
  return [
    way === undefined ? undefined : `moved ${way.toLowerCase()}`,
    sentText(status),
    seconds === undefined ? undefined : `nobody could use it for ${seconds} s`,
  ].filter((part) => part !== undefined).join("; ");
}

/** Returns how long nobody could use the volume, in seconds; `undefined` when it is not known. */
export function downtimeSeconds(
  { status: { heldTime, releasedTime } = {} }: Pick<LvmMove, "status">,
): number | undefined {
  const ms = Date.parse(releasedTime ?? "") - Date.parse(heldTime ?? "");
  return Number.isNaN(ms) ? undefined : Math.max(0, Math.round(ms / 1000));
}
