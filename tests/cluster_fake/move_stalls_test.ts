/**
 * Moves whose controller stalls before one of its writes, and sends it when another controller has gone on.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { persistentVolumeClaims, persistentVolumes } from "../../k8s/api/objects.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { stallBefore } from "../fake/cluster/fake_controllers.ts";
import { assertOnOneNode, countWrites, watchInvariants } from "../fake/cluster/move_checks.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { MoveCluster, type MoveClusterOptions, MOVED, PV_NAME } from "../fake/cluster/move_cluster.ts";
import { sampledTests } from "../rig/sample.ts";

/** The states of the next move, when a write of an earlier one arrives. */
const STATES = ["Pending", "Holding", "Copying", "Switching", "Removing"] as const;

/** Who stalls leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** One in so many of these tests runs in `task test`; all run in `task test:crashes`. */
const crashTest = await sampledTests(16);

/** A move whose first controller stalls before a write, and whose second one goes on. */
interface Stalled {
  readonly s: MoveCluster;
  /** Whether the first controller completed the move in fewer writes. */
  readonly isOver: boolean;
  /** Lets the first controller send its write, and what it goes on to write. */
  readonly resume: () => Promise<void>;
}

/** Calls a function with a move whose controller has stalled; what happened meanwhile must not have endangered data. */
async function withStalled(
  index: number,
  options: MoveClusterOptions,
  body: (stalled: Stalled) => Promise<void>,
): Promise<void> {
  await using s = await MoveCluster.start(options);
  const { broken } = watchInvariants(s);
  const { onWrite, stalled, resume } = stallBefore((now) => now === index);
  s.startMover(onWrite);
  s.addMove();
  const isOver = await Promise.race([stalled.then(() => false), s.waitForState("Complete").then(() => true)]);
  s.startMover();
  s.startGarbageCollector();
  await body({ s, isOver, resume });
  if (s.claim !== undefined) assertEquals(broken, []);
}

async function deleteMove(s: MoveCluster): Promise<void> {
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  await waitUntil(() => s.move === undefined, "no LVMMove");
}

/** The node that the volume is on. */
function nodeOf(s: MoveCluster): "node-1" | "node-2" {
  return s.lvmVolumes.join().includes("volume node-2") ? "node-2" : "node-1";
}

/** The write is sent when another controller has completed the move. */
async function afterCompletion({ s, resume }: Stalled): Promise<void> {
  await s.waitForState("Complete");
  await resume();
  await assertOnOneNode(s, "node-2");
  assertEquals(s.move?.status?.state, "Complete");
}

/** The write is sent when another controller has undone the move, or has completed what could not be undone. */
async function afterUndoing({ s, resume }: Stalled): Promise<void> {
  await deleteMove(s);
  await resume();
  await assertOnOneNode(s, nodeOf(s));
}

/** The write is sent when the volume is being moved again. */
async function duringNext(state: string, { s, resume, isOver }: Stalled): Promise<void> {
  if (isOver) return;
  await deleteMove(s);
  if (nodeOf(s) === "node-2") return await resume();
  s.addMove();
  await Promise.race([s.waitForState(state), s.waitForState("Complete")]);
  await resume();
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2");
}

/** The write is sent when the move was completed or undone, and its claim is deleted: nothing may be left. */
async function afterDeletion(isUndone: boolean, { s, resume }: Stalled): Promise<void> {
  if (!isUndone) await s.waitForState("Complete");
  await deleteMove(s);
  await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
  const isGone = () => s.lvmVolumes.length === 0 && s.persistentVolume === undefined;
  const what = () => `nothing: ${s.lvmVolumes} ${JSON.stringify(s.persistentVolume ?? {})}`;
  await waitUntil(isGone, what);
  await resume();
  await waitUntil(isGone, what);
  await waitUntil(() => s.machines.every((machine) => machine.allLvs().length === 0), "no LV");
}

