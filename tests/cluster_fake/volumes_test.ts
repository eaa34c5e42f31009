/**
 * Volumes of a cluster, from the controller's call to the LV and back: real client, informers and loops, over a fake API
 * server and fake machines.
 *
 * @module
 */

import { LINEAR } from "../../lvm/model/layout.ts";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import { lvmVolumeFor, type NamedVolumeRequest } from "../../k8s/api/volume_mapping.ts";
import { type ErrorKind, StorageError } from "../../lvm/error.ts";
import { exactMatcher } from "../../lvm/model/groups.ts";
import { volumeIdOf } from "../../lvm/ids.ts";
import { DRIVER, FakeCluster } from "../fake/node_cluster.ts";
import { waitUntil } from "../fake/control_plane.ts";
import { failure, FakeMachine } from "../fake/machine.ts";
import { namedRequest } from "../fake/request.ts";

const MiB = 1n << 20n;

function machineWith(groups: Record<string, bigint>): FakeMachine {
  const machine = new FakeMachine();
  for (const [name, bytes] of Object.entries(groups)) machine.addGroup(name, bytes);
  return machine;
}

function request(name: string, more: Partial<NamedVolumeRequest> = {}): NamedVolumeRequest {
  return namedRequest(name, 30n * MiB, more);
}

const ANYWHERE = { preferred: [] };

async function assertFailsWith(kind: ErrorKind, call: Promise<unknown>): Promise<StorageError> {
  const error = await assertRejects(() => call, StorageError);
  assertEquals(error.kind, kind, error.message);
  return error;
}

/** What is there: LVMVolumes and LVs. */
function remaining(cluster: FakeCluster, ...machines: FakeMachine[]): [number, number] {
  return [cluster.api.objects(lvmVolumes).length, machines.flatMap((machine) => machine.allLvs()).length];
}

function onlyObject(cluster: FakeCluster): LvmVolume {
  const [object, ...more] = cluster.api.objects(lvmVolumes);
  assertEquals(more, []);
  return object!;
}

Deno.test("a volume is made where it was asked for, its object says what it is, and it goes without a rest", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine, "node-2": machineWith({ data: 1n << 30n }) });
  const volume = await cluster.volumes.create(request("pvc-1"), { allowed: ["node-1"], preferred: [] });
  assertEquals([volume.size, volume.content, volume.nodeId], [32n * MiB, "ext4", "node-1"]);
  const [lv] = machine.allLvs();
  const { spec, status } = onlyObject(cluster);
  assertEquals([spec.requestName, spec.size, spec.volumeMode, spec.fsType], ["pvc-1", "30Mi", "Filesystem", "ext4"]);
  assertEquals(
    [status?.state, status?.volumeGroup, status?.lvUUID, status?.size, status?.error],
    ["Ready", "data", lv!.lv.uuid, "32Mi", undefined],
  );
  assertEquals(status?.conditions?.map(({ type, status }) => `${type} ${status}`), ["Healthy True", "Ready True"]);

  assertEquals(await cluster.volumes.create(request("pvc-1"), ANYWHERE), volume, "the same again");
  assertEquals(await cluster.volumes.list(), [volume]);
  await cluster.volumes.delete(volume.id);
  assertEquals(remaining(cluster, machine), [0, 0]);
  await cluster.volumes.delete(volume.id);
});

Deno.test("making a volume takes one request of the controller's and two of the node's, and three commands", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const commands: string[] = [];
  machine.fault = ({ program, args }) => void commands.push(`${program} ${args[0]}`);
  const before = cluster.api.requests.length;
  const volume = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const requests = cluster.api.requests.slice(before).map(({ method, path }) =>
    `${method} ${path.split("/").slice(4, 7).join("/")}`
  )
    .filter((line) => line.includes("lvmvolumes"));
  assertEquals(requests.map((line) => line.replace(volume.id, "ID")), [
    "POST lvmvolumes",
    "PATCH lvmvolumes/ID/status",
    "PATCH lvmvolumes/ID/status",
  ]);
  assertEquals(commands.slice(0, 3), ["lvm fullreport", "lvm lvcreate", "lvm fullreport"]);
});

