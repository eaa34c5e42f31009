/**
 * Contract: what the tools do in states that the driver meets seldom: an open device, a full metadata area, a filesystem
 * that was not checked, a pool that is written to. The fake machine must do the same.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { readMounts } from "../../lvm/host/mounts.ts";
import { lvremoveTogether } from "../../lvm/model/command_lines.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { classifyRefusal } from "../../lvm/client/refusals.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function toolsContract(host: Host): void {
  contractTest(
    host,
    "a volume whose device a process has open is not deleted, and LVM neither deactivates nor removes it",
    async (harness, machine) => {
      const volumeId = await harness.create({ volumeCapabilities: [blockCapability()] });
      const { path, devicePath } = await harness.singleLv();
      {
        using _open = await machine.openDevice(devicePath);
        assertEquals((await harness.singleLv()).open, true);
        await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), "in use");
        for (const args of [["lvchange", "--activate", "n", path], ["lvremove", "--yes", path]]) {
          const output = await harness.exec.run({ program: "lvm", args, mutates: true });
          assertEquals([output.code, classifyRefusal(output)], [5, "InUse"], output.stderr);
        }
      }
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "lvremove removes the selected of several LVs, also when one is not there, and none when one is open",
    async (harness, machine) => {
      const [volumeGroup] = harness.groups;
      for (let count = 0; count < 4; count++) await harness.create({ parameters: { volumeGroup } });
      await harness.runAsAdmin("udevadm", "settle");
      const lvs = await harness.lvs();
      const removal = (lv: LogicalVolume, tags: string[] = []) => ({
        options: { yes: true, uuid: lv.uuid, tags, withoutDependents: true, closed: true } as const,
        lv: `${volumeGroup}/${lv.name}`,
      });
      const remove = async (...removals: readonly ReturnType<typeof removal>[]) => {
        const command = { program: "lvm", args: lvremoveTogether(removals), mutates: true } as const;
        const { code, stdout } = await harness.exec.run(command);
        const removed = [...stdout.matchAll(/Logical volume "(\S+)" successfully removed/g)].map(([, name]) => name);
        const left = (await harness.lvs()).map(({ name }) => name);
        assertEquals(left, lvs.map(({ name }) => name).filter((name) => left.includes(name)));
        return {
          code,
          removed: lvs.map(({ name }) => removed.includes(name)),
          isLeft: lvs.map(({ name }) => left.includes(name)),
        };
      };
      const [first, second, third, fourth] = lvs as [LogicalVolume, LogicalVolume, LogicalVolume, LogicalVolume];
      {
        using _open = await machine.openDevice(second.devicePath);
        assertEquals(await remove(removal(first), removal(second)), {
          code: 5,
          removed: [false, false, false, false],
          isLeft: [true, true, true, true],
        });
      }
      assertEquals(await remove(removal(first), removal(second, ["other"]), removal(third)), {
        code: 0,
        removed: [true, false, true, false],
        isLeft: [false, true, false, true],
      });
      assertEquals(await remove(removal(first), removal(second), removal(fourth)), {
        code: 5,
        removed: [false, true, false, true],
        isLeft: [false, false, false, false],
      });
    },
  );

  contractTest(
    host,
    "deleteVolume() deletes a volume that was in use also when the metadata area is full",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      const volumeId = await harness.create({ parameters: { volumeGroup } });
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      const fillers = await fillMetadata(harness, volumeGroup);
      await assertFails("RESOURCE_EXHAUSTED", harness.create({ parameters: { volumeGroup } }));
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
      await changeTags(harness, volumeGroup, "--deltag", fillers);
    },
  );

  contractTest(host, "resize2fs resizes an unmounted ext4 only after a check since it was mounted", async (harness) => {
    const volumeCapability = mountCapability("ext4");
    const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
    await harness.stage(volumeId, volumeCapability);
    await new Promise((resolve) => setTimeout(resolve, host.name === "lvm" ? 1_100 : 0)); // ext4 counts seconds
    await tearDownMount(harness, volumeId);
    await harness.stage(volumeId, volumeCapability);
    await tearDownMount(harness, volumeId);
    const { path, devicePath } = await harness.singleLv();
    await harness.runAsAdmin("lvm", "lvchange", "--activate", "y", path);
    await harness.runAsAdmin("lvm", "lvextend", "--size", `${64n * MiB}b`, path);
    const output = await harness.exec.run({ program: "resize2fs", args: [devicePath], mutates: true });
    assertEquals(output.code, 1);
    assertMatch(output.stderr, /Please run 'e2fsck -f /);
    await harness.runAsAdmin("e2fsck", "-f", "-p", devicePath);
    await harness.runAsAdmin("resize2fs", devicePath);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "mke2fs makes no filesystem on a device that is mounted", async (harness) => {
    const volumeCapability = mountCapability("ext4");
    const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
    await harness.stage(volumeId, volumeCapability);
    const { devicePath } = await harness.singleLv();
    const signatures = () => harness.runAsAdmin("wipefs", "--no-act", "--json", devicePath);
    const before = await signatures();
    const args = ["-q", "-t", "ext4", "-U", crypto.randomUUID(), devicePath];
    const output = await harness.exec.run({ program: "mke2fs", args, mutates: true });
    assertEquals(output.code, 1);
    assertMatch(output.stderr, /is mounted; will not make a filesystem here/);
    assertEquals(await signatures(), before);
    await tearDownMount(harness, volumeId);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "programs refuse a device with a mounted filesystem, but not one whose node is bind-mounted for a pod",
    async (harness) => {
      const volumeCapability = mountCapability("ext4");
      const mounted = await harness.create({ volumeCapabilities: [volumeCapability] });
      await harness.stage(mounted, volumeCapability);
      assertEquals(await changeData(harness), [[1, "busy"], [1, "busy"], [8, "is mounted"]]);
      await tearDownMount(harness, mounted);
      await harness.csi.controller.deleteVolume({ volumeId: mounted });

      const bound = await harness.create({ volumeCapabilities: [blockCapability()] });
      await harness.stage(bound, blockCapability());
      const targetPath = await harness.publish(bound, "pod", { volumeCapability: blockCapability() });
      assertEquals(await changeData(harness), [[0, ""], [0, ""], [8, ""]]);
      await harness.csi.node.nodeUnpublishVolume({ volumeId: bound, targetPath });
      await tearDownMount(harness, bound);
      await harness.csi.controller.deleteVolume({ volumeId: bound });
    },
  );

  for (const fsType of ["ext4", "xfs", "btrfs"]) {
    contractTest(
      host,
      `${fsType}: what a second mount of a filesystem may be depends on the first one`,
      async (harness) => {
        const volumeId = await harness.create({
          volumeCapabilities: [mountCapability(fsType)],
          capacityRange: { requiredBytes: 320n * MiB },
          parameters: { volumeGroup: harness.groups[1] },
        });
        await harness.stage(volumeId, mountCapability(fsType));
        await tearDownMount(harness, volumeId);
        const { path, devicePath } = await harness.singleLv();
        await harness.runAsAdmin("lvm", "lvchange", "--activate", "y", path);
        const [one = "", other = ""] = [`${harness.folder}/one`, `${harness.folder}/other`];
        for (const folder of [one, other]) await Deno.mkdir(folder);
        const run = async (program: "mount" | "umount", ...args: string[]) =>
          (await harness.exec.run({ program, args, mutates: true })).code;
        const mount = (access: string, target: string) => run("mount", "-t", fsType, "-o", access, devicePath, target);
        const access = async () =>
          (await readMounts(harness.exec)).filter(({ target }) => [one, other].includes(target))
            .map(({ readOnly, filesystemWritable }) =>
              `${readOnly ? "ro" : "rw"} of ${filesystemWritable ? "rw" : "ro"}`
            );
        for (const [both, expected] of Object.entries(SECOND_MOUNTS[fsType === "btrfs" ? "btrfs" : "others"])) {
          const [first, second] = both.split(" then ") as [string, string];
          assertEquals(await mount(first, one), 0);
          const again = await mount(second, one);
          // from util-linux 2.39 on, mount(8) uses calls of the kernel that do not refuse a second mount at the same place
          if (again !== 32) assertEquals([again, await run("umount", one)], [0, 0], "at the same place");
          assertEquals([await mount(second, other), ...await access()], expected, both);
          for (
            const { target } of (await readMounts(harness.exec)).filter(({ target }) => [one, other].includes(target))
          ) {
            assertEquals(await run("umount", target), 0);
          }
        }
        await harness.csi.controller.deleteVolume({ volumeId });
      },
    );
  }

  contractTest(host, "lvcreate refuses names that LVM reserves", async (harness) => {
    for (const name of ["snapshot1", "pvmove0"]) {
      const args = ["lvcreate", "--yes", "--name", name, "--size", `${4n * MiB}b`, harness.groups[0]];
      const { code, stderr } = await harness.exec.run({ program: "lvm", args, mutates: true });
      assertEquals(code, 3);
      assertMatch(stderr, /^ *Names starting "(?:snapshot|pvmove)" are reserved/);
    }
  });

  contractTest(host, "what is written to a thin volume fills its pool", async (harness) => {
    const [volumeGroup] = harness.groups;
    const pool = `${volumeGroup}/filling`;
    const options = ["--yes", "--type", "thin-pool", "--zero", "y", "--name", "filling", "--size", `${64n * MiB}b`];
    await harness.runAsAdmin("lvm", "lvcreate", ...options, volumeGroup);
    const volumeId = await harness.create({
      volumeCapabilities: [blockCapability()],
      parameters: { volumeGroup, thinProvision: "yes", thinPool: "filling" },
    });
    const usage = async () => (await harness.lvs()).find(({ name }) => name === "filling")!.thinPool!.dataPercent!;
    assert(await usage() < 2);
    const { devicePath } = (await harness.lvs()).find(({ name }) => name !== "filling")!;
    const block = ["bs=1048576", "count=16", "conv=fsync", "status=none"];
    for (let time = 0; time < 2; time++) {
      await harness.runAsAdmin("dd", "if=/dev/urandom", `of=${devicePath}`, ...block);
      assertEquals(Math.round(await usage()), 25, "what is written again takes no more");
    }
    await harness.csi.controller.deleteVolume({ volumeId });
    await harness.waitUntilIdle();
    await harness.runAsAdmin("lvm", "lvremove", "--yes", pool);
  });
}

/**
 * The status of a second mount at another place, and then the access of each mount and of its filesystem. The kernel has one
 * access for a filesystem; mount(8) asks for reading alone when it gets no more. Of btrfs, each mount has its own.
 */
