import { assert, assertEquals, assertRejects } from "@std/assert";
import { Lvm } from "../../lvm/client/client.ts";
import { ANY_GROUP, exactMatcher, type GroupMatcher } from "../../lvm/model/groups.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { readSurvey, type SurveyedGroup } from "../../lvm/model/survey.ts";
import { markVolumeDeleted, volumeTags } from "../../lvm/model/tags.ts";
import { createPool } from "../../lvm/pools/pool_commands.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { formatQuantity } from "../../base/size.ts";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { GiB, harness, lvcreate, machine } from "../../tests/fake/cluster/node_report.ts";
import { ApiError } from "../client/client.ts";
import { type LvmNode, lvmNodes, type NodeDisk } from "../api/lvm_objects.ts";
import { lvmNodeStatus } from "./node_reconciler.ts";
import { nodes } from "../api/objects.ts";

Deno.test("lvmNodeStatus() reports each group, and all of them together", async () => {
  const fake = machine();
  await lvcreate(fake, "--size", `${GiB}b`, "--name", "one", "data");
  const survey = (await readSurvey(fake)).groups;
  const groups = survey.map((group) => ({
    ...group,
    lvs: group.lvs.flatMap((lv) => [lv, { ...lv, name: "snap", origin: lv.name }]),
    missingPvs: group.name === "fast" ? 1 : 0,
    writeable: group.name === "data",
  }));
  const { total, volumeGroups, lastUpdateTime } = lvmNodeStatus(groups, {
    driver: "lvm.denolith.dev",
    now: new Date(Date.UTC(2026, 1, 3, 4, 5, 6, 789)),
  });
  assertEquals(lastUpdateTime, "2026-02-03T04:05:06Z");
  const pvs = fake.groups.map((group) => group.pvs[0]!);
  assertEquals(total, { volumeGroups: 2, names: "data, fast", size: "12Gi", free: "11Gi" });
  assertEquals(volumeGroups, [
    {
      name: "data",
      uuid: fake.groups[0]!.uuid,
      ...{ size: "10Gi", free: "9Gi", extentSize: "4Mi" },
      ...{ lvCount: 2, pvCount: 1, snapshotCount: 1, missingPVCount: 0, writeable: true },
      metadata: volumeGroups![0]!.metadata!,
      allocationPolicy: "normal",
      physicalVolumes: [{ uuid: pvs[0]!.uuid, path: pvs[0]!.path, size: "10Gi", free: "9Gi", missing: false }],
      volumes: [],
    },
    {
      name: "fast",
      uuid: fake.groups[1]!.uuid,
      ...{ size: "2Gi", free: "2Gi", extentSize: "1Mi" },
      ...{ lvCount: 0, pvCount: 1, snapshotCount: 0, missingPVCount: 1, writeable: false },
      metadata: volumeGroups![1]!.metadata!,
      allocationPolicy: "normal",
      physicalVolumes: [{ uuid: pvs[1]!.uuid, path: pvs[1]!.path, size: "2Gi", free: "2Gi", missing: false }],
      volumes: [],
    },
  ]);
  assertEquals(volumeGroups![0]!.metadata?.free, "519789");
  assertEquals(lvmNodeStatus([], { driver: "d", now: new Date() }).total, {
    ...{ volumeGroups: 0, names: "", size: "0", free: "0" },
  });
});

Deno.test("lvmNodeStatus() names no more groups than kubectl get has room for", async () => {
  const [group] = (await readSurvey(machine())).groups;
  const many = Array.from({ length: 200 }, (_, index) => ({ ...group!, name: `group-${index}` }));
  const { names = "" } = lvmNodeStatus(many, { driver: "d", now: new Date() }).total!;
  assert(names.length === 300 && names.startsWith("group-0, group-1, "), names);
});

Deno.test("lvmNodeStatus() reports what volumes may get as free, and the spare space beside it", async () => {
  const fake = machine();
  fake.groups[0]!.tags.add("denolith.spare=2Gi");
  const { total, volumeGroups } = lvmNodeStatus((await readSurvey(fake)).groups, { driver: "d", now: new Date() });
  assertEquals(total, { volumeGroups: 2, names: "data, fast", size: "12Gi", free: "10Gi" });
  assertEquals(volumeGroups!.map(({ free, spare }) => [free, spare]), [["8Gi", "2Gi"], ["2Gi", undefined]]);
});

