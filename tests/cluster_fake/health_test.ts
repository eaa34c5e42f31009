import { assertEquals, assertMatch } from "@std/assert";
import { lvmNodes, type LvmVolumeStatus } from "../../k8s/api/lvm_objects.ts";
import type { VolumeId } from "../../base/ids.ts";
import { StorageHealthErrorType, type VolumeHealth, VolumeHealthErrorType } from "../../csi/proto/csi_pb.ts";
import { healthContract } from "../contract/health_suite.ts";
import { clusterHost } from "../contract/helpers/cluster_host.ts";
import { fakeMultiPvHost } from "../contract/helpers/fake_host.ts";
import { assertFails, Harness } from "../contract/helpers/host.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";
import { endSync } from "../fake/machine/pvs.ts";

healthContract(clusterHost);

/** Starts a standalone driver over groups of two disks and of five. */
async function setUp() {
  const stack = new AsyncDisposableStack();
  const host = stack.use(await fakeMultiPvHost.setUp());
  const harness = stack.use(await Harness.start(host.exec, fakeMultiPvHost.groups));
  const machine = host.exec as FakeMachine;
  return { harness, machine, group: machine.groups[0]!, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

/** Returns the problems, as status and reason. */
function statusLines(health: VolumeHealth | undefined): string[] {
  return health!.healthStatuses.map(({ status, reason }) => `${VolumeHealthErrorType[status]} ${reason}`);
}

Deno.test("controllerListVolumeHealth() lists only volumes with problems, page by page", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const { controller } = harness.csi;
  const parameters = { volumeGroup: group.name };
  const ids = [
    await harness.create({ name: "linear", parameters }),
    await harness.create({ name: "raid1", parameters: { ...parameters, layout: "raid1" } }),
  ].sort();
  await harness.create({ name: "elsewhere", parameters: { volumeGroup: harness.groups[1] } });
  endSync(group);
  assertEquals((await controller.controllerListVolumeHealth({})).entries, []);
  group.missingPvs = 1;
  const all = (await controller.controllerListVolumeHealth({})).entries;
  assertEquals(all.map(({ volumeId }) => volumeId), ids);
  assertEquals(all.map(statusLines).sort(), [["DEGRADED Degraded", "DEGRADED PhysicalVolumesMissing"], [
    "INACCESSIBLE Partial",
    "DEGRADED PhysicalVolumesMissing",
  ]]);
  const first = await controller.controllerListVolumeHealth({ maxEntries: 1 });
  assertEquals([first.entries.map(({ volumeId }) => volumeId), first.nextToken], [[ids[0]], ids[0]]);
  const second = await controller.controllerListVolumeHealth({ maxEntries: 1, startingToken: first.nextToken });
  assertEquals([second.entries.map(({ volumeId }) => volumeId), second.nextToken], [[ids[1]], ""]);
  assertEquals((await controller.controllerGetVolumeHealth({ volumeId: ids[0]! })).volumeHealth, all[0]);

  const { backendHealth: [storage, ...more] } = await harness.csi.node.nodeGetStorageHealth();
  assertEquals([StorageHealthErrorType[storage!.status], storage!.reason, more], [
    "STORAGE_DEGRADED",
    "PhysicalVolumesMissing",
    [],
  ]);
  assertMatch(storage!.message, /group disks-narrow has 1 missing physical volumes/);
});

Deno.test("a volume whose LV is gone is reported with its data lost, and the call succeeds", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const volumeId = await harness.create({ parameters: { volumeGroup: group.name } });
  const stagingTargetPath = await harness.stage(volumeId);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  group.lvs.splice(0);
  await assertFails("FAILED_PRECONDITION", harness.csi.controller.controllerGetVolume({ volumeId }), "Lost");
  for (const call of ["controllerGetVolumeHealth", "nodeGetVolumeHealth"] as const) {
    const answer = call === "nodeGetVolumeHealth"
      ? await harness.csi.node[call]({ volumeId })
      : await harness.csi.controller[call]({ volumeId });
    assertEquals(statusLines(answer.volumeHealth), ["DATA_LOSS Lost"]);
    assertMatch(answer.volumeHealth!.healthStatuses[0]!.message, /vgcfgrestore/);
  }
  assertEquals((await harness.csi.controller.controllerListVolumeHealth({})).entries.map(statusLines), [[
    "DATA_LOSS Lost",
  ]]);
});

Deno.test("a volume that two LVs claim to be is inaccessible", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const volumeId = await harness.create({ parameters: { volumeGroup: group.name } });
  const [lv] = group.lvs;
  group.lvs.push({ ...lv!, name: "other", uuid: "another", tags: new Set(lv!.tags) });
  const { volumeHealth } = await harness.csi.controller.controllerGetVolumeHealth({ volumeId });
  assertEquals(statusLines(volumeHealth), ["INACCESSIBLE ForeignData"]);
  assertEquals((await harness.csi.controller.controllerListVolumeHealth({})).entries, [volumeHealth!]);
});

