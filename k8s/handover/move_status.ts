/**
 * What the status of an LVMMove says of a move: its state, its copy mode, what was sent, and the time for which nobody could use the
 * volume; the events when that changes; and the same in words.
 *
 * @module
 */

import { timestamp } from "../../base/clock.ts";
import { defined } from "../../base/defined.ts";
import { compare } from "../../lvm/model/groups.ts";
import { formatBytes, parseQuantity } from "../../base/size.ts";
import { heldCondition } from "../api/volume_conditions.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { goalOf } from "../api/volume_mapping.ts";
import { isReady } from "./copy_step.ts";
import { messageBefore } from "./handover.ts";
import type { HandoverEvent } from "./handover_controller.ts";
import {
  isHeldFor,
  type LvmMove,
  type LvmMoveStatus,
  type MoveObjects,
  type MoveStage,
  type MoveStep,
} from "./moves.ts";
import { isUndone, stateOf } from "./move_step.ts";

/** Returns what the status says before a step. @param failure why the last attempt of the step failed */
export function statusBefore(
  objects: MoveObjects,
  step: MoveStep,
  { now, failure }: { readonly now: Date; readonly failure?: string | undefined },
): LvmMoveStatus {
  const { self: move, volume, copy, claim } = objects;
  const { status = {}, spec } = move;
  const isReleasing = step.do === "release";
  const isHeld = !isUndone(move) && !isReleasing && volume && isHeldFor(move, volume) &&
    heldCondition(volume)?.status === "True" && status.heldTime === undefined;
  const isUsedAgain = isReleasing && !isUndone(move) && status.heldTime !== undefined;
  const isReleased = status.removing && volume?.spec.nodeName === spec.targetNode &&
    volume.status?.state === "Ready" && claim?.status?.phase === "Bound" && status.releasedTime === undefined;
  const stages = step.do === "delete copy" ? [] : stagesOf(status.stages, copy);
  return {
    state: stateOf(step, move),
    message: messageBefore(move, step, failure),
    ...(isUndone(move) || spec.adopt ? {} : copyModeStatus(objects)),
    ...(stages.length > 0 || status.stages !== undefined ? { stages } : {}),
    ...defined({ copy: copy?.status?.copy }),
    ...(copy?.spec.copy !== undefined && { differences: copy.spec.copy.round }),
    ...(isHeld && { heldTime: timestamp(now) }),
    ...(isUsedAgain && { heldTime: null }),
    ...(isReleased && { releasedTime: timestamp(now) }),
  };
}

/** Returns the copy mode of a move, which does not change by itself once it is chosen. */
function copyModeStatus(
  { self: { status }, copyMode }: MoveObjects,
): Pick<LvmMoveStatus, "copyMode" | "offlineReason"> {
  if (status?.copyMode !== undefined || copyMode === undefined) return {};
  return { copyMode: copyMode.mode, ...defined({ offlineReason: copyMode.reason }) };
}

/** Returns what was sent, with the snapshot that the copy has now. What is still being sent is not in it. */
function stagesOf(known: readonly MoveStage[] = [], copy: LvmVolume | undefined): MoveStage[] {
  const goal = copy && goalOf(copy);
  const { snapshot, received } = copy?.status?.copy ?? {};
  const isSent = snapshot === goal?.snapshot || isReady(copy);
  if (goal === undefined || !isSent || received === undefined) return [...known];
  const before = known.find(({ difference }) => difference === goal.round);
  // an agent that was restarted counts from the start again
  const bytes = compare(bytesOf(before?.received), bytesOf(received)) > 0 ? before!.received : received;
  const others = known.filter(({ difference }) => difference < goal.round);
  return [...others, { difference: goal.round, received: bytes, held: goal.last }];
}

function bytesOf(quantity: string | undefined): bigint {
  return parseQuantity(quantity ?? "") ?? 0n;
}

/** Returns the events about what changed in the status of a move. */
export function eventsOf(
  { spec, status: before = {} }: LvmMove,
  after: LvmMoveStatus,
  step: MoveStep,
): HandoverEvent[] {
  const events: HandoverEvent[] = [];
  const add = (reason: HandoverEvent["reason"], message: string) => events.push({ type: "Normal", reason, message });
  const { sourceNode, targetNode, adopt } = spec;
  if (before.state === undefined && after.state !== "Undoing") {
    const copyMode = adopt ? "with the disks that were carried there" : copyModeText(after);
    add("MoveStarted", `moves from node ${sourceNode} to node ${targetNode}, ${copyMode}`);
  }
  if (step.do === "wait" && step.isBlocked && before.message !== after.message) {
    add("MoveWaiting", after.message ?? "");
  }
  if (before.heldTime === undefined && after.heldTime !== undefined) {
    const sent = sentText(after);
    add("MoveHeld", `nobody can use it until the move ends${sent === undefined ? "" : `; ${sent}`}`);
  }
  return events;
}

/** Returns what the status says at the end. */
export function finalStatus(
  { status = {} }: LvmMove,
  { state, message }: Extract<MoveStep, { do: "finish" }>,
  now: Date,
): LvmMoveStatus {
  if (state === "Failed") return { state, ...defined({ message }) };
  const releasedTime = status.releasedTime ?? timestamp(now);
  return { state, releasedTime, message: outcomeText({ ...status, releasedTime }) };
}

/** Returns the event about a step that was carried out; `undefined` for most. */
export function eventAfter(move: LvmMove, step: MoveStep, now: Date): HandoverEvent | undefined {
  const { spec: { sourceNode, targetNode }, status = {} } = move;
  if (step.do === "finish" && step.state === "Complete") {
    const outcome = finalStatus(move, step, now).message;
    return { type: "Normal", reason: "Moved", message: `is on node ${targetNode}: ${outcome}` };
  }
  if (step.do === "finish") {
    const why = step.message ?? `stays on node ${sourceNode}: ${status.error?.message ?? ""}`;
    return { type: "Warning", reason: "MoveFailed", message: why };
  }
  if (step.do === "go offline") {
    return { type: "Warning", reason: "MoveOffline", message: `goes on offline: ${step.reason}` };
  }
  if (step.do !== "remove finalizer" || status.state !== "Undoing") return undefined;
  return { type: "Normal", reason: "MoveUndone", message: `stays on node ${sourceNode}: the LVMMove was deleted` };
}

/** Returns one line about the progress of a move. */
export function moveProgressText({ status = {} }: LvmMove): string {
  const { state = "Pending", message = "", copy, copyMode } = status;
  const isCopied = state === "Copying" && copy !== undefined && copy.snapshot === undefined;
  const parts = [
    copyMode?.toLowerCase(),
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

/** Returns the copy mode of a move, in words, with the reason why it is offline. */
export function copyModeText({ copyMode, offlineReason }: LvmMoveStatus): string {
  if (copyMode === "Offline") return `offline, so that it is copied while nobody can use it: ${offlineReason ?? ""}`;
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
  const { copyMode } = status;
  return [
    copyMode === undefined ? undefined : `moved ${copyMode.toLowerCase()}`,
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
