/**
 * `kubectl denolith move`: shows what the move of a claim would do, has it done, or undoes it.
 *
 * @module
 */

import { parseGroupList } from "../../csi/group_list.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { orAbsentOrChanged } from "../../k8s/client/client.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { type MovePlan, movePlanText, previewMove } from "../move/preview.ts";
import { downtimeSeconds, outcomeText } from "../../k8s/handover/move_status.ts";
import type { Pod } from "../../k8s/api/objects.ts";
import { EXIT } from "../../cli/command_line.ts";
import { askForMove, followObject, followToEnd } from "./move_follow.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";

/** Moves a claim; with `--dry-run` only shows the plan. @returns 0; 1 when it cannot be moved, or failed */
export async function moveClaim(session: Session): Promise<number> {
  const { client, driver, flags, subject: { namespace } } = session;
  const claimName = flags["CLAIM"]!;
  if (flags.cancel !== undefined) return await cancelMove(session, claimName);
  const targetNode = flags.to!;
  const options = { topologyKey: TOPOLOGY_KEY, parseGroups: parseGroupList, now: session.now.getTime() };
  const request = { driver, namespace, claimName, targetNode, offline: flags.offline !== undefined };
  const { plan, move } = await previewMove(client, request, options);
  const isForPeople = flags.output === undefined;
  if (flags["dry-run"] !== undefined || plan.refusal !== undefined) {
    session.print(planAnswer(plan));
    return plan.refusal === undefined ? EXIT.success : EXIT.failure;
  }
  if (isForPeople) session.print(planAnswer(plan));
  const created = await askForMove(session, move);
  if (flags.wait === "false") {
    if (!isForPeople) session.print(moveAnswer(plan, created));
    else session.say(`\nThe controller is asked for it: kubectl get lvmmove ${created.metadata.name} --watch`);
    return EXIT.success;
  }
  const { move: ended, stranded } = await followToEnd(session, plan, created);
  session.print(moveAnswer(plan, ended, stranded));
  return ended.status?.state === "Complete" ? EXIT.success : EXIT.failure;
}

/** Undoes the move of a claim. @returns 0; 1 when it cannot be undone any more */
async function cancelMove(session: Session, claimName: string): Promise<number> {
  const { client, subject: { namespace } } = session;
  const { items } = await client.list(lvmMoves);
  const move = items.find(({ spec: { claim } }) => claim.namespace === namespace && claim.name === claimName);
  if (move === undefined) {
    throw new StorageError("NotFound", `move: claim ${namespace}/${claimName} is not being moved`);
  }
  const { name, uid } = move.metadata;
  if (isFinished(move)) throw new StorageError("FailedPrecondition", `move: it is ${move.status?.state} already`);
  await orAbsentOrChanged(client.delete(lvmMoves, { name }, { uid }));
  const { isTooLate } = await followObject(session, lvmMoves, name, (now) => {
    const isGone = now?.metadata.uid !== uid;
    return Promise.resolve(isGone || now?.status?.removing ? { isTooLate: !isGone } : undefined);
  });
  const text = isTooLate
    ? `The move of claim ${namespace}/${claimName} cannot be undone any more, and is being completed.`
    : `The move of claim ${namespace}/${claimName} is undone.`;
  session.print({ data: { claim: `${namespace}/${claimName}`, undone: !isTooLate }, text: () => text });
  return isTooLate ? EXIT.failure : EXIT.success;
}

function planAnswer(plan: MovePlan): Answer {
  return { data: { ...plan }, text: () => movePlanText(plan) };
}

function moveAnswer(plan: MovePlan, move: LvmMove, stranded: readonly Pod[] = []): Answer {
  const { state = "Pending", error, copyMode, offlineReason, differences, stages, copy } = move.status ?? {};
  const seconds = downtimeSeconds(move);
  const waiting = stranded.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
  return {
    data: {
      ...plan,
      state,
      ...(error && { error }),
      ...defined({ copyMode, offlineReason, differences, stages, received: copy?.received }),
      ...defined({ downtimeSeconds: seconds }),
      stranded: waiting,
    },
    text: () =>
      [
        state === "Complete"
          ? `Claim ${plan.claim} is on node ${plan.targetNode}: ${outcomeText(move.status ?? {})}.`
          : `Claim ${plan.claim} stays on node ${plan.sourceNode}: ${error?.message ?? state}`,
        ...(waiting.length === 0 ? [] : [
          `Pods that wait for it on node ${plan.sourceNode}: ${
            waiting.join(", ")
          }. Delete them, so that they are scheduled again.`,
        ]),
      ].join("\n"),
  };
}
