/**
 * What people see of a move: events of the claim and of the LVMMove, and the answer of `kubectl denolith why`.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { events, persistentVolumes } from "../../k8s/api/objects.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { MoveCluster, MOVED, PV_NAME } from "../fake/cluster/move_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";

interface Answer {
  readonly state: string;
  readonly problems: readonly { reason: string; message: string; remedy: string }[];
  readonly facts: readonly (readonly [string, string])[];
}

async function why(s: MoveCluster): Promise<Answer> {
  const run = pluginOver(s.cluster.api, { role: "viewer" });
  return JSON.parse((await run(["why", "data", "--namespace", "shop", "-o", "json"])).output);
}

/** Waits for an event of a reason about the claim, and returns its messages. */
async function eventOf(s: MoveCluster, reason: string, kind = "PersistentVolumeClaim"): Promise<string> {
  const found = () =>
    s.cluster.api.objects(events).find((one) => one.reason === reason && one.involvedObject?.kind === kind);
  await waitUntil(() => found() !== undefined, () => `an event ${reason} of a ${kind}`);
  return found()!.message!;
}

Deno.test("the events of a move say its way, who is waited for, what was sent, and for how long nobody could use it", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  const started = "moves from node node-1 to node node-2, online, so that it is copied while it is used";
  for (const kind of ["PersistentVolumeClaim", "LVMMove"]) assertEquals(await eventOf(s, "MoveStarted", kind), started);
  assertStringIncludes(await eventOf(s, "MoveWaiting"), "nobody else may begin to use it, but its mount");
  const { state, problems, facts } = await why(s);
  assertEquals([state, problems.map(({ reason }) => reason)], ["Bound", ["BeingMoved"]]);
  assertStringIncludes(problems[0]!.message, "from node node-1 to node node-2: Holding: online, sent 512 KiB");
  assertStringIncludes(problems[0]!.remedy, "End the pods that use the claim");
  assertStringIncludes(facts.find(([label]) => label === "Move")![1], "node-1 to node-2 (Holding: online");
  await pod.end();
  await s.waitForState("Complete");
  assertStringIncludes(await eventOf(s, "MoveHeld"), "nobody can use it until the move ends; sent 512 KiB");
  const ended = "sent 512 KiB while it was used, 0 B while nobody could use it; nobody could use it for";
  assertStringIncludes(await eventOf(s, "Moved"), `is on node node-2: moved online; ${ended}`);
  const after = await why(s);
  assertEquals(after.problems.filter(({ reason }) => reason.includes("Move")), []);
  assertMatch(after.facts.find(([label]) => label === "Move")![1], /^node-1 to node-2 \(moved online; sent 512 KiB/);
  const reasons = s.cluster.api.objects(events).filter(({ involvedObject }) => involvedObject?.kind === "LVMMove");
  assertEquals(reasons.map(({ reason }) => reason), ["MoveStarted", "MoveWaiting", "MoveHeld", "Moved"]);
});

Deno.test("why: a claim that is Lost while its PersistentVolume is made again is not to be deleted", async () => {
  await using s = await MoveCluster.start();
  const { promise: resumed, resolve: resume } = Promise.withResolvers<void>();
  s.startMover(async (_index, send) => {
    const isGone = s.cluster.api.objects(persistentVolumes).length === 0;
    if (isGone) await resumed;
    return await send();
  });
  s.addMove();
  await waitUntil(() => s.claim?.status?.phase === "Lost", "a Lost claim");
  const { state, problems } = await why(s);
  assertEquals([state, problems.map(({ reason }) => reason)], ["Lost", ["BeingMoved"]]);
  assertStringIncludes(problems[0]!.remedy, "Do not delete the claim");
  resume();
  await s.waitForState("Complete");
});

Deno.test("a move that waits for the finalizer of somebody else says so, and why does", async () => {
  await using s = await MoveCluster.start();
  const finalizers = [...s.persistentVolume!.metadata.finalizers!, "example.com/keep"];
  await s.cluster.client.patch(persistentVolumes, { name: PV_NAME }, { merge: { metadata: { finalizers } } });
  s.startMover();
  s.addMove();
  const waits = "waits for others to remove the finalizers example.com/keep of the PersistentVolume";
  assertEquals(await eventOf(s, "MoveWaiting"), waits);
  const { problems } = await why(s);
  assertStringIncludes(problems[0]!.message, waits);
  await s.cluster.client.patch(persistentVolumes, { name: PV_NAME }, { merge: { metadata: { finalizers: [] } } });
  await s.waitForState("Complete");
});

Deno.test("the events of a move that fails, and of one that is undone, say that the volume stays", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  s.addMove({ targetNode: "node-3" });
  await s.waitForState("Failed");
  const cause = "node node-3 has no agent of the driver";
  assertEquals(await eventOf(s, "MoveFailed"), `stays on node node-1: ${cause}`);
  const { problems } = await why(s);
  assertEquals(problems.map(({ reason }) => reason), ["MoveFailed"]);
  assertStringIncludes(problems[0]!.message, `its move from node node-1 to node node-3 failed: ${cause}`);
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  await waitUntil(() => s.move === undefined, "no LVMMove");
  await using pod = await FakePod.start(s);
  s.addMove();
  await waitUntil(() => s.lvmVolumes.includes("volume node-1 Ready held"), "a held volume");
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  assertEquals(await eventOf(s, "MoveUndone"), "stays on node node-1: the LVMMove was deleted");
  assertEquals((await why(s)).problems.map(({ reason }) => reason), ["ExpansionNotAllowed"]);
  await pod.end();
});

Deno.test("the events of a move without space for online say why it is offline, from its start or later", async () => {
  await using s = await MoveCluster.start({ offline: true });
  s.startMover();
  s.addMove();
  const { status } = await s.waitForState("Complete");
  const started = await eventOf(s, "MoveStarted");
  assert(started.endsWith("offline, so that it is copied while nobody can use it: it was asked for"), started);
  assertMatch(
    status!.message!,
    /^moved offline; sent 512 KiB while nobody could use it; nobody could use it for \d+ s$/,
  );
});

Deno.test("a move that waits is looked at again without a write", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  let writes = 0;
  s.startMover((_index, send) => {
    writes++;
    return send();
  });
  s.addMove();
  await eventOf(s, "MoveWaiting");
  assertEquals(s.move?.status?.stages?.length, 1);
  const before = { writes, reconciles: s.moverReconciles };
  for (const seen of ["once", "again"]) {
    const { moverReconciles } = s;
    await s.cluster.client.patch(lvmMoves, { name: MOVED }, { merge: { metadata: { labels: { seen } } } });
    await waitUntil(() => s.moverReconciles > moverReconciles, "the mover");
  }
  assertEquals(writes - before.writes, 0, "writes");
  await pod.end();
  await s.waitForState("Complete");
});
