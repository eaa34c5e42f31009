/**
 * Contract: how many programs each call runs, and which ones. A program more makes a call slower, on every machine.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import {
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
  volumeRequest,
} from "./helpers/host.ts";

const MiB = 1n << 20n;
const block = blockCapability();

/** Registers the tests. */
export function programsContract(host: Host): void {
  contractTest(host, "the Controller calls run the programs that they need", async (harness) => {
    const { csi: { controller } } = harness;
    const request = volumeRequest();
    let volumeId = "";
    const create = async () => void (volumeId = await harness.create(request));
    await assertPrograms(harness, "lvcreate report", create);
    await assertPrograms(harness, "report", create);
    const capacityRange = { requiredBytes: 64n * MiB };
    await assertPrograms(
      harness,
      "lvextend report",
      () => controller.controllerExpandVolume({ volumeId, capacityRange }),
    );
    await assertPrograms(harness, "report", () => controller.controllerGetVolume({ volumeId }));
    await assertPrograms(harness, "report", () => controller.listVolumes({}));
    await assertPrograms(harness, "report", () => controller.getCapacity({}));
    let snapshotId = "";
    const snapshot = { name: `snapshot of ${request.name}`, sourceVolumeId: volumeId };
    const takeSnapshot = async () => {
      snapshotId = (await controller.createSnapshot(snapshot)).snapshot!.snapshotId;
    };
    await assertPrograms(harness, "lvcreate report", takeSnapshot);
    await assertPrograms(harness, "report", takeSnapshot);
    await assertPrograms(
      harness,
      "blkdiscard lsblk lvchange lvchange lvconvert lvremove report report report",
      () => controller.deleteSnapshot({ snapshotId }).then(() => harness.waitUntilIdle()),
    );
    await assertPrograms(harness, "lvremove report", () => controller.deleteVolume({ volumeId }));
    await assertPrograms(harness, "report", () => controller.deleteVolume({ volumeId }));
  });

  contractTest(host, "the Node calls of a filesystem run the programs that they need", async (harness) => {
    const { csi: { controller, node } } = harness;
    const volumeId = await harness.create();
    const stage = () => harness.stage(volumeId);
    const [stagingTargetPath, targetPath] = [`${harness.folder}/staging`, `${harness.folder}/pod`];
    const unstage = () => node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    const publish = () => harness.publish(volumeId);
    const unpublish = () => node.nodeUnpublishVolume({ volumeId, targetPath });
    const format = "cmp dd lvchange lvchange mke2fs vgchange wipefs wipefs";
    await assertPrograms(harness, `${format} lsblk mount report`, stage);
    await assertPrograms(harness, "dmsetup lsblk resize2fs", stage);
    await assertPrograms(harness, "mount", publish);
    await assertPrograms(harness, "", publish);
    await assertPrograms(harness, "df", () => node.nodeGetVolumeStats({ volumeId, volumePath: targetPath }));
    const capacityRange = { requiredBytes: 64n * MiB };
    await controller.controllerExpandVolume({ volumeId, capacityRange });
    const expand = () => node.nodeExpandVolume({ volumeId, volumePath: targetPath, capacityRange });
    await assertPrograms(harness, "report resize2fs", expand);
    await assertPrograms(harness, "umount", unpublish);
    await assertPrograms(harness, "umount", unstage);
    await assertPrograms(harness, "", unstage);
    await assertPrograms(harness, "dmsetup e2fsck lsblk mount wipefs", stage);
    await unstage();
    await controller.listVolumes({}); // by a new report, after which the volume is known
    const remove = "blkdiscard lsblk lvremove report vgchange";
    await assertPrograms(harness, `lvchange ${remove}`, async () => {
      await controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
    });
  });

  for (const type of ["xfs", "btrfs"] as const) {
    contractTest(host, `the Node calls of ${type} run the programs that they need`, async (harness) => {
      const capability = mountCapability(type);
      const volumeId = await harness.create({
        volumeCapabilities: [capability],
        capacityRange: { requiredBytes: 300n * MiB },
      });
      const stage = () => harness.stage(volumeId, capability);
      const unstage = () =>
        harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
      const kernel = type === "xfs" ? "dd " : "";
      const format = `cmp dd ${kernel}lvchange lvchange mkfs.${type} vgchange wipefs wipefs`;
      await assertPrograms(harness, `${format} lsblk mount report`, stage);
      await unstage();
      const resize = type === "xfs" ? "xfs_growfs" : "btrfs";
      await assertPrograms(harness, `dmsetup lsblk mount wipefs ${resize}`, stage);
      await unstage();
      await harness.csi.controller.deleteVolume({ volumeId });
    });
  }

  contractTest(host, "the Node calls of a block volume run the programs that they need", async (harness) => {
    const { csi: { node } } = harness;
    const volumeId = await harness.create({ volumeCapabilities: [block] });
    const targetPath = `${harness.folder}/device`;
    const stage = () => harness.stage(volumeId, block);
    const publish = () => harness.publish(volumeId, "device", { volumeCapability: block });
    await assertPrograms(harness, "lsblk report vgchange", stage);
    await assertPrograms(harness, "dmsetup lsblk", stage);
    await assertPrograms(harness, "lsblk mount report", publish);
    await assertPrograms(harness, "lsblk report", publish);
    const stats = () => node.nodeGetVolumeStats({ volumeId, volumePath: targetPath });
    await assertPrograms(harness, "lsblk lsblk", stats);
    await assertPrograms(harness, "lsblk umount", () => node.nodeUnpublishVolume({ volumeId, targetPath }));
    const stagingTargetPath = `${harness.folder}/staging`;
    await assertPrograms(harness, "", () => node.nodeUnstageVolume({ volumeId, stagingTargetPath }));
    await assertPrograms(
      harness,
      "lvchange report",
      () => harness.csi.controller.deleteVolume({ volumeId }),
      { after: /^lvm lvchange/ },
    );
  });
}

/**
 * Asserts which programs a call runs, in any order: some run at the same time. A report of LVM is `report`, another command
 * of LVM its subcommand; the flushes of disks after changes are not counted.
 *
 * @param options.after a command after which the rest is background work, and is not counted
 */
async function assertPrograms(
  harness: Harness,
  expected: string,
  call: () => Promise<unknown>,
  { after }: { readonly after?: RegExp } = {},
): Promise<void> {
  await harness.waitUntilIdle();
  const commands = await harness.exec.recordCommands(call);
  const last = after === undefined ? -1 : commands.findIndex((command) => after.test(command));
  const counted = last < 0 ? commands : commands.slice(0, last + 1);
  const programs = counted.map((command) => {
    const [program = "", subcommand = ""] = command.split(" ");
    return program !== "lvm" ? program : subcommand === "fullreport" ? "report" : subcommand;
  });
  assertEquals(
    programs.filter((program) => program !== "sync").sort(),
    (expected === "" ? [] : expected.split(" ")).sort(),
  );
  await harness.waitUntilIdle();
}
