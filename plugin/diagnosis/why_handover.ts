/**
 * What a move to another node, or an import, has to do with the state of a claim; and why a claim is Lost: its PersistentVolume is
 * gone for good, or a move or an import re-creates it, and nothing may be deleted.
 *
 * @module
 */

import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { moveProgressText, outcomeText } from "../../k8s/handover/move_status.ts";
import type { ClaimState } from "./claim_state.ts";
import { isUnread, type Problem, problem, remedyOf } from "../problem.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { importProgressText } from "../import/text.ts";
import type { PersistentVolumeClaim } from "../../k8s/api/objects.ts";

const RUNBOOK = "move/when-it-does-not-go-on";

/** Returns that a claim is being moved; `undefined` when it is not. */
export function moveInProgress(
  { move, absentAgents }: Pick<ClaimState, "move" | "absentAgents">,
  object: string,
): Problem | undefined {
  if (move === undefined || isFinished(move)) return undefined;
  const { spec: { sourceNode, targetNode }, status = {} } = move;
  const what = status.state === "Undoing" ? "the move is undone of its volume" : "its volume is being moved";
  const problem = {
    ...{ object, runbook: RUNBOOK },
    message: `${what} from node ${sourceNode} to node ${targetNode}: ${moveProgressText(move)}`,
  };
  const [absent] = absentAgents;
  if (absent !== undefined) {
    return { ...problem, severity: "error", reason: "MoveWithoutAgent", ...remedyOf(absenceRemedy(move, absent)) };
  }
  return {
    ...{ ...problem, severity: "info", reason: "BeingMoved" },
    ...remedyOf(
      status.state === "Holding"
        ? "End the pods that use the claim, or undo it: `kubectl denolith move CLAIM --cancel`."
        : "Wait. Do not delete the claim or its PersistentVolume: the claim may be Lost meanwhile.",
    ),
  };
}

/** Returns what to do of a move while the agent of a node is away. */
function absenceRemedy({ spec: { targetNode, adopt }, status = {} }: LvmMove, absent: string): string {
  const isUndoable = !status.removing && status.state !== "Undoing";
  const end = isUndoable && absent === targetNode && !adopt
    ? "undo the move: `kubectl denolith move CLAIM --cancel`"
    : `forget it if it is gone for good: \`kubectl denolith forget-node ${absent}\``;
  return `The agent of node ${absent} is away. Do not delete the claim. Bring the node back, or ${end}`;
}

/** Returns that the last move of a claim failed; `undefined` when it did not. */
export function failedMove({ move }: Pick<ClaimState, "move">, object: string): Problem | undefined {
  if (move?.status?.state !== "Failed") return undefined;
  const { metadata: { name }, spec: { sourceNode, targetNode }, status: { error, message = "" } } = move;
  return problem("warning", "MoveFailed", object, {
    message: `its move from node ${sourceNode} to node ${targetNode} failed: ${message || (error?.message ?? "")}`,
    remedy: `Remove the cause, and move it again. To forget the failure: \`kubectl delete lvmmove ${name}\``,
    runbook: RUNBOOK,
  });
}

/** Returns what is known of the last move of a claim, in words. */
export function moveFact({ move }: Pick<ClaimState, "move">): string | undefined {
  if (move === undefined) return undefined;
  const { spec: { sourceNode, targetNode }, status = {} } = move;
  const what = status.state === "Complete" ? outcomeText(status) : moveProgressText(move);
  return `${sourceNode} to ${targetNode} (${what})`;
}

/** Returns that the PersistentVolume of a claim is re-created by an import; `undefined` when it is not. */
export function importInProgress(
  { claim, persistentVolume, import: self }: ClaimState,
  object: string,
): Problem | undefined {
  if (persistentVolume !== undefined || self === undefined) return undefined;
  const { metadata: { name }, status } = self;
  const what = status?.state === "Undoing" ? "returned" : "imported";
  return problem("info", "BeingImported", object, {
    message:
      `its PersistentVolume ${claim?.spec?.volumeName ?? ""} is re-created, because its volume is ${what}: LVMImport ` +
      `${name}: ${importProgressText(self)}`,
    remedy:
      `Delete nothing: neither the claim, nor LVMImport ${name}, nor the LVMVolume. End the pods that use the claim; ` +
      "the next ones start when it is Bound again.",
    runbook: "import/when-it-does-not-go-on",
  });
}

/** Returns why a claim is Lost. */
export function lostProblems(state: ClaimState, { spec }: PersistentVolumeClaim, object: string): Problem[] {
  const unread = [lvmMoves, lvmImports].map(({ plural }) => plural).filter((plural) => isUnread(state, plural));
  const isKnown = unread.length === 0;
  return [problem("error", "ClaimLost", object, {
    message: `its PersistentVolume ${spec?.volumeName ?? ""} is gone` +
      (isKnown ? "" : `, and ${unread.join(" and ")}, which might re-create it, are not read`),
    remedy: isKnown
      ? "The claim is of no use any more: delete it and its pods. Its data may still be on the node, as an orphan."
      : "Delete nothing. Have somebody look who may read them: while a move or an import is under way, the claim is Lost.",
    runbook: "volume-repair/orphans",
  })];
}