Deno.test("the LVMNode lists the disks that rules name, keeps them while they cannot be read, and none without rules", async () => {
  await using s = await harness(machine());
  await s.client.create(nodes, { apiVersion: "v1", kind: "Node", metadata: { name: "n1" } });
  let disks: NodeDisk[] | undefined = [
    ...[{
      name: "ata-A",
      path: "/dev/sdb",
      size: "100Gi",
      volumeGroup: "data",
      proposed: false,
      reason: "it is mounted",
    }],
  ];
  const agent = s.newAgent({ disks: () => Promise.resolve(disks) });
  const reported = async (by = agent) => {
    await by.refresh();
    return (await s.client.get(lvmNodes, { name: "n1" })).status?.disks;
  };
  assertEquals(await reported(), disks);
  disks = undefined;
  assertEquals((await reported())?.length, 1);
  disks = [{ name: "ata-A", path: "/dev/sdb", size: "100Gi", volumeGroup: "data", proposed: true }];
  assertEquals(await reported(), disks);
  await s.waitForObject((object) => object?.status?.disks?.[0]?.proposed === true);
  assertEquals(await reported(s.newAgent()), undefined);
});

Deno.test("the LVMNode keeps where its agent is reached while that is not known, and loses it when it is not", async () => {
  await using s = await harness(machine());
  await s.client.create(nodes, { apiVersion: "v1", kind: "Node", metadata: { name: "n1" } });
  const endpoint = { address: "192.0.2.1:1", certificate: "c", validUntil: "2026-01-01T00:00:00Z" };
  let transfer: typeof endpoint | null | undefined = null;
  const agent = s.newAgent({ transfer: () => transfer });
  const reported = async (next: typeof transfer) => {
    transfer = next;
    await agent.refresh();
    const object = await s.client.get(lvmNodes, { name: "n1" });
    await s.waitForObject((known) => known?.metadata.resourceVersion === object.metadata.resourceVersion);
    return object.status?.transfer;
  };
  assertEquals([await reported(null), await reported(undefined)], [undefined, undefined]);
  assertEquals(await reported(endpoint), endpoint);
  assertEquals(await reported(undefined), endpoint); // it makes another key, or was just started
  assertEquals(await reported(null), undefined);
  const before = s.api.requests.length;
  await agent.refresh();
  assertEquals(s.api.requests.slice(before).map(({ path }) => path), [], "it is removed once");
});

Deno.test("lvmNodeStatus() rounds up how full a thin pool is, and leaves it out while LVM does not know it", async () => {
  const fake = machine();
  await lvcreate(fake, "--size", `${GiB}b`, "--name", "pool", "data");
  const [group] = (await readSurvey(fake)).groups;
  const thinPool = { metadataSize: 1n << 20n, health: "", needsCheck: false, zeroes: true };
  const percents = [{ dataPercent: 40.01, metadataPercent: 0 }, { dataPercent: 100.3, metadataPercent: 99.2 }, {}];
  const lvs = percents.map((known) => ({ ...group!.lvs[0]!, thinPool: { ...thinPool, ...known } }));
  const status = lvmNodeStatus([{ ...group!, lvs } as SurveyedGroup], { driver: "lvm.denolith.dev", now: new Date() });
  const known = status.volumeGroups![0]!.thinPools!.map((pool) =>
    Object.fromEntries(Object.entries(pool).filter(([key]) => key.endsWith("Percent")))
  );
  assertEquals(known, [{ dataPercent: 41, metadataPercent: 0 }, { dataPercent: 100, metadataPercent: 100 }, {}]);
});

