/**
 * Contract: copies of thin volumes: at once within a pool, by blocks between thick and thin.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  contentSourceOf,
  createCopy,
  createFilledVolume,
  formatStateTag,
  haveSameData,
  isMounted,
  lvOf,
  stageAt,
  takeSnapshot,
} from "./copies_suite.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type CreateRequest,
  type Harness,
  type Host,
  mountCapability,
  volumeRequest,
} from "./helpers/host.ts";

const MiB = 1n << 20n;

/** The arguments with which dd writes the first 4 MiB of a device. */
const DD_4_MIB = ["bs=4194304", "count=1", "oflag=direct", "status=none"];

/** Registers all tests. */
export function thinCopiesContract(host: Host): void {
  thinCopyLifecycleContract(host);

  contractTest(
    host,
    "an instant copy takes one change of LVM, one more for its tags, and one more to be extended",
    async (harness) => {
      const volumeId = await harness.create({ ...thinRequest(harness), volumeCapabilities: [blockCapability()] });
      await harness.waitUntilIdle();
      const request = {
        ...thinRequest(harness),
        volumeCapabilities: [blockCapability()],
        ...contentSourceOf({ volumeId }),
      };
      const sameSizeCommands = await harness.exec.recordCommands(async () => void await harness.create(request));
      assertEquals(lvmChanges(sameSizeCommands), ["lvcreate", "lvchange"]);
      assert(
        sameSizeCommands.filter((command) => command.includes("fullreport")).length <= 6,
        sameSizeCommands.join("\n"),
      );
      await harness.waitUntilIdle();
      const capacityRange = { requiredBytes: 64n * MiB };
      const largerCommands = await harness.exec.recordCommands(async () =>
        void await harness.create({ ...request, capacityRange })
      );
      assertEquals(lvmChanges(largerCommands), ["lvcreate", "lvextend", "lvchange"]);
      await cleanUp(harness);
    },
  );
}

