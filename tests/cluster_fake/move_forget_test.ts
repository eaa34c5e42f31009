/**
 * Moves that lose a node, which is forgotten, or its disks.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { isForgotten, lvmVolumes, REMOVE_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { copyIdOf, lvmMoves } from "../../k8s/handover/moves.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { stallBefore } from "../fake/cluster/fake_controllers.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { assertOnOneNode } from "../fake/cluster/move_checks.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import type { FakeLv } from "../fake/machine/machine.ts";

/** What is dead leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** Starts a move, which loses a node before the first write at which a condition holds. */
async function startLosing(s: MoveCluster, condition: () => boolean, index: 0 | 1 = 1): Promise<void> {
  const lost = Promise.withResolvers<void>();
  let isLost = false;
  s.startMover(async (_now, send) => {
    if (!isLost && condition()) {
      isLost = true;
      await s.loseNode(index);
      lost.resolve();
    }
    return await send();
  });
  s.addMove();
  await lost.promise;
}

async function waitForMessage(s: MoveCluster, text: string): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const check = () => s.move?.status?.message?.includes(text) && resolve();
  s.cluster.api.collection(lvmMoves).listeners.add(check);
  check();
  const timer = setTimeout(() => resolve(), 30_000);
  await promise;
  clearTimeout(timer);
  assertEquals(s.move?.status?.message?.includes(text), true, JSON.stringify(s.move?.status));
}

/** When the target dies, by the first write of the controller that comes after. */
const MOMENTS: Readonly<Record<string, (s: MoveCluster) => boolean>> = {
  "before it is copied": (s) => s.lvmVolumes.includes("volume node-1 Ready held"),
  "when it is copied": (s) => s.lvmVolumes.includes("copy node-2 Ready"),
  "when its PersistentVolume is created": (s) => s.persistentVolume === undefined,
};

for (const [when, condition] of Object.entries(MOMENTS)) {
  Deno.test(`a move whose target is forgotten ${when} can be undone, and nothing is left`, UNSANITIZED, async () => {
    await using s = await MoveCluster.start();
    await startLosing(s, () => condition(s));
    await waitForMessage(s, "node node-2");
    assertEquals(s.move?.status?.removing, undefined);
    await s.cluster.client.delete(lvmMoves, { name: MOVED });
    await waitUntil(() => s.move === undefined, "no LVMMove");
    await assertOnOneNode(s, "node-1");
  });
}

Deno.test(
  "a move whose target is forgotten when the volume is to be removed is undone, and the volume is used again",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    await startLosing(s, () => s.move?.status?.state === "Removing"); // the next write begins the removal
    const { status } = await s.waitForState("Failed");
    const cause = "the copy on node node-2 is gone, or older than the volume on node node-1";
    assertEquals([status?.error?.message, status?.removing, status?.volume], [cause, undefined, undefined]);
    await assertOnOneNode(s, "node-1");
    await using _pod = await FakePod.start(s);
  },
);

Deno.test(
  "a removal that a controller sends after another has undone the move does not remove the volume",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    const { onWrite, stalled, resume } = stallBefore((_, call) => call === "volumes.delete");
    s.startMover(onWrite);
    s.addMove();
    await stalled;
    await s.loseNode(1);
    s.startMover();
    await s.waitForState("Failed");
    await resume();
    await assertOnOneNode(s, "node-1");
    assertEquals(s.cluster.api.objects(lvmVolumes)[0]!.metadata.annotations?.[REMOVE_ANNOTATION], undefined);
    await using _pod = await FakePod.start(s);
  },
);

Deno.test("a volume is not removed while the agent of the target is silent", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  s.startMover(async (_now, send) => {
    if (s.move?.status?.state === "Removing") s.silent.add("node-2"); // the next write begins the removal
    return await send();
  });
  s.addMove();
  await waitForMessage(s, "the agent of node node-2 has not reported for minutes");
  assertEquals([s.move?.status?.removing, s.lvmVolumes.includes("volume node-1 Ready held")], [true, true]);
  s.silent.clear();
  await s.cluster.client.patch(lvmMoves, { name: MOVED }, { merge: { metadata: { labels: { awake: "now" } } } });
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2");
});

Deno.test("a volume is not held while the agent of the target is silent", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  s.startMover(async (_now, send) => {
    if (s.lvmVolumes.some((text) => text.startsWith("copy"))) s.silent.add("node-2");
    return await send();
  });
  s.addMove();
  await waitForMessage(s, "the agent of node node-2 has not reported for minutes");
  assertEquals(s.lvmVolumes.includes("volume node-1 Ready"), true, s.lvmVolumes.join());
  assertEquals(s.lv(0)!.tags.has("denolith.held"), false);
});

