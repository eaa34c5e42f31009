/**
 * Contract: volumes in use.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { VolumeCapability_AccessMode_Mode as Mode } from "../../csi/proto/csi_pb.ts";
import { readMounts } from "../../lvm/host/mounts.ts";
import {
  assertFails,
  type Bench,
  blockCapability,
  contract,
  type Host,
  mountCapability,
  volumeRequest,
} from "./host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function stagingContract(host: Host): void {
  for (const type of ["ext4", "ext3", "ext2", "xfs", "btrfs"]) {
    contract(host, `${type}: staged, published, grown while in use, and back`, async (bench) => {
      const capability = mountCapability(type);
      const request = { volumeCapabilities: [capability], capacityRange: { requiredBytes: 300n * MiB } };
      const volumeId = await bench.create(request);
      await bench.stage(volumeId, capability);
      const volumePath = await bench.publish(volumeId, "pod", { volumeCapability: capability });
      const before = await bytes(bench, volumeId, volumePath);

      const capacityRange = { requiredBytes: 400n * MiB };
      await bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      const grown = await bench.csi.node.nodeExpandVolume({
        volumeId,
        volumePath,
        capacityRange,
        volumeCapability: capability,
      });
      assertEquals(grown.capacityBytes, 400n * MiB);
      const after = await bytes(bench, volumeId, volumePath);
      assert(after >= before + 90n * MiB, `${type} has ${after} bytes after growing from ${before}`);

      const again = await bench.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange });
      assertEquals(again.capacityBytes, 400n * MiB);
      await retire(bench, volumeId, "pod");
    });
  }

  contract(host, "a volume grown while it was not in use has the new size when it is staged", async (bench) => {
    const volumeId = await bench.create();
    await bench.stage(volumeId);
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
    await bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 128n * MiB } });
    const staging = await bench.stage(volumeId);
    assert(await bytes(bench, volumeId, staging) > 100n * MiB);
    await retire(bench, volumeId);
  });

  contract(
    host,
    "nodeStageVolume() and nodePublishVolume() are idempotent, and so are their opposites",
    async (bench) => {
      const volumeId = await bench.create();
      await bench.stage(volumeId);
      await bench.stage(volumeId);
      const targetPath = await bench.publish(volumeId);
      await bench.publish(volumeId);
      assertEquals((await ours(bench)).length, 2);
      for (let time = 0; time < 2; time++) await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      const stagingTargetPath = `${bench.folder}/staging`;
      for (let time = 0; time < 2; time++) await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      assertEquals(await ours(bench), []);
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(host, "nodePublishVolume() publishes to several targets, each read-only or not", async (bench) => {
    const volumeId = await bench.create();
    await bench.stage(volumeId);
    await bench.publish(volumeId, "writer");
    await bench.publish(volumeId, "reader", { readonly: true });
    const readOnly = Object.fromEntries(
      (await ours(bench)).map((mount) => [mount.target.split("/").at(-1), mount.readOnly]),
    );
    assertEquals(readOnly, { staging: false, writer: false, reader: true });
    await assertFails("ALREADY_EXISTS", bench.publish(volumeId, "reader"), "read-only");
    await assertFails("ALREADY_EXISTS", bench.publish(volumeId, "writer", { readonly: true }), "read-write");
    await retire(bench, volumeId, "writer", "reader");
  });

  contract(host, "nodePublishVolume() allows one target where the access mode or the class says so", async (bench) => {
    for (const mode of [Mode.SINGLE_NODE_SINGLE_WRITER, Mode.SINGLE_NODE_WRITER, Mode.SINGLE_NODE_READER_ONLY]) {
      const volumeCapability = mountCapability("", [], mode);
      const volumeId = await bench.create({ volumeCapabilities: [volumeCapability] });
      await bench.stage(volumeId, volumeCapability);
      await bench.publish(volumeId, "one", { volumeCapability });
      await bench.publish(volumeId, "one", { volumeCapability });
      await assertFails("FAILED_PRECONDITION", bench.publish(volumeId, "two", { volumeCapability }), "one target");
      await retire(bench, volumeId, "one");
    }
    const volumeId = await bench.create({ parameters: { shared: "no" } });
    await bench.stage(volumeId);
    await bench.publish(volumeId, "one");
    await assertFails("FAILED_PRECONDITION", bench.publish(volumeId, "two"), "shared");
    await retire(bench, volumeId, "one");
  });

  contract(
    host,
    "nodePublishVolume() of a volume that is not staged is refused, and leaves no target",
    async (bench) => {
      const volumeId = await bench.create();
      await Deno.mkdir(`${bench.folder}/staging`);
      await assertFails("FAILED_PRECONDITION", bench.publish(volumeId), "not staged");
      const request = { volumeId, targetPath: `${bench.folder}/pod`, volumeCapability: mountCapability() };
      await assertFails("FAILED_PRECONDITION", bench.csi.node.nodePublishVolume(request), "staging_target_path");
      assertEquals([...Deno.readDirSync(bench.folder)].map(({ name }) => name).sort(), ["csi.sock", "staging"]);
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(
    host,
    "a block volume is published as a device, for reading and writing or only for reading",
    async (bench) => {
      const volumeCapability = blockCapability();
      const volumeId = await bench.create({ volumeCapabilities: [volumeCapability] });
      await bench.stage(volumeId, volumeCapability);
      const volumePath = await bench.publish(volumeId, "device", { volumeCapability });
      await bench.publish(volumeId, "device", { volumeCapability });
      await bench.publish(volumeId, "second", { volumeCapability });
      await bench.admin(
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
        bench.publish(volumeId, "third", { volumeCapability, readonly: true }),
        "read-only",
      );

      assertEquals(await bytes(bench, volumeId, volumePath), 32n * MiB);
      const capacityRange = { requiredBytes: 64n * MiB };
      const expanded = await bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      assertEquals([expanded.capacityBytes, expanded.nodeExpansionRequired], [64n * MiB, false]);
      assertEquals((await bench.csi.node.nodeExpandVolume({ volumeId, volumePath })).capacityBytes, 64n * MiB);
      assertEquals(await bytes(bench, volumeId, volumePath), 64n * MiB);
      for (const name of ["device", "second"]) {
        await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${bench.folder}/${name}` });
      }

      const reader = await bench.publish(volumeId, "reader", { volumeCapability, readonly: true });
      const write = {
        program: "dd",
        args: ["if=/dev/zero", `of=${reader}`, "bs=4096", "count=1", "status=none"],
        mutates: true,
      } as const;
      if (host.name !== "fake") assert((await bench.exec.run(write)).code !== 0, "a read-only device took a write");
      await retire(bench, volumeId, "reader");
    },
  );

  contract(
    host,
    "a block volume is published only when it is staged, and taken off only by its own id",
    async (bench) => {
      const volumeCapability = blockCapability();
      const volumeId = await bench.create({ volumeCapabilities: [volumeCapability] });
      const other = await bench.create({ volumeCapabilities: [volumeCapability] });
      await Deno.mkdir(`${bench.folder}/staging`);
      await assertFails("FAILED_PRECONDITION", bench.publish(volumeId, "device", { volumeCapability }), "not staged");
      await bench.stage(volumeId, volumeCapability);
      const targetPath = await bench.publish(volumeId, "device", { volumeCapability });
      await assertFails(
        "FAILED_PRECONDITION",
        bench.csi.node.nodeUnpublishVolume({ volumeId: other, targetPath }),
        "left alone",
      );
      await assertFails("NOT_FOUND", bench.csi.node.nodeGetVolumeStats({ volumeId: other, volumePath: targetPath }));
      assertEquals((await ours(bench)).length, 1);
      await retire(bench, volumeId, "device");
      await retire(bench, other);
    },
  );

  contract(
    host,
    "a volume whose LV an administrator grew has that size, and its filesystem grows when it is staged",
    async (bench) => {
      const request = volumeRequest();
      const volumeId = await bench.create(request);
      await bench.admin("lvm", "lvextend", "--size", `${48n * MiB}b`, (await bench.onlyLv()).path);
      const { volume } = await bench.csi.controller.controllerGetVolume({ volumeId });
      assertEquals(volume?.capacityBytes, 48n * MiB);
      assertEquals(await bench.create(request), volumeId);
      const stagingTargetPath = await bench.stage(volumeId);
      await bench.publish(volumeId);
      const { usage } = await bench.csi.node.nodeGetVolumeStats({ volumeId, volumePath: `${bench.folder}/pod` });
      assert(usage[0]!.total > 32n * MiB, `${usage[0]!.total}`);
      await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${bench.folder}/pod` });
      await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(host, "a volume whose LV was renamed is staged, measured and taken off all the same", async (bench) => {
    const volumeId = await bench.create();
    const { path } = await bench.onlyLv();
    await bench.admin("lvm", "lvrename", path, path.replace(/\/.*/, "/renamed"));
    const volumePath = await bench.stage(volumeId);
    assert(await bytes(bench, volumeId, volumePath) > 0n);
    await retire(bench, volumeId);
    assertEquals(await bench.lvs(), []);
  });

  contract(host, "a volume is used only as what it was made for", async (bench) => {
    const mounted = await bench.create();
    await assertFails("FAILED_PRECONDITION", bench.stage(mounted, blockCapability()), "made for ext4");
    await assertFails("FAILED_PRECONDITION", bench.stage(mounted, mountCapability("xfs")), "made for ext4");
    const block = await bench.create({ volumeCapabilities: [blockCapability()] });
    await assertFails("FAILED_PRECONDITION", bench.stage(block, mountCapability()), "block volume");
    assertEquals(await ours(bench), []);
    await retire(bench, mounted);
    await retire(bench, block);
  });

  contract(host, "mount flags and mkfs options reach the filesystem, those off the list are refused", async (bench) => {
    const capability = mountCapability("ext4", ["noatime", "nodev"]);
    const parameters = { mkfsOptions: "-m 0 -E lazy_itable_init=0,nodiscard -O ^metadata_csum" };
    const volumeId = await bench.create({ volumeCapabilities: [capability], parameters });
    const commands = await bench.exec.during(() => bench.stage(volumeId, capability));
    const made = commands.find((command) => command.startsWith("mke2fs"));
    assert(made?.includes("-m 0 -E lazy_itable_init=0,nodiscard -O ^metadata_csum"), made);
    assert(commands.some((command) => command.includes("mount -t ext4 -o noatime,nodev")), commands.join("\n"));
    await retire(bench, volumeId);
    const refused = await bench.create();
    await assertFails("INVALID_ARGUMENT", bench.stage(refused, mountCapability("ext4", ["nouuid"])), "nouuid");
    await bench.csi.controller.deleteVolume({ volumeId: refused });
  });

  contract(host, "nodeGetVolumeStats() counts bytes and inodes, and knows where the volume is not", async (bench) => {
    const volumeId = await bench.create();
    const staging = await bench.stage(volumeId);
    const { usage } = await bench.csi.node.nodeGetVolumeStats({ volumeId, volumePath: staging });
    assertEquals(usage.map(({ unit }) => unit), [1, 2]);
    for (const { total, used, available } of usage) {
      assert(total > 0n && used >= 0n && available > 0n && used + available <= total);
    }
    const stats = (volumePath: string, id = volumeId) =>
      bench.csi.node.nodeGetVolumeStats({ volumeId: id, volumePath });
    await assertFails("NOT_FOUND", stats(bench.folder));
    await assertFails("NOT_FOUND", stats(staging, "v1-00000000000000000000000000000000"));
    await assertFails("NOT_FOUND", stats("/"));
    await retire(bench, volumeId);
  });

  contract(host, "a volume whose LV is inactive, as after a reboot, is activated and not formatted", async (bench) => {
    const volumeId = await bench.create();
    await bench.stage(volumeId);
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
    await bench.admin("lvm", "lvchange", "--activate", "n", (await bench.onlyLv()).path);
    const commands = await bench.exec.during(() => bench.stage(volumeId));
    assertEquals(commands.filter((command) => command.startsWith("mk")), []);
    assert((await bench.onlyLv()).active);
    await retire(bench, volumeId);
  });

  contract(
    host,
    "nodeUnpublishVolume() and nodeUnstageVolume() leave alone what is not the volume's",
    async (bench) => {
      const volumeId = await bench.create();
      const other = await bench.create();
      const stagingTargetPath = await bench.stage(volumeId);
      const targetPath = await bench.publish(volumeId);
      await assertFails(
        "FAILED_PRECONDITION",
        bench.csi.node.nodeUnpublishVolume({ volumeId: other, targetPath }),
        "left alone",
      );
      await assertFails(
        "FAILED_PRECONDITION",
        bench.csi.node.nodeUnstageVolume({ volumeId: other, stagingTargetPath }),
        "left alone",
      );
      assertEquals((await ours(bench)).length, 2);
      await retire(bench, volumeId, "pod");
      await Deno.writeTextFile(`${bench.folder}/file`, "data");
      const file = { volumeId: other, targetPath: `${bench.folder}/file` };
      await assertFails("FAILED_PRECONDITION", bench.csi.node.nodeUnpublishVolume(file), "empty");
      assertEquals(await Deno.readTextFile(file.targetPath), "data");
      await Deno.mkdir(`${bench.folder}/files`);
      await Deno.writeTextFile(`${bench.folder}/files/precious`, "data");
      await assertFails(
        "FAILED_PRECONDITION",
        bench.csi.node.nodeUnpublishVolume({ volumeId: other, targetPath: `${bench.folder}/files` }),
      );
      assertEquals(await Deno.readTextFile(`${bench.folder}/files/precious`), "data");
      await bench.csi.controller.deleteVolume({ volumeId: other });
    },
  );
}

/** The mounts under the test's folder. */
async function ours(bench: Bench) {
  return (await readMounts(bench.exec)).filter((mount) => mount.target.startsWith(bench.folder));
}

async function bytes(bench: Bench, volumeId: string, volumePath: string): Promise<bigint> {
  const { usage } = await bench.csi.node.nodeGetVolumeStats({ volumeId, volumePath });
  return usage[0]!.total;
}

/** Unpublishes, unstages and deletes. */
export async function retire(bench: Bench, volumeId: string, ...targets: string[]): Promise<void> {
  for (const name of targets) {
    await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${bench.folder}/${name}` });
  }
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
  await bench.csi.controller.deleteVolume({ volumeId });
}
