/**
 * Contract: volumes whose LV or device changed while they were mounted can still be taken off.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails, blockCapability, contractTest, type Host, mountCapability } from "./helpers/host.ts";
import { mountsOf, tearDown } from "./staging_suite.ts";

/** Registers the tests. */
export function staleMountsContract(host: Host): void {
  for (const [kind, capability] of [["mounted", mountCapability()], ["block", blockCapability()]] as const) {
    contractTest(
      host,
      `a ${kind} volume whose LV has a number in its name is unpublished and unstaged also when it is Lost`,
      async (harness) => {
        const volumeId = await harness.create({ volumeCapabilities: [capability] });
        const { path } = await harness.singleLv();
        await harness.runAsAdmin("lvm", "lvrename", path, `${path}.2`); // as if a deleted LV still had the name
        const stagingTargetPath = await harness.stage(volumeId, capability);
        const targetPath = await harness.publish(volumeId, "pod", { volumeCapability: capability });
        await harness.runAsAdmin("lvm", "lvchange", "--deltag", `denolith.volume=${volumeId}`, `${path}.2`);
        await assertFails("FAILED_PRECONDITION", harness.csi.controller.controllerGetVolume({ volumeId }), "Lost");
        await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
        assertEquals(await mountsOf(harness), []);
        await harness.runAsAdmin("lvm", "lvremove", "--yes", `${path}.2`);
        await harness.csi.controller.deleteVolume({ volumeId });
      },
    );
  }

  contractTest(
    host,
    "a volume that is mounted more than once at its places is unpublished and unstaged at once",
    async (harness) => {
      // mount(8) of a driver that was killed may come after that of the next driver
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      const { devicePath } = await harness.singleLv();
      const countAt = async (place: string) =>
        (await mountsOf(harness)).filter(({ target }) => target === place).length;
      const args = ["-t", "ext4", devicePath, stagingTargetPath];
      const { code } = await harness.exec.run({ program: "mount", args, mutates: true });
      assertEquals(await countAt(stagingTargetPath), code === 0 ? 2 : 1, "mount(8) before util-linux 2.39 refuses it");
      const targetPath = await harness.publish(volumeId);
      await harness.runAsAdmin("mount", "-o", "bind", stagingTargetPath, targetPath);
      assertEquals(await countAt(targetPath), 2);
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      assertEquals(await countAt(targetPath), 0);
      assert(await countAt(stagingTargetPath) > 0);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      assertEquals(await mountsOf(harness), []);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a block volume whose device node was removed while it was published is unpublished, and published again",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      await harness.stage(volumeId, volumeCapability);
      const targetPath = await harness.publish(volumeId, "device", { volumeCapability });
      const { path, deviceNumber } = await harness.singleLv();
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", path);
      const mounts = await mountsOf(harness);
      assertEquals(mounts.map(({ root }) => root), [`/dm-${deviceNumber!.split(":")[1]}//deleted`]);
      await assertFails("NOT_FOUND", harness.csi.node.nodeGetVolumeStats({ volumeId, volumePath: targetPath }));

      // usually the next device gets the number, and is reached through the node that was removed
      const other = await harness.create({ volumeCapabilities: [volumeCapability] });
      const isReached = (await harness.lvs()).some((lv) => lv.deviceNumber === deviceNumber);
      const deletion = () => harness.csi.controller.deleteVolume({ volumeId: other });
      if (isReached) {
        const staging = harness.stage(other, volumeCapability);
        await assertFails("FAILED_PRECONDITION", staging, `mounted at ${targetPath} leads to its device`);
        await assertFails("FAILED_PRECONDITION", deletion(), "in use");
      }
      assert(isReached || !host.name.startsWith("fake"));
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      assertEquals(await mountsOf(harness), []);
      await deletion();

      await harness.stage(volumeId, volumeCapability);
      await harness.publish(volumeId, "device", { volumeCapability });
      await tearDown(harness, volumeId, "device");
    },
  );
}