const SECOND_MOUNTS: Readonly<Record<"btrfs" | "others", Record<string, readonly (number | string)[]>>> = {
  btrfs: {
    "rw then ro": [0, "rw of rw", "ro of rw"],
    "ro then rw": [0, "ro of rw", "rw of rw"],
    "rw then rw": [0, "rw of rw", "rw of rw"],
    "ro then ro": [0, "ro of ro", "ro of ro"],
  },
  others: {
    "rw then ro": [32, "rw of rw"],
    "ro then rw": [0, "ro of ro", "ro of ro"],
    "rw then rw": [0, "rw of rw", "rw of rw"],
    "ro then ro": [0, "ro of ro", "ro of ro"],
  },
};

/** Runs programs that change the only LV's device. @returns the status of each, and whether it says that it is in use */
async function changeData(harness: Harness): Promise<[code: number, why: string][]> {
  const { devicePath } = await harness.singleLv();
  const commands = [
    ["wipefs", "--all"],
    ["blkdiscard", "--zeroout", "--offset", "0", "--length", "1048576"],
    ["e2fsck", "-f", "-p"],
  ] as const;
  const results: [number, string][] = [];
  for (const [program, ...args] of commands) {
    const { code, stdout, stderr } = await harness.exec.run({ program, args: [...args, devicePath], mutates: true });
    results.push([code, /busy|is mounted/.exec(stdout + stderr)?.[0] ?? ""]);
  }
  return results;
}

