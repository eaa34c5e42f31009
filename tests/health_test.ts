import { assertEquals, assertMatch } from "@std/assert";
import { lvmNodes, type LvmVolumeStatus } from "../k8s/api/lvm_objects.ts";
import type { VolumeId } from "../lvm/ids.ts";
import { StorageHealthErrorType, type VolumeHealth, VolumeHealthErrorType } from "../csi/proto/csi_pb.ts";
import { healthContract } from "./contract/health.ts";
import { clusterHost } from "./contract/cluster_host.ts";
import { fakeDisksHost } from "./contract/fake_host.ts";
import { assertFails, Bench } from "./contract/host.ts";
import { FakeCluster } from "./fake/agents.ts";
import { FakeMachine } from "./fake/machine.ts";
import { namedRequest } from "./fake/request.ts";

healthContract(clusterHost);

/** A driver alone, over groups of two disks and of five. */
async function start() {
  const stack = new AsyncDisposableStack();
  const host = stack.use(await fakeDisksHost.setUp());
  const bench = stack.use(await Bench.start(host.exec, fakeDisksHost.groups));
  const machine = host.exec as FakeMachine;
  return { bench, machine, group: machine.groups[0]!, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

/** What is wrong, as status and reason. */
function words(health: VolumeHealth | undefined): string[] {
  return health!.healthStatuses.map(({ status, reason }) => `${VolumeHealthErrorType[status]} ${reason}`);
}

Deno.test("controllerListVolumeHealth() tells of volumes with problems alone, page by page", async () => {
  await using here = await start();
  const { bench, group } = here;
  const { controller } = bench.csi;
  const parameters = { volumeGroup: group.name };
  const ids = [
    await bench.create({ name: "linear", parameters }),
    await bench.create({ name: "raid1", parameters: { ...parameters, layout: "raid1" } }),
  ].sort();
  await bench.create({ name: "elsewhere", parameters: { volumeGroup: bench.groups[1] } });
  assertEquals((await controller.controllerListVolumeHealth({})).entries, []);
  group.missingPvs = 1;
  const all = (await controller.controllerListVolumeHealth({})).entries;
  assertEquals(all.map(({ volumeId }) => volumeId), ids);
  assertEquals(all.map(words).sort(), [["DEGRADED Degraded", "DEGRADED DisksMissing"], [
    "INACCESSIBLE Partial",
    "DEGRADED DisksMissing",
  ]]);
  const first = await controller.controllerListVolumeHealth({ maxEntries: 1 });
  assertEquals([first.entries.map(({ volumeId }) => volumeId), first.nextToken], [[ids[0]], ids[0]]);
  const second = await controller.controllerListVolumeHealth({ maxEntries: 1, startingToken: first.nextToken });
  assertEquals([second.entries.map(({ volumeId }) => volumeId), second.nextToken], [[ids[1]], ""]);
  assertEquals((await controller.controllerGetVolumeHealth({ volumeId: ids[0]! })).volumeHealth, all[0]);

  const { backendHealth: [storage, ...more] } = await bench.csi.node.nodeGetStorageHealth();
  assertEquals([StorageHealthErrorType[storage!.status], storage!.reason, more], [
    "STORAGE_DEGRADED",
    "DisksMissing",
    [],
  ]);
  assertMatch(storage!.message, /group disks-narrow has 1 disks missing/);
});

Deno.test("a volume whose LV is gone has lost its data, which is an answer and no failure", async () => {
  await using here = await start();
  const { bench, group } = here;
  const volumeId = await bench.create({ parameters: { volumeGroup: group.name } });
  const stagingTargetPath = await bench.stage(volumeId);
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  group.lvs.splice(0);
  await assertFails("FAILED_PRECONDITION", bench.csi.controller.controllerGetVolume({ volumeId }), "Lost");
  for (const call of ["controllerGetVolumeHealth", "nodeGetVolumeHealth"] as const) {
    const answer = call === "nodeGetVolumeHealth"
      ? await bench.csi.node[call]({ volumeId })
      : await bench.csi.controller[call]({ volumeId });
    assertEquals(words(answer.volumeHealth), ["DATA_LOSS Lost"]);
    assertMatch(answer.volumeHealth!.healthStatuses[0]!.message, /vgcfgrestore/);
  }
  assertEquals((await bench.csi.controller.controllerListVolumeHealth({})).entries.map(words), [["DATA_LOSS Lost"]]);
});

Deno.test("a volume that two LVs claim to be is inaccessible", async () => {
  await using here = await start();
  const { bench, group } = here;
  const volumeId = await bench.create({ parameters: { volumeGroup: group.name } });
  const [lv] = group.lvs;
  group.lvs.push({ ...lv!, name: "other", uuid: "another", tags: new Set(lv!.tags) });
  const { volumeHealth } = await bench.csi.controller.controllerGetVolumeHealth({ volumeId });
  assertEquals(words(volumeHealth), ["INACCESSIBLE ForeignData"]);
  assertEquals((await bench.csi.controller.controllerListVolumeHealth({})).entries, [volumeHealth!]);
});

Deno.test("a filesystem that the kernel stopped writing after an error is degraded, until it is mounted anew", async () => {
  await using here = await start();
  const { bench, machine, group } = here;
  const volumeId = await bench.create({ parameters: { volumeGroup: group.name } });
  const stagingTargetPath = await bench.stage(volumeId);
  const health = async () => words((await bench.csi.node.nodeGetVolumeHealth({ volumeId })).volumeHealth);
  machine.mounts.find(({ target }) => target === stagingTargetPath)!.stopped = true;
  assertEquals(await health(), ["DEGRADED FilesystemReadOnly"]);
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await bench.stage(volumeId);
  assertEquals(await health(), []);
});

Deno.test("each call for health costs a report, and of volumes the mount table", async () => {
  await using here = await start();
  const { bench } = here;
  const { controller, node } = bench.csi;
  const volumeId = await bench.create();
  const count = async (body: () => Promise<unknown>) => (await bench.exec.during(body)).length;
  assertEquals(
    [
      await count(() => controller.controllerGetVolumeHealth({ volumeId })),
      await count(() => controller.controllerListVolumeHealth({})),
      await count(() => node.nodeGetVolumeHealth({ volumeId })),
      await count(() => node.nodeGetStorageHealth({})),
    ],
    [2, 2, 2, 1],
  );
});

Deno.test("a machine whose lvm fails has unreachable storage", async () => {
  await using here = await start();
  here.machine.fault = ({ program }) =>
    program === "lvm" ? { code: 5, stdout: "", stderr: "  lvm is broken\n" } : undefined;
  const { backendHealth } = await here.bench.csi.node.nodeGetStorageHealth();
  assertEquals(backendHealth.map(({ status, reason }) => [StorageHealthErrorType[status], reason]), [[
    "STORAGE_UNREACHABLE",
    "LvmFailed",
  ]]);
  assertMatch(backendHealth[0]!.message, /lvm is broken/);
  here.machine.fault = undefined;
});

Deno.test("the controller of a cluster tells what nodes wrote of volumes, and that a node is gone", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { volumes } = cluster;
  const make = (name: string) => volumes.create(namedRequest(name, 32n << 20n), { preferred: [] });
  const [{ id: lost }, { id: stays }] = [await make("pvc-1"), await make("pvc-2")];
  const reasonsOf = async (id: VolumeId) => (await volumes.health(id)).problems.map(({ reason }) => reason);
  const seen = async (is: (status: LvmVolumeStatus) => boolean, ...ids: VolumeId[]) => {
    await cluster.agent("node-1").node.refresh();
    for (const id of ids) await cluster.objects.waitFor(id, (object) => is(object!.status!), { timeoutMs: 5_000 });
  };
  const isHealthy = ({ conditions }: LvmVolumeStatus) =>
    conditions!.some(({ type, status }) => type === "Healthy" && status === "True");
  assertEquals([await reasonsOf(lost), await volumes.unhealthy()], [[], []]);

  group.missingPvs = 1;
  await seen((status) => !isHealthy(status), lost, stays);
  assertEquals([await reasonsOf(lost), await reasonsOf(stays)], [["Partial"], ["Partial"]]);
  const ids = (await volumes.unhealthy()).map(({ id }) => id);
  assertEquals(ids, [lost, stays].sort());

  group.missingPvs = 0;
  group.lvs.shift();
  await seen(({ state }) => state === "Lost", lost);
  await seen(isHealthy, stays);
  assertEquals([await reasonsOf(lost), await volumes.unhealthy()], [["Lost"], [await volumes.health(lost)]]);

  await cluster.stopAgent("node-1");
  await cluster.client.delete(lvmNodes, { name: "node-1" });
  await cluster.nodes.waitFor("node-1", (node) => node === undefined, { timeoutMs: 5_000 });
  assertEquals([await reasonsOf(lost), await reasonsOf(stays)], [["Lost"], ["NodeGone"]]);
});
