/**
 * Volumes of a cluster, from the controller's call to the LV and back: real client, informers and loops, over a fake API
 * server and fake machines.
 *
 * @module
 */

import { LINEAR } from "../../lvm/model/layout.ts";
import { assert, assertEquals } from "@std/assert";
import {
  CLAIM_ANNOTATION,
  CREATED_ANNOTATION,
  type LvmVolume,
  lvmVolumes,
  PENDING_ANNOTATION,
} from "../../k8s/api/lvm_objects.ts";
import { lvmVolumeFor, type NamedVolumeRequest } from "../../k8s/api/volume_mapping.ts";
import { exactMatcher } from "../../lvm/model/groups.ts";
import type { Command, Exec, Output } from "../../lvm/exec.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
import { addForeignLv } from "../fake/machine/foreign_lv.ts";
import { failure, type FakeMachine } from "../fake/machine/machine.ts";
import { leaveMetadataFree } from "../fake/machine/metadata_area.ts";
import {
  ANYWHERE,
  assertFailsWith,
  machineWith,
  MiB,
  onlyObject,
  remaining,
  request,
} from "../fake/cluster/volume_cluster.ts";

Deno.test("an object is marked as pending only when our own provisioner names the claim that it is for", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const claim = { namespace: "shop", name: "orders", uid: "u-1" };
  const mine = await cluster.volumes.create(request("pvc-u-1"), ANYWHERE, { claim });
  const other = await cluster.volumes.create(request("pvc-u-2"), ANYWHERE);
  const annotations = Object.fromEntries(
    cluster.api.objects(lvmVolumes).map(({ metadata }) => [metadata.name, metadata.annotations ?? {}]),
  );
  assertEquals(annotations, {
    [mine.id]: { [CLAIM_ANNOTATION]: "shop/orders", [PENDING_ANNOTATION]: "u-1", [CREATED_ANNOTATION]: "true" },
    [other.id]: { [CREATED_ANNOTATION]: "true" },
  });
});

Deno.test("a volume is created where it was requested, is described by its object, and is deleted completely", async () => {
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

Deno.test("making a volume takes one request of the controller's and three of the node's, two commands and a flush", async () => {
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
    "PATCH lvmvolumes/ID",
    "PATCH lvmvolumes/ID/status",
  ]);
  assertEquals(commands.slice(0, 3), ["lvm lvcreate", "sync /dev/vdb", "dmsetup info"]);
});

Deno.test("a volume is created by a new report where LVM refuses what is known, and its LV stays the one of its claim", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const commands: string[] = [];
  machine.fault = ({ program, args }) => void (program === "lvm" && commands.push(args[0]!));
  machine.groups[0]!.name = "renamed";
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  assertEquals(commands.filter((name) => name === "lvcreate").length, 2);
  const [object] = cluster.api.objects(lvmVolumes);
  assertEquals([object!.metadata.name, object!.status?.state, object!.status?.volumeGroup], [id, "Ready", "renamed"]);
  assertEquals(machine.allLvs().map(({ group, lv }) => [group.name, lv.uuid]), [["renamed", object!.status!.lvUUID]]);
});

Deno.test("a volume is ready as the kernel shows its device, before LVM reports the same; otherwise as LVM reports it", async () => {
  const isRead = ({ program, args }: Command) => program === "dmsetup" && args[0] === "info";
  const gate = Promise.withResolvers<void>();
  const faults: Record<string, (command: Command) => Promise<Output | undefined> | undefined> = {
    "LVM answers late": ({ args }) => args[0] === "fullreport" ? gate.promise.then(() => undefined) : undefined,
    "there is no such device": (command) =>
      isRead(command) ? Promise.resolve(failure(1, "Device does not exist.")) : undefined,
    "it is another device": (command) =>
      isRead(command)
        ? Promise.resolve({ code: 0, stdout: "my--data-vol|CRYPT-1|253:0|Active||Live\n", stderr: "" })
        : undefined,
  };
  for (const [what, fault] of Object.entries(faults)) {
    const machine = machineWith({ "my-data": 1n << 30n });
    await using cluster = await FakeCluster.start({ "node-1": machine });
    machine.fault = (command) => {
      if (command.args[0] === "lvcreate") machine.fault = fault;
      return undefined;
    };
    await cluster.volumes.create(request("pvc-1"), ANYWHERE);
    const { status } = onlyObject(cluster);
    gate.resolve();
    machine.fault = undefined;
    assertEquals([status?.state, status?.lvUUID], ["Ready", machine.allLvs()[0]!.lv.uuid], what);
    await cluster.agent("node-1").node.refresh();
    assertEquals(onlyObject(cluster).status, status, what);
  }
});

