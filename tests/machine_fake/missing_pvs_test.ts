import { assertEquals } from "@std/assert";
import { createCopy } from "../contract/copies_suite.ts";
import { fakeMultiPvHost } from "../contract/helpers/fake_host.ts";
import { assertFails, blockCapability, Harness, mountCapability } from "../contract/helpers/host.ts";
import type { FakeGroup, FakeMachine } from "../fake/machine/machine.ts";

const MiB = 1n << 20n;

/** Starts a driver over groups of several disks. @returns it, and the first group */
async function setUp() {
  const stack = new AsyncDisposableStack();
  const host = stack.use(await fakeMultiPvHost.setUp());
  const harness = stack.use(await Harness.start(host.exec, fakeMultiPvHost.groups));
  const machine = host.exec as FakeMachine;
  const group: FakeGroup = machine.groups[0]!;
  return { harness, group, machine, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

Deno.test("a raid1 volume is staged and used without one of its disks, a linear one on that disk is not", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const parameters = { volumeGroup: group.name };
  const raid1 = await harness.create({ name: "raid1", parameters: { ...parameters, layout: "raid1" } });
  const linear = await harness.create({ name: "linear", parameters });
  const striped = await harness.create({ name: "striped", parameters: { ...parameters, layout: "striped" } });
  for (const lv of group.lvs) lv.active = false; // the machine was started
  group.missingPvs = 1;
  const stagingTargetPath = await harness.stage(raid1);
  const targetPath = await harness.publish(raid1);
  for (const volumeId of [linear, striped]) {
    const stage = harness.csi.node.nodeStageVolume({
      volumeId,
      stagingTargetPath: `${harness.folder}/other`,
      volumeCapability: mountCapability(),
    });
    await assertFails("FAILED_PRECONDITION", stage, "Refusing activation of partial LV");
  }
  assertEquals(group.lvs.map(({ active }) => active), [true, false, false]);

  const capacityRange = { requiredBytes: 64n * MiB };
  const expansion = harness.csi.controller.controllerExpandVolume({ volumeId: raid1, capacityRange });
  await assertFails("FAILED_PRECONDITION", expansion, "while PVs are missing");
  const snapshot = harness.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: raid1 });
  await assertFails("FAILED_PRECONDITION", snapshot, "while PVs are missing");
  const other = harness.create({ name: "another", parameters: { ...parameters, layout: "raid1" } });
  await assertFails("RESOURCE_EXHAUSTED", other, "1 of its physical volumes are missing");

  group.missingPvs = 0;
  await harness.csi.node.nodeUnpublishVolume({ volumeId: raid1, targetPath });
  await harness.csi.node.nodeUnstageVolume({ volumeId: raid1, stagingTargetPath });
  assertEquals(
    (await harness.csi.controller.controllerExpandVolume({ volumeId: raid1, capacityRange })).capacityBytes,
    64n * MiB,
  );
});

Deno.test("a disk that is added to a group between a report and a change keeps no call from its end", async () => {
  await using fixture = await setUp();
  const { harness, group, machine } = fixture;
  for (const pv of group.pvs) pv.size = group.size / BigInt(group.pvs.length);
  let isDue = false;
  machine.fault = ({ program, args }) => {
    if (program !== "lvm" || args[0] === "fullreport" || !isDue) return undefined;
    isDue = false;
    group.pvs.push({ path: `/dev/new${group.pvs.length}`, uuid: `new${group.pvs.length}`, size: 1n << 30n });
    return undefined;
  };
  const meanwhile = async <T>(call: () => Promise<T>) => {
    await harness.csi.controller.listVolumes({});
    isDue = true;
    const result = await call();
    assertEquals(isDue, false);
    return result;
  };
  const { controller } = harness.csi;
  const volumeId = await meanwhile(() => harness.create({ parameters: { volumeGroup: group.name, layout: "raid1" } }));
  await meanwhile(() => controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n * MiB } }));
  assertEquals(group.lvs.map(({ size }) => size), [64n * MiB]);
  await meanwhile(async () => {
    await controller.deleteVolume({ volumeId });
    await harness.waitUntilIdle();
  });
  assertEquals(group.lvs, []);
});

Deno.test("a raid1 volume without any of its disks is not staged", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const volumeId = await harness.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  group.lvs[0]!.active = false;
  group.missingPvs = 2;
  const stage = harness.csi.node.nodeStageVolume({
    volumeId,
    stagingTargetPath: `${harness.folder}/staging`,
    volumeCapability: mountCapability(),
  });
  await assertFails("FAILED_PRECONDITION", stage, "Refusing activation of partial LV");
});

Deno.test("an LV of an interrupted lvcreate of a RAID volume is no volume: it is created again, or removed", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const request = {
    name: "one",
    parameters: { volumeGroup: group.name, layout: "raid1" },
    volumeCapabilities: [blockCapability()],
  };
  const volumeId = await harness.create(request);
  const [incompleteLv] = group.lvs;
  incompleteLv!.incomplete = true;
  assertEquals((await harness.csi.controller.listVolumes({})).entries, []);
  await assertFails("NOT_FOUND", harness.csi.controller.controllerGetVolume({ volumeId }));
  assertEquals(await harness.create(request), volumeId);
  assertEquals([group.lvs.length, group.lvs[0] === incompleteLv], [1, false]);

  group.lvs[0]!.incomplete = true;
  await harness.csi.controller.deleteVolume({ volumeId });
  assertEquals(group.lvs, []);
});