Deno.test("lvmNodeStatus() counts all images of a deleted RAID volume, and nothing for a deleted thin one", async () => {
  const fake = new FakeMachine();
  fake.addGroup("data", 4n * GiB, 4n << 20n, 2);
  const format = { state: "raw" } as const;
  const create = (name: string, ...layout: string[]) => {
    const tags = volumeTags("d", { id: volumeIdOf(name), format, mkfsOptions: [], shared: true, erase: "zero" });
    return lvcreate(fake, ...layout, ...tags.flatMap((tag) => ["--addtag", tag]), "--name", name, "data");
  };
  await lvcreate(fake, "--type", "thin-pool", "--zero", "y", "--size", `${GiB}b`, "--name", "pool", "data");
  await create("mirrored", "--type", "raid1", "--mirrors", "1", "--size", `${GiB / 2n}b`);
  await create("thin", "--type", "thin", "--virtualsize", `${GiB}b`, "--thinpool", "pool");
  for (const name of ["mirrored", "thin"]) {
    const args = ["lvchange", ...markVolumeDeleted(volumeIdOf(name), format), `data/${name}`];
    assertEquals((await fake.run({ program: "lvm", args, mutates: true })).code, 0);
  }
  const free = async () => (await readSurvey(fake)).groups[0]!.free;
  const { volumeGroups } = lvmNodeStatus((await readSurvey(fake)).groups, { driver: "d", now: new Date() });
  const before = await free();
  const args = ["lvremove", "--yes", "data/mirrored"];
  assertEquals((await fake.run({ program: "lvm", args, mutates: true })).code, 0);
  const space = formatQuantity(await free() - before);
  assertEquals(volumeGroups?.map(({ erasing }) => erasing), [{ volumes: 2, space }]);
});

Deno.test("lvmNodeStatus() lists the driver's volumes in each group without other LVs, and the space of deleted ones", async () => {
  const fake = machine();
  const format = { state: "raw" } as const;
  const tagged = (driver: string, name: string) =>
    volumeTags(driver, { id: volumeIdOf(name), format, mkfsOptions: [], shared: true, erase: "zero" })
      .flatMap((tag) => ["--addtag", tag]);
  const size = ["--size", `${GiB}b`];
  await lvcreate(fake, ...size, ...tagged("d", "mine"), "--name", "mine", "data");
  await lvcreate(fake, ...size, ...tagged("e", "others"), "--name", "others", "data");
  await lvcreate(fake, ...size, "--name", "plain", "data");
  await lvcreate(fake, ...size, ...tagged("d", "gone"), "--name", "gone", "data");
  const args = ["lvchange", ...markVolumeDeleted(volumeIdOf("gone"), format), "data/gone"];
  assertEquals((await fake.run({ program: "lvm", args, mutates: true })).code, 0);
  const { volumeGroups } = lvmNodeStatus((await readSurvey(fake)).groups, { driver: "d", now: new Date() });
  assertEquals(volumeGroups?.map(({ free, volumes, erasing }) => [free, volumes, erasing]), [
    ["6Gi", [{ name: volumeIdOf("mine"), size: "1Gi" }], { volumes: 1, space: "1Gi" }],
    ["2Gi", [], undefined],
  ]);
});

Deno.test("NodeReconciler creates the LVMNode, owned by the Node, with the groups that the driver may use", async () => {
  await using s = await harness(machine(), { groups: exactMatcher("fast") });
  const { metadata: { uid } } = s.api.put(nodes, { metadata: { name: "n1" } });
  await s.agent.refresh();
  const [object, ...more] = s.api.objects(lvmNodes);
  assertEquals([object?.metadata.name, more.length], ["n1", 0]);
  assertEquals(object?.metadata.ownerReferences, [{ apiVersion: "v1", kind: "Node", name: "n1", uid: uid! }]);
  assertEquals(object?.spec, { driverName: "lvm.denolith.dev" });
  assertEquals(object?.status?.volumeGroups?.map(({ name }) => name), ["fast"]);
  assertEquals(s.reports, [["data", "fast"]], "all groups are reported");
});

Deno.test("NodeReconciler reports to an LVMNode that another process creates at the same time", async () => {
  await using s = await harness(machine());
  s.api.put(nodes, { metadata: { name: "n1" } });
  const client = interceptClient(s.client, (request, when) => {
    if (request === "create lvmnodes" && when === "before") {
      s.api.put(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: "lvm.denolith.dev" } });
    }
    return Promise.resolve();
  });
  await s.newAgent({ client }).refresh();
  assertEquals(s.api.objects(lvmNodes)[0]?.status?.total?.volumeGroups, 2);
});