Deno.test("a volume that cannot be made leaves nothing, and can be made elsewhere under the same name", async () => {
  const [small, large] = [machineWith({ data: 64n * MiB }), machineWith({ data: 1n << 30n })];
  await using cluster = await FakeCluster.start({ "node-1": small, "node-2": large });
  const wanted = request("pvc-1", { range: { required: 200n * MiB } });
  const error = await assertFailsWith(
    "NoSpace",
    cluster.volumes.create(wanted, { allowed: ["node-1"], preferred: [] }),
  );
  assert(error.message.includes("no room in data"), error.message);
  // the node's figures were old: it refuses, what was begun is undone
  small.fault = ({ args }) =>
    args[0] === "lvcreate"
      ? failure(5, `  Volume group "data" has insufficient free space (0 extents): 8 required.`)
      : undefined;
  await assertFailsWith("NoSpace", cluster.volumes.create(request("pvc-1"), { allowed: ["node-1"], preferred: [] }));
  assertEquals(remaining(cluster, small, large), [0, 0]);
  assertEquals(
    (await cluster.volumes.create(request("pvc-1"), { allowed: ["node-2"], preferred: [] })).nodeId,
    "node-2",
  );
});

Deno.test("of several nodes the first preferred one with room is taken, or else the one that the class prefers", async () => {
  const machines = {
    "node-1": machineWith({ data: 64n * MiB }),
    "node-2": machineWith({ data: 2n << 30n }),
    "node-3": machineWith({ data: 1n << 30n }),
  };
  await using cluster = await FakeCluster.start(machines);
  const chosenNode = async (name: string, more: Partial<NamedVolumeRequest>, preferred: string[] = []) =>
    (await cluster.volumes.create(request(name, more), { preferred })).nodeId;
  const big = { range: { required: 100n * MiB } };
  assertEquals(await chosenNode("a", big), "node-3", "least free space that fits");
  assertEquals(await chosenNode("b", { ...big, preference: "mostFree" }), "node-2");
  assertEquals(await chosenNode("c", big, ["node-1", "node-2"]), "node-2", "node-1 has no room");
  assertEquals(await chosenNode("d", {}, ["node-1", "node-2"]), "node-1");
});

