/**
 * Snapshots of a cluster, from the controller's call to the LV and back: real client, informers and loops, over a fake API
 * server and fake machines.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { type LvmSnapshot, lvmSnapshots, lvmVolumes, REMOVE_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import { lvmSnapshotFor } from "../../k8s/api/snapshot_mapping.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { snapshotLock, volumeLock } from "../../base/locks.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { namedRequest } from "../fake/request.ts";
import { conditionsOf, NODE, startSnapshotCluster } from "../fake/cluster/snapshot_cluster.ts";
import { assertFailsWith, MiB } from "../fake/cluster/volume_cluster.ts";

Deno.test("a snapshot is taken on the node of its volume, is described by its object, and is deleted completely", async () => {
  await using s = await startSnapshotCluster();
  const snapshot = await s.cluster.snapshots.create(s.request());
  assertEquals([snapshot.id, snapshot.source, snapshot.size, snapshot.ready], [
    snapshotIdOf("cut"),
    s.source,
    32n * MiB,
    true,
  ]);
  const [store] = s.snapshotLvs();
  assertEquals(snapshot.createdAt, store!.createdAt);
  const [object] = s.objects();
  assertEquals(object!.spec, {
    driverName: DRIVER,
    requestName: "cut",
    nodeName: NODE,
    sourceVolume: s.source,
    cowSize: "8Mi",
  });
  const { conditions: _, ...status } = object!.status!;
  assertEquals(status, {
    state: "Ready",
    observedGeneration: 1,
    volumeGroup: "data",
    volumeGroupUUID: s.machine.groups[0]!.uuid,
    lvName: store!.name,
    lvUUID: store!.uuid,
    size: "8Mi",
    restoreSize: "32Mi",
    creationTime: new Date(store!.createdAt * 1000).toISOString().replace(".000Z", "Z"),
    readyToUse: true,
    cowPercent: 0,
  });
  assertEquals(conditionsOf(object!), ["Healthy True PhysicalVolumesPresent", "Ready True Created"]);
  await waitUntil(() =>
    s.cluster.api.objects(events).some(({ involvedObject }) => involvedObject.kind === "LVMSnapshot")
  );

  assertEquals(await s.cluster.snapshots.create(s.request()), snapshot, "the same again");
  assertEquals(await s.cluster.snapshots.get(snapshot.id), snapshot);
  const other = await s.cluster.snapshots.create(s.request("other"));
  assertEquals(await s.cluster.snapshots.list(), [snapshot, other].sort((a, b) => a.id < b.id ? -1 : 1));
  for (const { id } of [snapshot, other, other]) await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
  await assertFailsWith("NotFound", s.cluster.snapshots.get(snapshot.id));
});

Deno.test("no warning is recorded for a snapshot that becomes healthy", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  const { events: recorder, snapshotObjects } = s.cluster.agent(NODE);
  const warnings: string[] = [];
  recorder.record = (_object, type, reason) => void (type === "Warning" && warnings.push(reason));
  const merge = { status: { conditions: [] } };
  await s.cluster.client.patch(lvmSnapshots, { name: id }, { merge, subresource: "status" });
  await snapshotObjects.waitFor(id, (object) => object?.status?.conditions?.length === 0, { timeoutMs: 5_000 });
  await s.refreshUntil((object) => object?.status?.conditions?.length === 2);
  assertEquals(warnings, []);
});

Deno.test("taking a snapshot takes one request of the controller's and three of the node's, three commands and a flush", async () => {
  await using s = await startSnapshotCluster();
  const commands: string[] = [];
  s.machine.fault = ({ program, args }) => {
    if (!args.includes("--foreign")) commands.push(`${program} ${args[0]}`); // except the report of all groups
    return undefined;
  };
  const before = s.cluster.api.requests.length;
  const { id } = await s.cluster.snapshots.create(s.request());
  const requests = s.cluster.api.requests.slice(before).map(({ method, path }) => `${method} ${path}`)
    .filter((line) => line.includes("lvmsnapshots"));
  assertEquals(requests.map((line) => line.replace(/\/apis.*(?=lvmsnap)/, "").replace(id, "ID")), [
    "POST lvmsnapshots",
    "PATCH lvmsnapshots/ID/status",
    "PATCH lvmsnapshots/ID",
    "PATCH lvmsnapshots/ID/status",
  ]);
  assertEquals(commands.slice(0, 4), ["lvm fullreport", "lvm lvcreate", "sync /dev/vdb", "lvm fullreport"]);
});

Deno.test("a name that a snapshot of another volume has is refused, and nothing changes", async () => {
  await using s = await startSnapshotCluster();
  const snapshot = await s.cluster.snapshots.create(s.request());
  const { id: source } = await s.cluster.volumes.create(namedRequest("pvc-2", 32n * MiB), { preferred: [] });
  await assertFailsWith("AlreadyExists", s.cluster.snapshots.create(s.request("cut", { source })), s.source);
  assertEquals(await s.cluster.snapshots.list(), [snapshot]);
});

Deno.test("without its volume a snapshot is not taken, and nothing is written", async () => {
  await using s = await startSnapshotCluster();
  const source = volumeIdOf("nobody");
  await assertFailsWith("NotFound", s.cluster.snapshots.create(s.request("cut", { source })));
  s.machine.groups[0]!.lvs.length = 0;
  await s.cluster.agent(NODE).node.refresh();
  await s.cluster.objects.waitFor(s.source, (object) => object?.status?.state === "Lost", { timeoutMs: 5_000 });
  await assertFailsWith("Lost", s.cluster.snapshots.create(s.request()));
  assertEquals(s.objects(), []);
});

Deno.test("a snapshot that cannot be taken leaves nothing, and a smaller one of the name can", async () => {
  await using s = await startSnapshotCluster({ free: 64n * MiB });
  const large = s.request("cut", { cowSize: { bytes: 40n * MiB } });
  await assertFailsWith(
    "NoSpace",
    s.cluster.snapshots.create(large),
    "volume group data has 32 MiB free; a smaller snapSize may do",
  );
  assertEquals(await s.remaining(), [0, "vol"]);
  await s.waitForEvent("Failed");
  assert((await s.cluster.snapshots.create(s.request())).ready);
});

Deno.test("a volume with snapshots is not deleted, is as it was, and its snapshots are named", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source), `${id} (${s.snapshotLvs()[0]!.name})`);
  const [volume] = s.cluster.api.objects(lvmVolumes);
  assertEquals([volume!.metadata.deletionTimestamp, volume!.metadata.annotations?.[REMOVE_ANNOTATION]], [
    undefined,
    undefined,
  ]);
  assert((await s.cluster.snapshots.create(s.request("another"))).ready, "it can be used on");
  for (const name of ["cut", "another"]) await s.cluster.snapshots.delete(snapshotIdOf(name));
  await s.cluster.volumes.delete(s.source);
  assertEquals(await s.remaining(), [0, ""]);
});

Deno.test("a snapshot that is not taken yet keeps its volume; one that failed, and one that is Lost, do not", async () => {
  await using s = await startSnapshotCluster();
  await s.cluster.stopAgent(NODE);
  await s.cluster.restartController({ waitMs: 50 });
  await assertFailsWith("Unavailable", s.cluster.snapshots.create(s.request()), "has not answered within 0.05 s");
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source), "not taken yet");
  const setStatus = async (status: LvmSnapshot["status"] & object) => {
    await s.cluster.client.patch(lvmSnapshots, { name: snapshotIdOf("cut") }, {
      merge: { status },
      subresource: "status",
    });
    await s.cluster.snapshotObjects.waitFor(snapshotIdOf("cut"), (object) => object?.status?.state === status.state);
  };
  await setStatus({ state: "Pending" });
  const begun = "has begun, and not ended within 0.05 s; see its log. The operation continues";
  await assertFailsWith("Unavailable", s.cluster.snapshots.create(s.request()), begun);
  for (const status of [{ state: "Failed" }, { state: "Lost", lvUUID: "was" }] as const) {
    await setStatus(status);
    await assertFailsWith("Unavailable", s.cluster.volumes.delete(s.source)); // it gets as far as to ask the node
  }
});

Deno.test("a node does not remove a volume that has snapshots, and does when they are gone", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  const merge = { metadata: { annotations: { [REMOVE_ANNOTATION]: "true" } } };
  await s.cluster.client.patch(lvmVolumes, { name: s.source }, { merge });
  await s.cluster.client.delete(lvmVolumes, { name: s.source });
  const kept = await s.cluster.objects.waitFor(s.source, (object) => object?.status?.error !== undefined, {
    timeoutMs: 5_000,
  });
  assertEquals(kept!.status!.error!.code, "InUse");
  assertMatch(kept!.status!.error!.message, /it is the origin of the snapshots snap-/);
  assertEquals(s.machine.allLvs().length, 2);
  await s.cluster.snapshots.delete(id);
  await s.cluster.objects.waitFor(s.source, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(await s.remaining(), [0, ""]);
});

Deno.test("deleting only the object does not delete the data, nor does a repeated request; the driver's deletion does", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  await s.cluster.client.delete(lvmSnapshots, { name: id });
  const kept = await s.cluster.snapshotObjects.waitFor(id, (object) => object?.status?.error !== undefined, {
    timeoutMs: 5_000,
  });
  assertMatch(kept!.status!.error!.message, /its data stay\. To remove them, delete its VolumeSnapshot/);
  await assertFailsWith("FailedPrecondition", s.cluster.snapshots.create(s.request()), "not by the driver");
  await assertFailsWith("NotFound", s.cluster.snapshots.get(id));
  assertEquals([s.snapshotLvs().length, await s.cluster.snapshots.list()], [1, []]);
  await s.cluster.snapshots.delete(id).catch(() => {}); // may fail with the node's last error
  await s.cluster.snapshotObjects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a snapshot in use is not deleted: the node says why, and removes it when it is free", async () => {
  await using s = await startSnapshotCluster();
  const { id } = await s.cluster.snapshots.create(s.request());
  const [lv] = s.snapshotLvs();
  const mount = { target: "/mnt/look", source: "/dev/mapper/x", fsType: "ext4", root: "/", readOnly: true };
  s.machine.mounts.push({ ...mount, deviceNumber: `253:${lv!.minor}`, lv: lv! });
  await assertFailsWith("InUse", s.cluster.snapshots.delete(id), "unmount it first");
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source));
  s.machine.mounts.pop();
  await s.cluster.snapshotObjects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a snapshot of another driver does not exist for this one, and is left alone", async () => {
  await using s = await startSnapshotCluster();
  const object = lvmSnapshotFor(s.request(), { driver: "other.denolith.dev", nodeName: NODE });
  await s.cluster.client.create(lvmSnapshots, object);
  const id = snapshotIdOf("cut");
  await s.cluster.snapshotObjects.waitFor(id, (object) => object !== undefined);
  await s.cluster.snapshots.delete(id);
  for (const call of [s.cluster.snapshots.get(id), s.cluster.snapshots.create(s.request())]) {
    await assertFailsWith("NotFound", call);
  }
  assertEquals([await s.cluster.snapshots.list(), s.snapshotLvs(), s.objects().length], [[], [], 1]);
  assertEquals([s.objects()[0]!.status, s.objects()[0]!.metadata.deletionTimestamp], [undefined, undefined]);
  await s.cluster.volumes.delete(s.source);
});

Deno.test("a snapshot waits while its volume is expanded or deleted, and its deletion while it is in use otherwise", async () => {
  await using s = await startSnapshotCluster();
  const unlockVolume = await s.holdLock(volumeLock(s.source), s.source);
  const taken = s.cluster.snapshots.create(s.request());
  await s.waitUntilBusy(snapshotIdOf("cut"));
  assertEquals(s.snapshotLvs(), []);
  await unlockVolume();
  const { id } = await taken;
  const unlockSnapshot = await s.holdLock(snapshotLock(id), id);
  const deletion = s.cluster.snapshots.delete(id);
  await s.waitUntilBusy(id);
  assertEquals(s.snapshotLvs().length, 1);
  await unlockSnapshot();
  await deletion;
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("an object that somebody else wrote fails with the reason if it is invalid or cannot be satisfied", async () => {
  await using s = await startSnapshotCluster();
  const cases: [string, Partial<LvmSnapshot["spec"]>, string, RegExp][] = [
    ["empty", { cowSize: "0" }, "InvalidArgument", /its cowSize "0" is not valid/],
    ["source", { sourceVolume: "pvc-1" }, "InvalidArgument", /its sourceVolume "pvc-1" is no volume id/],
    ["nobody", { sourceVolume: volumeIdOf("nobody") }, "NotFound", /no logical volume of this node carries its tag/],
  ];
  for (const [name, wrong, code, words] of cases) {
    const object = lvmSnapshotFor(s.request(name), { driver: DRIVER, nodeName: NODE });
    await s.cluster.client.create(lvmSnapshots, { ...object, spec: { ...object.spec, ...wrong } });
    const failed = await s.cluster.snapshotObjects.waitFor(
      object.metadata.name,
      (now) => now?.status?.state === "Failed",
      { timeoutMs: 5_000 },
    );
    assertEquals(failed!.status!.error!.code, code);
    assertMatch(failed!.status!.error!.message, words);
    await s.cluster.snapshots.delete(snapshotIdOf(name));
  }
  const { cowSize: _, ...spec } = lvmSnapshotFor(s.request(), { driver: DRIVER, nodeName: NODE }).spec;
  await s.cluster.client.create(lvmSnapshots, { metadata: { name: snapshotIdOf("cut") }, spec });
  assert((await s.cluster.snapshots.create(s.request())).ready, "without a size there is space for all changes");
  assertEquals(s.snapshotLvs()[0]!.size, 36n * MiB);
  await s.cluster.snapshots.delete(snapshotIdOf("cut"));
  assertEquals(await s.remaining(), [0, "vol"], "also without a finalizer");
});
