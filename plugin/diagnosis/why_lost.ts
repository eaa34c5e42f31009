/**
 * Why a claim is Lost: its PersistentVolume is gone for good, or a move or an import makes it anew, and nothing may be deleted.
 *
 * @module
 */

import { lvmImports } from "../../k8s/handover/imports.ts";
import { importProgressText } from "../import/text.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import type { PersistentVolumeClaim } from "../../k8s/api/objects.ts";
import type { ClaimState } from "./claim_state.ts";
import { isUnread, type Problem, problem } from "../problem.ts";

/** Returns that the PersistentVolume of a claim is made anew by an import; `undefined` when it is not. */
export function importInProgress(
  { claim, persistentVolume, import: self }: ClaimState,
  object: string,
): Problem | undefined {
  if (persistentVolume !== undefined || self === undefined) return undefined;
  const { metadata: { name }, status } = self;
  const what = status?.state === "Undoing" ? "returned" : "imported";
  return problem("info", "BeingImported", object, {
    message:
      `its PersistentVolume ${claim?.spec?.volumeName ?? ""} is made anew, because its volume is ${what}: LVMImport ` +
      `${name}: ${importProgressText(self)}`,
    remedy:
      `Delete nothing: neither the claim, nor LVMImport ${name}, nor the LVMVolume. End the pods that use the claim; ` +
      "the next ones start when it is Bound again.",
    runbook: "../import.md#when-it-does-not-go-on",
  });
}

/** Returns why a claim is Lost. */
export function lostProblems(state: ClaimState, { spec }: PersistentVolumeClaim, object: string): Problem[] {
  const unread = [lvmMoves, lvmImports].map(({ plural }) => plural).filter((plural) => isUnread(state, plural));
  const isKnown = unread.length === 0;
  return [problem("error", "ClaimLost", object, {
    message: `its PersistentVolume ${spec?.volumeName ?? ""} is gone` +
      (isKnown ? "" : `, and ${unread.join(" and ")}, which might make it anew, are not read`),
    remedy: isKnown
      ? "The claim is of no use any more: delete it and its pods. Its data may still be on the node, as an orphan."
      : "Delete nothing. Have somebody look who may read them: while a move or an import is under way, the claim is Lost.",
    runbook: "../volume-repair.md#orphans",
  })];
}
