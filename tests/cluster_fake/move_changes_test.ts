/**
 * Moves during which something changes what they are about: snapshots and their devices, the hold, the API server's gates.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumes } from "../../k8s/api/objects.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { assertOnOneNode } from "../fake/cluster/move_checks.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";

const SNAPSHOT = { id: snapshotIdOf("s"), name: "s", source: MOVED, cowSize: FULL_COW };

Deno.test("a thick volume of which a snapshot is taken while it is copied is not held before that is deleted", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  let isTaken = false;
  s.startMover(async (_now, send) => {
    if (!isTaken && s.lvmVolumes.some((text) => text.startsWith("copy"))) {
      isTaken = true;
      await s.cluster.snapshots.create(SNAPSHOT);
    }
    return await send();
  });
  s.addMove();
  const message = `waits until snapshots ${SNAPSHOT.id} are deleted`;
  await waitUntil(() => s.move?.status?.message === message, () => JSON.stringify(s.move?.status));
  assert(s.lvmVolumes.includes("volume node-1 Ready"), s.lvmVolumes.join());
  await pod.end();
  await using again = await FakePod.start(s); // it can be used
  await s.write("/pod/later");
  await again.end();
  await s.cluster.snapshots.delete(SNAPSHOT.id);
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2", ["letters", "/pod/later"]);
});

Deno.test("what a pod writes after somebody released the volume, when it is to be removed, is not lost", async () => {
  await using s = await MoveCluster.start();
  let isReleased = false;
  s.startMover(async (_now, send) => {
    if (!isReleased && s.move?.status?.state === "Removing") {
      isReleased = true; // the next write begins the removal
      await s.cluster.client.patch(lvmVolumes, { name: MOVED }, { merge: { spec: { held: null } } });
      await waitUntil(() => !s.lv(0)!.tags.has("denolith.held"), "no tag");
      await using _pod = await FakePod.start(s);
      await s.write("/pod/later");
    }
    return await send();
  });
  s.addMove();
  await s.waitForState("Failed");
  assert(isReleased);
  await assertOnOneNode(s, "node-1", ["letters", "/pod/later"]);
});

Deno.test("a PersistentVolume whose affinity cannot be changed any more is made again", async () => {
  await using s = await MoveCluster.start({ mutableAffinity: true });
  const { uid } = s.persistentVolume!.metadata;
  s.startMover(async (_now, send) => {
    if (s.move?.status?.affinityMethod === "Patch") s.cluster.api.collection(persistentVolumes).makeMutable(false);
    return await send();
  });
  s.addMove();
  const { status } = await s.waitForState("Complete");
  assertEquals([status?.affinityMethod, s.persistentVolume!.metadata.uid === uid], ["Recreate", false]);
  await assertOnOneNode(s, "node-2");
});

Deno.test("a comparison that cannot be made for a moment does not have all of the volume sent while it is held", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  let [reads, failures] = [0, 0];
  s.machines[0].fault = ({ program, args }) => {
    if (program === "dd" && args.includes("iflag=direct,fullblock") && args.includes("bs=4194304")) reads++;
    const isOfStore = program === "dmsetup" && args.some((arg) => arg.endsWith("-cow"));
    return isOfStore && failures++ < 2 ? { code: 0, stdout: "", stderr: "" } : undefined;
  };
  s.startMover();
  s.addMove();
  await waitUntil(() => s.lvmVolumes.includes("volume node-1 Ready held"), () => JSON.stringify(s.move?.status));
  await s.write("/pod/later");
  await pod.end();
  const { status } = await s.waitForState("Complete");
  assertEquals([reads, failures > 2], [1, true]);
  assertEquals(status?.stages?.[1]?.received, "64Ki");
  await assertOnOneNode(s, "node-2", ["letters", "/pod/later"]);
});
