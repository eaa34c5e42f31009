/**
 * Contract: the data of a deleted volume cannot be read from a new one, and no LV or record of it is left.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { readBlockDevice } from "../../lvm/host/device.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { blockCapability, contractTest, type Harness, type Host, volumeRequest } from "./helpers/host.ts";
import { subcommand } from "./volumes_suite.ts";

const BYTES = 32n << 20n;

const UUID = "00000000-0000-4000-8000-000000000000";

/** Registers the tests. */
export function erasureContract(host: Host): void {
  contractTest(host, "no data of a deleted volume can be read from a new one", async (harness) => {
    const unerased = await createBlockVolume(harness, { erase: "none" });
    await writeRandom(harness);
    await harness.csi.controller.deleteVolume({ volumeId: unerased });
    const dirty = await createBlockVolume(harness);
    assert(!await isZeroed(harness), "a volume in the same place shows what was not erased");
    await harness.csi.controller.deleteVolume({ volumeId: dirty });

    const clean = await createBlockVolume(harness);
    assert(await isZeroed(harness));
    await writeRandom(harness);
    await harness.csi.controller.deleteVolume({ volumeId: clean });
    const next = await createBlockVolume(harness);
    assert(await isZeroed(harness));
    await harness.csi.controller.deleteVolume({ volumeId: next });
  });

  contractTest(host, "no data of a deleted snapshot can be read from a new volume", async (harness) => {
    const volumeGroup = harness.groups[0];
    const source = await createBlockVolume(harness);
    await writeRandom(harness);
    const snapshotId = async (name: string) => {
      const { snapshot } = await harness.csi.controller.createSnapshot({ name, sourceVolumeId: source });
      await writeRandom(harness);
      return snapshot!.snapshotId;
    };
    await harness.csi.controller.deleteSnapshot({ snapshotId: await snapshotId("one") });
    await harness.lvs();
    const volumeId = await harness.create({ volumeCapabilities: [blockCapability()], parameters: { volumeGroup } });
    assert(await isZeroed(harness, volumeId));
    await harness.csi.controller.deleteVolume({ volumeId });
    await harness.csi.controller.deleteSnapshot({ snapshotId: await snapshotId("one") });
    await harness.csi.controller.deleteVolume({ volumeId: source });
    assertEquals(await harness.lvs(), []);
  });

  for (const format of ["raw", "formatted:ext4:00000000-0000-4000-8000-000000000001"]) {
    const title = `no data of an imported volume that was never staged can be read from a new one (${format})`;
    contractTest(host, title, async (harness) => {
      const volumeId = volumeIdOf("imported");
      const [group] = harness.groups;
      const tags = [`denolith=${harness.driverName}`, `denolith.volume=${volumeId}`, `denolith.fs=${format}`];
      const addTags = tags.flatMap((tag) => ["--addtag", tag]);
      await harness.runAsAdmin(
        "lvm",
        "lvcreate",
        "--yes",
        "--name",
        "vol-old",
        "--size",
        `${BYTES}b`,
        ...addTags,
        group,
      );
      await writeRandom(harness);
      await harness.csi.controller.deleteVolume({ volumeId });
      const next = await createBlockVolume(harness);
      assert(await isZeroed(harness));
      await harness.csi.controller.deleteVolume({ volumeId: next });
      assertEquals(await leftovers(harness), []);
    });
  }

  contractTest(host, "a volume that was never used and is to be formatted is removed at once", async (harness) => {
    const volumeId = await harness.create();
    const commands = await harness.exec.recordCommands(() => harness.csi.controller.deleteVolume({ volumeId }));
    assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvremove", "sync"]);
  });

  contractTest(
    host,
    "deleting a volume that was in use marks it in one change; the rest is done in the background",
    async (harness) => {
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.listVolumes({}); // by a new report, after which the volume is known
      const commands = await harness.exec.recordCommands(async () => {
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
      });
      assertEquals(commands.map(subcommand), [
        "lvm lvchange",
        "sync",
        "lvm fullreport",
        "lsblk --json",
        "blkdiscard --zeroout",
        "sync", // before LVM gives the space away
        "lvm vgchange",
        "lvm lvremove", // if no disk has failed meanwhile
        "sync",
      ]);
      assertEquals(await leftovers(harness), []);
    },
  );

  contractTest(
    host,
    "a block volume that was published read-only is erased: its device takes writes again when nobody uses it",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await createBlockVolume(harness);
      await writeRandom(harness);
      const targetPath = await harness.publish(volumeId, "reader", { volumeCapability, readonly: true });
      const { devicePath } = await harness.singleLv();
      const isReadOnly = async () => (await readBlockDevice(harness.exec, devicePath)).readOnly;
      assert(await isReadOnly());
      const unpublish = () => harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      await unpublish();
      assert(!await isReadOnly(), "nothing of the volume is published");
      await harness.publish(volumeId, "first", { volumeCapability, readonly: true });
      await harness.publish(volumeId, "reader", { volumeCapability, readonly: true });
      await unpublish();
      assert(await isReadOnly(), "another target is published read-only");
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/first` });
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await leftovers(harness), []);
      const next = await createBlockVolume(harness);
      assert(await isZeroed(harness));
      await harness.csi.controller.deleteVolume({ volumeId: next });
    },
  );

  contractTest(
    host,
    "a deleted volume is erased although its device is read-only: by its permission in LVM, by blockdev, or by both",
    async (harness) => {
      for (const flags of [["permission"], ["blockdev"], ["permission", "blockdev"], ["blockdev", "permission"]]) {
        const volumeId = await createBlockVolume(harness);
        await writeRandom(harness);
        const { path, devicePath } = await harness.singleLv();
        for (const flag of flags) {
          if (flag === "blockdev") await harness.runAsAdmin("blockdev", "--setro", devicePath);
          else await harness.runAsAdmin("lvm", "lvchange", "--permission", "r", path);
        }
        await harness.csi.controller.deleteVolume({ volumeId });
        assertEquals(await leftovers(harness), [], flags.join(" and "));
        const next = await createBlockVolume(harness);
        assert(await isZeroed(harness), flags.join(" and "));
        await harness.csi.controller.deleteVolume({ volumeId: next });
        await harness.waitUntilIdle();
      }
    },
  );

  contractTest(
    host,
    "the permission in LVM and blockdev's flag make a device read-only, and neither undoes the other",
    async (harness) => {
      const volumeId = await createBlockVolume(harness);
      const { path, devicePath } = await harness.singleLv();
      const isReadOnly = async () => (await readBlockDevice(harness.exec, devicePath)).readOnly;
      const setPermission = (permission: string) =>
        harness.exec.run({ program: "lvm", args: ["lvchange", "--permission", permission, path], mutates: true });
      const writable = await setPermission("rw");
      assertEquals(writable.code, 5);
      assertMatch(writable.stderr, /is already writable/);

      await harness.runAsAdmin("blockdev", "--setro", devicePath);
      assert(await isReadOnly());
      assertEquals((await setPermission("rw")).code, 0, "LVM sees that the device is read-only, and loads it again");
      assert(await isReadOnly());
      await harness.runAsAdmin("blockdev", "--setrw", devicePath);
      assert(!await isReadOnly());

      assertEquals((await setPermission("r")).code, 0);
      const readOnly = await setPermission("r");
      assertEquals(readOnly.code, 5);
      assertMatch(readOnly.stderr, /is already read only/);
      await harness.runAsAdmin("blockdev", "--setrw", devicePath);
      assert(await isReadOnly());
      const discard = { program: "blkdiscard", args: [devicePath], mutates: true } as const;
      assertMatch((await harness.exec.run(discard)).stderr, /BLKDISCARD.* ioctl failed: Operation not permitted/);
      const makeFilesystem = {
        program: "mke2fs",
        args: ["-q", "-t", "ext4", "-U", UUID, devicePath],
        mutates: true,
      } as const;
      assertEquals((await harness.exec.run(makeFilesystem)).code, 1);
      await harness.runAsAdmin("lvm", "lvchange", "--permission", "rw", path);
      assert(!await isReadOnly());

      await harness.runAsAdmin("blockdev", "--setro", devicePath);
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", path);
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "y", path);
      assert(!await isReadOnly(), "blockdev's flag goes with the device");
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "a deleted volume's name can be used again at once", async (harness) => {
    const request = { ...volumeRequest(), volumeCapabilities: [blockCapability()] };
    const volumeId = await harness.create(request);
    for (let round = 0; round < 2; round++) {
      await harness.stage(volumeId, blockCapability());
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.create(request), volumeId);
    }
    await harness.csi.controller.deleteVolume({ volumeId });
    assertEquals(await leftovers(harness), []);
  });

  contractTest(
    host,
    "a driver removes the volumes that were marked as deleted when the driver before it crashed",
    async (harness) => {
      const volumeId = await createBlockVolume(harness, { erase: "discard" });
      const { path } = await harness.singleLv();
      const markDeleted = ["--deltag", `denolith.volume=${volumeId}`, "--addtag", `denolith.deleted=${volumeId}`];
      await harness.runAsAdmin("lvm", "lvchange", ...markDeleted, path);
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", path);
      await using restarted = await harness.restart();
      assertEquals(await leftovers(restarted), []);
    },
  );

  contractTest(host, "a deleted volume with erase: discard is discarded and removed", async (harness) => {
    const volumeId = await createBlockVolume(harness, { erase: "discard" });
    const { devicePath } = await harness.singleLv();
    const commands = await harness.exec.recordCommands(async () => {
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await leftovers(harness), []);
    });
    const discards = commands.filter((command) => command.startsWith("blkdiscard"));
    assertEquals(discards, [`blkdiscard --offset 0 --length ${BYTES} ${devicePath}`]);
  });

  contractTest(
    host,
    "LVM removes the LV with the name and the UUID, and none that has only one of them",
    async (harness) => {
      const volumeIds = [await harness.create(), await harness.create()];
      const [one, other] = (await harness.report()).flatMap(({ name, lvs }) =>
        lvs.map((lv) => ({ uuid: lv.uuid, path: `${name}/${lv.name}` }))
      );
      const remove = async (uuid: string, path: string) => {
        const args = ["lvremove", "--yes", "--select", `lv_uuid=${uuid}`, path];
        const { code } = await harness.exec.run({ program: "lvm", args, mutates: true });
        return [code, (await harness.lvs()).length];
      };
      assertEquals(await remove(one!.uuid, other!.path), [0, 2]);
      assertEquals(await remove(one!.uuid, `${one!.path}-2`), [5, 2]);
      assertEquals(await remove(one!.uuid, one!.path), [0, 1]);
      assertEquals(await remove(one!.uuid, one!.path), [5, 1]);
      assertEquals((await harness.singleLv()).path, other!.path);
      for (const volumeId of volumeIds) await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "a snapshot's LV that never became one is not taken for it, and is removed", async (harness) => {
    const sourceVolumeId = await harness.create();
    const group = (await harness.singleLv()).path.split("/")[0]!;
    const { snapshot } = await harness.csi.controller.createSnapshot({ name: "halved", sourceVolumeId });
    const { snapshotId } = snapshot!;
    const { name } = (await harness.lvs()).find(({ origin }) => origin !== undefined)!;
    await harness.runAsAdmin("lvm", "lvconvert", "--yes", "--splitsnapshot", `${group}/${name}`);
    assertEquals((await harness.csi.controller.listSnapshots({})).entries, []);
    const again = await harness.csi.controller.createSnapshot({ name: "halved", sourceVolumeId });
    assertEquals([again.snapshot?.snapshotId, again.snapshot?.readyToUse], [snapshotId, true]);
    assertEquals((await harness.lvs()).length, 2);
    await harness.csi.controller.deleteSnapshot({ snapshotId });
    await harness.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    assertEquals(await leftovers(harness), []);
  });
}

/** Creates a block volume that was used once. */
export async function createBlockVolume(harness: Harness, parameters: Record<string, string> = {}): Promise<string> {
  await harness.lvs(); // the volume before is gone, so this one takes its place
  const volumeId = await harness.create({
    capacityRange: { requiredBytes: BYTES },
    volumeCapabilities: [blockCapability()],
    parameters: { volumeGroup: harness.groups[0], ...parameters },
  });
  await harness.stage(volumeId, blockCapability());
  return volumeId;
}

/** Writes over all of the device of the first volume. */
export async function writeRandom(harness: Harness): Promise<void> {
  const lv = (await harness.lvs()).find(({ origin, name }) => origin === undefined && name.startsWith("vol-"))!;
  await harness.runAsAdmin(
    "dd",
    "if=/dev/urandom",
    `of=${lv.devicePath}`,
    "bs=1048576",
    "count=32",
    "oflag=direct",
    "status=none",
  );
}

/** Reports whether the device of a volume reads as zeros from end to end. */
export async function isZeroed(harness: Harness, volumeId?: string): Promise<boolean> {
  const lv = (await harness.lvs()).find(({ tags }) =>
    volumeId === undefined || tags.includes(`denolith.volume=${volumeId}`)
  )!;
  const { code, stderr } = await harness.exec.run({
    program: "cmp",
    args: [`--bytes=${lv.size}`, "/dev/zero", lv.devicePath],
    mutates: false,
  });
  assert(code <= 1, stderr);
  return code === 0;
}

/** Returns the LVs and the tags of groups that are left. */
async function leftovers(harness: Harness): Promise<string[]> {
  return (await harness.report()).flatMap(({ lvs, tags }) => [...lvs.map(({ name }) => name), ...tags]);
}