/** Registers those that also hold where what a machine has becomes known a moment later, as in a cluster. */
export function thinCopyLifecycleContract(host: Host): void {
  for (const [fsType, sizeMib] of [["ext4", 32n], ["xfs", 320n], ["btrfs", 320n]] as const) {
    contractTest(
      host,
      `a clone of a mounted thin ${fsType} volume is there at once, larger, and mounted beside it`,
      async (harness) => {
        const capability = mountCapability(fsType);
        const parameters = { volumeGroup: harness.groups[1], thinProvision: "yes" };
        const request = { parameters, volumeCapabilities: [capability] };
        const volumeId = await harness.create({ ...request, capacityRange: { requiredBytes: sizeMib * MiB } });
        const stagingPath = await stageAt(harness, volumeId, "original", capability);
        await Deno.writeTextFile(`${stagingPath}/file`, "there");
        const larger = { capacityRange: { requiredBytes: (sizeMib + 16n) * MiB } };
        const commands = await harness.exec.recordCommands(async () => {
          const { volume } = await harness.csi.controller.createVolume({
            ...volumeRequest(),
            ...request,
            ...larger,
            ...contentSourceOf({ volumeId }),
          });
          assertEquals(volume?.capacityBytes, (sizeMib + 16n) * MiB);
          const copyPath = await stageAt(harness, volume!.volumeId, "copy", capability);
          if (await isMounted(harness, copyPath)) assertEquals(await Deno.readTextFile(`${copyPath}/file`), "there");
          const { usage } = await harness.csi.node.nodeGetVolumeStats({
            volumeId: volume!.volumeId,
            volumePath: copyPath,
          });
          assert(usage[0]!.total > (sizeMib - 16n) * MiB * 3n / 4n, `${usage[0]!.total}`);
          const uuids = await Promise.all([volumeId, volume!.volumeId].map((id) => formatStateTag(harness, id)));
          assert(uuids.every((tag) => tag.startsWith(`denolith.fs=formatted:${fsType}:`)) && uuids[0] !== uuids[1]);
          await harness.csi.node.nodeUnstageVolume({ volumeId: volume!.volumeId, stagingTargetPath: copyPath });
        });
        assertEquals(commands.filter((command) => command.startsWith("dd ") && command.includes("conv=")), []);
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: stagingPath });
        await cleanUp(harness);
      },
    );
  }

  contractTest(host, "a thin snapshot is restored at once, and both it and its volume may go then", async (harness) => {
    const volumeId = await createFilledVolume(harness, thinRequest(harness));
    const snapshotId = await takeSnapshot(harness, volumeId);
    const { devicePath, size } = await lvOf(harness, volumeId);
    const snapshotDevice = (await harness.lvs()).find(({ name }) => name.startsWith("snap-"))!.devicePath;
    await harness.runAsAdmin("blkdiscard", "--zeroout", "--offset", "0", "--length", `${size}`, devicePath);
    const request = { ...volumeRequest(), ...thinRequest(harness), volumeCapabilities: [blockCapability()] };
    const { volume } = await harness.csi.controller.createVolume({ ...request, ...contentSourceOf({ snapshotId }) });
    assertEquals(volume?.contentSource?.type.case, "snapshot");
    const [copy] = (await harness.lvs()).filter(({ name, origin }) => name.startsWith("vol-") && origin !== undefined);
    assertEquals(copy?.tags.filter((tag) => tag.startsWith("denolith.copied")), []);
    assert(await haveSameData(harness, copy!.devicePath, snapshotDevice));
    assert(!await haveSameData(harness, copy!.devicePath, devicePath));
    await harness.runAsAdmin("dd", "if=/dev/zero", `of=${copy!.devicePath}`, ...DD_4_MIB);
    assert(
      !await haveSameData(harness, copy!.devicePath, snapshotDevice),
      "it is written to, and its source stays as it is",
    );

    await harness.csi.controller.deleteVolume({ volumeId });
    await harness.csi.controller.deleteSnapshot({ snapshotId });
    await harness.waitUntilIdle();
    assertEquals((await harness.lvs()).filter(({ pool }) => pool !== undefined).map(({ name }) => name), [copy!.name]);
    assertEquals(await harness.create({ ...request, ...contentSourceOf({ snapshotId }) }), volumeIdFrom(copy!.tags));
    const others: CreateRequest[] = [
      request,
      { ...request, ...contentSourceOf({ volumeId }) },
      { ...request, ...contentSourceOf({ snapshotId }), parameters: { volumeGroup: harness.groups[0] } },
      { ...request, ...contentSourceOf({ snapshotId }), capacityRange: { requiredBytes: 64n * MiB } },
    ];
    for (const other of others) await assertFails("ALREADY_EXISTS", harness.csi.controller.createVolume(other));
    await cleanUp(harness);
  });

  contractTest(
    host,
    "a copy whose size its pool may not allocate is refused, and nothing is created",
    async (harness) => {
      const { parameters } = thinRequest(harness);
      const request = { parameters: { ...parameters, thinPoolSize: "128Mi" }, volumeCapabilities: [blockCapability()] };
      const volumeId = await harness.create({ ...request, capacityRange: { requiredBytes: 64n * MiB } });
      const copyOfSize = (sizeMib: bigint) => ({
        ...request,
        ...contentSourceOf({ volumeId }),
        capacityRange: { requiredBytes: sizeMib * MiB },
      });
      await assertFails("RESOURCE_EXHAUSTED", harness.create(copyOfSize(96n)), "left in thin pool");
      await harness.waitUntilIdle();
      assertEquals((await harness.lvs()).filter(({ pool }) => pool !== undefined).length, 1);
      const attempts = await Promise.allSettled([1, 2, 3].map(() => harness.create(copyOfSize(64n))));
      assertEquals(attempts.filter(({ status }) => status === "fulfilled").length, 1, "also when many ask at once");
      await assertFails("RESOURCE_EXHAUSTED", harness.create(copyOfSize(64n)), "thin pool");
      await cleanUp(harness);
    },
  );

  contractTest(
    host,
    "a thin volume is copied to a thick one and back, without what was never written",
    async (harness) => {
      const { parameters } = thinRequest(harness, { thinPoolSize: "256Mi" });
      const volumeId = await harness.create({ parameters, volumeCapabilities: [blockCapability()] });
      await stageAt(harness, volumeId, "block", blockCapability());
      const original = await lvOf(harness, volumeId);
      await harness.runAsAdmin("dd", "if=/dev/urandom", `of=${original.devicePath}`, ...DD_4_MIB);
      const request = { volumeCapabilities: [blockCapability()] };
      let thick = "";
      const copyCommands = await harness.exec.recordCommands(async () => {
        thick = await createCopy(harness, { ...request, parameters: { volumeGroup: harness.groups[0] } }, { volumeId });
      });
      const copySnapshotCommand = copyCommands.find((command) => command.includes("--name cut-"));
      assert(
        copySnapshotCommand !== undefined && !copySnapshotCommand.includes("--size"),
        "its copy snapshot is thin, too",
      );
      assertEquals((await lvOf(harness, thick)).pool, undefined);
      assert(await haveSameData(harness, (await lvOf(harness, thick)).devicePath, original.devicePath));
      let thinAgain = "";
      const commands = await harness.exec.recordCommands(async () => {
        thinAgain = await createCopy(harness, { ...request, parameters }, { volumeId: thick });
      });
      assert(commands.some((command) => command.startsWith("dd ") && command.includes(",sparse")), commands.join("\n"));
      const lv = await lvOf(harness, thinAgain);
      assertEquals(lv.pool, original.pool);
      assert(await haveSameData(harness, lv.devicePath, original.devicePath));
      await harness.waitUntilIdle();
      const lvs = await harness.lvs();
      assertEquals(lvs.filter(({ name }) => name.startsWith("cut-")), []);
      const { thinPool } = lvs.find(({ name }) => name === original.pool)!;
      assert(thinPool!.dataPercent! < 8, `the pool is ${thinPool!.dataPercent} % full`);
      await cleanUp(harness);
    },
  );
}

/** Returns a request for a thin volume in the first group. */
function thinRequest(harness: Harness, parameters: Record<string, string> = {}) {
  return { parameters: { volumeGroup: harness.groups[0], thinProvision: "yes", ...parameters } };
}

/** Returns the id of the volume that an LV is, from its tags. */
function volumeIdFrom(tags: readonly string[]): string {
  return tags.find((tag) => tag.startsWith("denolith.volume="))!.slice("denolith.volume=".length);
}

/** Returns the changes among commands, each by lvm's name for it. */
function lvmChanges(commands: readonly string[]): string[] {
  return commands.filter((command) => /^lvm (?!fullreport)/.test(command)).map((command) => command.split(" ")[1]!);
}

/** Deletes all volumes and snapshots, and the driver's pools as an administrator does. Asserts that nothing is left. */
async function cleanUp(harness: Harness): Promise<void> {
  const { entries } = await harness.csi.controller.listVolumes({});
  for (const { volume } of entries) await harness.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
  const groups = await harness.report();
  for (const { name, lvs } of groups) {
    const otherLvs = lvs.filter(({ thinPool }) => thinPool === undefined);
    assertEquals(otherLvs.map(({ name }) => name), []);
    for (const pool of lvs) await harness.runAsAdmin("lvm", "lvremove", "--yes", `${name}/${pool.name}`);
  }
}
