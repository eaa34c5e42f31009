/**
 * Texts about moves.
 *
 * @module
 */

import { formatBytes, parseQuantity } from "../../base/size.ts";
import type { LvmMove, LvmMoveStatus } from "./moves.ts";

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