Deno.test("a volume that was returned stays one, also while an administrator's lvconvert is interrupted", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const volumeId = await harness.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  const stagingTargetPath = await harness.stage(volumeId);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  const [lv] = group.lvs;
  lv!.incomplete = true;
  assertEquals((await harness.csi.controller.listVolumes({})).entries.length, 1);
  await using _later = await harness.restart();
  await harness.waitUntilIdle();
  assertEquals(group.lvs, [lv!]);
});

Deno.test("an imported volume stays one while an administrator's lvconvert of it is interrupted", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  await harness.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  const [lv] = group.lvs;
  lv!.tags = new Set([...lv!.tags].map((tag) => tag.replace("fs=wanted:ext4", "fs=formatted:ext4:1-2")));
  lv!.incomplete = true; // its parts are shown; nobody staged it yet
  await using later = await harness.restart();
  await later.waitUntilIdle();
  assertEquals(group.lvs, [lv!]);
});

Deno.test("while a disk is missing no snapshot is split from its origin; deleted volumes are removed when it is back", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const { controller } = harness.csi;
  const volumeId = await harness.create({ parameters: { volumeGroup: group.name, layout: "raid1" } });
  const { snapshot } = await controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId });
  group.missingPvs = 1;
  await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
  await harness.waitUntilIdle();
  await assertFails("FAILED_PRECONDITION", controller.deleteVolume({ volumeId }), "while PVs are missing");
  assertEquals(group.lvs.length, 2);

  group.missingPvs = 0;
  await using later = await harness.restart();
  await later.waitUntilIdle();
  assertEquals(group.lvs.length, 1);
  await later.csi.controller.deleteVolume({ volumeId });
  assertEquals(group.lvs, []);
});

Deno.test("an LV of an interrupted lvcreate of a copy is no copy; a complete copy is a volume, also while it is converted", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const { controller } = harness.csi;
  const block = { volumeCapabilities: [blockCapability()] };
  const parameters = { volumeGroup: group.name };
  const original = await harness.create({ ...block, parameters });
  const { snapshot } = await controller.createSnapshot({ name: "cut", sourceVolumeId: original });
  const { snapshotId } = snapshot!;
  const request = { ...block, parameters: { ...parameters, layout: "raid1" } };
  const volumeId = await createCopy(harness, request, { snapshotId });
  const lv = group.lvs.find(({ segment }) => segment?.type === "raid1")!;
  lv.incomplete = true; // an administrator's lvconvert was interrupted
  const listed = async () => (await controller.listVolumes({})).entries.map(({ volume }) => volume!.volumeId);
  assertEquals((await listed()).includes(volumeId), true, "nobody had it yet, but there is data on it");
  await using later = await harness.restart();
  await later.waitUntilIdle();
  assertEquals(group.lvs.includes(lv), true);

  lv.tags.add("denolith.copied=0"); // as after an interrupted lvcreate of the driver
  await later.csi.controller.deleteSnapshot({ snapshotId });
  await using last = await later.restart();
  await last.waitUntilIdle();
  assertEquals(group.lvs.map(({ segment }) => segment?.type), ["linear"], "it is no copy, and is empty");
});

Deno.test("a disk that LVM must not allocate from has no capacity, for volumes, snapshots and expansions", async () => {
  await using fixture = await setUp();
  const { harness, group } = fixture;
  const parameters = { volumeGroup: group.name };
  group.pvs[1]!.notAllocatable = true; // as while an administrator drains it
  const capacity = await harness.csi.controller.getCapacity({ parameters });
  assertEquals([capacity.availableCapacity, capacity.maximumVolumeSize], [256n * MiB, 256n * MiB]);
  const tooLarge = { name: "too large", parameters, capacityRange: { requiredBytes: 260n * MiB } };
  await assertFails("RESOURCE_EXHAUSTED", harness.create(tooLarge), "256 MiB free");
  const volumeId = await harness.create({ name: "one", parameters, capacityRange: { requiredBytes: 200n * MiB } });
  const capacityRange = { requiredBytes: 300n * MiB };
  const expansion = harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
  await assertFails("OUT_OF_RANGE", expansion, "56 MiB free");
  const snapshot = harness.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId });
  await assertFails("RESOURCE_EXHAUSTED", snapshot, "56 MiB free");
  const thinParameters = { ...parameters, thinProvision: "yes" };
  const thin = await harness.csi.controller.getCapacity({ parameters: thinParameters });
  assertEquals(thin.availableCapacity < 56n * MiB, true);

  group.pvs[1]!.notAllocatable = false;
  const [lv] = await harness.lvs();
  assertEquals(lv!.size, 200n * MiB);
  await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
});
