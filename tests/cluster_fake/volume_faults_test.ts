/**
 * Volumes of a cluster with faults: lost LVs and disks, agents that crash, nodes that are gone.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  type LvmNode,
  lvmNodes,
  type LvmVolume,
  lvmVolumes,
  PENDING_ANNOTATION,
  REMOVE_ANNOTATION,
} from "../../k8s/api/lvm_objects.ts";
import { events, type KubeObject, type Resource } from "../../k8s/api/objects.ts";
import type { ApiClient } from "../../k8s/client/client.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { usedTag } from "../../lvm/model/tags.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { failure, FakeMachine } from "../fake/machine/machine.ts";
import {
  ANYWHERE,
  assertFailsWith,
  machineWith,
  MiB,
  onlyObject,
  remaining,
  request,
} from "../fake/cluster/volume_cluster.ts";
import { endSync } from "../fake/machine/pvs.ts";

Deno.test("a group that has less free space than reported is reported again within a minute", async () => {
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

Deno.test("a thin volume that its pool lacks after a power cut is created again, unless it was recorded", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { volumes } = cluster.agent("node-1").machine;
  const thin = request("pvc-1", { format: { state: "raw" }, thin: { poolSize: { percent: 80n } } });
  await volumes.create(thin);
  const uuid = () => machine.allLvs().find(({ lv }) => lv.pool !== undefined)!.lv.uuid;
  const cutPower = () => {
    for (const { lv } of machine.allLvs()) lv.active = false;
    machine.fault = ({ args }) => {
      if (args[0] === "lvcreate") machine.fault = undefined;
      if (!args.includes("--activate")) return undefined;
      return failure(5, "  device-mapper: reload ioctl on  (254:4) failed: No data available");
    };
  };
  const before = uuid();
  cutPower();
  await cluster.volumes.create(thin, ANYWHERE);
  assertEquals([uuid() === before, onlyObject(cluster).status?.lvUUID], [false, uuid()]);
  const created = uuid();
  cutPower();
  await cluster.volumes.create(thin, ANYWHERE);
  assertEquals([uuid(), onlyObject(cluster).status?.lvUUID], [created, created]);
});

for (const remove of [undefined, "false"]) {
  Deno.test(`deleting only the object does not delete the data; the driver's deletion does (remove=${remove})`, async () => {
    const machine = machineWith({ data: 1n << 30n });
    await using cluster = await FakeCluster.start({ "node-1": machine });
    const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
    const merge = { metadata: { annotations: { [REMOVE_ANNOTATION]: remove } } };
    await cluster.client.patch(lvmVolumes, { name: id }, { merge });
    await cluster.client.delete(lvmVolumes, { name: id });
    const kept = await cluster.objects.waitFor(id, (object) => object?.status?.error !== undefined, {
      timeoutMs: 5_000,
    });
    assert(kept!.status!.error!.message.includes("its data stay"), kept!.status!.error!.message);
    await assertFailsWith("FailedPrecondition", cluster.volumes.create(request("pvc-1"), ANYWHERE));
    assertEquals(machine.allLvs().length, 1);
    await cluster.volumes.delete(id).catch(() => {}); // may fail with the node's last error
    await cluster.objects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
    assertEquals(remaining(cluster, machine), [0, 0]);
  });
}

Deno.test("a failed expansion is reverted although its node writes to the object at the same time", async () => {
  const machine = machineWith({ data: 128n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { controllerClient: client } = cluster;
  const patch = client.patch.bind(client);
  let disturbed = 0;
  client.patch = async (resource, at, options) => {
    if (options.resourceVersion !== undefined && disturbed++ === 0) {
      const merge = { status: { devicePath: "/dev/mapper/other" } };
      await cluster.client.patch(lvmVolumes, { name: id }, { merge, subresource: "status" });
    }
    return await patch(resource, at, options);
  };
  await assertFailsWith("OutOfRange", cluster.volumes.expand(id, { required: 1n << 30n }));
  assertEquals(onlyObject(cluster).spec.size, "32Mi");
  assert(disturbed >= 2, "it was tried again after the conflict; the node may write once more meanwhile");
});

Deno.test("a volume whose LV an administrator removed is Lost, is not created again, and can be deleted", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.waitUntilIdle("node-1", id);
  machine.groups[0]!.lvs.length = 0;
  await cluster.agent("node-1").node.refresh();
  const lost = await cluster.objects.waitFor(id, (object) => object?.status?.state === "Lost", { timeoutMs: 5_000 });
  assertEquals(lost?.status?.conditions?.find(({ type }) => type === "Ready")?.status, "False");
  await assertFailsWith("Lost", cluster.volumes.get(id));
  await assertFailsWith("Lost", cluster.volumes.create(request("pvc-1"), ANYWHERE));
  assertEquals(machine.allLvs(), []);
  const eventLines = () => cluster.api.objects(events).filter(({ reason }) => reason === "Lost");
  await waitUntil(() => eventLines().length > 0, "the event");
  assert(eventLines()[0]!.message!.includes("vgcfgrestore"));
  await cluster.volumes.delete(id);
  assertEquals(remaining(cluster, machine), [0, 0]);
});

/** Returns the events of volumes, other than that of their creation, with their counts. */
function eventLines(cluster: FakeCluster): string[] {
  return cluster.api.objects(events)
    .filter(({ reason, involvedObject }) => reason !== "Created" && involvedObject.kind === "LVMVolume")
    .map(({ type, reason, count = 1 }) => `${type} ${reason} ${count}`);
}

