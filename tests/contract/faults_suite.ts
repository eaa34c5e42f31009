/**
 * Contract: disks that fail in different ways at the same time.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { Exec } from "../../lvm/exec.ts";
import { assertFails, Harness, type Host } from "./helpers/host.ts";

/** A machine with two volume groups, each on one disk, whose disks can fail. */
export interface FaultyDisks {
  /** A name for test names. */
  readonly name: string;
  /** The groups. */
  readonly groups: Host["groups"];
  /** Runs commands on the machine. */
  exec(): Exec;
  /** Stops the first group's disk from responding. @returns a function that ends that */
  hangFirstDisk(): Promise<() => Promise<void>>;
  /** Makes the second group's disk unreadable, so that LVM finds no such group. @returns a function that ends that */
  loseSecondDisk(): Promise<() => Promise<void>>;
}

/** Registers the tests. */
export function faultsContract(disks: FaultyDisks): void {
  Deno.test(`a group that vanishes while another disk hangs is not changed, and does not respond [${disks.name}]`, async () => {
    await using harness = await Harness.start(disks.exec(), disks.groups);
    const { controller, node } = harness.csi;
    const [first, second] = [
      await harness.create({ parameters: { volumeGroup: disks.groups[0] } }),
      await harness.create({ parameters: { volumeGroup: disks.groups[1] } }),
    ];
    const { snapshot } = await controller.createSnapshot({ name: "vanishing", sourceVolumeId: second });
    const snapshotId = snapshot!.snapshotId;
    const resume = await disks.hangFirstDisk();
    let restore = () => Promise.resolve();
    try {
      await harness.stage(second); // from here on, each group is read alone
      await node.nodeUnstageVolume({ volumeId: second, stagingTargetPath: `${harness.folder}/staging` });
      restore = await disks.loseSecondDisk();
      const changes = await harness.exec.recordCommands(async () => {
        await assertFails("UNAVAILABLE", harness.stage(second), disks.groups[1]);
        await assertFails("UNAVAILABLE", controller.deleteSnapshot({ snapshotId }), disks.groups[1]);
        await assertFails("UNAVAILABLE", controller.deleteVolume({ volumeId: second }), disks.groups[1]);
        await assertFails("UNAVAILABLE", harness.stage(first), disks.groups[0]);
      });
      assertEquals(changes.filter((command) => /^lvm (?!fullreport)/.test(command)), []);
    } finally {
      await restore();
      await resume();
    }
    const isBack = async (volumeId: string) => {
      for (let tries = 0; tries < 100; tries++) {
        if (await controller.controllerGetVolume({ volumeId }).then(() => true, () => false)) return true;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      return false;
    };
    for (const volumeId of [first, second]) assert(await isBack(volumeId));
    const commands = await harness.exec.recordCommands(async () => {
      await controller.deleteSnapshot({ snapshotId });
      await harness.waitUntilIdle();
      for (const volumeId of [first, second]) await controller.deleteVolume({ volumeId });
    });
    const reports = commands.filter((command) => command.startsWith("lvm fullreport"));
    assertEquals(reports.filter((command) => command.includes("--devices")), [], "all disks are read again");
    assertEquals(await harness.lvs(), []);
  });
}