Deno.test("a node makes the volume of a claim before most of those of another namespace, which came first", async () => {
  const machine = machineWith({ data: 1n << 34n });
  const made: string[] = [];
  const gate = Promise.withResolvers<void>();
  const waiting: Exec = {
    run: async (command) => {
      if (command.args[0] !== "lvcreate") return await machine.run(command);
      await gate.promise;
      made.push(command.args[command.args.indexOf("--name") + 1]!);
      return await machine.run(command);
    },
    idle: () => machine.idle(),
  };
  await using cluster = await FakeCluster.start({ n: waiting });
  const add = (namespace: string, name: string) => {
    const object = lvmVolumeFor(request(name), { driver: DRIVER, nodeName: "n" });
    const annotations = { ...object.metadata.annotations, [CLAIM_ANNOTATION]: `${namespace}/${name}` };
    cluster.api.put(lvmVolumes, { ...object, metadata: { ...object.metadata, annotations } });
  };
  for (let n = 0; n < 40; n++) add("storm", `c${n}`);
  add("shop", "orders");
  await waitUntil(() => cluster.objects.list().length === 41, "the objects");
  gate.resolve();
  const name = volumeLvName(volumeIdOf("orders"));
  await waitUntil(() => made.includes(name), "the volume");
  assert(made.indexOf(name) < 10, `${made.indexOf(name)} volumes were made before`);
});