Deno.test("volumes that are asked for at once do not overbook a group: the node refuses none of them", async () => {
  const machine = machineWith({ data: 100n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const create = (name: string) => cluster.volumes.create(request(name), ANYWHERE);
  const four = await Promise.allSettled(["a", "b", "c", "d"].map(create));
  assertEquals(four.map(({ status }) => status), ["fulfilled", "fulfilled", "fulfilled", "rejected"]);
  const { reason } = four[3] as PromiseRejectedResult;
  assert(reason.message.includes("no room in data (4 MiB free, 96 MiB more for volumes that are being made)"), reason);
  const requests = cluster.api.requests.filter(({ method, path }) => method === "POST" && path.endsWith("/lvmvolumes"));
  assertEquals([requests.length, remaining(cluster, machine)], [3, [3, 3]]);

  await cluster.volumes.delete(volumeIdOf("b"));
  await cluster.nodes.waitFor("node-1", (node) => node?.status?.total?.free === "36Mi", { timeoutMs: 5_000 });
  await create("d");
  await assertFailsWith("NoSpace", create("b"));
});

Deno.test("volumes that are asked for at once are spread over the nodes that have room, by what the class prefers", async () => {
  for (const preference of ["leastFree", "mostFree"] as const) {
    const machines = { "node-1": machineWith({ data: 100n * MiB }), "node-2": machineWith({ data: 40n * MiB }) };
    await using cluster = await FakeCluster.start(machines);
    const create = (name: string) => cluster.volumes.create(request(name, { preference }), ANYWHERE);
    const nodes = (await Promise.all(["a", "b", "c", "d"].map(create))).map(({ nodeId }) => nodeId);
    const first = preference === "leastFree" ? ["node-2", "node-1"] : ["node-1", "node-1"];
    assertEquals([nodes.slice(0, 2), nodes.toSorted()], [first, ["node-1", "node-1", "node-1", "node-2"]]);
    await assertFailsWith("NoSpace", create("e"));
  }
});

Deno.test("what a growing volume will take is not promised to others", async () => {
  const machine = machineWith({ data: 100n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("a"), ANYWHERE);
  const gate = Promise.withResolvers<void>();
  machine.fault = ({ args }) => args[0] === "lvextend" ? gate.promise.then(() => undefined) : undefined;
  const expansion = cluster.volumes.expand(id, { required: 80n * MiB });
  await cluster.objects.waitFor(id, (object) => object?.spec.size === "80Mi", { timeoutMs: 5_000 });
  const capacity = () => cluster.volumes.capacity({ groups: exactMatcher("data"), layout: LINEAR }, "node-1");
  assertEquals((await capacity()).maximumVolumeSize, 20n * MiB);
  await assertFailsWith("NoSpace", cluster.volumes.create(request("b"), ANYWHERE));
  gate.resolve();
  await expansion;
  assertEquals((await capacity()).maximumVolumeSize, 20n * MiB);
});

Deno.test("a growth that was made and not told is told before the next one is refused", async () => {
  const machine = machineWith({ data: 128n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("a"), ANYWHERE);
  machine.fault = ({ args }) => {
    if (args[0] === "lvextend") cluster.api.faults.refuse = { status: 500, times: 1_000 };
    return undefined;
  };
  const ask = (size: string) => cluster.client.patch(lvmVolumes, { name: id }, { merge: { spec: { size } } });
  await ask("64Mi");
  await waitUntil(() => machine.allLvs()[0]!.lv.size === 64n * MiB, "the lvextend");
  await cluster.stopAgent("node-1");
  machine.fault = undefined;
  cluster.api.faults.refuse = { status: 0, times: 0 };
  await ask("1Gi");
  assertEquals(onlyObject(cluster).status?.size, "32Mi");
  const before = cluster.api.requests.length;
  cluster.startAgent("node-1", machine);
  await cluster.objects.waitFor(id, (object) => object?.status?.error !== undefined, { timeoutMs: 5_000 });
  const reported = cluster.api.requests.slice(before).filter(({ path }) => path.endsWith(`/lvmvolumes/${id}/status`))
    .map(({ body }) => (body as LvmVolume).status)
    .map((status) => [status?.size, status?.error?.code]);
  assertEquals(reported, [["64Mi", undefined], ["64Mi", "OutOfRange"]]);
});

Deno.test("a group that has less than was told is told of before a minute is over", async () => {
  const machine = machineWith({ data: 132n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("a"), ANYWHERE);
  await cluster.nodes.waitFor("node-1", (node) => node?.status?.total?.free === "100Mi", { timeoutMs: 5_000 });
  const size = ["--size", `${80n * MiB}b`];
  await machine.run({
    program: "lvm",
    args: ["lvcreate", "--yes", "--wipesignatures", "n", ...size, "--name", "by-hand", "data"],
    mutates: true,
  });
  await assertFailsWith("OutOfRange", cluster.volumes.expand(id, { required: 64n * MiB }));
  await cluster.nodes.waitFor("node-1", (node) => node?.status?.total?.free === "20Mi", { timeoutMs: 5_000 });
});

Deno.test("a name that stands for another volume is refused", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n, more: 1n << 30n }) });
  await cluster.volumes.create(request("pvc-1", { groups: exactMatcher("data") }), ANYWHERE);
  for (
    const other of [
      { range: { required: 64n * MiB } },
      { range: { required: 4n * MiB, limit: 8n * MiB } },
      { format: { state: "raw" } as const },
      { groups: exactMatcher("more") },
    ]
  ) await assertFailsWith("AlreadyExists", cluster.volumes.create(request("pvc-1", other), ANYWHERE));
  await assertFailsWith(
    "AlreadyExists",
    cluster.volumes.create(request("pvc-1"), { allowed: ["node-9"], preferred: [] }),
  );
});

