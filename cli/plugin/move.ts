/**
 * `kubectl denolith move`: shows what the move of a claim would do, asks the controller for it by an LVMMove, and follows it.
 *
 * Only this process evicts pods, with the rights of its user: the controller cannot.
 *
 * @module
 */

import { parseGroupList } from "../../csi/group_list.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { sleep, systemClock, waitForAbort } from "../../lvm/clock.ts";
import { StorageError } from "../../lvm/error.ts";
import { ApiError, type NewObject, orAbsent, orAbsentOrChanged } from "../../k8s/client/client.ts";
import { isFinished, type LvmMove, lvmMoves } from "../../k8s/move/objects.ts";
import { type MovePlan, podsUsing, previewMove } from "../../k8s/move/preview.ts";
import { downtimeSeconds, movePlanText, moveProgressText } from "../../k8s/move/text.ts";
import { persistentVolumeClaims, type Pod } from "../../k8s/api/objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { EXIT } from "../command_line.ts";
import type { Answer } from "./output.ts";
import type { Session } from "./session.ts";

/** The time after which an eviction that a budget did not allow is tried again, in milliseconds. */
const RETRY_MS = 5_000;

/** An LVMMove that is to be created. */
type NewMove = NewObject<LvmMove> & { metadata: { name: string } };

/** Moves a claim; with `--dry-run` only shows the plan. @returns 0; 1 when it cannot be moved, or failed */
export async function moveClaim(session: Session): Promise<number> {
  const { client, driver, flags, subject: { namespace } } = session;
  const claimName = flags["CLAIM"]!;
  if (flags.cancel !== undefined) return await cancelMove(session, claimName);
  const targetNode = flags.to;
  if (targetNode === undefined) throw new StorageError("InvalidArgument", "move: --to names the node; it is missing");
  const options = { topologyKey: TOPOLOGY_KEY, parseGroups: parseGroupList, now: session.now.getTime() };
  const { plan, move } = await previewMove(client, { driver, namespace, claimName, targetNode }, options);
  const isForPeople = flags.output === undefined;
  if (flags["dry-run"] !== undefined || plan.refusal !== undefined) {
    session.print(planAnswer(plan));
    return plan.refusal === undefined ? EXIT.success : EXIT.failure;
  }
  if (isForPeople) session.print(planAnswer(plan));
  const created = await ask(session, move);
  if (flags.wait === "false") {
    if (!isForPeople) session.print(moveAnswer(plan, created));
    else session.say(`\nThe controller is asked for it: kubectl get lvmmove ${created.metadata.name} --watch`);
    return EXIT.success;
  }
  return await followToEnd(session, plan, created);
}

/** Creates the LVMMove, in place of one that is finished. */
async function ask(session: Session, move: NewMove): Promise<LvmMove> {
  const { client } = session;
  const { name } = move.metadata;
  const existing = await orAbsent(client.get(lvmMoves, { name }));
  if (existing !== undefined && isFinished(existing)) {
    await orAbsentOrChanged(client.delete(lvmMoves, { name }, { uid: existing.metadata.uid }));
    await follow(
      session,
      name,
      (now) => Promise.resolve(now?.metadata.uid === existing.metadata.uid ? undefined : true),
    );
  }
  return await client.create(lvmMoves, move);
}

/**
 * Reads an LVMMove whenever it changes, and at intervals, until the answer is there.
 *
 * @throws {StorageError} `Unavailable` when the plugin is asked to end
 */
async function follow<T>(
  { client, signal }: Session,
  name: string,
  onMove: (move: LvmMove | undefined) => Promise<T | undefined>,
): Promise<T> {
  const stop = new AbortController();
  const onEnd = () => stop.abort();
  signal.addEventListener("abort", onEnd);
  const moves = new Informer(client, lvmMoves, { fieldSelector: `metadata.name=${name}` });
  const running = moves.start(stop.signal);
  try {
    await Promise.race([moves.synced, waitForAbort(signal)]);
    let changed = new AbortController();
    moves.subscribe(() => changed.abort(), { replay: false });
    while (!signal.aborted) {
      changed = new AbortController();
      const answer = await onMove(moves.get(name));
      if (answer !== undefined) return answer;
      await sleep(systemClock, RETRY_MS, signal, changed.signal);
    }
  } finally {
    signal.removeEventListener("abort", onEnd);
    onEnd();
    await running;
  }
  throw new StorageError("Unavailable", `move: interrupted; see kubectl get lvmmove ${name} --watch`);
}

