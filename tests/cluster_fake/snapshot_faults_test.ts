/**
 * Snapshots of a cluster with faults: lost LVs, COW space that becomes full, agents that crash, writes that fail.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmNodes, lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import { lvmSnapshotFor } from "../../k8s/api/snapshot_mapping.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { snapshotLock } from "../../base/locks.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { newUuid } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";
import { conditionsOf, NODE, startSnapshotCluster } from "../fake/cluster/snapshot_cluster.ts";
import { assertFailsWith, MiB } from "../fake/cluster/volume_cluster.ts";

Deno.test("a snapshot whose LV an administrator removed is Lost, is not created again, and can be deleted", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  await s.cluster.waitUntilIdle(NODE, id);
  s.machine.groups[0]!.lvs.pop();
  const lost = await s.refreshUntil((object) => object?.status?.state === "Lost");
  assertEquals([lost.status!.readyToUse, conditionsOf(lost)], [false, [
    "Healthy True PhysicalVolumesPresent",
    "Ready False Lost",
  ]]);
  assertMatch(await s.waitForEvent("Lost"), /^Lost: snapshot v1-.* \(vgcfgrestore\)/);
  await assertFailsWith("Lost", s.cluster.snapshots.get(id));
  await assertFailsWith("Lost", s.cluster.snapshots.create(s.request()));
  assertEquals((await s.cluster.snapshots.list()).map(({ ready }) => ready), [false]);
  assertEquals(s.snapshotLvs(), []);
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("an LV that was lost and is back is Ready again", async () => {
  await using s = await startSnapshotCluster();
  const before = await s.cluster.snapshots.create(s.request());
  await s.cluster.waitUntilIdle(NODE, before.id);
  const [lv] = s.machine.groups[0]!.lvs.splice(1);
  await s.refreshUntil((object) => object?.status?.state === "Lost");
  s.machine.groups[0]!.lvs.push(lv!);
  const back = await s.refreshUntil((object) => object?.status?.state === "Ready");
  assertEquals(back.status!.error, undefined);
  assertEquals(await s.cluster.snapshots.get(before.id), before);
});

Deno.test("an LV that has taken the place of the snapshot is not it, and is not removed for it", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  s.snapshotLvs()[0]!.uuid = newUuid();
  const lost = await s.refreshUntil((object) => object?.status?.state === "Lost");
  assertMatch(lost.status!.error!.message, /has taken its place/);
  await assertFailsWith("Lost", s.cluster.snapshots.delete(id), "has taken its place");
  assertEquals(s.snapshotLvs().length, 1);
});

Deno.test("COW space that was split from its volume is no snapshot any more, and is removed with its object", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  delete s.snapshotLvs()[0]!.origin;
  const lost = await s.refreshUntil((object) => object?.status?.state === "Lost");
  assertMatch(lost.status!.error!.message, /--splitsnapshot/);
  await assertFailsWith("Lost", s.cluster.snapshots.create(s.request()));
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a report that is older than the snapshot does not make it Lost", async () => {
  await using s = await startSnapshotCluster();
  const before = await s.cluster.agent(NODE).machine.lvm.report();
  await s.cluster.snapshots.create(s.request());
  await s.cluster.agent(NODE).snapshots.verify(before);
  assertEquals(s.objects()[0]!.status!.state, "Ready");
  assertEquals(s.cluster.api.objects(events).filter(({ reason }) => reason === "Lost"), []);
});

Deno.test("COW space that is near full is extended before it overflows, with an event", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  await (await s.holdLock(snapshotLock(id), id))(); // when it is done with the snapshot
  s.snapshotLvs()[0]!.cowPercent = 71;
  const grown = await s.refreshUntil((object) => object?.status?.size === "12Mi");
  assertEquals([grown.status!.readyToUse, grown.status!.cowPercent], [true, 48]);
  assertMatch(await s.waitForEvent("SnapshotExtended"), /snap-.* was 71 % full, and was extended from 8 MiB to 12 MiB/);
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("COW space that cannot be extended is reported; a snapshot whose COW space overflowed is unusable, and can be deleted", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  const [store] = s.snapshotLvs();
  s.machine.groups[0]!.size = 40n << 20n; // no free space is left
  store!.cowPercent = 79.2;
  const full = await s.refreshUntil((object) => object?.status?.cowPercent === 80);
  assertEquals(
    [full.status!.state, conditionsOf(full)[0]],
    ["Ready", "Healthy True PhysicalVolumesPresent"],
    "not yet",
  );
  store!.cowPercent = 80;
  const filling = await s.refreshUntil((object) => conditionsOf(object!)[0] === "Healthy False SnapshotCannotExtend");
  assertEquals([filling.status!.state, filling.status!.readyToUse], ["Ready", true]);
  assertMatch(
    await s.waitForEvent("SnapshotCannotExtend"),
    /is 79 % full and cannot be extended: volume group data has 0 B free/,
  );

  store!.invalid = true;
  const over = await s.refreshUntil((object) => object?.status?.state === "Overflowed");
  assertEquals([over.status!.readyToUse, over.status!.cowPercent], [false, 100]);
  assertEquals(conditionsOf(over), ["Healthy False Overflowed", "Ready False Overflowed"]);
  assertMatch(await s.waitForEvent("Overflowed"), /overflowed/);
  assertEquals((await s.cluster.snapshots.create(s.request())).ready, false);
  await s.refreshUntil(() => true);
  assertEquals(s.cluster.api.objects(events).find(({ reason }) => reason === "Overflowed")!.count, 1, "reported once");
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("an LV that is there already is the object's when it is of its volume, and otherwise stays when the object goes", async () => {
  await using s = await startSnapshotCluster();
  const { snapshots } = s.cluster.agent(NODE).machine;
  await snapshots.create(s.request());
  assert((await s.cluster.snapshots.create(s.request())).ready);
  assertEquals(s.snapshotLvs().length, 1);

  const { id: source } = await s.cluster.volumes.create(namedRequest("pvc-2", 32n * MiB), { preferred: [] });
  await snapshots.create(s.request("others"));
  await assertFailsWith("AlreadyExists", s.cluster.snapshots.create(s.request("others", { source })), s.source);
  assertEquals([s.objects().length, s.snapshotLvs().length], [1, 2]);
});

Deno.test("COW space that did not become a snapshot, because an agent crashed, is created again", async () => {
  await using s = await startSnapshotCluster();
  await s.cluster.agent(NODE).machine.snapshots.create(s.request());
  delete s.snapshotLvs()[0]!.origin;
  assert((await s.cluster.snapshots.create(s.request())).ready);
  await s.cluster.agent(NODE).machine.background.idle();
  assertEquals(s.machine.allLvs().length, 2);
});

Deno.test("an agent that crashes between creating a snapshot and reporting it finds the snapshot, and creates it once", async () => {
  await using s = await startSnapshotCluster();
  s.machine.fault = ({ args }) => {
    // from the lvcreate on, the API server refuses what the agent wants to write
    if (args[0] === "lvcreate") s.cluster.api.faults.refuse = { status: 500, times: 3 };
    return undefined;
  };
  await s.cluster.snapshots.create(s.request());
  assertEquals([s.snapshotLvs().length, s.objects()[0]!.status!.lvUUID], [1, s.snapshotLvs()[0]!.uuid]);
});

Deno.test("a failed write is repeated, whether the API server had done it or not", async () => {
  await using s = await startSnapshotCluster();
  s.cluster.api.faults.refuse = { status: 500, times: 100 };
  await assertFailsWith("Unavailable", s.cluster.snapshots.create(s.request()));
  s.cluster.api.faults.refuse.times = 0;
  s.cluster.api.faults.conflicts = 2; // to the agent's writes
  const { id } = await s.cluster.snapshots.create(s.request());
  s.cluster.api.faults.refuse.times = 100;
  await assertFailsWith("Unavailable", s.cluster.snapshots.delete(id));
  s.cluster.api.faults.refuse.times = 0;
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a node without an agent: no object is created for it, pending snapshots can be deleted, and created ones wait for its agent", async () => {
  await using s = await startSnapshotCluster();
  const taken = await s.cluster.snapshots.create(s.request("taken"));
  await s.cluster.stopAgent(NODE);
  await s.cluster.client.create(lvmSnapshots, lvmSnapshotFor(s.request(), { driver: DRIVER, nodeName: NODE }));
  await s.cluster.snapshotObjects.waitFor(snapshotIdOf("cut"), (object) => object !== undefined);
  await s.cluster.client.delete(lvmNodes, { name: NODE });
  await s.cluster.nodes.waitFor(NODE, (node) => node === undefined);
  for (const name of ["cut", "later"]) {
    await assertFailsWith("Unavailable", s.cluster.snapshots.create(s.request(name)), "no LVMNode node-1");
  }
  await assertFailsWith("Unavailable", s.cluster.snapshots.delete(taken.id), "no LVMNode node-1");
  await s.cluster.snapshots.delete(snapshotIdOf("cut"));
  assertEquals(s.objects().map(({ metadata }) => metadata.name), [taken.id]);
  s.cluster.startAgent(NODE, s.machine);
  await s.cluster.snapshotObjects.waitFor(taken.id, (object) => object === undefined, { timeoutMs: 5_000 });
  await s.cluster.nodes.waitFor(NODE, (node) => node !== undefined, { timeoutMs: 5_000 });
  assert((await s.cluster.snapshots.create(s.request("later"))).ready);
});

Deno.test("a new controller has the state of the one before", async () => {
  await using s = await startSnapshotCluster();
  const snapshot = await s.cluster.snapshots.create(s.request());
  await s.cluster.restartController();
  assertEquals(await s.cluster.snapshots.list(), [snapshot]);
  assertEquals(await s.cluster.snapshots.create(s.request()), snapshot);
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source));
  await s.cluster.snapshots.delete(snapshot.id);
  await s.cluster.volumes.delete(s.source);
  assertEquals(await s.remaining(), [0, ""]);
});
