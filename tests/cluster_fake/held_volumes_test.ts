/**
 * Volumes that nobody may begin to use, from their objects to the LVs: what kills of the agent leave.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { heldCondition } from "../../k8s/api/volume_conditions.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { StorageError } from "../../base/error.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";

/** Returns the volume's status of `Held`. */
function heldStatus(s: MoveCluster): string | undefined {
  return heldCondition(s.cluster.api.objects(lvmVolumes)[0]!)?.status;
}

async function setHeld(s: MoveCluster, held: true | null): Promise<void> {
  await s.cluster.client.patch(lvmVolumes, { name: MOVED }, { merge: { spec: { held } } });
}

async function restartAgent(s: MoveCluster): Promise<void> {
  await s.cluster.stopAgent("node-1");
  s.cluster.startAgent("node-1", s.machines[0], { mountRoots: [s.root] });
}

Deno.test("a held volume stays held when its agent starts again, and its use is noticed then", async () => {
  await using s = await MoveCluster.start({ transfers: false });
  const pod = await FakePod.start(s);
  await setHeld(s, true);
  await waitUntil(() => heldStatus(s) === "False", "a volume in use");
  await restartAgent(s);
  const other = await assertRejects(() => pod.publish(`${s.root}/other`), StorageError);
  assertEquals(other.kind, "FailedPrecondition");
  await pod.end();
  await waitUntil(() => heldStatus(s) === "True", "an unused volume");
  await restartAgent(s);
  await assertRejects(() => FakePod.start(s), StorageError, "it is being moved to another node");
  await setHeld(s, null);
  await waitUntil(() => heldStatus(s) === undefined && !s.lv(0)!.tags.has("denolith.held"), "a volume for all");
  await using _pod = await FakePod.start(s);
});

Deno.test("the tag of a volume that is not held any more is removed, when an agent died before it did so", async () => {
  await using s = await MoveCluster.start({ transfers: false });
  s.lv(0)!.tags.add("denolith.held");
  await s.cluster.agent("node-1").node.refresh();
  await waitUntil(() => !s.lv(0)!.tags.has("denolith.held"), "no tag");
  assert(heldStatus(s) === undefined);
});