Deno.test("NodeReconciler refreshes with one request, and creates a deleted LVMNode again", async () => {
  const fake = machine();
  await using s = await harness(fake);
  s.api.put(nodes, { metadata: { name: "n1" } });
  await s.agent.refresh();
  const before = s.api.requests.length;
  await lvcreate(fake, "--size", `${GiB}b`, "--name", "one", "data");
  await s.agent.refresh();
  assertEquals(s.api.requests.slice(before).map(({ method, path }) => `${method} ${path.split("/").at(-1)}`), [
    "PATCH status",
  ]);
  assertEquals(s.api.objects(lvmNodes)[0]?.status?.total?.free, "11Gi");
  await s.client.delete(lvmNodes, { name: "n1" });
  await s.objects.waitFor("n1", (object) => object === undefined);
  await s.agent.refresh();
  assertEquals(s.api.objects(lvmNodes)[0]?.status?.total?.free, "11Gi");
});

Deno.test("NodeReconciler writes the LVMNode when something is not known any more, and leaves fields of a newer agent alone", async () => {
  const fake = machine();
  await using s = await harness(fake);
  s.api.put(nodes, { metadata: { name: "n1" } });
  const lvm = new Lvm(fake);
  const [group] = await lvm.report();
  await createPool(lvm, "lvm.denolith.dev", group!, { name: "pool", size: GiB });
  await s.agent.refresh();
  const seen = () => s.api.objects(lvmNodes)[0]!;
  const percents = () => {
    const { dataPercent, metadataPercent } = seen().status!.volumeGroups![0]!.thinPools![0]!;
    return [dataPercent, metadataPercent];
  };
  assertEquals(percents(), [0, 11]);
  fake.groups[0]!.lvs[0]!.active = false;
  await s.agent.refresh();
  assertEquals(percents(), [undefined, undefined]);

  const write = async (status: object) => {
    const merge = { status } as object;
    const { metadata } = await s.client.patch(lvmNodes, { name: "n1" }, { merge, subresource: "status" });
    await s.objects.waitFor("n1", (object) => object?.metadata.resourceVersion === metadata.resourceVersion);
    await s.agent.refresh();
    return seen().metadata.resourceVersion === metadata.resourceVersion;
  };
  assert(await write({ newer: "field" }), "a field of a newer agent is left alone");
  const reported = seen().status!.volumeGroups!;
  assertEquals(await write({ volumeGroups: reported.map((group) => ({ ...group, newer: "field" })) }), false);
  assertEquals(seen().status!.volumeGroups, reported, "what is said of a group is the agent's alone");
});

Deno.test("NodeReconciler changes only its own conditions, and reports the object that was written", async () => {
  const conditions = ["True", "True", "False", "True"].map((status) => {
    return [{ type: "Full", status: status as "True" | "False", reason: "Ok" as const, message: status }];
  });
  const written: LvmNode[] = [];
  const options = {
    conditions: () => conditions.shift() ?? [],
    onReported: (object: LvmNode) => void written.push(object),
  };
  await using s = await harness(machine(), options);
  const old = { status: "True", reason: "Ok", message: "", lastTransitionTime: "2020-01-01T00:00:00Z" } as const;
  s.api.put(lvmNodes, {
    metadata: { name: "n1", annotations: { note: "from others" } },
    spec: { driverName: "lvm.denolith.dev" },
    status: { conditions: [{ type: "Full", ...old }, { type: "Odd", ...old }] },
  });
  const times = () =>
    s.api.objects(lvmNodes)[0]!.status!.conditions!.map(({ type, status, lastTransitionTime: time }) =>
      `${type} ${status} ${time === old.lastTransitionTime ? "old" : "new"}`
    );
  await s.agent.refresh();
  await s.agent.refresh();
  assertEquals(times(), ["Full True old", "Odd True old"]);
  await s.agent.refresh();
  assertEquals(times(), ["Full False new", "Odd True old"]);
  for (const what of ["it was not so in between", "it is not reported this time"]) {
    await s.agent.refresh();
    assertEquals(times(), ["Full True new", "Odd True old"], what);
  }
  assertEquals(written.map(({ metadata }) => metadata.annotations?.["note"]), Array(5).fill("from others"));
});

