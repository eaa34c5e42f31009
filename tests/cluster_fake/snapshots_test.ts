/**
 * Snapshots of a cluster, from the controller's call to the LV and back: real client, informers and loops, over a fake API
 * server and fake machines.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { lvmNodes, type LvmSnapshot, lvmSnapshots, lvmVolumes, REMOVE_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import { lvmSnapshotFor, type NamedSnapshotRequest } from "../../k8s/api/snapshot_mapping.ts";
import { type ErrorKind, StorageError } from "../../lvm/error.ts";
import { type SnapshotId, snapshotIdOf, volumeIdOf } from "../../lvm/ids.ts";
import { type LockRequest, snapshotLock, volumeLock } from "../../lvm/locks.ts";
import { DRIVER, FakeCluster } from "../fake/node_cluster.ts";
import { waitUntil } from "../fake/control_plane.ts";
import { type FakeLv, FakeMachine, newUuid } from "../fake/machine.ts";
import { namedRequest } from "../fake/request.ts";

const MiB = 1n << 20n;
const NODE = "node-1";

/** A cluster with a machine, and a volume of 32 MiB on it. */
async function setUp({ free = 1n << 30n } = {}) {
  const machine = new FakeMachine();
  machine.addGroup("data", free);
  const cluster = await FakeCluster.start({ [NODE]: machine });
  const source = (await cluster.volumes.create(namedRequest("pvc-1", 32n * MiB), { preferred: [] })).id;
  return {
    machine,
    cluster,
    source,
    request: (name = "cut", more: Partial<NamedSnapshotRequest> = {}): NamedSnapshotRequest => ({
      id: snapshotIdOf(name),
      name,
      source,
      cowSize: { bytes: 8n * MiB },
      ...more,
    }),
    /** The snapshots' LVs. */
    snapshotLvs: (): FakeLv[] => machine.allLvs().map(({ lv }) => lv).filter(({ origin }) => origin !== undefined),
    objects: (): LvmSnapshot[] => cluster.api.objects(lvmSnapshots),
    /** Has the node look at its groups, and answers the object of the name as soon as it is so. */
    refreshUntil: async (predicate: (object: LvmSnapshot | undefined) => boolean, name = "cut") => {
      await cluster.agent(NODE).node.refresh();
      return (await cluster.snapshotObjects.waitFor(snapshotIdOf(name), predicate, { timeoutMs: 5_000 }))!;
    },
    /** Holds a lock of the agent's as soon as that is done with it, until the answer is called. */
    holdLock: async (lock: LockRequest, id: string) => {
      const { reconciliations, machine: { locks } } = cluster.agent(NODE);
      await waitUntil(
        () => reconciliations.some(({ key, error }) => key === id && error === undefined),
        "the end of a turn",
      );
      const { promise, resolve } = Promise.withResolvers<void>();
      const lockHeld = locks.run("something", [lock], () => promise);
      return () => {
        resolve();
        return lockHeld;
      };
    },
    /** Settles when the agent had a turn of the snapshot, and was told that something else is at work. */
    waitUntilBusy: (id: SnapshotId) => {
      const { reconciliations } = cluster.agent(NODE);
      const [before, isBusy] = [
        reconciliations.length,
        (error: unknown) => error instanceof StorageError && error.kind === "Busy",
      ];
      return waitUntil(
        () => reconciliations.slice(before).some(({ key, error }) => key === id && isBusy(error)),
        "a turn in vain",
      );
    },
    /** Settles when what is deleted is gone, and answers what is left. */
    remaining: async () => {
      await cluster.agent(NODE).machine.background.idle();
      return [
        cluster.api.objects(lvmSnapshots).length,
        machine.allLvs().map(({ lv }) => lv.name.split("-")[0]).join(" "),
      ];
    },
    /** Settles with the message of an event of that reason. */
    waitForEvent: async (reason: string) => {
      const find = () => cluster.api.objects(events).find((event) => event.reason === reason);
      await waitUntil(() => find() !== undefined, `an event ${reason}`);
      return find()!.message!;
    },
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

async function assertFailsWith(kind: ErrorKind, call: Promise<unknown>, words = ""): Promise<void> {
  const error = await assertRejects(() => call, StorageError, words);
  assertEquals(error.kind, kind, error.message);
}

function conditionsOf({ status }: LvmSnapshot): string[] {
  return status?.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`) ?? [];
}

Deno.test("a snapshot is taken where its volume is, its object says what it is, and it goes without a rest", async () => {
  await using s = await setUp();
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

Deno.test("taking a snapshot takes one request of the controller's and two of the node's, and three commands", async () => {
  await using s = await setUp();
  const commands: string[] = [];
  s.machine.fault = ({ program, args }) => {
    if (!args.includes("--foreign")) commands.push(`${program} ${args[0]}`); // but for the look at all groups
    return undefined;
  };
  const before = s.cluster.api.requests.length;
  const { id } = await s.cluster.snapshots.create(s.request());
  const requests = s.cluster.api.requests.slice(before).map(({ method, path }) => `${method} ${path}`)
    .filter((line) => line.includes("lvmsnapshots"));
  assertEquals(requests.map((line) => line.replace(/\/apis.*(?=lvmsnap)/, "").replace(id, "ID")), [
    "POST lvmsnapshots",
    "PATCH lvmsnapshots/ID/status",
    "PATCH lvmsnapshots/ID/status",
  ]);
  assertEquals(commands.slice(0, 3), ["lvm fullreport", "lvm lvcreate", "lvm fullreport"]);
});

Deno.test("a name that stands for a snapshot of another volume is refused, and nothing changes", async () => {
  await using s = await setUp();
  const snapshot = await s.cluster.snapshots.create(s.request());
  const { id: source } = await s.cluster.volumes.create(namedRequest("pvc-2", 32n * MiB), { preferred: [] });
  await assertFailsWith("AlreadyExists", s.cluster.snapshots.create(s.request("cut", { source })), s.source);
  assertEquals(await s.cluster.snapshots.list(), [snapshot]);
});

Deno.test("without its volume a snapshot is not taken, and nothing is written", async () => {
  await using s = await setUp();
  const source = volumeIdOf("nobody");
  await assertFailsWith("NotFound", s.cluster.snapshots.create(s.request("cut", { source })));
  s.machine.groups[0]!.lvs.length = 0;
  await s.cluster.agent(NODE).node.refresh();
  await s.cluster.objects.waitFor(s.source, (object) => object?.status?.state === "Lost", { timeoutMs: 5_000 });
  await assertFailsWith("Lost", s.cluster.snapshots.create(s.request()));
  assertEquals(s.objects(), []);
});

Deno.test("a snapshot that cannot be taken leaves nothing, and a smaller one of the name can", async () => {
  await using s = await setUp({ free: 64n * MiB });
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
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source), `${id} (${s.snapshotLvs()[0]!.name})`);
  const [volume] = s.cluster.api.objects(lvmVolumes);
  assertEquals([volume!.metadata.deletionTimestamp, volume!.metadata.annotations], [undefined, {}]);
  assert((await s.cluster.snapshots.create(s.request("another"))).ready, "it can be used on");
  for (const name of ["cut", "another"]) await s.cluster.snapshots.delete(snapshotIdOf(name));
  await s.cluster.volumes.delete(s.source);
  assertEquals(await s.remaining(), [0, ""]);
});

Deno.test("a snapshot that is not taken yet keeps its volume; one that failed, and one that is Lost, do not", async () => {
  await using s = await setUp();
  await s.cluster.stopAgent(NODE);
  await s.cluster.restartController({ waitMs: 50 });
  await assertFailsWith("Unavailable", s.cluster.snapshots.create(s.request()), "has not answered within 0.05 s");
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source), "not taken yet");
  for (const status of [{ state: "Failed" }, { state: "Lost", lvUUID: "was" }] as const) {
    await s.cluster.client.patch(lvmSnapshots, { name: snapshotIdOf("cut") }, {
      merge: { status },
      subresource: "status",
    });
    await s.cluster.snapshotObjects.waitFor(snapshotIdOf("cut"), (object) => object?.status?.state === status.state);
    await assertFailsWith("Unavailable", s.cluster.volumes.delete(s.source)); // it gets as far as to ask the node
  }
});

Deno.test("a node does not remove a volume that has snapshots, whoever wants it, and does when they are gone", async () => {
  await using s = await setUp();
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

Deno.test("an LV that was removed behind the driver's back is Lost, no other is made, and the object can still go", async () => {
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
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
  await using s = await setUp();
  const before = await s.cluster.snapshots.create(s.request());
  const [lv] = s.machine.groups[0]!.lvs.splice(1);
  await s.refreshUntil((object) => object?.status?.state === "Lost");
  s.machine.groups[0]!.lvs.push(lv!);
  const back = await s.refreshUntil((object) => object?.status?.state === "Ready");
  assertEquals(back.status!.error, undefined);
  assertEquals(await s.cluster.snapshots.get(before.id), before);
});

Deno.test("an LV that has taken the place of the snapshot is not it, and is not removed for it", async () => {
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
  s.snapshotLvs()[0]!.uuid = newUuid();
  const lost = await s.refreshUntil((object) => object?.status?.state === "Lost");
  assertMatch(lost.status!.error!.message, /has taken its place/);
  await assertFailsWith("Lost", s.cluster.snapshots.delete(id), "has taken its place");
  assertEquals(s.snapshotLvs().length, 1);
});

Deno.test("a store that was split off its volume is no snapshot any more, and goes with its object", async () => {
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
  delete s.snapshotLvs()[0]!.origin;
  const lost = await s.refreshUntil((object) => object?.status?.state === "Lost");
  assertMatch(lost.status!.error!.message, /--splitsnapshot/);
  await assertFailsWith("Lost", s.cluster.snapshots.create(s.request()));
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a report that is older than the snapshot does not make it Lost", async () => {
  await using s = await setUp();
  const before = await s.cluster.agent(NODE).machine.lvm.report();
  await s.cluster.snapshots.create(s.request());
  await s.cluster.agent(NODE).snapshots.verify(before);
  assertEquals(s.objects()[0]!.status!.state, "Ready");
  assertEquals(s.cluster.api.objects(events).filter(({ reason }) => reason === "Lost"), []);
});

Deno.test("a store that fills is grown before it overflows, and that is told", async () => {
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
  await (await s.holdLock(snapshotLock(id), id))(); // when it is done with the snapshot
  s.snapshotLvs()[0]!.cowPercent = 71;
  const grown = await s.refreshUntil((object) => object?.status?.size === "12Mi");
  assertEquals([grown.status!.readyToUse, grown.status!.cowPercent], [true, 48]);
  assertMatch(await s.waitForEvent("SnapshotExtended"), /snap-.* was 71 % full, and grew from 8 MiB to 12 MiB/);
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a store that cannot grow is told of, and one that overflowed makes the snapshot useless, and not its deletion", async () => {
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
  const [store] = s.snapshotLvs();
  s.machine.groups[0]!.size = 40n << 20n; // nothing is free any more
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
    /is 79 % full and cannot be grown: volume group data has 0 B free/,
  );

  store!.invalid = true;
  const over = await s.refreshUntil((object) => object?.status?.state === "Overflowed");
  assertEquals([over.status!.readyToUse, over.status!.cowPercent], [false, 100]);
  assertEquals(conditionsOf(over), ["Healthy False Overflowed", "Ready False Overflowed"]);
  assertMatch(await s.waitForEvent("Overflowed"), /overflowed/);
  assertEquals((await s.cluster.snapshots.create(s.request())).ready, false);
  await s.refreshUntil(() => true);
  assertEquals(s.cluster.api.objects(events).find(({ reason }) => reason === "Overflowed")!.count, 1, "told once");
  await s.cluster.snapshots.delete(id);
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("whoever deletes the object alone does not delete the data, nor does a repeated request; the driver's deletion does", async () => {
  await using s = await setUp();
  const { id } = await s.cluster.snapshots.create(s.request());
  await s.cluster.client.delete(lvmSnapshots, { name: id });
  const kept = await s.cluster.snapshotObjects.waitFor(id, (object) => object?.status?.error !== undefined, {
    timeoutMs: 5_000,
  });
  assertMatch(kept!.status!.error!.message, /its data stay\. Delete its VolumeSnapshot/);
  await assertFailsWith("FailedPrecondition", s.cluster.snapshots.create(s.request()), "not by the driver");
  await assertFailsWith("NotFound", s.cluster.snapshots.get(id));
  assertEquals([s.snapshotLvs().length, await s.cluster.snapshots.list()], [1, []]);
  await s.cluster.snapshots.delete(id).catch(() => {}); // may be told what the node said last
  await s.cluster.snapshotObjects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(await s.remaining(), [0, "vol"]);
});

Deno.test("a snapshot in use is not deleted: the node says why, and removes it when it is free", async () => {
  await using s = await setUp();
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

Deno.test("a snapshot of another driver is none, and is left alone", async () => {
  await using s = await setUp();
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

Deno.test("a snapshot waits while its volume is grown or removed, and its deletion while it is used otherwise", async () => {
  await using s = await setUp();
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

Deno.test("an object that somebody else wrote, and that cannot be read or had, fails with the reason", async () => {
  await using s = await setUp();
  const cases: [string, Partial<LvmSnapshot["spec"]>, string, RegExp][] = [
    ["store", { cowSize: "0" }, "InvalidArgument", /its cowSize "0" is none/],
    ["source", { sourceVolume: "pvc-1" }, "InvalidArgument", /its sourceVolume "pvc-1" is no volume id/],
    ["nobody", { sourceVolume: volumeIdOf("nobody") }, "NotFound", /no logical volume carries its tag/],
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
  assert((await s.cluster.snapshots.create(s.request())).ready, "without a size there is room for all");
  assertEquals(s.snapshotLvs()[0]!.size, 36n * MiB);
  await s.cluster.snapshots.delete(snapshotIdOf("cut"));
  assertEquals(await s.remaining(), [0, "vol"], "also without a finalizer");
});

Deno.test("an LV that is there already is the object's when it is of its volume, and otherwise stays when the object goes", async () => {
  await using s = await setUp();
  const { snapshots } = s.cluster.agent(NODE).machine;
  await snapshots.create(s.request());
  assert((await s.cluster.snapshots.create(s.request())).ready);
  assertEquals(s.snapshotLvs().length, 1);

  const { id: source } = await s.cluster.volumes.create(namedRequest("pvc-2", 32n * MiB), { preferred: [] });
  await snapshots.create(s.request("others"));
  await assertFailsWith("AlreadyExists", s.cluster.snapshots.create(s.request("others", { source })), s.source);
  assertEquals([s.objects().length, s.snapshotLvs().length], [1, 2]);
});

Deno.test("a store that never became a snapshot, when an agent died, is made anew", async () => {
  await using s = await setUp();
  await s.cluster.agent(NODE).machine.snapshots.create(s.request());
  delete s.snapshotLvs()[0]!.origin;
  assert((await s.cluster.snapshots.create(s.request())).ready);
  await s.cluster.agent(NODE).machine.background.idle();
  assertEquals(s.machine.allLvs().length, 2);
});

Deno.test("an agent that dies between its deed and its word finds what it took, and takes it once", async () => {
  await using s = await setUp();
  s.machine.fault = ({ args }) => {
    // from the lvcreate on, the API server refuses what the agent wants to write
    if (args[0] === "lvcreate") s.cluster.api.faults.refuse = { status: 500, times: 3 };
    return undefined;
  };
  await s.cluster.snapshots.create(s.request());
  assertEquals([s.snapshotLvs().length, s.objects()[0]!.status!.lvUUID], [1, s.snapshotLvs()[0]!.uuid]);
});

Deno.test("what the API server did not do is repeated, whether it had done it or not", async () => {
  await using s = await setUp();
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

Deno.test("a node without an agent: nothing is written for it, what was begun is let go, and what was taken waits for its agent", async () => {
  await using s = await setUp();
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

Deno.test("what a controller knew, the next one knows", async () => {
  await using s = await setUp();
  const snapshot = await s.cluster.snapshots.create(s.request());
  await s.cluster.restartController();
  assertEquals(await s.cluster.snapshots.list(), [snapshot]);
  assertEquals(await s.cluster.snapshots.create(s.request()), snapshot);
  await assertFailsWith("InUse", s.cluster.volumes.delete(s.source));
  await s.cluster.snapshots.delete(snapshot.id);
  await s.cluster.volumes.delete(s.source);
  assertEquals(await s.remaining(), [0, ""]);
});
