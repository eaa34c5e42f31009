/**
 * Contract: bind mounts. mount(8) creates one by two calls of mount(2), so that a crash can leave it without its flags.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { Exec } from "../../lvm/exec.ts";
import { type Mount, readMounts } from "../../lvm/host/mounts.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";
import { tearDown } from "./staging_suite.ts";

/** Registers the tests. */
export function bindMountsContract(host: Host): void {
  contractTest(
    host,
    "nodePublishVolume() completes a bind mount that a crash left without its flags: it is read-only when it answers",
    async (harness) => {
      const volumeCapability = mountCapability("ext4", ["nosuid", "nodev"]);
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      const staging = await harness.stage(volumeId, volumeCapability);
      for (const [name, readonly] of [["reader", true], ["writer", false]] as const) {
        await Deno.mkdir(`${harness.folder}/${name}`);
        await harness.runAsAdmin("mount", "-o", "bind,noexec", staging, `${harness.folder}/${name}`);
        const before = await mountAt(harness, name);
        // Its own flags take the place of the source's (util-linux 2.38), or stand beside them (2.41).
        const halfway = { readOnly: before.readOnly, flags: flagsOf(before).join() };
        assert(!halfway.readOnly && ["noexec", "nodev,noexec,nosuid"].includes(halfway.flags), Deno.inspect(halfway));
        for (let time = 0; time < 2; time++) {
          await harness.publish(volumeId, name, { volumeCapability, readonly });
          const mount = await mountAt(harness, name);
          assertEquals([mount.readOnly, flagsOf(mount)], [readonly, ["nodev", "noexec", "nosuid"]]);
        }
      }
      await Deno.mkdir(`${harness.folder}/plain`);
      await harness.runAsAdmin("mount", "-o", "bind", `${harness.folder}/reader`, `${harness.folder}/plain`);
      const plain = await mountAt(harness, "plain");
      assertEquals([plain.readOnly, flagsOf(plain)], [true, ["nodev", "noexec", "nosuid"]], "those of the source");
      await tearDown(harness, volumeId, "plain", "reader", "writer");
    },
  );

  for (
    const [kind, volumeCapability] of [
      ...["ext4", "xfs", "btrfs"].map((type) => [type, mountCapability(type, ["nosuid"])] as const),
      ["block", blockCapability()],
    ] as const
  ) {
    contractTest(
      host,
      `the mount table and findmnt show the same mounts of a volume of kind ${kind}, and the table is read without commands`,
      async (harness) => {
        const { folder, exec } = harness;
        if (await exec.readMountTable() === undefined) return;
        const findmnt: Exec = { run: (command) => exec.run(command), idle: () => exec.idle() };
        const compare = async (count: number) => {
          const mounts = await mountsBelow(harness, exec);
          assertEquals([mounts.length, mounts], [count, await mountsBelow(harness, findmnt)]);
          assertEquals(await exec.recordCommands(() => readMounts(exec)), []);
        };
        const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
        await compare(0);
        const staging = await harness.stage(volumeId, volumeCapability);
        await harness.publish(volumeId, "writer", { volumeCapability });
        const isBlock = kind === "block";
        await compare(isBlock ? 1 : 2);
        if (!isBlock) await harness.publish(volumeId, "reader", { volumeCapability, readonly: true });
        const [odd, source] = [`${folder}/a b#\tc\n\\d`, isBlock ? `${folder}/writer` : staging];
        await (isBlock ? Deno.writeTextFile(odd, "") : Deno.mkdir(odd));
        await harness.runAsAdmin("mount", "-o", "bind", source, odd);
        await compare(isBlock ? 2 : 4);
        await harness.runAsAdmin("umount", odd);
        await tearDown(harness, volumeId, "writer", ...isBlock ? [] : ["reader"]);
        await harness.waitUntilIdle(); // its removal runs commands in the background
        await compare(0);
      },
    );
  }

  contractTest(
    host,
    "of mount flags that contradict each other, the last one applies, also when the calls are repeated",
    async (harness) => {
      const volumeId = await harness.create();
      for (const [flags, readOnly, forbids] of CONTRADICTING_FLAGS) {
        const volumeCapability = mountCapability("ext4", [...flags]);
        for (let time = 0; time < 2; time++) {
          await harness.stage(volumeId, volumeCapability);
          await harness.publish(volumeId, "pod", { volumeCapability });
        }
        for (const name of ["staging", "pod"]) {
          const mount = await mountAt(harness, name);
          assertEquals([name, mount.readOnly, flagsOf(mount)], [name, readOnly, forbids]);
        }
        const targetPath = `${harness.folder}/pod`;
        await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
      }
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "nodePublishVolume() completes the bind mount of a device that a crash left without its flag",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      await harness.stage(volumeId, volumeCapability);
      const { devicePath, path } = await harness.singleLv();
      await Deno.writeTextFile(`${harness.folder}/reader`, "");
      await harness.runAsAdmin("blockdev", "--setro", devicePath);
      await harness.runAsAdmin("mount", "-o", "bind", devicePath, `${harness.folder}/reader`);
      await harness.publish(volumeId, "reader", { volumeCapability, readonly: true });
      assertEquals((await mountAt(harness, "reader")).readOnly, true);
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/reader` });

      await harness.runAsAdmin("lvm", "lvchange", "--permission", "r", path);
      const publish = () => harness.publish(volumeId, "writer", { volumeCapability });
      await assertFails("FAILED_PRECONDITION", publish(), "lvchange --permission rw");
      await harness.runAsAdmin("lvm", "lvchange", "--permission", "rw", path);
      await publish();
      await tearDown(harness, volumeId, "writer");
    },
  );

  contractTest(
    host,
    "nodeStageVolume() says of an LV to which LVM permits no writes how to permit them",
    async (harness) => {
      const volumeId = await harness.create();
      const { path } = await harness.singleLv();
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.runAsAdmin("lvm", "lvchange", "--permission", "r", path);
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId), `lvchange --permission rw ${path}`);
      await harness.runAsAdmin("lvm", "lvchange", "--permission", "rw", path);
      await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );
}

/** Returns the mounts of the test, whose sources are the same for the kernel and for findmnt(8). */
async function mountsBelow({ folder }: Harness, exec: Exec): Promise<Mount[]> {
  return (await readMounts(exec)).filter(({ target }) => target.startsWith(folder));
}

/** Flags, whether a mount with them is read-only, and what else it forbids. */
const CONTRADICTING_FLAGS = [
  [["ro", "rw"], false, []],
  [["rw", "nosuid", "ro", "noexec", "exec"], true, ["nosuid"]],
] as const;

/** Returns the mount at a name under the test's folder. */
async function mountAt(harness: Harness, name: string): Promise<Mount> {
  return (await readMounts(harness.exec)).find(({ target }) => target === `${harness.folder}/${name}`)!;
}

/** Returns the flags of a mount that forbid something, read-only aside. */
function flagsOf({ flags }: Mount): string[] {
  return flags.filter((flag) => /^no(?:dev|exec|suid)$/.test(flag)).sort();
}