Deno.test("events report that a disk of a RAID volume is missing, and that it is back", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  machine.fault = () => void endSync(group); // the images are in sync before a report shows them
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1", { layout: { type: "raid1", mirrors: 1 } }), ANYWHERE);
  const redundant = (object: LvmVolume | undefined) =>
    object?.status?.conditions?.find(({ type }) => type === "Redundant")?.reason;
  for (const [missing, reason] of [[1, "Degraded"], [0, "InSync"]] as const) {
    group.missingPvs = missing;
    for (let report = 0; report < 2; report++) await cluster.agent("node-1").node.refresh();
    await cluster.objects.waitFor(id, (object) => redundant(object) === reason, { timeoutMs: 5_000 });
  }
  await waitUntil(() => eventLines(cluster).length >= 2);
  assertEquals(eventLines(cluster), ["Warning Degraded 1", "Normal Redundant 1"]);
});

Deno.test("a change whose status cannot be written has its event when it is written", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  machine.fault = () => void endSync(group);
  let annotate: (() => Promise<unknown>) | undefined;
  const wrap = (client: ApiClient) =>
    interceptClient(client, async (sent, when) => {
      if (sent !== "patch lvmvolumes" || when !== "before") return;
      const first = annotate;
      annotate = undefined;
      await first?.();
    });
  await using cluster = await FakeCluster.start({ "node-1": machine }, { wrap });
  const { id } = await cluster.volumes.create(request("pvc-1", { layout: { type: "raid1", mirrors: 1 } }), ANYWHERE);
  group.missingPvs = 1;
  const conflict = Promise.withResolvers<string[]>();
  annotate = async () => {
    await cluster.client.patch(lvmVolumes, { name: id }, { merge: { metadata: { annotations: { note: "x" } } } });
    conflict.resolve(eventLines(cluster));
  };
  const isDegraded = (object: LvmVolume | undefined) =>
    object?.status?.conditions?.some(({ reason }) => reason === "Degraded") === true;
  await cluster.agent("node-1").node.refresh();
  assertEquals(await conflict.promise, [], "nothing is recorded before it is written");
  await cluster.agent("node-1").node.refresh();
  await cluster.objects.waitFor(id, isDegraded, { timeoutMs: 5_000 });
  await waitUntil(() => eventLines(cluster).length > 0);
  assertEquals(eventLines(cluster), ["Warning Degraded 1"]);
});