Deno.test("a move whose source is forgotten when the copy is complete saves the data", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  await startLosing(s, () => s.lvmVolumes.includes("copy node-2 Ready"), 0); // before the last snapshot is deleted
  await s.waitForState("Complete");
  await waitUntil(() => s.lvmVolumes.join() === "volume node-2 Ready", () => s.lvmVolumes.join());
  assertEquals([...s.lv(1)!.content.data!], ["letters"]);
  await waitUntil(() => s.claim?.status?.phase === "Bound", "Bound");
});

Deno.test(
  "a move whose source is forgotten before the copy has anything fails, and the volume is Lost",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    const copy = () => s.cluster.api.objects(lvmVolumes).find(({ spec }) => spec.copy !== undefined);
    await startLosing(s, () => copy() !== undefined && copy()!.status?.copy?.snapshot === undefined, 0);
    const { status } = await s.waitForState("Failed");
    assertStringIncludes(status!.error!.message, "Lost: node node-1 was forgotten");
    await waitUntil(() => s.lvmVolumes.join() === "volume node-1 Lost", () => s.lvmVolumes.join());
  },
);

Deno.test(
  "a move whose target is forgotten with the data ends, and the claim can be deleted",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    const isSourceGone = () =>
      s.move?.status?.removing === true && !s.lvmVolumes.some((text) => text.startsWith("volume"));
    await startLosing(s, isSourceGone);
    await waitForMessage(s, "waits for the agent of node node-2");
    await s.forgetNode("node-2");
    await s.waitForState("Failed");
    assertEquals(s.move?.status?.message, "node node-2 was forgotten, and the volume with it");
    assertEquals(s.persistentVolume?.spec?.persistentVolumeReclaimPolicy, "Delete");
    assertEquals(isForgotten(s.cluster.api.objects(lvmVolumes)[0]!), true);
    await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
    await waitUntil(() => s.persistentVolume === undefined && s.lvmVolumes.length === 0, "all deleted");
  },
);

/** Starts a move, and loses the disks of its source when the copy is complete, before the next write of the controller. */
async function startLosingDisks(s: MoveCluster, then: () => Promise<unknown> = () => Promise.resolve()) {
  const lost = Promise.withResolvers<() => Promise<void>>();
  let isLost = false;
  s.startMover(async (_now, send) => {
    if (!isLost && s.lvmVolumes.includes("copy node-2 Ready")) {
      isLost = true;
      const bringBack = await s.loseDisks(0);
      await then();
      lost.resolve(bringBack);
    }
    return await send();
  });
  s.addMove();
  return await lost.promise;
}

Deno.test("a move whose source loses its disks when the copy is complete saves the data", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  await startLosingDisks(s);
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2");
});

/** Cancels a move whose source is Lost, and waits until it says that the copy is kept. */
async function cancelWithLostSource(s: MoveCluster): Promise<() => Promise<void>> {
  const bringBack = await startLosingDisks(s, () => s.cluster.client.delete(lvmMoves, { name: MOVED }));
  await waitForMessage(s, "on node node-2, which may be all that is left, because the volume on node node-1 is Lost");
  assertEquals(s.lvmVolumes, ["copy node-2 Ready", "volume node-1 Lost"]);
  const data = s.machines[1].allLvs().map(({ lv }) => [...lv.content.data]);
  assertEquals(data, [["letters"]]);
  return bringBack;
}

Deno.test("a move that is deleted keeps a copy that is complete while its source is Lost", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  const bringBack = await cancelWithLostSource(s);
  assertEquals(s.move?.status?.state, "Undoing");
  await bringBack();
  await waitUntil(() => s.move === undefined, "no LVMMove");
  await assertOnOneNode(s, "node-1");
});

Deno.test(
  "a move that is deleted ends when somebody deletes the copy, although its source is Lost",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    await cancelWithLostSource(s);
    const copy = copyIdOf(s.move!);
    const { staging } = s.cluster.agent("node-2").machine;
    await staging.stage(copy, `${s.root}/saved`, { kind: "block" }); // by a PersistentVolume that was written by hand
    await staging.unstage(copy, `${s.root}/saved`);
    await s.cluster.client.delete(lvmVolumes, { name: copy });
    await waitUntil(() => s.move === undefined, "no LVMMove");
    await waitUntil(() => s.lvmVolumes.join() === "volume node-1 Lost", () => s.lvmVolumes.join());
  },
);

