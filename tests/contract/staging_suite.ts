/**
 * Contract: volumes in use.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { VolumeCapability_AccessMode_Mode as Mode } from "../../csi/proto/csi_pb.ts";
import { readMaximumSectorBytes } from "../../lvm/host/device_bytes.ts";
import { type Mount, readMounts } from "../../lvm/host/mounts.ts";
import { FILESYSTEM_TYPES } from "../../lvm/settings/filesystem.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
  totalBytes,
  volumeRequest,
} from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function stagingContract(host: Host): void {
  for (const type of FILESYSTEM_TYPES) {
    contractTest(host, `${type}: staged, published, expanded while in use, and back`, async (harness) => {
      const capability = mountCapability(type);
      const request = { volumeCapabilities: [capability], capacityRange: { requiredBytes: 300n * MiB } };
      const volumeId = await harness.create(request);
      await harness.stage(volumeId, capability);
      const volumePath = await harness.publish(volumeId, "pod", { volumeCapability: capability });
      const before = await totalBytes(harness, volumeId, volumePath);

      const capacityRange = { requiredBytes: 400n * MiB };
      await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      const grown = await harness.csi.node.nodeExpandVolume({
        volumeId,
        volumePath,
        capacityRange,
        volumeCapability: capability,
      });
      assertEquals(grown.capacityBytes, 400n * MiB);
      const after = await totalBytes(harness, volumeId, volumePath);
      assert(after >= before + 90n * MiB, `${type} has ${after} bytes after growing from ${before}`);

      const again = await harness.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange });
      assertEquals(again.capacityBytes, 400n * MiB);
      await tearDown(harness, volumeId, "pod");
    });
  }

  contractTest(
    host,
    "a new filesystem can be copied to a disk with larger sectors, unless mkfsOptions decide otherwise",
    async (harness) => {
      for (const [type, mkfsOptions, bytes] of SECTOR_BYTES) {
        const capability = mountCapability(type);
        const parameters = mkfsOptions === "" ? {} : { mkfsOptions };
        const request = { volumeCapabilities: [capability], capacityRange: { requiredBytes: 300n * MiB }, parameters };
        const volumeId = await harness.create(request);
        await harness.stage(volumeId, capability);
        const { devicePath } = await harness.singleLv();
        assertEquals(await readMaximumSectorBytes(harness.exec, devicePath, type), bytes, `${type} ${mkfsOptions}`);
        await tearDown(harness, volumeId);
      }
    },
  );

  contractTest(
    host,
    "a volume expanded while it was not in use has the new size when it is staged",
    async (harness) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
      await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 128n * MiB } });
      const staging = await harness.stage(volumeId);
      assert(await totalBytes(harness, volumeId, staging) > 100n * MiB);
      await tearDown(harness, volumeId);
    },
  );

  contractTest(
    host,
    "nodeStageVolume() and nodePublishVolume() are idempotent, and so are their opposites",
    async (harness) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      await harness.stage(volumeId);
      const targetPath = await harness.publish(volumeId);
      await harness.publish(volumeId);
      assertEquals((await mountsOf(harness)).length, 2);
      for (let time = 0; time < 2; time++) await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      const stagingTargetPath = `${harness.folder}/staging`;
      for (let time = 0; time < 2; time++) await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      assertEquals(await mountsOf(harness), []);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "nodePublishVolume() publishes to several targets, each read-only or not", async (harness) => {
    const volumeId = await harness.create();
    await harness.stage(volumeId);
    await harness.publish(volumeId, "writer");
    await harness.publish(volumeId, "reader", { readonly: true });
    const readOnly = Object.fromEntries(
      (await mountsOf(harness)).map((mount) => [mount.target.split("/").at(-1), mount.readOnly]),
    );
    assertEquals(readOnly, { staging: false, writer: false, reader: true });
    await assertFails("ALREADY_EXISTS", harness.publish(volumeId, "reader"), "read-only");
    // what is open for writing on the fake machine is in lvm/staging/staging_test.ts
    if (host.name === "lvm") {
      using _file = await Deno.open(`${harness.folder}/writer/file`, { create: true, write: true });
      await assertFails("ALREADY_EXISTS", harness.publish(volumeId, "writer", { readonly: true }), "read-write");
      assert((await mountsOf(harness)).some(({ target, readOnly }) => target.endsWith("/writer") && !readOnly));
    }
    await tearDown(harness, volumeId, "writer", "reader");
  });

  contractTest(
    host,
    "nodePublishVolume() allows one target where the access mode or the class says so",
    async (harness) => {
      for (const mode of [Mode.SINGLE_NODE_SINGLE_WRITER, Mode.SINGLE_NODE_WRITER, Mode.SINGLE_NODE_READER_ONLY]) {
        const volumeCapability = mountCapability("", [], mode);
        const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
        await harness.stage(volumeId, volumeCapability);
        await harness.publish(volumeId, "one", { volumeCapability });
        await harness.publish(volumeId, "one", { volumeCapability });
        await assertFails("FAILED_PRECONDITION", harness.publish(volumeId, "two", { volumeCapability }), "one target");
        await tearDown(harness, volumeId, "one");
      }
      const volumeId = await harness.create({ parameters: { shared: "no" } });
      await harness.stage(volumeId);
      await harness.publish(volumeId, "one");
      await assertFails("FAILED_PRECONDITION", harness.publish(volumeId, "two"), "shared");
      await tearDown(harness, volumeId, "one");
    },
  );

  contractTest(
    host,
    "nodePublishVolume() of a volume that is not staged is refused, and leaves no target",
    async (harness) => {
      const volumeId = await harness.create();
      await Deno.mkdir(`${harness.folder}/staging`);
      await assertFails("FAILED_PRECONDITION", harness.publish(volumeId), "not staged");
      const request = { volumeId, targetPath: `${harness.folder}/pod`, volumeCapability: mountCapability() };
      await assertFails("FAILED_PRECONDITION", harness.csi.node.nodePublishVolume(request), "staging_target_path");
      assertEquals([...Deno.readDirSync(harness.folder)].map(({ name }) => name).sort(), ["csi.sock", "staging"]);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a block volume is published as a device, for reading and writing or only for reading",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      await harness.stage(volumeId, volumeCapability);
      const volumePath = await harness.publish(volumeId, "device", { volumeCapability });
      await harness.publish(volumeId, "device", { volumeCapability });
      await harness.publish(volumeId, "second", { volumeCapability });
      await harness.runAsAdmin(
        "dd",
        "if=/dev/urandom",
        `of=${volumePath}`,
        "bs=4096",
        "count=1",
        "oflag=direct",
        "status=none",
      );
      await assertFails(
        "FAILED_PRECONDITION",
        harness.publish(volumeId, "third", { volumeCapability, readonly: true }),
        "read-only",
      );

      assertEquals(await totalBytes(harness, volumeId, volumePath), 32n * MiB);
      const capacityRange = { requiredBytes: 64n * MiB };
      const expanded = await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      assertEquals([expanded.capacityBytes, expanded.nodeExpansionRequired], [64n * MiB, false]);
      assertEquals((await harness.csi.node.nodeExpandVolume({ volumeId, volumePath })).capacityBytes, 64n * MiB);
      assertEquals(await totalBytes(harness, volumeId, volumePath), 64n * MiB);
      for (const name of ["device", "second"]) {
        await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/${name}` });
      }

      const reader = await harness.publish(volumeId, "reader", { volumeCapability, readonly: true });
      const write = {
        program: "dd",
        args: ["if=/dev/zero", `of=${reader}`, "bs=4096", "count=1", "status=none"],
        mutates: true,
      } as const;
      if (!host.name.startsWith("fake")) {
        assert((await harness.exec.run(write)).code !== 0, "a read-only device took a write");
      }
      await tearDown(harness, volumeId, "reader");
    },
  );

  contractTest(
    host,
    "a block volume is published only when it is staged, and taken off only by its own id",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      const other = await harness.create({ volumeCapabilities: [volumeCapability] });
      await Deno.mkdir(`${harness.folder}/staging`);
      await assertFails("FAILED_PRECONDITION", harness.publish(volumeId, "device", { volumeCapability }), "not staged");
      await harness.stage(volumeId, volumeCapability);
      const targetPath = await harness.publish(volumeId, "device", { volumeCapability });
      await assertFails(
        "FAILED_PRECONDITION",
        harness.csi.node.nodeUnpublishVolume({ volumeId: other, targetPath }),
        "stays mounted",
      );
      await assertFails("NOT_FOUND", harness.csi.node.nodeGetVolumeStats({ volumeId: other, volumePath: targetPath }));
      assertEquals((await mountsOf(harness)).length, 1);
      await tearDown(harness, volumeId, "device");
      await tearDown(harness, other);
    },
  );

  contractTest(
    host,
    "a volume whose LV an administrator grew has that size, and its filesystem grows when it is staged",
    async (harness) => {
      const request = volumeRequest();
      const volumeId = await harness.create(request);
      await harness.runAsAdmin("lvm", "lvextend", "--size", `${48n * MiB}b`, (await harness.singleLv()).path);
      const { volume } = await harness.csi.controller.controllerGetVolume({ volumeId });
      assertEquals(volume?.capacityBytes, 48n * MiB);
      assertEquals(await harness.create(request), volumeId);
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.publish(volumeId);
      const { usage } = await harness.csi.node.nodeGetVolumeStats({ volumeId, volumePath: `${harness.folder}/pod` });
      assert(usage[0]!.total > 32n * MiB, `${usage[0]!.total}`);
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/pod` });
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume whose LV was renamed is staged, measured and removed as others are",
    async (harness) => {
      const volumeId = await harness.create();
      const { path } = await harness.singleLv();
      await harness.runAsAdmin("lvm", "lvrename", path, path.replace(/\/.*/, "/renamed"));
      const volumePath = await harness.stage(volumeId);
      assert(await totalBytes(harness, volumeId, volumePath) > 0n);
      await tearDown(harness, volumeId);
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "a volume is used only for what it was created for", async (harness) => {
    const mounted = await harness.create();
    await assertFails("FAILED_PRECONDITION", harness.stage(mounted, blockCapability()), "created for ext4");
    await assertFails("FAILED_PRECONDITION", harness.stage(mounted, mountCapability("xfs")), "created for ext4");
    const block = await harness.create({ volumeCapabilities: [blockCapability()] });
    await assertFails("FAILED_PRECONDITION", harness.stage(block, mountCapability()), "block volume");
    assertEquals(await mountsOf(harness), []);
    await tearDown(harness, mounted);
    await tearDown(harness, block);
  });

  contractTest(
    host,
    "mount flags and mkfs options are applied, and those that are not on the list are refused",
    async (harness) => {
      const capability = mountCapability("ext4", ["noatime", "nodev"]);
      const parameters = { mkfsOptions: "-m 0 -E lazy_itable_init=0,nodiscard -O ^metadata_csum" };
      const volumeId = await harness.create({ volumeCapabilities: [capability], parameters });
      const commands = await harness.exec.recordCommands(() => harness.stage(volumeId, capability));
      const made = commands.find((command) => command.startsWith("mke2fs"));
      assert(made?.includes("-m 0 -E lazy_itable_init=0,nodiscard -O ^metadata_csum"), made);
      assert(commands.some((command) => command.includes("mount -t ext4 -o noatime,nodev")), commands.join("\n"));
      await tearDown(harness, volumeId);
      const refused = await harness.create();
      await assertFails("INVALID_ARGUMENT", harness.stage(refused, mountCapability("ext4", ["nouuid"])), "nouuid");
      await harness.csi.controller.deleteVolume({ volumeId: refused });
    },
  );

  contractTest(
    host,
    "nodeGetVolumeStats() counts bytes and inodes, and knows where the volume is not",
    async (harness) => {
      const volumeId = await harness.create();
      const staging = await harness.stage(volumeId);
      const { usage } = await harness.csi.node.nodeGetVolumeStats({ volumeId, volumePath: staging });
      assertEquals(usage.map(({ unit }) => unit), [1, 2]);
      for (const { total, used, available } of usage) {
        assert(total > 0n && used >= 0n && available > 0n && used + available <= total);
      }
      const getStats = (volumePath: string, id = volumeId) =>
        harness.csi.node.nodeGetVolumeStats({ volumeId: id, volumePath });
      await assertFails("NOT_FOUND", getStats(harness.folder));
      await assertFails("NOT_FOUND", getStats(staging, "v1-00000000000000000000000000000000"));
      await assertFails("NOT_FOUND", getStats("/"));
      await tearDown(harness, volumeId);
    },
  );

  contractTest(
    host,
    "a volume whose LV is inactive, as after a reboot, is activated and not formatted",
    async (harness) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", (await harness.singleLv()).path);
      const commands = await harness.exec.recordCommands(() => harness.stage(volumeId));
      assertEquals(commands.filter((command) => command.startsWith("mk")), []);
      assert((await harness.singleLv()).active);
      await tearDown(harness, volumeId);
    },
  );

  contractTest(
    host,
    "nodeUnpublishVolume() and nodeUnstageVolume() leave mounts of others alone",
    async (harness) => {
      const volumeId = await harness.create();
      const other = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      const targetPath = await harness.publish(volumeId);
      await assertFails(
        "FAILED_PRECONDITION",
        harness.csi.node.nodeUnpublishVolume({ volumeId: other, targetPath }),
        "stays mounted",
      );
      await assertFails(
        "FAILED_PRECONDITION",
        harness.csi.node.nodeUnstageVolume({ volumeId: other, stagingTargetPath }),
        "stays mounted",
      );
      assertEquals((await mountsOf(harness)).length, 2);
      await tearDown(harness, volumeId, "pod");
      await Deno.writeTextFile(`${harness.folder}/file`, "data");
      const file = { volumeId: other, targetPath: `${harness.folder}/file` };
      await assertFails("FAILED_PRECONDITION", harness.csi.node.nodeUnpublishVolume(file), "empty");
      assertEquals(await Deno.readTextFile(file.targetPath), "data");
      await Deno.mkdir(`${harness.folder}/files`);
      await Deno.writeTextFile(`${harness.folder}/files/precious`, "data");
      await assertFails(
        "FAILED_PRECONDITION",
        harness.csi.node.nodeUnpublishVolume({ volumeId: other, targetPath: `${harness.folder}/files` }),
      );
      assertEquals(await Deno.readTextFile(`${harness.folder}/files/precious`), "data");
      await harness.csi.controller.deleteVolume({ volumeId: other });
    },
  );
}

/** Filesystems with options of mkfs, and the largest sectors of a disk for them. */
const SECTOR_BYTES = [
  ["ext4", "", 4096],
  ["ext3", "", 4096],
  ["ext2", "", 4096],
  ["xfs", "", 4096],
  ["btrfs", "", 4096],
  ["ext4", "-b 1024", 1024],
  ["ext4", "-J size=1", 1024],
  ["xfs", "-s size=512", 512],
  ["xfs", "-b size=1k", 512],
] as const;

/** Returns the mounts under the test's folder. */
export async function mountsOf(harness: Harness): Promise<Mount[]> {
  return (await readMounts(harness.exec)).filter((mount) => mount.target.startsWith(harness.folder));
}

/** Unpublishes, unstages and deletes. */
export async function tearDown(harness: Harness, volumeId: string, ...targets: string[]): Promise<void> {
  for (const name of targets) {
    await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/${name}` });
  }
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
  await harness.csi.controller.deleteVolume({ volumeId });
}
