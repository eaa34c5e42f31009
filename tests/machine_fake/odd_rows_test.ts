import { assertEquals } from "@std/assert";
import type { Exec } from "../../lvm/exec.ts";
import { volumeLvName } from "../../base/ids.ts";
import type { VolumeId } from "../../base/ids.ts";
import { markVolumeDeleted } from "../../lvm/model/tags.ts";
import { fakeHost } from "../contract/helpers/fake_host.ts";
import { assertFails, Harness, mountCapability, volumeRequest } from "../contract/helpers/host.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";

/** Starts a driver to which LVM reports no size of the LVs with a text in their names. */
async function setUp() {
  const stack = new AsyncDisposableStack();
  const host = stack.use(await fakeHost.setUp());
  const machine = host.exec as FakeMachine;
  const fixture = { machine, odd: "none" };
  const withoutSizes = (exec: Exec): Exec => ({
    run: async (command) => {
      const output = await exec.run(command);
      const pattern = new RegExp(`("lv_name":"[^"]*${fixture.odd}[^"]*","lv_uuid":"[^"]*","lv_size":")\\d+`, "g");
      return { ...output, stdout: output.stdout.replace(pattern, "$1") };
    },
    idle: () => exec.idle(),
    readMountTable: async () => await exec.readMountTable?.(),
  });
  const harness = stack.use(
    await Harness.start(machine, fakeHost.groups, (exec, ...others) => Harness.serve(withoutSizes(exec), ...others)),
  );
  return Object.assign(fixture, { harness, [Symbol.asyncDispose]: () => stack.disposeAsync() });
}

Deno.test("nobody touches a volume whose report cannot be read, and others are used as before", async () => {
  await using fixture = await setUp();
  const { harness, machine } = fixture;
  const { controller, node } = harness.csi;
  const parameters = { volumeGroup: fakeHost.groups[0] };
  const volumeId = await harness.create({ ...volumeRequest(), name: "odd", parameters });
  const other = await harness.create({ ...volumeRequest(), name: "other", parameters });
  const before = structuredClone(
    machine.groups.map(({ lvs }) => lvs.map(({ name, tags, size }) => [name, tags, size])),
  );
  fixture.odd = volumeLvName(volumeId as VolumeId);

  const staging = { volumeId, stagingTargetPath: `${harness.folder}/odd`, volumeCapability: mountCapability() };
  const capacityRange = { requiredBytes: 128n << 20n };
  const attempts = [
    () => node.nodeStageVolume(staging),
    () => controller.deleteVolume({ volumeId }),
    () => controller.controllerExpandVolume({ volumeId, capacityRange }),
    () => controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId }),
    () => harness.create({ ...volumeRequest(), name: "odd", parameters }),
  ];
  for (const attempt of attempts) await assertFails("FAILED_PRECONDITION", attempt(), "cannot be read (lv_size");
  assertEquals(machine.groups.map(({ lvs }) => lvs.map(({ name, tags, size }) => [name, tags, size])), before);
  const [{ volumeId: reported } = {}, ...rest] = (await controller.listVolumes({})).entries.map(({ volume }) =>
    volume!
  );
  assertEquals([reported, rest], [other, []]);

  const stagingTargetPath = await harness.stage(other);
  await node.nodeUnstageVolume({ volumeId: other, stagingTargetPath });
  await controller.deleteVolume({ volumeId: other });
  fixture.odd = "none";
  await controller.deleteVolume({ volumeId });
  assertEquals(await harness.lvs(), []);
});

Deno.test("a deleted LV whose report cannot be read stays until it can be read", async () => {
  await using fixture = await setUp();
  const { harness, machine } = fixture;
  const volumeId = await harness.create({ ...volumeRequest(), parameters: { volumeGroup: fakeHost.groups[0] } });
  const stagingTargetPath = await harness.stage(volumeId);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  const path = `${fakeHost.groups[0]}/${volumeLvName(volumeId as VolumeId)}`;
  const marks = markVolumeDeleted(volumeId as VolumeId, { state: "raw" });
  fixture.odd = "vol-";
  await harness.runAsAdmin("lvm", "lvchange", ...marks, path);
  await assertFails("NOT_FOUND", harness.csi.controller.controllerGetVolume({ volumeId }), "");
  const removed = async () => {
    await harness.csi.controller.deleteVolume({ volumeId }); // which wakes what removes deleted LVs
    await harness.waitUntilIdle();
    return machine.allLvs().length === 0;
  };
  assertEquals(await removed(), false);
  fixture.odd = "none";
  assertEquals(await removed(), true);
});
