/**
 * Group snapshots of a cluster, from the controller's call to the LVs and back: real client, informers and loops, over a fake
 * API server and fake machines.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import { lvmSnapshotsForGroup } from "../../k8s/api/snapshot_mapping.ts";
import { StorageError } from "../../base/error.ts";
import { groupSnapshotIdOf, memberSnapshotIdOf, type VolumeId, volumeIdOf } from "../../base/ids.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { namedRequest } from "../fake/request.ts";
import { NODE, startSnapshotCluster } from "../fake/cluster/snapshot_cluster.ts";
import { assertFailsWith, MiB } from "../fake/cluster/volume_cluster.ts";

const ID = groupSnapshotIdOf("group");

const requestOf = (sources: readonly VolumeId[]) => ({ id: ID, name: "group", sources, cowSize: { bytes: 8n * MiB } });

/** Starts a cluster of one node with two volumes. */
async function harness(options?: { free?: bigint }) {
  const s = await startSnapshotCluster(options);
  const { id } = await s.cluster.volumes.create(namedRequest("pvc-2", 32n * MiB), { preferred: [] });
  const sources = [s.source, id];
  return { ...s, sources, group: requestOf(sources) };
}

Deno.test("a group snapshot is taken on the node of its volumes, and each of its objects names all of them", async () => {
  await using s = await harness();
  const group = await s.cluster.groupSnapshots.create(s.group);
  const ids = s.sources.map((source) => memberSnapshotIdOf(ID, source)).sort();
  assertEquals(group.snapshots.map(({ id, ready, nodeId, groupSnapshot }) => [id, ready, nodeId, groupSnapshot]), [
    [ids[0], true, NODE, ID],
    [ids[1], true, NODE, ID],
  ]);
  for (const { spec, status } of s.objects()) {
    assertEquals(spec.groupSnapshot, { name: ID, sourceVolumes: s.sources });
    assertEquals([spec.requestName, status?.state], ["group", "Ready"]);
  }
  assertMatch(
    await s.waitForEvent("Created"),
    /^took snapshot data\/snap-\w+ of volume v1-\w+, with group snapshot v1-/,
  );
  assertEquals(await s.cluster.groupSnapshots.create(s.group), group);
  assertEquals(await s.cluster.groupSnapshots.get(ID, []), group);
  await assertFailsWith("InvalidArgument", s.cluster.groupSnapshots.get(ID, [ids[0]!]), ids[1]);
  await assertFailsWith("InvalidArgument", s.cluster.snapshots.delete(ids[0]!), ID);
  await s.cluster.groupSnapshots.delete(ID, ids);
  await s.cluster.groupSnapshots.delete(ID, ids);
  assertEquals(await s.remaining(), [0, "vol vol"]);
  await assertFailsWith("NotFound", s.cluster.groupSnapshots.get(ID, ids));
});

Deno.test("volumes of several nodes are refused by name, and nothing is written", async () => {
  const machines = { a: new FakeMachine(), b: new FakeMachine() };
  for (const machine of Object.values(machines)) machine.addGroup("data", 1n << 30n);
  await using cluster = await FakeCluster.start(machines);
  const sources: VolumeId[] = [];
  for (const node of ["a", "b"]) {
    const { id } = await cluster.volumes.create(namedRequest(node, 32n * MiB), { allowed: [node], preferred: [] });
    sources.push(id);
  }
  await assertFailsWith(
    "FailedPrecondition",
    cluster.groupSnapshots.create(requestOf(sources)),
    `volume ${sources[0]} is on node a, and volume ${sources[1]} on node b`,
  );
  await assertFailsWith("NotFound", cluster.groupSnapshots.create(requestOf([sources[0]!, volumeIdOf("nobody")])));
  assertEquals(cluster.api.objects(lvmSnapshots), []);
});

Deno.test("a node takes no snapshot of a group before the objects of all are there", async () => {
  await using s = await harness();
  const [first, second] = lvmSnapshotsForGroup(s.group, { driver: DRIVER, nodeName: NODE });
  await s.cluster.client.create(lvmSnapshots, first!);
  const { reconciliations } = s.cluster.agent(NODE);
  await waitUntil(() => reconciliations.some(({ key }) => key === first!.metadata.name), "an attempt");
  assertEquals([s.snapshotLvs().length, s.objects()[0]!.status], [0, undefined]);
  await s.cluster.client.create(lvmSnapshots, second!);
  await waitUntil(() => s.objects().every(({ status }) => status?.state === "Ready"), "both");
  assertEquals(s.snapshotLvs().length, 2);
});