Deno.test("events report that a filesystem became read-only, and that it accepts writes again", async () => {
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

Deno.test("no event calls a volume healthy that has another problem left", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const [{ group, lv }] = machine.allLvs() as [ReturnType<typeof machine.allLvs>[number]];
  const source = `/dev/mapper/data-${lv.name.replaceAll("-", "--")}`;
  const mount = { target: "/mnt", source, fsType: "ext4", root: "/", readOnly: false, deviceNumber: `253:${lv.minor}` };
  const reasons = () => cluster.objects.get(id)?.status?.problems?.map(({ reason }) => reason).join() ?? "";
  const report = async (expected: string) => {
    for (let report = 0; report < 2; report++) await cluster.agent("node-1").node.refresh();
    await cluster.objects.waitFor(id, () => reasons() === expected, { timeoutMs: 5_000 });
  };
  group.readOnly = true;
  machine.mounts.push({ ...mount, lv, remountedReadOnly: true });
  await report("FilesystemReadOnly,VolumeGroupReadOnly");
  machine.mounts.pop();
  await report("VolumeGroupReadOnly");
  group.readOnly = false;
  await report("");
  await cluster.agent("node-1").events.flush();
  const lines = cluster.api.objects(events).filter(({ reason }) => reason !== "Created")
    .map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  assertEquals(lines.map((line) => line.slice(0, 26)), ["Warning FilesystemReadOnly"], lines.join("\n"));
});

Deno.test("events on a linear volume and on its node report that a physical volume is missing, and that it is back", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  for (const missingPvs of [0, 1, 0]) {
    machine.groups[0]!.missingPvs = missingPvs;
    for (let report = 0; report < 2; report++) await cluster.agent("node-1").node.refresh();
    const isObserved = (object?: LvmVolume) =>
      (object?.status?.problems ?? []).length > 0 === missingPvs > 0 && object?.status?.conditions !== undefined;
    await cluster.objects.waitFor(id, isObserved, { timeoutMs: 5_000 });
  }
  const eventLines = () =>
    cluster.api.objects(events).filter(({ reason }) => reason !== "Created")
      .map(({ type, reason, involvedObject, count = 1 }) => `${involvedObject.kind}: ${type} ${reason} ${count}`);
  await waitUntil(() => eventLines().length >= 4, "the events");
  assertEquals(eventLines().sort(), [
    "LVMNode: Normal PhysicalVolumesPresent 1",
    "LVMNode: Warning PhysicalVolumesMissing 1",
    "LVMVolume: Normal Healthy 1",
    "LVMVolume: Warning Partial 1",
  ]);
  const { conditions } = cluster.nodes.get("node-1")!.status!;
  assertEquals(conditions!.find(({ type }) => type === "PhysicalVolumesMissing")?.status, "False");
});

Deno.test("a report that is older than the volume does not make it Lost", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const before = await cluster.agent("node-1").machine.lvm.report();
  await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.agent("node-1").volumes.verify(before);
  assertEquals(onlyObject(cluster).status?.state, "Ready");
});

Deno.test("a volume that is created while another one is reported as Lost does not become Lost by the same report", async () => {
  const machine = machineWith({ data: 1n << 30n });
  const [created, decided] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const wrap = (client: ApiClient) => ({
    ...interceptClient(client, () => Promise.resolve()),
    patch: (async (resource, at, options) => {
      if (options.subresource === "status" && (options.merge as Partial<LvmVolume>).status?.state === "Lost") {
        decided.resolve();
        await created.promise;
      }
      return await client.patch(resource, at, options);
    }) as ApiClient["patch"],
  });
  await using cluster = await FakeCluster.start({ "node-1": machine }, { wrap });
  const { id } = await cluster.volumes.create(request("lost"), ANYWHERE);
  await cluster.waitUntilIdle("node-1", id);
  const chosen = Promise.withResolvers<void>();
  machine.fault = async ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    chosen.resolve();
    return await decided.promise.then(() => undefined);
  };
  const late = cluster.volumes.create(request("late"), ANYWHERE);
  await chosen.promise;
  machine.groups[0]!.lvs.length = 0;
  const refreshed = cluster.agent("node-1").node.refresh();
  created.resolve(late.then(({ id }) => cluster.waitUntilIdle("node-1", id)));
  await refreshed;
  const states = cluster.api.objects(lvmVolumes).map(({ metadata: { name }, status }) => [name, status?.state]);
  assertEquals(Object.fromEntries(states), { [id]: "Lost", [(await late).id]: "Ready" });
});

Deno.test("a volume whose logical volume another one has adopted does not become Lost, although it was in use", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("one"), ANYWHERE);
  const { status: _, ...object } = onlyObject(cluster);
  machine.groups[0]!.tags.add(usedTag(DRIVER, id, machine.allLvs()[0]!.lv.uuid));
  const name = volumeIdOf("two");
  const spec = { ...object.spec, requestName: "two", adoptsVolume: id };
  cluster.api.put(lvmVolumes, { ...object, metadata: { name, finalizers: object.metadata.finalizers! }, spec });
  const stateOf = (name: string) =>
    cluster.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === name)?.status?.state;
  await waitUntil(() => stateOf(name) === "Ready", "the volume that has it now");
  await cluster.agent("node-1").node.refresh();
  assertEquals(stateOf(id), "Ready");
});