/** Unstages a volume that was staged. */
async function tearDownMount(harness: Harness, volumeId: string): Promise<void> {
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
}

/**
 * A tag that no group has. LVM writes each command line into the metadata, and removes a tag that is missing without a word.
 * With it, the command lines of this file are longer than that of a deletion. No creation fills an area so far: it leaves space
 * for several (METADATA_RESERVE).
 */
const MISSING_TAG = "missing".padEnd(400, "x");

/** Changes tags of a group, few enough in a command. @returns LVM's refusal, if any */
async function changeTags(
  harness: Harness,
  group: string,
  option: "--addtag" | "--deltag",
  tags: readonly string[],
): Promise<string | undefined> {
  for (let at = 0; at < tags.length; at += 60) {
    const changes = tags.slice(at, at + 60).flatMap((tag) => [option, tag]);
    const args = ["vgchange", "--deltag", MISSING_TAG, ...changes, group];
    const output = await harness.exec.run({ program: "lvm", args, mutates: true });
    if (output.code === 0) continue;
    assertEquals(classifyRefusal(output), "NoSpace", output.stderr);
    return output.stderr;
  }
}

/** Fills the metadata area of a group with tags, to the last byte. @returns the tags */
async function fillMetadata(harness: Harness, group: string): Promise<string[]> {
  const added: string[] = [];
  const add = async (tags: string[]) => {
    if (await changeTags(harness, group, "--addtag", tags) !== undefined) return false;
    added.push(...tags);
    return true;
  };
  for (const [count, length] of [[60, 1000], [8, 1000], [1, 1000], [1, 120]] as const) {
    const more = () => Array.from({ length: count }, (_, i) => `${added.length + i}.`.padEnd(length, "x"));
    while (await add(more()));
  }
  // A tag in place of a shorter one adds one byte at a time.
  for (let tag = "filler";; tag += "x") {
    const replace = tag === "filler" ? [] : ["--deltag", tag.slice(0, -1)];
    const args = ["vgchange", "--deltag", MISSING_TAG, ...replace, "--addtag", tag, group];
    const { code } = await harness.exec.run({ program: "lvm", args, mutates: true });
    if (code !== 0) return tag === "filler" ? added : [...added, tag.slice(0, -1)];
  }
}
