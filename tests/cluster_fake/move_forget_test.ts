/**
 * Moves whose target dies, and is forgotten.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { isForgotten, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { lvmMoves } from "../../k8s/move/objects.ts";
import { waitUntil } from "../fake/control_plane.ts";
import { assertOnOneNode } from "../fake/move_checks.ts";
import { MoveCluster, MOVED } from "../fake/move_cluster.ts";

/** What is dead leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** Starts a move, whose target dies and is forgotten before the first write at which a condition holds. */
async function startDoomed(s: MoveCluster, condition: () => boolean): Promise<void> {
  const doomed = Promise.withResolvers<void>();
  let isDoomed = false;
  s.startMover(async (_now, send) => {
    if (!isDoomed && condition()) {
      isDoomed = true;
      s.execs[1]!.die();
      s.cluster.agent("node-2").crash();
      await s.forgetNode("node-2");
      s.machines[1].groups.splice(0); // its disks are gone
      doomed.resolve();
    }
    return await send();
  });
  s.addMove();
  await doomed.promise;
}

async function waitForMessage(s: MoveCluster, text: string): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const check = () => s.move?.status?.message?.includes(text) && resolve();
  s.cluster.api.collection(lvmMoves).listeners.add(check);
  check();
  const timer = setTimeout(() => resolve(), 5_000);
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
    await startDoomed(s, () => condition(s));
    await waitForMessage(s, "node node-2");
    assertEquals(s.move?.status?.removing, undefined);
    await s.cluster.client.delete(lvmMoves, { name: MOVED });
    await waitUntil(() => s.move === undefined, "no LVMMove");
    await assertOnOneNode(s, "node-1");
  });
}

Deno.test("a volume is not removed when its copy went with the target at the last moment", UNSANITIZED, async () => {
  await using s = await MoveCluster.start();
  await startDoomed(s, () => s.move?.status?.state === "Removing"); // the next write begins the removal
  await waitForMessage(s, "the copy on node node-2 is gone");
  assertEquals([s.lvmVolumes, [...s.lv(0)!.content.data!]], [["volume node-1 Ready held"], ["letters"]]);
});

Deno.test(
  "a move whose target is forgotten with the data ends, and the claim can be deleted",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start();
    const isSourceGone = () =>
      s.move?.status?.removing === true && !s.lvmVolumes.some((text) => text.startsWith("volume"));
    await startDoomed(s, isSourceGone);
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