Deno.test("NodeReconciler writes no LVMNode without a Node, but reports the groups; without LVM it reports nothing", async () => {
  const fake = machine();
  await using s = await harness(fake);
  await assertRejects(() => s.agent.refresh(), ApiError, "n1");
  assertEquals(s.reports.splice(0).length, 1);
  s.api.put(nodes, { metadata: { name: "n1" } });
  fake.host.root = false;
  await assertRejects(() => s.agent.refresh(), Error, "only to root");
  assertEquals([s.api.objects(lvmNodes), s.reports], [[], []]);
});

Deno.test("NodeReconciler leaves the LVMNode of another driver alone, and says whose it is", async () => {
  await using s = await harness(machine());
  const status = { total: { volumeGroups: 1, size: "1Gi", free: "1Gi" } };
  s.api.put(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: "other" }, status });
  for (let time = 0; time < 2; time++) {
    await assertRejects(() => s.agent.refresh(), Error, "LVMNode n1 belongs to the driver other");
  }
  assertEquals([s.api.objects(lvmNodes)[0]?.status, s.reports.length], [status, 2]);
  s.api.put(nodes, { metadata: { name: "n1" } });
  await s.client.delete(lvmNodes, { name: "n1" });
  await s.agent.refresh();
  assertEquals(s.api.objects(lvmNodes)[0]?.spec, { driverName: "lvm.denolith.dev" });
});

Deno.test("NodeReconciler handles a burst of requeues in one refresh, and continues after failures", async () => {
  const fake = machine();
  await using s = await harness(fake, { refreshMs: 60_000, batchMs: 20 });
  let failures = 1;
  fake.fault = () => failures-- > 0 ? failure(5, "  Locking failed") : undefined;
  s.api.put(nodes, { metadata: { name: "n1" } });
  s.start();
  await s.waitForObject((object) => object?.status?.total?.free === "12Gi");
  const before = s.reports.length;
  await lvcreate(fake, "--size", `${GiB}b`, "--name", "one", "data");
  for (let time = 0; time < 50; time++) s.agent.requeue();
  await s.waitForObject((object) => object?.status?.total?.free === "11Gi");
  await lvcreate(fake, "--size", `${GiB}b`, "--name", "two", "data");
  s.agent.requeue();
  await s.waitForObject((object) => object?.status?.total?.free === "10Gi");
  assert(s.reports.length - before <= 3, `${s.reports.length - before} refreshes for 51 requeues`);
});

Deno.test("NodeReconciler retries a report that fails with a growing delay, and once a minute in the end", async () => {
  const [clock, fake] = [new FakeClock(), machine()];
  let reports = 0;
  fake.fault = ({ args }) => args[0] === "fullreport" && reports++ >= 0 ? failure(5, "  no report") : undefined;
  await using s = await harness(fake, { clock, batchMs: 1_000 });
  s.start();
  for (let passedMs = 0; passedMs < 600_000;) {
    await waitUntil(() => clock.msUntilNextTimer !== Infinity, "the next delay");
    passedMs += clock.msUntilNextTimer;
    await clock.advance(clock.msUntilNextTimer);
  }
  assert(reports <= 20, `${reports} reports in ten minutes`);
});

Deno.test("the agent reports which groups the node itself uses, unless its flag names the groups", async () => {
  const fake = machine();
  await lvcreate(fake, "--name", "root", "--size", "104857600b", "fast");
  fake.host.swapLvs.add(fake.allLvs()[0]!.lv);
  await using s = await harness(fake);
  s.api.put(nodes, { metadata: { name: "n1" } });
  const uses = async (groups: GroupMatcher) => {
    await s.newAgent({ groups }).refresh();
    const object = await s.client.get(lvmNodes, { name: "n1" });
    return object.status!.volumeGroups!.map(({ name, hostUse }) => [name, hostUse]);
  };
  assertEquals(await uses(ANY_GROUP), [["data", undefined], ["fast", "root (swap)"]]);
  assertEquals(await uses(exactMatcher("fast")), [["fast", undefined]]);
});
