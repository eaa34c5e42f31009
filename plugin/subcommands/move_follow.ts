/**
 * Asks the controller for a move by an LVMMove, follows it, and evicts pods meanwhile.
 *
 * Only this process evicts pods, with the rights of its user: the controller cannot.
 *
 * @module
 */

import { sleep, systemClock, waitForAbort } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { ApiError, isTransient, type NewObject, orAbsent, orAbsentOrChanged } from "../../k8s/client/client.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { type MovePlan, podsUsing } from "../move/preview.ts";
import { moveProgressText } from "../../k8s/handover/move_status.ts";
import { type KubeObject, persistentVolumeClaims, type Pod, type Resource } from "../../k8s/api/objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import type { Session } from "../session.ts";

/** The time after which an eviction that a budget did not allow is tried again, in milliseconds. */
const RETRY_MS = 5_000;

/** An LVMMove that is to be created. */
export type NewMove = NewObject<LvmMove> & { metadata: { name: string } };

/** A move that has ended. */
export interface MoveOutcome {
  /** The LVMMove. */
  readonly move: LvmMove;
  /** The pods that wait for the volume on the node where it is not any more, and are not evicted. */
  readonly stranded: readonly Pod[];
}

/** Creates the LVMMove, in place of one that is finished. */
export async function askForMove(session: Session, move: NewMove): Promise<LvmMove> {
  const { client } = session;
  const { name } = move.metadata;
  const existing = await orAbsent(client.get(lvmMoves, { name }));
  if (existing !== undefined && isFinished(existing)) {
    await removeFinished(session, lvmMoves, existing);
  }
  return await client.create(lvmMoves, move);
}

/** Deletes an object that is finished, and waits until it is gone. */
export async function removeFinished<O extends KubeObject>(
  session: Session,
  resource: Resource<O>,
  { metadata: { name, uid } }: O,
): Promise<void> {
  await orAbsentOrChanged(session.client.delete(resource, { name }, { uid }));
  await followObject(session, resource, name, (now) => Promise.resolve(now?.metadata.uid === uid ? undefined : true));
}

/**
 * Reads an object whenever it changes, and at intervals, until the answer is there.
 *
 * @throws {StorageError} `Unavailable` when the plugin is asked to end
 */
export async function followObject<O extends KubeObject, T>(
  { client, signal }: Session,
  resource: Resource<O>,
  name: string,
  onObject: (object: O | undefined) => Promise<T | undefined>,
): Promise<T> {
  const stop = new AbortController();
  const onEnd = () => stop.abort();
  signal.addEventListener("abort", onEnd);
  const objects = new Informer(client, resource, { fieldSelector: `metadata.name=${name}` });
  const running = objects.start(stop.signal);
  try {
    await Promise.race([objects.synced, waitForAbort(signal)]);
    let changed = new AbortController();
    objects.subscribe(() => changed.abort(), { replay: false });
    while (!signal.aborted) {
      changed = new AbortController();
      const answer = await onObject(objects.get(name));
      if (answer !== undefined) return answer;
      await sleep(systemClock, RETRY_MS, signal, changed.signal);
    }
  } finally {
    signal.removeEventListener("abort", onEnd);
    onEnd();
    await running;
  }
  throw new StorageError("Unavailable", `interrupted; see kubectl get ${resource.kind.toLowerCase()} ${name} --watch`);
}

/** Shows the progress of a move until its end, and evicts pods where that is asked for. */
export async function followToEnd(
  session: Session,
  plan: MovePlan,
  { metadata: { name, uid } }: LvmMove,
): Promise<MoveOutcome> {
  const isEvicting = session.flags.evict !== undefined;
  const move = await followObject(session, lvmMoves, name, async (now) => {
    if (now?.metadata.uid !== uid) {
      throw new StorageError("FailedPrecondition", "move: it was undone, because its LVMMove was deleted");
    }
    session.sayProgress(moveProgressText(now!));
    if (isEvicting && now!.status?.state === "Holding") await evict(session, () => usersOn(session, plan));
    return isFinished(now!) ? now : undefined;
  });
  // what was scheduled before waits on a node that the volume is not on any more
  const stranded = move.status?.state === "Complete" ? await usersOn(session, plan) : [];
  if (isEvicting) await evict(session, () => Promise.resolve(stranded));
  return { move, stranded: isEvicting ? [] : stranded };
}

/** Returns the pods on the first node that use the claim. */
async function usersOn({ client }: Session, { claim, sourceNode }: MovePlan): Promise<Pod[]> {
  const [namespace, name] = claim.split("/") as [string, string];
  const object = await orAbsent(client.get(persistentVolumeClaims, { namespace, name }));
  const using = object === undefined ? [] : await podsUsing(client, object);
  return using.filter(({ spec }) => spec?.nodeName === sourceNode);
}

/** Evicts pods, as far as that is possible now. What is refused is tried again, since the volume stays held meanwhile. */
export async function evict(session: Session, find: () => Promise<readonly Pod[]>): Promise<void> {
  const evicted = await find().catch((error): Pod[] => {
    if (!(error instanceof ApiError)) throw error;
    session.noteOnce(`the pods that use the claim are not known: ${error.message}`);
    return [];
  });
  for (const { metadata } of evicted) {
    const { namespace, name, uid, deletionTimestamp } = metadata;
    if (deletionTimestamp !== undefined) continue;
    const pod = `pod ${namespace}/${name}`;
    if (session.flags.force === undefined && !metadata.ownerReferences?.some(({ controller }) => controller)) {
      session.noteOnce(`${pod} is not evicted, because nobody would create it again: delete it, or use --force`);
      continue;
    }
    try {
      await session.client.evict({ namespace, name }, uid);
      session.note(`${pod} is evicted`);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const isPassing = [404, 409].includes(error.status) || isTransient(error);
      session.noteOnce(
        isPassing
          ? `${pod} cannot be evicted yet: ${error.message}`
          : `${pod} cannot be evicted: ${error.message}. Until it ends, nobody else can use the volume; --cancel releases it`,
      );
    }
  }
}

/** Returns the names of pods, as `namespace/name`. */
export function namesOf(pods: readonly Pod[]): string[] {
  return pods.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
}
