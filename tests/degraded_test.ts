import { assertEquals } from "@std/assert";
import { copied } from "./contract/copies.ts";
import { fakeDisksHost } from "./contract/fake_host.ts";
import { assertFails, Bench, blockCapability, mountCapability } from "./contract/host.ts";
import type { FakeGroup, FakeMachine } from "./fake/machine.ts";

const MiB = 1n << 20n;

/** A driver over groups of several disks, and the first of them. */
async function start() {
  const stack = new AsyncDisposableStack();
  const host = stack.use(await fakeDisksHost.setUp());
  const bench = stack.use(await Bench.start(host.exec, fakeDisksHost.groups));
  const group: FakeGroup = (host.exec as FakeMachine).groups[0]!;
  return { bench, group, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

Deno.test("a raid1 volume is staged and used without one of its disks, a linear one on that disk is not", async () => {
  await using here = await start();
  const { bench, group } = here;
  const parameters = { volumeGroup: group.name };
  const raid1 = await bench.create({ name: "raid1", parameters: { ...parameters, layout: "raid1" } });
  const linear = await bench.create({ name: "linear", parameters });
  const striped = await bench.create({ name: "striped", parameters: { ...parameters, layout: "striped" } });
  for (const lv of group.lvs) lv.active = false; // the machine was started
  group.missingPvs = 1;
  const stagingTargetPath = await bench.stage(raid1);
  const targetPath = await bench.publish(raid1);
  for (const volumeId of [linear, striped]) {
    const stage = bench.csi.node.nodeStageVolume({
      volumeId,
      stagingTargetPath: `${bench.folder}/other`,
      volumeCapability: mountCapability(),
    });
    await assertFails("INTERNAL", stage, "Refusing activation of partial LV");
  }
  assertEquals(group.lvs.map(({ active }) => active), [true, false, false]);

  const capacityRange = { requiredBytes: 64n * MiB };
  const grow = bench.csi.controller.controllerExpandVolume({ volumeId: raid1, capacityRange });
  await assertFails("FAILED_PRECONDITION", grow, "while PVs are missing");
  const snapshot = bench.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: raid1 });
  await assertFails("FAILED_PRECONDITION", snapshot, "while PVs are missing");
  const other = bench.create({ name: "another", parameters: { ...parameters, layout: "raid1" } });
  await assertFails("RESOURCE_EXHAUSTED", other, "1 of its disks are missing");

  group.missingPvs = 0;
  await bench.csi.node.nodeUnpublishVolume({ volumeId: raid1, targetPath });
  await bench.csi.node.nodeUnstageVolume({ volumeId: raid1, stagingTargetPath });
  assertEquals(
    (await bench.csi.controller.controllerExpandVolume({ volumeId: raid1, capacityRange })).capacityBytes,
    64n * MiB,
  );
});

Deno.test("a raid1 volume without any of its disks is not staged", async () => {
  await using here = await start();
  const { bench, group } = here;
  const volumeId = await bench.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  group.lvs[0]!.active = false;
  group.missingPvs = 2;
  const stage = bench.csi.node.nodeStageVolume({
    volumeId,
    stagingTargetPath: `${bench.folder}/staging`,
    volumeCapability: mountCapability(),
  });
  await assertFails("INTERNAL", stage, "Refusing activation of partial LV");
});

Deno.test("what an lvcreate leaves of a RAID volume that dies in it is no volume: it is made anew, or goes", async () => {
  await using here = await start();
  const { bench, group } = here;
  const request = {
    name: "one",
    parameters: { volumeGroup: group.name, layout: "raid1" },
    volumeCapabilities: [blockCapability()],
  };
  const volumeId = await bench.create(request);
  const [left] = group.lvs;
  left!.halfMade = true;
  assertEquals((await bench.csi.controller.listVolumes({})).entries, []);
  await assertFails("NOT_FOUND", bench.csi.controller.controllerGetVolume({ volumeId }));
  assertEquals(await bench.create(request), volumeId);
  assertEquals([group.lvs.length, group.lvs[0] === left], [1, false]);

  group.lvs[0]!.halfMade = true;
  await bench.csi.controller.deleteVolume({ volumeId });
  assertEquals(group.lvs, []);
});

Deno.test("a volume that was handed out is one, also while somebody converts it and dies in that", async () => {
  await using here = await start();
  const { bench, group } = here;
  const volumeId = await bench.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  const stagingTargetPath = await bench.stage(volumeId);
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  const [lv] = group.lvs;
  lv!.halfMade = true;
  assertEquals((await bench.csi.controller.listVolumes({})).entries.length, 1);
  await using _later = await bench.restart();
  await bench.settled();
  assertEquals(group.lvs, [lv!]);
});

Deno.test("while a disk is missing no snapshot is separated from its origin; what was deleted goes when it is back", async () => {
  await using here = await start();
  const { bench, group } = here;
  const { controller } = bench.csi;
  const volumeId = await bench.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  const { snapshot } = await controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId });
  group.missingPvs = 1;
  await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
  await bench.settled();
  await assertFails("FAILED_PRECONDITION", controller.deleteVolume({ volumeId }), "while PVs are missing");
  assertEquals(group.lvs.length, 2);

  group.missingPvs = 0;
  await using later = await bench.restart();
  await later.settled();
  assertEquals(group.lvs.length, 1);
  await later.csi.controller.deleteVolume({ volumeId });
  assertEquals(group.lvs, []);
});

Deno.test("what an lvcreate leaves of a copy is no copy; a copy that is filled is a volume, also while it is converted", async () => {
  await using here = await start();
  const { bench, group } = here;
  const { controller } = bench.csi;
  const block = { volumeCapabilities: [blockCapability()] };
  const parameters = { volumeGroup: group.name };
  const original = await bench.create({ ...block, parameters });
  const { snapshot } = await controller.createSnapshot({ name: "cut", sourceVolumeId: original });
  const { snapshotId } = snapshot!;
  const request = { ...block, parameters: { ...parameters, layout: "raid1" } };
  const volumeId = await copied(bench, request, { snapshotId });
  const lv = group.lvs.find(({ segment }) => segment?.type === "raid1")!;
  lv.halfMade = true; // somebody's lvconvert died
  const listed = async () => (await controller.listVolumes({})).entries.map(({ volume }) => volume!.volumeId);
  assertEquals((await listed()).includes(volumeId), true, "nobody had it yet, but there is data on it");
  await using later = await bench.restart();
  await later.settled();
  assertEquals(group.lvs.includes(lv), true);

  lv.tags.add("denolith.copied=0"); // as it was when the driver's lvcreate died
  await later.csi.controller.deleteSnapshot({ snapshotId });
  await using last = await later.restart();
  await last.settled();
  assertEquals(group.lvs.map(({ segment }) => segment?.type), ["linear"], "it is nobody's copy, and nothing is on it");
});
