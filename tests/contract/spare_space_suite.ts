/**
 * Contract: volumes never get the spare space of a volume group.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails, contractTest, type Harness, type Host } from "./helpers/host.ts";
import { createVolumeWithSnapshot } from "./snapshots_suite.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function spareSpaceContract(host: Host): void {
  contractTest(
    host,
    "volumes, expansions, snapshots, clones and thin pools get none of a group's spare space",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      const parameters = { volumeGroup };
      const create = (mib: bigint, more: Parameters<Harness["create"]>[0] = {}) =>
        harness.create({ capacityRange: { requiredBytes: mib * MiB }, parameters, ...more });
      const expand = (volumeId: string, mib: bigint) =>
        harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: mib * MiB } });
      const spare = await leaveFree(harness, volumeGroup, 64n * MiB);

      const { availableCapacity, maximumVolumeSize } = await harness.csi.controller.getCapacity({ parameters });
      assertEquals([availableCapacity, maximumVolumeSize], [64n * MiB, 64n * MiB]);
      await assertFails("RESOURCE_EXHAUSTED", create(68n), `${volumeGroup} (64 MiB free and `);
      const volumeId = await create(32n);
      const volumeContentSource = { type: { case: "volume" as const, value: { volumeId } } };
      await assertFails("RESOURCE_EXHAUSTED", create(32n, { volumeContentSource }), "of spare space");
      const snapshot = harness.csi.controller.createSnapshot({
        ...{ name: "snapshot", sourceVolumeId: volumeId, parameters: { snapSize: "36Mi" } },
      });
      await assertFails("RESOURCE_EXHAUSTED", snapshot, "32 MiB free and ");
      const thin = create(32n, { parameters: { volumeGroup, thinProvision: "yes" } });
      await assertFails("RESOURCE_EXHAUSTED", thin, "for a new thin pool");
      await assertFails("OUT_OF_RANGE", expand(volumeId, 68n), "32 MiB free and ");
      await expand(volumeId, 64n);
      assertEquals(await freeSpace(harness, volumeGroup), { free: 0n, spare });

      await harness.runAsAdmin("lvm", "vgchange", "--deltag", `denolith.spare=${spare}`, volumeGroup);
      await expand(volumeId, 68n);
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(
    host,
    "volumes that are created at the same time get none of a group's spare space",
    async (harness, machine) => {
      const [volumeGroup] = harness.groups;
      const spare = await leaveFree(harness, volumeGroup, 64n * MiB);
      const request = { capacityRange: { requiredBytes: 32n * MiB }, parameters: { volumeGroup } };
      const lock = await machine.lockGroup(volumeGroup, "shared"); // until all calls have a report
      const calls = Promise.allSettled([1, 2, 3, 4].map(() => harness.create(request)));
      await new Promise((resolve) => setTimeout(resolve, host.name === "lvm" ? 5_000 : 200));
      lock[Symbol.dispose]();
      const results = await calls;
      const volumeIds = results.flatMap((result) => result.status === "fulfilled" ? [result.value] : []);
      for (const result of results) {
        if (result.status === "rejected") assert(String(result.reason).includes("of spare space"), result.reason);
      }
      assertEquals([volumeIds.length, await freeSpace(harness, volumeGroup)], [2, { free: 0n, spare }]);
      for (const volumeId of volumeIds) await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
      await harness.runAsAdmin("lvm", "vgchange", "--deltag", `denolith.spare=${spare}`, volumeGroup);
    },
  );

  contractTest(host, "COW space is extended with what is free beside a group's spare space", async (harness) => {
    const [volumeGroup] = harness.groups;
    const { volumeId, snapshotId } = await createVolumeWithSnapshot(harness);
    const spare = await leaveFree(harness, volumeGroup, 4n * MiB);
    const { devicePath } = (await harness.lvs()).find(({ origin }) => origin === undefined)!;
    const cowSizeAfter = async (mib: number, offsetMib: number) => {
      const part = ["bs=1M", `count=${mib}`, `seek=${offsetMib}`, "oflag=direct", "status=none"];
      await harness.runAsAdmin("dd", "if=/dev/urandom", `of=${devicePath}`, ...part);
      await harness.csi.controller.getSnapshot({ snapshotId }); // each call reads a report
      return (await harness.lvs()).find(({ origin }) => origin !== undefined)!.size;
    };
    assertEquals(await cowSizeAfter(6, 0), 12n * MiB);
    assertEquals(await cowSizeAfter(4, 6), 12n * MiB);
    assertEquals(await freeSpace(harness, volumeGroup), { free: 0n, spare });
    await harness.csi.controller.deleteSnapshot({ snapshotId });
    await harness.csi.controller.deleteVolume({ volumeId });
    assertEquals(await harness.lvs(), []);
    await harness.runAsAdmin("lvm", "vgchange", "--deltag", `denolith.spare=${spare}`, volumeGroup);
  });
}

/** Leaves so much of the free space of a group to volumes. @returns its spare space */
async function leaveFree(harness: Harness, group: string, bytes: bigint): Promise<bigint> {
  const spare = (await freeSpace(harness, group)).free - bytes;
  await harness.runAsAdmin("lvm", "vgchange", "--addtag", `denolith.spare=${spare}`, group);
  await harness.csi.controller.getCapacity({}); // a report shows it
  return spare;
}

async function freeSpace(harness: Harness, name: string): Promise<{ free: bigint; spare: bigint | undefined }> {
  const { free, spare } = (await harness.report()).find((group) => group.name === name)!;
  return { free, spare };
}
