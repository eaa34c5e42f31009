/**
 * LVs without objects on the nodes of a cluster: reported, kept, and removed after a confirmation when everything else
 * agrees.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { type LvmNode, lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import { NONE_KNOWN, REMOVE_ORPHANS_ANNOTATION } from "../../k8s/agent/orphans.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { type FakeLv, FakeMachine, newUuid } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";

const MINUTE = 60_000;
const SIZE = 32n << 20n;
const ANYWHERE = { preferred: [] };

/** Starts a node with a volume that has its object, and one whose object was removed. */
async function setUp() {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const cluster = await FakeCluster.start({ n1: machine });
  await cluster.volumes.create(namedRequest("wanted", SIZE), ANYWHERE);
  const { id } = await cluster.volumes.create(namedRequest("orphan", SIZE), ANYWHERE);
  await forceDeleteObject(cluster, id);
  const lv = machine.allLvs().map(({ lv }) => lv).find(({ tags }) => tags.has(`denolith.volume=${id}`))!;
  const agent = () => cluster.agent("n1");
  return {
    machine,
    cluster,
    id,
    lv,
    /** Has the agent read its node again, after some time. */
    async refresh(ms = MINUTE) {
      await Promise.all([agent().objects.synced, agent().snapshotObjects.synced]);
      await agent().clock.advance(ms);
      await agent().node.refresh();
    },
    /** Sets the annotation of the LVMNode that names the orphans to remove. */
    async annotate(value: string) {
      const merge = { metadata: { annotations: { [REMOVE_ORPHANS_ANNOTATION]: value } } };
      await cluster.client.patch(lvmNodes, { name: "n1" }, { merge });
    },
    condition: () => lvmNode(cluster).status?.conditions?.find(({ type }) => type === "Orphans"),
    async waitForEvent(reason: string): Promise<string> {
      await waitUntil(() => eventMessages(cluster, reason).length > 0, `an event ${reason}`);
      return eventMessages(cluster, reason).at(-1)!;
    },
    names: () => machine.allLvs().map(({ lv }) => lv.name).sort(),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

function lvmNode(cluster: FakeCluster): LvmNode {
  return cluster.api.objects(lvmNodes)[0]!;
}

function eventMessages(cluster: FakeCluster, reason: string): string[] {
  return cluster.api.objects(events).filter((event) => event.reason === reason).map(({ message }) => message ?? "");
}

/** Removes an object by force, so that its LV stays. */
async function forceDeleteObject(cluster: FakeCluster, id: string): Promise<void> {
  const { client, objects } = cluster;
  await client.patch(lvmVolumes, { name: id }, { merge: { metadata: { finalizers: null } } });
  await client.delete(lvmVolumes, { name: id });
  for (const copy of [objects, cluster.agent("n1").objects]) {
    await copy.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  }
}

Deno.test("an LV without an object is reported as an orphan after a minute: by a condition, one event, and a metric", async () => {
  await using s = await setUp();
  await s.refresh(0);
  assertEquals([s.condition()?.status, s.cluster.agent("n1").orphans.orphans], ["False", []]);
  await s.refresh(MINUTE - 1);
  assertEquals(s.condition()?.status, "False");
  await s.refresh(1);
  assertEquals(s.condition()?.status, "True");
  assert(s.condition()!.message.includes(`data/${s.lv.name} (32 MiB), UUID ${s.lv.uuid}`), s.condition()!.message);
  const since = s.condition()!.lastTransitionTime;
  const message = await s.waitForEvent("OrphanFound");
  assert(message.includes(`remove-orphans=${s.lv.uuid}`), message);
  const repeatedReasons: string[] = [];
  s.cluster.agent("n1").events.record = (_object, _type, reason) => void repeatedReasons.push(reason);
  await s.refresh();
  assertEquals(repeatedReasons, []);
  assertEquals(s.cluster.agent("n1").orphans.orphans.map(({ uuid }) => uuid), [s.lv.uuid]);

  await s.cluster.stopAgent("n1");
  s.cluster.startAgent("n1", s.machine);
  for (const ms of [0, MINUTE]) {
    await s.refresh(ms);
    assertEquals([s.condition()?.status, s.condition()?.lastTransitionTime], ["True", since]);
  }
  assertEquals(s.cluster.agent("n1").orphans.orphans.length, 1);
  assertEquals(s.names().length, 2, "it is kept");
});

Deno.test("volumes are never orphans from creation to erasure", async () => {
  await using s = await setUp();
  await recreateObject(s.cluster, s.id);
  await s.refresh(0);
  const { id } = await s.cluster.volumes.create(namedRequest("short", SIZE), ANYWHERE);
  const used = s.machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${id}`))!;
  used.group.tags.add(`denolith.used=lvm.denolith.dev:${id}:${used.lv.uuid}`);
  await s.refresh();
  const { promise: erased, resolve: finish } = Promise.withResolvers<void>();
  s.machine.fault = async ({ program }) => {
    if (program === "blkdiscard") await erased;
    return undefined;
  };
  try {
    await s.cluster.volumes.delete(id);
    await s.refresh();
    await s.refresh();
    assert(used.lv.tags.has(`denolith.deleted=${id}`));
    assertEquals([s.condition()?.status, eventMessages(s.cluster, "OrphanFound")], ["False", []]);
  } finally {
    finish();
  }
});

/** Creates the object of an LV again. */
async function recreateObject(cluster: FakeCluster, id: string): Promise<void> {
  await cluster.volumes.create(namedRequest("orphan", SIZE), ANYWHERE);
  const isReady = (object?: LvmVolume) => object?.status?.state === "Ready";
  await cluster.agent("n1").objects.waitFor(id, isReady, { timeoutMs: 5_000 });
}

Deno.test("an orphan that the annotation names is removed, and no other", async () => {
  await using s = await setUp();
  await s.annotate(`${newUuid()}, ${s.lv.uuid}`);
  await s.refresh(0);
  assertEquals(s.names().length, 2, "it is not reported as an orphan yet");
  await s.refresh();
  await s.waitForEvent("OrphanRemoved");
  assertEquals(s.names().length, 1);
  await waitUntil(() => s.condition()?.status === "False", "the node reports it soon");
  assertEquals(s.cluster.api.objects(lvmVolumes).map(({ metadata }) => metadata.name), [volumeIdOf("wanted")]);
});

Deno.test("an orphan that was used is erased before it goes", async () => {
  await using s = await setUp();
  const group = s.machine.groups[0]!;
  group.tags.add(`denolith.used=lvm.denolith.dev:${s.id}:${s.lv.uuid}`);
  s.lv.content.data.add("secret");
  await s.annotate(s.lv.uuid);
  await s.refresh(0);
  await s.refresh();
  await s.waitForEvent("OrphanRemoved");
  await s.cluster.agent("n1").machine.background.idle();
  assertEquals([s.names().length, [...group.residualData], [...group.tags]], [1, [], []]);
});

Deno.test("an orphan that is mounted is kept, with the reason, and removed when it is free", async () => {
  await using s = await setUp();
  const mount = { target: "/mnt/x", source: "/dev/mapper/x", fsType: "ext4", root: "/", readOnly: false };
  s.machine.mounts.push({ ...mount, deviceNumber: `253:${s.lv.minor}`, lv: s.lv });
  await s.annotate(s.lv.uuid);
  await s.refresh(0);
  await s.refresh();
  const message = await s.waitForEvent("OrphanRemovalFailed");
  assert(message.includes("is in use"), message);
  assertEquals(s.names().length, 2);
  s.machine.mounts.pop();
  await s.refresh();
  await s.waitForEvent("OrphanRemoved");
  assertEquals(s.names().length, 1);
});

Deno.test("an orphan is kept while the API server does not answer", async () => {
  await using s = await setUp();
  await s.annotate(s.lv.uuid);
  await s.refresh(0);
  const { client } = s.cluster.agent("n1");
  const list = client.list.bind(client);
  client.list = () => Promise.reject(new Error("no answer"));
  await s.refresh();
  assertEquals([s.names().length, eventMessages(s.cluster, "OrphanRemoved")], [2, []]);
  client.list = list;
  await s.refresh();
  await s.waitForEvent("OrphanRemoved");
});

Deno.test("an orphan whose object exists in the API server is kept, even if the agent's watch has not delivered it", async () => {
  await using s = await setUp();
  await s.refresh(0);
  await s.refresh();
  const agent = s.cluster.agent("n1");
  agent.objects.list = () => []; // the copy is behind
  await recreateObject(s.cluster, s.id);
  await s.annotate(s.lv.uuid);
  await s.refresh();
  const message = await s.waitForEvent("OrphanRemovalFailed");
  assert(message.includes("exists now"), message);
  assertEquals(s.names().length, 2);
});

Deno.test("orphans of a node without any objects are only removed after an administrator confirms it", async () => {
  await using s = await setUp();
  await s.refresh(0);
  await forceDeleteObject(s.cluster, volumeIdOf("wanted"));
  await s.annotate(s.lv.uuid);
  await s.refresh();
  const message = await s.waitForEvent("OrphanRemovalFailed");
  assert(message.includes(`remove-orphans=${NONE_KNOWN},${s.lv.uuid}`), message);
  assertEquals(s.names().length, 2);
  await s.annotate(`${NONE_KNOWN},${s.lv.uuid}`);
  await s.refresh();
  await s.waitForEvent("OrphanRemoved");
  assertEquals(s.names().length, 1);
});

Deno.test("an LV whose tags cannot be read is reported and never removed; nor are two with the same volume id", async () => {
  await using s = await setUp();
  const addCopy = (name: string, tags: Iterable<string>): FakeLv => {
    const lv = { ...s.lv, name, uuid: newUuid(), tags: new Set(tags), active: false };
    s.machine.groups[0]!.lvs.push(lv);
    return lv;
  };
  const unreadable = addCopy("odd", ["denolith=lvm.denolith.dev"]);
  const duplicate = addCopy("twin", s.lv.tags);
  await s.annotate([unreadable, duplicate].map(({ uuid }) => uuid).join());
  await s.refresh(0);
  await s.refresh();
  assertEquals(s.cluster.agent("n1").orphans.orphans.length, 3);
  await waitUntil(() => eventMessages(s.cluster, "OrphanRemovalFailed").length === 2, "both are reported");
  assertEquals(
    eventMessages(s.cluster, "OrphanRemovalFailed").map((message) =>
      /cannot be read|both claim to be it/.exec(message)?.[0]
    ).sort(),
    ["both claim to be it", "cannot be read"],
  );
  assertEquals(s.names().length, 4);
});

/** Creates a snapshot of the known volume. Its object is removed unless it is to stay. */
async function createSnapshot(s: Awaited<ReturnType<typeof setUp>>, name: string, { keepObject = false } = {}) {
  const source = volumeIdOf("wanted");
  const { client, snapshotObjects } = s.cluster;
  const { id } = await s.cluster.snapshots.create({ id: snapshotIdOf(name), name, source, cowSize: FULL_COW });
  if (keepObject) return;
  await client.patch(lvmSnapshots, { name: id }, { merge: { metadata: { finalizers: null } } });
  await client.delete(lvmSnapshots, { name: id });
  for (const copy of [snapshotObjects, s.cluster.agent("n1").snapshotObjects]) {
    await copy.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  }
  return s.machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.snapshot=${id}`))!.lv;
}

Deno.test("a snapshot without its object is an orphan as a volume is, and one with its object is none", async () => {
  await using s = await setUp();
  await recreateObject(s.cluster, s.id);
  await createSnapshot(s, "kept", { keepObject: true });
  const { uuid } = (await createSnapshot(s, "cut"))!;
  await s.annotate(uuid);
  await s.refresh(0);
  await s.refresh();
  const message = await s.waitForEvent("OrphanFound");
  assert(message.includes(`has no LVMSnapshot ${snapshotIdOf("cut")} on this node`), message);
  await s.waitForEvent("OrphanRemoved");
  await s.cluster.agent("n1").machine.background.idle();
  assertEquals(s.names().length, 3, "two volumes, and the snapshot that somebody has");
});

Deno.test("snapshots of a node with LVMVolumes and no LVMSnapshot are only removed after an administrator confirms it", async () => {
  await using s = await setUp();
  await recreateObject(s.cluster, s.id);
  const { uuid } = (await createSnapshot(s, "cut"))!;
  await s.annotate(uuid);
  await s.refresh(0);
  await s.refresh();
  const message = await s.waitForEvent("OrphanRemovalFailed");
  assert(message.includes("has no LVMSnapshot of this node") && message.includes(`${NONE_KNOWN},${uuid}`), message);
  assertEquals(s.names().length, 3);
  await s.annotate(`${NONE_KNOWN},${uuid}`);
  await s.refresh();
  await s.waitForEvent("OrphanRemoved");
});