/** Shows the progress of a move until its end. */
async function followToEnd(session: Session, plan: MovePlan, { metadata: { name, uid } }: LvmMove): Promise<number> {
  let shown = "";
  const finished = await follow(session, name, async (move) => {
    if (move?.metadata.uid !== uid) {
      throw new StorageError("FailedPrecondition", "move: it was undone, because its LVMMove was deleted");
    }
    const line = moveProgressText(move!);
    if (line !== shown && session.flags.output === undefined) session.say(line);
    shown = line;
    if (session.flags.evict !== undefined && move!.status?.state === "Holding") {
      await evictUsers(session, plan.sourceNode);
    }
    return isFinished(move!) ? move : undefined;
  });
  return await end(session, plan, finished);
}

async function end(session: Session, plan: MovePlan, move: LvmMove): Promise<number> {
  const isComplete = move.status?.state === "Complete";
  // what was scheduled before waits on a node that the volume is not on any more
  const stranded = isComplete ? (await usersOf(session)).filter(({ spec }) => spec?.nodeName === plan.sourceNode) : [];
  if (session.flags.evict !== undefined) await evict(session, stranded);
  session.print(moveAnswer(plan, move, session.flags.evict === undefined ? stranded : []));
  return isComplete ? EXIT.success : EXIT.failure;
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
  const { isTooLate } = await follow(session, name, (now) => {
    const isGone = now?.metadata.uid !== uid;
    return Promise.resolve(isGone || now?.status?.removing ? { isTooLate: !isGone } : undefined);
  });
  const text = isTooLate
    ? `The move of claim ${namespace}/${claimName} cannot be undone any more, and is being completed.`
    : `The move of claim ${namespace}/${claimName} is undone.`;
  session.print({ data: { claim: `${namespace}/${claimName}`, undone: !isTooLate }, text: () => text });
  return isTooLate ? EXIT.failure : EXIT.success;
}

async function usersOf({ client, flags, subject: { namespace } }: Session): Promise<Pod[]> {
  const claim = await orAbsent(client.get(persistentVolumeClaims, { namespace, name: flags["CLAIM"]! }));
  return claim === undefined ? [] : await podsUsing(client, claim);
}

async function evictUsers(session: Session, node: string): Promise<void> {
  await evict(session, (await usersOf(session)).filter(({ spec }) => spec?.nodeName === node));
}

/** Evicts pods, as far as their budgets allow it now. */
async function evict(session: Session, evicted: readonly Pod[]): Promise<void> {
  for (const { metadata: { namespace, name, uid, deletionTimestamp } } of evicted) {
    if (deletionTimestamp !== undefined) continue;
    try {
      await session.client.evict({ namespace, name }, uid);
      session.note(`pod ${namespace}/${name} is evicted`);
    } catch (error) {
      if (!(error instanceof ApiError) || ![404, 409, 429].includes(error.status)) throw error;
      session.note(`pod ${namespace}/${name} cannot be evicted yet: ${error.message}`);
    }
  }
}

function planAnswer(plan: MovePlan): Answer {
  return { data: { ...plan }, text: () => movePlanText(plan) };
}

function moveAnswer(plan: MovePlan, move: LvmMove, stranded: readonly Pod[] = []): Answer {
  const { state = "Pending", error } = move.status ?? {};
  const seconds = downtimeSeconds(move);
  const waiting = stranded.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
  return {
    data: {
      ...plan,
      state,
      ...(error && { error }),
      ...(seconds !== undefined && { downtimeSeconds: seconds }),
      stranded: waiting,
    },
    text: () =>
      [
        state === "Complete"
          ? `Claim ${plan.claim} is on node ${plan.targetNode}${
            seconds === undefined ? "" : `; nobody could use it for ${seconds} s`
          }.`
          : `Claim ${plan.claim} stays on node ${plan.sourceNode}: ${error?.message ?? state}`,
        ...(waiting.length === 0 ? [] : [
          `Pods that wait for it on node ${plan.sourceNode}: ${
            waiting.join(", ")
          }. Delete them, so that they are scheduled again.`,
        ]),
      ].join("\n"),
  };
}