Deno.test("a growth that cannot be had is taken back, and a smaller one succeeds", async () => {
  const machine = machineWith({ data: 128n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  assertEquals((await cluster.volumes.expand(id, { required: 62n * MiB })).size, 64n * MiB);
  const error = await assertFailsWith("OutOfRange", cluster.volumes.expand(id, { required: 1n << 30n }));
  assert(error.message.includes("volume group data has"), error.message);
  assertEquals(onlyObject(cluster).spec.size, "64Mi");
  assertEquals((await cluster.volumes.expand(id, { required: 80n * MiB })).size, 80n * MiB);
  const updated = await cluster.objects.waitFor(id, (object) => object?.status?.error === undefined, {
    timeoutMs: 5_000,
  });
  assertEquals(updated?.status?.size, "80Mi");
  await assertFailsWith("OutOfRange", cluster.volumes.expand(id, { required: 4n * MiB, limit: 8n * MiB }));
});

Deno.test("an LV that has the volume's tags, but is another volume, is neither taken for it nor removed with it", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { volumes } = cluster.agent("node-1").machine;
  await volumes.create(request("pvc-1", { format: { state: "raw" } }));
  await assertFailsWith("AlreadyExists", cluster.volumes.create(request("pvc-1"), ANYWHERE));
  assertEquals(remaining(cluster, machine), [0, 1]);
  const taken = await cluster.volumes.create(request("pvc-1", { format: { state: "raw" } }), ANYWHERE);
  assertEquals(onlyObject(cluster).status?.lvUUID, machine.allLvs()[0]!.lv.uuid);
  await cluster.volumes.delete(taken.id);
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("an object that was written by hand, without a finalizer, takes its LV with it when the driver deletes it", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const wanted = request("by-hand");
  await cluster.agent("node-1").machine.volumes.create(wanted);
  const object = lvmVolumeFor(wanted, { driver: DRIVER, nodeName: "node-1" });
  await cluster.client.create(lvmVolumes, { ...object, metadata: { name: wanted.id } });
  const isReady = (now?: LvmVolume) => now?.status?.state === "Ready";
  await cluster.objects.waitFor(wanted.id, isReady, { timeoutMs: 5_000 });
  await cluster.volumes.delete(wanted.id);
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("whoever deletes the object alone does not delete the data; the driver's deletion goes on from there", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.client.delete(lvmVolumes, { name: id });
  const kept = await cluster.objects.waitFor(id, (object) => object?.status?.error !== undefined, { timeoutMs: 5_000 });
  assert(kept!.status!.error!.message.includes("its data stay"), kept!.status!.error!.message);
  await assertFailsWith("FailedPrecondition", cluster.volumes.create(request("pvc-1"), ANYWHERE));
  assertEquals(machine.allLvs().length, 1);
  await cluster.volumes.delete(id).catch(() => {}); // may be told what the node said last
  await cluster.objects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("a growth is taken back although its node writes into the object meanwhile", async () => {
  const machine = machineWith({ data: 128n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { client } = cluster;
  const patch = client.patch.bind(client);
  let disturbed = 0;
  client.patch = async (resource, at, options) => {
    if (options.resourceVersion !== undefined && disturbed++ === 0) {
      const merge = { status: { devicePath: "/dev/mapper/other" } };
      await patch(lvmVolumes, { name: id }, { merge, subresource: "status" });
    }
    return await patch(resource, at, options);
  };
  await assertFailsWith("OutOfRange", cluster.volumes.expand(id, { required: 1n << 30n }));
  assertEquals([onlyObject(cluster).spec.size, disturbed], ["32Mi", 2]);
});

Deno.test("a volume in use is not deleted: the node says why, and removes it when it is free", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { lv } = machine.allLvs()[0]!;
  const mount = { target: "/mnt/pod", source: "/dev/mapper/x", fsType: "ext4", root: "/", readOnly: false };
  machine.mounts.push({ ...mount, deviceNumber: `254:${lv.minor}`, lv });
  const error = await assertFailsWith("InUse", cluster.volumes.delete(id));
  assert(error.message.includes("is in use"), error.message);
  machine.mounts.pop();
  await cluster.objects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("an LV that was removed behind the driver's back is Lost, no other is made, and the object can still go", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  machine.groups[0]!.lvs.length = 0;
  await cluster.agent("node-1").node.refresh();
  const lost = await cluster.objects.waitFor(id, (object) => object?.status?.state === "Lost", { timeoutMs: 5_000 });
  assertEquals(lost?.status?.conditions?.find(({ type }) => type === "Ready")?.status, "False");
  await assertFailsWith("Lost", cluster.volumes.get(id));
  await assertFailsWith("Lost", cluster.volumes.create(request("pvc-1"), ANYWHERE));
  assertEquals(machine.allLvs(), []);
  const eventLines = () => cluster.api.objects(events).filter(({ reason }) => reason === "Lost");
  while (eventLines().length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert(eventLines()[0]!.message!.includes("vgcfgrestore"));
  await cluster.volumes.delete(id);
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("people are told when a disk of a RAID volume is missing, and when it is back", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1", { layout: { type: "raid1", mirrors: 1 } }), ANYWHERE);
  const redundant = (object: LvmVolume | undefined) =>
    object?.status?.conditions?.find(({ type }) => type === "Redundant")?.reason;
  for (const [missing, reason] of [[1, "Degraded"], [0, "InSync"]] as const) {
    group.missingPvs = missing;
    for (let report = 0; report < 2; report++) await cluster.agent("node-1").node.refresh();
    await cluster.objects.waitFor(id, (object) => redundant(object) === reason, { timeoutMs: 5_000 });
  }
  const eventLines = () =>
    cluster.api.objects(events).filter(({ reason }) => reason !== "Created")
      .map(({ type, reason, count = 1 }) => `${type} ${reason} ${count}`);
  await waitUntil(() => eventLines().length >= 2);
  assertEquals(eventLines(), ["Warning Degraded 1", "Normal Redundant 1"]);
});

Deno.test("people are told when a filesystem takes no writes any more, and when it does again", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { lv } = machine.allLvs()[0]!;
  const source = `/dev/mapper/data-${lv.name.replaceAll("-", "--")}`;
  const mount = {
    target: "/mnt",
    source,
    fsType: "ext4",
    root: "/",
    readOnly: false,
    deviceNumber: `253:${lv.minor}`,
    lv,
  };
  const healthy = () => onlyObject(cluster).status?.conditions?.find(({ type }) => type === "Healthy")?.reason;
  for (
    const [remountedReadOnly, reason] of [[false, "PhysicalVolumesPresent"], [true, "FilesystemReadOnly"], [
      false,
      "PhysicalVolumesPresent",
    ]] as const
  ) {
    machine.mounts.splice(0, Infinity, { ...mount, remountedReadOnly });
    for (let report = 0; report < 2; report++) await cluster.agent("node-1").node.refresh();
    await cluster.objects.waitFor(id, () => healthy() === reason, { timeoutMs: 5_000 });
  }
  const eventLines = () =>
    cluster.api.objects(events).filter(({ reason }) => reason !== "Created")
      .map(({ type, reason, count = 1 }) => `${type} ${reason} ${count}`);
  await waitUntil(() => eventLines().length >= 2);
  assertEquals(eventLines(), ["Warning FilesystemReadOnly 1", "Normal Healthy 1"]);
});

Deno.test("a report that is older than the volume does not make it Lost", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const before = await cluster.agent("node-1").machine.lvm.report();
  await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.agent("node-1").volumes.verify(before);
  assertEquals(onlyObject(cluster).status?.state, "Ready");
});

Deno.test("an agent that dies between its deed and its word finds what it made, and makes it once", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  machine.fault = ({ args }) => {
    // from the lvcreate on, the API server refuses what the agent wants to write
    if (args[0] === "lvcreate") cluster.api.faults.refuse = { status: 500, times: 3 };
    return undefined;
  };
  const volume = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  machine.fault = undefined;
  assertEquals(machine.allLvs().length, 1);
  assertEquals(onlyObject(cluster).status?.lvUUID, machine.allLvs()[0]!.lv.uuid);
  await cluster.stopAgent("node-1");
  const deletion = cluster.volumes.delete(volume.id);
  cluster.startAgent("node-1", machine);
  await deletion;
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("a node that is gone holds nobody up", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }), "node-2": machine }, {
    waitMs: 1_000,
  });
  const made = await cluster.volumes.create(request("made"), { allowed: ["node-1"], preferred: [] });
  await cluster.stopAgent("node-1");
  const pendingCreation = cluster.volumes.create(request("begun"), { preferred: ["node-1"] });
  await cluster.objects.waitFor(volumeIdOf("begun"), (object) => object !== undefined);
  await cluster.client.delete(lvmNodes, { name: "node-1" });
  await cluster.nodes.waitFor("node-1", (node) => node === undefined);
  await assertFailsWith("Unavailable", cluster.volumes.delete(made.id));
  await assertFailsWith("Unavailable", pendingCreation);
  assertEquals((await cluster.volumes.create(request("begun"), { preferred: ["node-1"] })).nodeId, "node-2");
});

Deno.test("a node says of a volume that trimming fails again and again, and that it is of no use", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const trim = { discard: true, intervalMs: 86_400_000 };
  const { id } = await cluster.volumes.create(request("pvc-1", { trim }), ANYWHERE);
  const { spec } = onlyObject(cluster);
  assertEquals([spec.discard, spec.fstrim], [true, "1d"]);
  assertEquals([...machine.allLvs()[0]!.lv.tags].filter((tag) => tag.startsWith("denolith.trim")), [
    "denolith.trim=d+1d",
  ]);

  const { volumes, machine: { lvm } } = cluster.agent("node-1");
  const [group] = await lvm.report();
  const volume = { id, group: group!, lv: group!.lvs[0]!, intervalMs: trim.intervalMs };
  volumes.recordTrimFailed(volume, "fstrim: Input/output error", 2);
  volumes.recordTrimFailed(volume, "fstrim: Input/output error", 3);
  volumes.recordTrimUnsupported(volume);
  const reported = () => cluster.api.objects(events).filter(({ reason }) => reason?.startsWith("Trim"));
  await waitUntil(() => reported().length === 2, "two events");
  assertEquals(reported().map(({ reason, message }) => [reason, message]).sort(), [
    ["TrimFailed", "trimming failed 3 times in a row: fstrim: Input/output error"],
    [
      "TrimUnsupported",
      `fstrim is of no use: the device of data/${volume.lv.name} takes no discards, as its disks or its layout have it; ` +
      "leave fstrim out of the class",
    ],
  ]);
});