// offline, because the copy has nothing to do with it
const OTHERS = [{ mutableAffinity: true, offline: true }, { reclaimPolicy: "Retain", offline: true }] as const;

for (const options of [{}, ...OTHERS]) {
  const isPatched = "mutableAffinity" in options;
  const isRetained = "reclaimPolicy" in options;
  const what = isPatched ? "that is patched" : isRetained ? "that is retained" : "that is made again";
  const writes = await countWrites(options);
  const add = (end: string, index: number, body: (stalled: Stalled) => Promise<void>) =>
    crashTest(
      `a controller that stalls before write ${index} of a move with a PersistentVolume ${what} does no harm ${end}`,
      UNSANITIZED,
      () => withStalled(index, options, body),
    );
  for (let index = 0; index < writes; index++) {
    add("after another undid it", index, afterUndoing);
    if (isRetained) continue;
    add("after another completed it", index, afterCompletion);
    if (isPatched) continue;
    const state = STATES[index % STATES.length]!;
    add(`when the next move is ${state}`, index, (stalled) => duringNext(state, stalled));
    add("after another completed it, and the claim is deleted", index, (stalled) => afterDeletion(false, stalled));
    add("after another undid it, and the claim is deleted", index, (stalled) => afterDeletion(true, stalled));
  }
}

Deno.test("a garbage collector that stalls does not release what the next move holds", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  const [stalled, resumed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const sent: Promise<unknown>[] = [];
  s.startGarbageCollector(async (_now, send) => {
    stalled.resolve();
    await resumed.promise;
    const one = send();
    sent.push(one.catch(() => {}));
    return await one;
  });
  await s.cluster.client.patch(lvmVolumes, { name: MOVED }, { merge: { spec: { held: true } } });
  await stalled.promise;
  await waitUntil(() => s.lv(0)!.tags.has("denolith.held"), "a held volume");
  let released = false;
  s.cluster.api.collection(lvmVolumes).listeners.add(() => {
    released ||= s.lvmVolumes.some((text) => text === "volume node-1 Ready");
  });
  s.startMover(async (_now, send) => {
    if (s.move?.status?.persistentVolume !== undefined) {
      resumed.resolve();
      await waitUntil(() => sent.length > 0, "the late release");
      await Promise.all(sent);
    }
    return await send();
  });
  s.addMove();
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2");
  assertEquals([sent.length > 0, released], [true, false]);
});

Deno.test("a move goes on beside a garbage collector whose cache does not have it", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  const { broken } = watchInvariants(s);
  const writes: number[] = [];
  s.startGarbageCollector((now, send) => {
    writes.push(now);
    return send();
  }, { isBlind: true });
  s.startMover();
  s.addMove();
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2");
  assertEquals([writes, broken], [[], []]);
});

/** The copy is all that is left of the data when the source is removed, and no volume exists yet. */
Deno.test("what is left of a move that somebody took the finalizer of keeps its data", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  const { broken } = watchInvariants(s);
  const interrupted = Promise.withResolvers<void>();
  const crash = s.startMover(async (_now, send) => {
    const isSourceGone = s.move?.status?.removing && !s.lvmVolumes.some((text) => text.startsWith("volume"));
    if (!isSourceGone) return await send();
    interrupted.resolve();
    return await new Promise(() => {});
  });
  s.addMove();
  await interrupted.promise;
  void crash();
  const merge = { metadata: { finalizers: [] } };
  await s.cluster.client.patch(lvmMoves, { name: MOVED }, { merge });
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  const writes: number[] = [];
  s.startGarbageCollector((now, send) => {
    writes.push(now);
    return send();
  });
  await s.cluster.client.patch(persistentVolumes, { name: PV_NAME }, { merge: { metadata: { labels: { a: "b" } } } });
  await waitUntil(() => s.garbageReconciles >= 2, "two looks at it");
  assertEquals([writes, broken, s.lvmVolumes.length], [[], [], 1]);
  assertEquals(s.persistentVolume?.spec?.persistentVolumeReclaimPolicy, "Retain");
});