Deno.test("many lost volumes cost one more report, after the LVMNode", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  for (const name of ["one", "two", "three"]) {
    const { id } = await cluster.volumes.create(request(name), ANYWHERE);
    await cluster.waitUntilIdle("node-1", id);
  }
  const { node } = cluster.agent("node-1");
  await node.refresh();
  machine.groups[0]!.lvs.length = 0;
  const steps: string[] = [];
  machine.fault = ({ args }) => void (args[0] === "fullreport" && steps.push("report"));
  const follow = (resource: Resource, isMeant: (object: KubeObject) => boolean) =>
    cluster.api.collection(resource).listeners.add(({ after }) => void (isMeant(after) && steps.push(resource.kind)));
  follow(lvmNodes, (object) => (object as LvmNode).status?.volumeGroups?.[0]?.lvCount === 0);
  follow(lvmVolumes, (object) => (object as LvmVolume).status?.state === "Lost");
  await node.refresh();
  assertEquals(steps.slice(0, 3), ["report", "LVMNode", "report"]);
  assertEquals(steps.filter((step) => step !== "LVMNode").slice(2), Array(3).fill("LVMVolume"));
});

Deno.test("an agent that crashes between creating a volume and reporting it finds the volume, and creates it once", async () => {
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

Deno.test("a volume in use is not marked as pending any more, so that it is not collected as garbage", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const claim = (name: string) => ({ claim: { namespace: "default", name, uid: crypto.randomUUID() } });
  const [used, unused] = ["used", "unused"].map((name) => cluster.volumes.create(request(name), ANYWHERE, claim(name)));
  const { id } = await used!;
  await unused;
  const { lvUUID } = cluster.objects.get(id)!.status!;
  machine.groups[0]!.tags.add(usedTag(DRIVER, id, lvUUID!));
  await cluster.agent("node-1").node.refresh();
  const isPending = (name: string) =>
    cluster.api.objects(lvmVolumes).find(({ spec }) => spec.requestName === name)!.metadata.annotations
      ?.[PENDING_ANNOTATION] !==
      undefined;
  assertEquals([isPending("used"), isPending("unused")], [false, true]);
});

Deno.test("a volume whose LVMVolume was deleted by hand is deleted without the refusal of that", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.client.delete(lvmVolumes, { name: id });
  await cluster.objects.waitFor(id, (object) => object?.status?.error !== undefined, { timeoutMs: 5_000 });
  await cluster.volumes.delete(id);
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("a request for a node that is removed meanwhile ends at once", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) }, { waitMs: 30_000 });
  await cluster.stopAgent("node-1");
  const startedAt = Date.now();
  const creation = cluster.volumes.create(request("pvc-1"), { allowed: ["node-1"], preferred: [] });
  const refusal = assertFailsWith("Unavailable", creation);
  await waitUntil(() => cluster.objects.list().length > 0, "the LVMVolume");
  await cluster.client.delete(lvmNodes, { name: "node-1" });
  await refusal;
  assert(Date.now() - startedAt < 10_000, "it did not wait for the node");
});

Deno.test("a node that is gone delays no other requests", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }), "node-2": machine }, {
    waitMs: 1_000,
  });
  const made = await cluster.volumes.create(request("made"), { allowed: ["node-1"], preferred: [] });
  await cluster.stopAgent("node-1");
  const pendingCreation = assertFailsWith(
    "Unavailable",
    cluster.volumes.create(request("pending"), { preferred: ["node-1"] }),
  );
  await cluster.objects.waitFor(volumeIdOf("pending"), (object) => object !== undefined);
  await cluster.client.delete(lvmNodes, { name: "node-1" });
  await cluster.nodes.waitFor("node-1", (node) => node === undefined);
  await assertFailsWith("Unavailable", cluster.volumes.delete(made.id));
  await pendingCreation;
  assertEquals((await cluster.volumes.create(request("pending"), { preferred: ["node-1"] })).nodeId, "node-2");
});

Deno.test("a node reports of a volume that trimming keeps failing, and that it is not supported", async () => {
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
  const deleted = { ...volume, id: volumeIdOf("deleted") }; // its object is gone, so there is nothing to report on
  volumes.recordTrimFailed(deleted, "fstrim: Input/output error", 3);
  volumes.recordTrimUnsupported(deleted);
  const reported = () => cluster.api.objects(events).filter(({ reason }) => reason?.startsWith("Trim"));
  await waitUntil(() => reported().length === 2, "two events");
  assertEquals(reported().map(({ reason, message }) => [reason, message]).sort(), [
    ["TrimFailed", "trimming failed 3 times in a row: fstrim: Input/output error"],
    [
      "TrimUnsupported",
      `fstrim has no effect: the device of data/${volume.lv.name} does not support discards, because of its disks or its layout; ` +
      "remove fstrim from the class",
    ],
  ]);
});