Deno.test("while a group snapshot is taken for one of its snapshots, the others wait for that", async () => {
  await using s = await harness();
  const { machine, reconciliations } = s.cluster.agent(NODE);
  const create = machine.groupSnapshots.create.bind(machine.groupSnapshots);
  const members = s.sources.map((source) => memberSnapshotIdOf(ID, source) as string);
  const attempts = () => reconciliations.filter(({ key }) => members.includes(key));
  machine.groupSnapshots.create = async (request) => {
    for (const name of members) {
      await s.cluster.client.patch(lvmSnapshots, { name }, { merge: { metadata: { labels: { a: "b" } } } });
    }
    await waitUntil(() => attempts().length > 0, "an attempt for another snapshot");
    return await create(request);
  };
  await s.cluster.groupSnapshots.create(s.group);
  assertEquals(attempts().filter(({ error }) => error !== undefined), []);
});

Deno.test("a group snapshot that cannot be taken leaves nothing, and one of the name can be taken later", async () => {
  await using s = await harness({ free: 100n * MiB });
  await assertFailsWith("NoSpace", s.cluster.groupSnapshots.create({ ...s.group, cowSize: { bytes: 32n * MiB } }));
  assertEquals(await s.remaining(), [0, "vol vol"]);
  await s.cluster.groupSnapshots.create(s.group);
  assertEquals(s.snapshotLvs().length, 2);
});

Deno.test("volumes that were suspended for too long are not suspended again before the caller asks", async () => {
  await using s = await harness();
  const { machine } = s.cluster.agent(NODE);
  const create = machine.groupSnapshots.create.bind(machine.groupSnapshots);
  let attempts = 0;
  machine.groupSnapshots.create = (request) => {
    attempts++;
    return attempts > 1 ? create(request) : Promise.reject(new StorageError("StillRunning", "suspended for too long"));
  };
  await assertFailsWith("StillRunning", s.cluster.groupSnapshots.create(s.group), "suspended for too long");
  assertEquals([attempts, ...await s.remaining()], [1, 0, "vol vol"]);
  await s.cluster.groupSnapshots.create(s.group);
  assertEquals(attempts, 2);
});

Deno.test("a name that a group snapshot of other volumes has is refused, and nothing changes", async () => {
  await using s = await harness();
  const group = await s.cluster.groupSnapshots.create(s.group);
  await assertFailsWith("AlreadyExists", s.cluster.groupSnapshots.create(requestOf([s.source])), s.sources[1]!);
  assertEquals(await s.cluster.groupSnapshots.get(ID, []), group);
});

Deno.test("a snapshot of a group that lost its LV is not taken again", async () => {
  await using s = await harness();
  await s.cluster.groupSnapshots.create(s.group);
  for (const { metadata: { name } } of s.cluster.snapshotObjects.list()) await s.cluster.waitUntilIdle(NODE, name);
  const { lvs } = s.machine.groups[0]!;
  lvs.splice(lvs.findIndex(({ origin }) => origin !== undefined), 1);
  await s.cluster.agent(NODE).node.refresh();
  await waitUntil(() => s.cluster.snapshotObjects.list().some(({ status }) => status?.state === "Lost"), "the loss");
  await assertFailsWith("Lost", s.cluster.groupSnapshots.create(s.group));
  const { snapshots } = await s.cluster.groupSnapshots.get(ID, []);
  assertEquals(snapshots.map(({ ready }) => ready).sort(), [false, true]);
  assertEquals(s.snapshotLvs().length, 1);
  await s.cluster.groupSnapshots.delete(ID, []);
  assertEquals(await s.remaining(), [0, "vol vol"]);
});

Deno.test("an LVMSnapshot that does not belong to its group says so", async () => {
  await using s = await harness();
  const [object] = lvmSnapshotsForGroup(s.group, { driver: DRIVER, nodeName: NODE });
  const groupSnapshot = { name: groupSnapshotIdOf("other"), sourceVolumes: s.sources };
  await s.cluster.client.create(lvmSnapshots, { ...object!, spec: { ...object!.spec, groupSnapshot } });
  await waitUntil(() => s.objects()[0]?.status?.error !== undefined, "an error");
  assertEquals(s.objects()[0]!.status!.error!.code, "InvalidArgument");
  assert(s.snapshotLvs().length === 0);
});