Deno.test("a volume that cannot be created leaves nothing, and can be created on another node under the same name", async () => {
  const [small, large] = [machineWith({ data: 64n * MiB }), machineWith({ data: 1n << 30n })];
  await using cluster = await FakeCluster.start({ "node-1": small, "node-2": large });
  const wanted = request("pvc-1", { range: { required: 200n * MiB } });
  const error = await assertFailsWith(
    "NoSpace",
    cluster.volumes.create(wanted, { allowed: ["node-1"], preferred: [] }),
  );
  assert(error.message.includes("not enough free space in data"), error.message);
  // The node's report was outdated: it refuses, and the creation is undone.
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

Deno.test("a node that offers space and creates nothing is not chosen again, whatever its reason is", async () => {
  const causes: Record<string, (machine: FakeMachine) => unknown> = {
    "a full metadata area": (machine) => leaveMetadataFree(machine.groups[0]!, 3000n),
    "as many LVs as it may": async (machine) => {
      await addForeignLv(machine, { group: "data", name: "other", bytes: 4n * MiB });
      machine.groups[0]!.maxLvs = 1;
    },
    "duplicate disks": (machine) =>
      machine.groups[0]!.unchangeable = "Cannot update volume group data with duplicate PV devices.",
    "no contiguous space": (machine) =>
      machine.fault = ({ args }) =>
        args[0] === "lvcreate"
          ? failure(5, "  Insufficient suitable contiguous allocatable extents for logical volume x: 8 more required")
          : undefined,
  };
  for (const [name, cause] of Object.entries(causes)) {
    const [bad, good] = [machineWith({ data: 400n * MiB }), machineWith({ data: 2n << 30n })];
    await using cluster = await FakeCluster.start({ "node-1": bad, "node-2": good });
    await cause(bad);
    await cluster.agent("node-1").machine.lvm.report();
    for (const volume of ["a", "b"]) {
      let nodeId: string | undefined;
      for (let attempt = 1; nodeId === undefined && attempt <= 3; attempt++) {
        nodeId = (await cluster.volumes.create(request(volume), ANYWHERE).catch((error) => {
          assertEquals([error.kind, attempt < 3], ["NoSpace", true], `${name}: ${error.message}`);
        }))?.nodeId;
      }
      assertEquals(nodeId, "node-2", name);
    }
    const ofDriver = (machine: FakeMachine) => machine.allLvs().filter(({ lv }) => lv.tags.size > 0).length;
    assertEquals([bad, good].map(ofDriver), [0, 2], name);
  }
});

Deno.test("of several nodes the first preferred one with free space is taken, or else the one that the class prefers", async () => {
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
  assertEquals(await chosenNode("c", big, ["node-1", "node-2"]), "node-2", "node-1 has no free space");
  assertEquals(await chosenNode("d", {}, ["node-1", "node-2"]), "node-1");
});

Deno.test("volumes that are requested at once do not overbook a group: the node refuses none of them", async () => {
  const machine = machineWith({ data: 100n * MiB });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const create = (name: string) => cluster.volumes.create(request(name), ANYWHERE);
  const four = await Promise.allSettled(["a", "b", "c", "d"].map(create));
  assertEquals(four.map(({ status }) => status), ["fulfilled", "fulfilled", "fulfilled", "rejected"]);
  const { reason } = four[3] as PromiseRejectedResult;
  assert(
    reason.message.includes("not enough free space in data (4 MiB free, 96 MiB more for pending volumes)"),
    reason,
  );
  const requests = cluster.api.requests.filter(({ method, path }) => method === "POST" && path.endsWith("/lvmvolumes"));
  assertEquals([requests.length, remaining(cluster, machine)], [3, [3, 3]]);

  await cluster.volumes.delete(volumeIdOf("b"));
  await cluster.nodes.waitFor("node-1", (node) => node?.status?.total?.free === "36Mi", { timeoutMs: 5_000 });
  await create("d");
  await assertFailsWith("NoSpace", create("b"));
});

Deno.test("volumes that are requested at once are spread over the nodes with free space, as the class prefers", async () => {
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

Deno.test("the space of an expansion in progress is not given to other volumes", async () => {
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

Deno.test("an expansion that was done and not reported is reported before the next one is refused", async () => {
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

Deno.test("a name that another volume has is refused", async () => {
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

Deno.test("an expansion that fails for lack of space is reverted, and a smaller one succeeds", async () => {
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

Deno.test("an object that a user created without a finalizer is deleted with its LV by the driver", async () => {
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

Deno.test("a volume in use is not deleted: the node says why, and removes it when a report shows it unused", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { lv } = machine.allLvs()[0]!;
  const mount = { target: "/mnt/pod", source: "/dev/mapper/x", fsType: "ext4", root: "/", readOnly: false };
  machine.mounts.push({ ...mount, deviceNumber: `254:${lv.minor}`, lv });
  const error = await assertFailsWith("InUse", cluster.volumes.delete(id));
  assert(error.message.includes("is in use"), error.message);
  machine.mounts.pop(); // by somebody else
  cluster.agent("node-1").node.requeue();
  await cluster.objects.waitFor(id, (object) => object === undefined, { timeoutMs: 5_000 });
  assertEquals(remaining(cluster, machine), [0, 0]);
});

/** Returns a function that returns the reasons of the events that the agent has recorded since then for a volume. */
function reasonsRecorded(cluster: FakeCluster): (name: string) => string[] {
  const { events } = cluster.agent("node-1");
  const reasons: [name: string, reason: string][] = [];
  const record = events.record.bind(events);
  events.record = (...args) => {
    reasons.push([args[0].metadata.name, args[2]]);
    record(...args);
  };
  return (name) => reasons.filter(([each]) => each === name).map(([, reason]) => reason);
}

Deno.test("the source of a running copy is neither deleted nor expanded: Busy, until the copy is complete", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const block: Partial<NamedVolumeRequest> = { format: { state: "raw" } };
  const { id } = await cluster.volumes.create(request("source", block), ANYWHERE);
  const recorded = reasonsRecorded(cluster);
  const [firstChunk, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  machine.fault = async ({ program, args }) => {
    if (program !== "dd" || !args.includes("conv=fsync,nocreat,notrunc")) return undefined;
    firstChunk.resolve();
    await gate.promise;
    return undefined;
  };
  const copyRequest = request("copy", { ...block, range: { required: 0n }, source: { kind: "volume", id } });
  const copy = cluster.volumes.create(copyRequest, ANYWHERE);
  await firstChunk.promise;
  for (const call of [() => cluster.volumes.delete(id), () => cluster.volumes.expand(id, { required: 64n * MiB })]) {
    const error = await assertFailsWith("Busy", call());
    assert(error.message.includes(`volume ${copyRequest.id} is being created from it`), error.message);
  }
  gate.resolve();
  assertEquals((await copy).id, copyRequest.id);
  const agent = cluster.agent("node-1");
  await waitUntil(() => recorded(copyRequest.id).includes("Created"), "the event");
  const attempts = agent.reconciliations.length;
  const reconcileAgain = await cluster.client.patch(lvmVolumes, { name: copyRequest.id }, {
    merge: { spec: { discard: true } },
  });
  const { generation } = reconcileAgain.metadata;
  const isReconciled = (object?: LvmVolume) => object?.status?.observedGeneration === generation;
  await agent.objects.waitFor(copyRequest.id, isReconciled, { timeoutMs: 5_000 });
  await waitUntil(() => agent.reconciliations.slice(attempts).some(({ key }) => key === copyRequest.id), "its end");
  assertEquals(recorded(copyRequest.id), ["Copying", "Created"], "each is reported once");
  for (const each of [id, copyRequest.id]) await cluster.volumes.delete(each);
  await cluster.agent("node-1").machine.background.idle();
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("a clone within a thin pool is reported as created, and not as being copied", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const recorded = reasonsRecorded(cluster);
  const thin: Partial<NamedVolumeRequest> = { format: { state: "raw" }, thin: { poolSize: { percent: 50n } } };
  const { id } = await cluster.volumes.create(request("source", thin), ANYWHERE);
  const clone = request("clone", { ...thin, range: { required: 0n }, source: { kind: "volume", id } });
  await cluster.volumes.create(clone, ANYWHERE);
  await waitUntil(() => recorded(clone.id).includes("Created"), "the event");
  assertEquals(recorded(clone.id), ["Created"]);
});

Deno.test("an error of a copy that is over is not reported any more", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const block: Partial<NamedVolumeRequest> = { format: { state: "raw" } };
  const { id } = await cluster.volumes.create(request("source", block), ANYWHERE);
  const gate = Promise.withResolvers<void>();
  machine.fault = ({ program }) => program === "dd" ? gate.promise.then(() => undefined) : undefined;
  const copyRequest = request("copy", { ...block, range: { required: 0n }, source: { kind: "volume", id } });
  const created = cluster.volumes.create(copyRequest, ANYWHERE);
  const { id: name } = copyRequest;
  await cluster.objects.waitFor(name, (object) => object?.status?.copy !== undefined, { timeoutMs: 5_000 });
  const merge = { status: { copy: { lastError: "a disk hangs" } } };
  await cluster.client.patch(lvmVolumes, { name }, { merge, subresource: "status" });
  for (const expected of ["a disk hangs", undefined]) {
    const isExpected = (object?: LvmVolume) => object?.status?.copy?.lastError === expected;
    await cluster.objects.waitFor(name, isExpected, { timeoutMs: 5_000 });
  }
  gate.resolve();
  await created;
});

Deno.test("the deletion of a Lost volume is not refused for the error that it had before", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine }, {
    wrap: (client) => ({
      ...interceptClient(client, () => Promise.resolve()),
      watch: async function* (resource, options) {
        for await (const event of client.watch(resource, options)) {
          await new Promise((resolve) => setTimeout(resolve, 20)); // the answers to requests are seen first
          yield event;
        }
      },
    }),
  });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.waitUntilIdle("node-1", id);
  machine.allLvs()[0]!.group.lvs.pop();
  cluster.agent("node-1").node.requeue();
  await cluster.objects.waitFor(id, (object) => object?.status?.state === "Lost", { timeoutMs: 5_000 });
  await cluster.volumes.delete(id);
  assertEquals(remaining(cluster, machine), [0, 0]);
});

Deno.test("a volume that is deleted while its creation fails is gone, and the deletion does not fail for that", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  machine.fault = async ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    begun.resolve();
    await gate.promise;
    return failure(5, `  Volume group "data" has insufficient free space (0 extents): 8 required.`);
  };
  const creation = cluster.volumes.create(request("pvc-1"), ANYWHERE).catch(() => {});
  await begun.promise;
  const deletion = cluster.volumes.delete(volumeIdOf("pvc-1"));
  const isDeleting = (object?: LvmVolume) => object?.metadata.deletionTimestamp !== undefined;
  await cluster.agent("node-1").objects.waitFor(volumeIdOf("pvc-1"), isDeleting, { timeoutMs: 5_000 });
  gate.resolve();
  await Promise.all([creation, deletion]);
  assertEquals(remaining(cluster, machine), [0, 0]);
});