Deno.test("a filesystem that became read-only after an error is degraded, until it is mounted again", async () => {
  await using fixture = await setUp();
  const { harness, machine, group } = fixture;
  const volumeId = await harness.create({ parameters: { volumeGroup: group.name } });
  const stagingTargetPath = await harness.stage(volumeId);
  const health = async () => statusLines((await harness.csi.node.nodeGetVolumeHealth({ volumeId })).volumeHealth);
  machine.mounts.find(({ target }) => target === stagingTargetPath)!.remountedReadOnly = true;
  assertEquals(await health(), ["DEGRADED FilesystemReadOnly"]);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await harness.stage(volumeId);
  assertEquals(await health(), []);
});

Deno.test("each call for health costs a report, and where findmnt lists the mounts, of volumes a second command", async () => {
  await using fixture = await setUp();
  const { harness } = fixture;
  const { controller, node } = harness.csi;
  const volumeId = await harness.create();
  const count = async (body: () => Promise<unknown>) => (await harness.exec.recordCommands(body)).length;
  const counts = async () => [
    await count(() => controller.controllerGetVolumeHealth({ volumeId })),
    await count(() => controller.controllerListVolumeHealth({})),
    await count(() => node.nodeGetVolumeHealth({ volumeId })),
    await count(() => node.nodeGetStorageHealth({})),
  ];
  assertEquals(await counts(), [1, 1, 1, 1]);
  fixture.machine.hasMountTable = false;
  assertEquals(await counts(), [2, 2, 2, 1]);
});

Deno.test("a machine whose lvm fails has unreachable storage", async () => {
  await using fixture = await setUp();
  fixture.machine.fault = ({ program }) =>
    program === "lvm" ? { code: 5, stdout: "", stderr: "  lvm is broken\n" } : undefined;
  const { backendHealth } = await fixture.harness.csi.node.nodeGetStorageHealth();
  assertEquals(backendHealth.map(({ status, reason }) => [StorageHealthErrorType[status], reason]), [[
    "STORAGE_UNREACHABLE",
    "LvmFailed",
  ]]);
  assertMatch(backendHealth[0]!.message, /lvm is broken/);
  fixture.machine.fault = undefined;
});

Deno.test("the controller of a cluster reports the volume health that nodes wrote, and that a node is gone", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { volumes } = cluster;
  const createVolume = (name: string) => volumes.create(namedRequest(name, 32n << 20n), { preferred: [] });
  const [{ id: lostId }, { id: remainingId }] = [await createVolume("pvc-1"), await createVolume("pvc-2")];
  const reasonsOf = async (id: VolumeId) => (await volumes.health(id)).problems.map(({ reason }) => reason);
  const waitForStatus = async (predicate: (status: LvmVolumeStatus) => boolean, ...ids: VolumeId[]) => {
    await cluster.agent("node-1").node.refresh();
    for (const id of ids) {
      await cluster.objects.waitFor(id, (object) => predicate(object!.status!), { timeoutMs: 5_000 });
    }
  };
  const isHealthy = ({ conditions }: LvmVolumeStatus) =>
    conditions!.some(({ type, status }) => type === "Healthy" && status === "True");
  assertEquals([await reasonsOf(lostId), await volumes.listUnhealthy()], [[], []]);

  group.missingPvs = 1;
  await waitForStatus((status) => !isHealthy(status), lostId, remainingId);
  const allProblems = ["Partial", "PhysicalVolumesMissing"];
  assertEquals([await reasonsOf(lostId), await reasonsOf(remainingId)], [allProblems, allProblems]);
  const { conditions, problems } = cluster.objects.get(remainingId)!.status!;
  const messageOfAll = problems!.map(({ message }) => message).join("; ");
  assertEquals(conditions!.find(({ type }) => type === "Healthy")?.message, messageOfAll);
  const ids = (await volumes.listUnhealthy()).map(({ id }) => id);
  assertEquals(ids, [lostId, remainingId].sort());

  group.missingPvs = 0;
  group.lvs.shift();
  await waitForStatus(({ state }) => state === "Lost", lostId);
  await waitForStatus(isHealthy, remainingId);
  assertEquals([await reasonsOf(lostId), await volumes.listUnhealthy()], [["Lost"], [await volumes.health(lostId)]]);

  await cluster.stopAgent("node-1");
  await cluster.client.delete(lvmNodes, { name: "node-1" });
  await cluster.nodes.waitFor("node-1", (node) => node === undefined, { timeoutMs: 5_000 });
  assertEquals([await reasonsOf(lostId), await reasonsOf(remainingId)], [["Lost"], ["NodeNotFound"]]);
});