Deno.test(
  "a move whose target loses its disks when the copy is complete leaves the volume in use",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    let isLost = false;
    s.startMover(async (_now, send) => {
      if (!isLost && s.lvmVolumes.includes("copy node-2 Ready")) {
        isLost = true;
        s.machines[1].groups.splice(0);
        s.cluster.agent("node-2").node.requeue();
        await waitUntil(() => s.lvmVolumes.includes("copy node-2 Lost"), () => s.lvmVolumes.join());
      }
      return await send();
    });
    s.addMove();
    await s.waitForState("Failed");
    await assertOnOneNode(s, "node-1");
  },
);

Deno.test("a move whose source is forgotten keeps a copy that has all that it had before", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  await FakePod.start(s);
  s.startMover();
  s.addMove();
  // while the pod uses it, the last difference is not sent
  await waitUntil(
    () => s.lvmVolumes.join() === "copy node-2 Pending,volume node-1 Ready held",
    () => s.lvmVolumes.join(),
  );
  await s.loseNode(0);
  await waitForMessage(s, "on node node-2, which may be all that is left");
  assertEquals([...s.machines[1].allLvs()[0]!.lv.content.data], ["letters"]);
});

Deno.test("a copy whose LVMMove lost its finalizer is kept while its source is Lost", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  const bringBack = await cancelWithLostSource(s);
  const copy = copyIdOf(s.move!);
  s.startGarbageCollector();
  await s.cluster.client.patch(lvmMoves, { name: MOVED }, { merge: { metadata: { finalizers: [] } } });
  await waitUntil(() => s.move === undefined, "no LVMMove");
  const { garbageReconciles } = s;
  await s.cluster.client.patch(lvmVolumes, { name: copy }, { merge: { metadata: { labels: { seen: "now" } } } });
  await waitUntil(() => s.garbageReconciles > garbageReconciles, "the garbage collector");
  assertEquals(s.lvmVolumes, [`${copy} node-2 Ready`, "volume node-1 Lost"]);
  await bringBack();
  await s.cluster.client.patch(lvmVolumes, { name: copy }, { merge: { metadata: { labels: { seen: "later" } } } });
  await assertOnOneNode(s, "node-1");
});

/**
 * Moves the volume away from a node that dies and is forgotten meanwhile, and asks to move it back when the node is back.
 *
 * @param onReturn called with the old LV, before the node is back
 * @param onRemoval called when the volume is to be removed from the second node
 */
async function moveBack(
  s: MoveCluster,
  { onReturn, onRemoval }: { readonly onReturn?: () => void; readonly onRemoval?: () => void },
): Promise<void> {
  const [first] = s.machines;
  const [group] = first.groups;
  const isRemoved = new Set<string>();
  s.startMover(async (_now, send) => {
    const { spec, status } = s.move!;
    if (status?.removing && !isRemoved.has(spec.targetNode)) {
      isRemoved.add(spec.targetNode);
      if (spec.targetNode === "node-2") await s.loseNode(0);
      else onRemoval?.();
    }
    return await send();
  });
  s.addMove();
  await s.waitForState("Complete");
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  await waitUntil(() => s.move === undefined, "no LVMMove");
  s.lv(1)!.content.data!.add("newer");
  first.groups.push(group!);
  onReturn?.();
  s.cluster.startAgent("node-1", first, { transfers: true, mountRoots: [s.root] });
  await s.cluster.nodes.waitFor("node-1", (node) => node?.status?.transfer !== undefined, { timeoutMs: 5_000 });
  s.addMove({ sourceNode: "node-2", targetNode: "node-1" });
}

Deno.test(
  "a volume does not move back to a node that has its LV from before the node was forgotten",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    await moveBack(s, {});
    const { status } = await s.waitForState("Failed");
    assertStringIncludes(status!.error!.message, "this node has the orphan data/vol-");
    assertEquals([s.lvmVolumes, [...s.lv(1)!.content.data!]], [["volume node-2 Ready"], ["letters", "newer"]]);
  },
);

Deno.test("a volume that moved back is not found in its old LV, which appears at the end", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  const [first] = s.machines;
  const old: FakeLv[] = [];
  await moveBack(s, {
    onReturn: () => void old.push(...first.groups[0]!.lvs.splice(0)),
    onRemoval: () => void first.groups[0]!.lvs.push(...old),
  });
  const { reconciliations } = s.cluster.agent("node-1");
  await waitUntil(() => reconciliations.some(({ error }) => /has its tags from when/.test(`${error}`)), "the refusal");
  first.groups[0]!.lvs = first.groups[0]!.lvs.filter((lv) => !old.includes(lv));
  await s.waitForState("Complete");
  assertEquals([s.lvmVolumes, [...s.lv(0)!.content.data!]], [["volume node-1 Ready"], ["letters", "newer"]]);
});
