/**
 * Contract: lost volumes are not created again, volumes that may hold data are not formatted, and incomplete ones are found.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  assertFails,
  contractTest,
  failureStatus,
  type Harness,
  type Host,
  mountCapability,
  volumeRequest,
} from "./helpers/host.ts";

/** Registers the tests. */
export function safetyContract(host: Host): void {
  contractTest(
    host,
    "an LV that an administrator removed is Lost: no new one is created, and nothing is formatted",
    async (harness) => {
      const request = volumeRequest();
      const volumeId = await createUsedVolume(harness, request);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", (await harness.singleLv()).path);

      const commands = await harness.exec.recordCommands(async () => {
        await assertFails("FAILED_PRECONDITION", harness.create(request), "Lost");
        await assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "Lost");
        await assertFails("FAILED_PRECONDITION", harness.publish(volumeId), "Lost");
        await assertFails("FAILED_PRECONDITION", harness.csi.controller.controllerGetVolume({ volumeId }), "Lost");
        const capacityRange = { requiredBytes: 64n << 20n };
        await assertFails(
          "FAILED_PRECONDITION",
          harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange }),
          "Lost",
        );
      });
      assertEquals(changingCommands(commands), []);

      await using restarted = await harness.restart();
      await assertFails("FAILED_PRECONDITION", restarted.create(request), "Lost");
      await restarted.csi.controller.deleteVolume({ volumeId }); // the owner gives it up
      assertEquals(await restarted.create(request), volumeId);
      await restarted.csi.controller.deleteVolume({ volumeId });
      assertEquals((await restarted.report()).flatMap(({ tags }) => tags), []);
    },
  );

  contractTest(host, "another LV in the place of a volume's is Lost, too, and left alone", async (harness) => {
    const request = volumeRequest();
    const volumeId = await createUsedVolume(harness, request);
    const { path, tags } = await harness.singleLv();
    await harness.runAsAdmin("lvm", "lvremove", "--yes", path);
    const [group, name] = path.split("/") as [string, string];
    await harness.runAsAdmin(
      "lvm",
      "lvcreate",
      "--yes",
      "--name",
      name,
      "--size",
      "33554432b",
      ...tags.flatMap((tag) => ["--addtag", tag]),
      group,
    );
    const commands = await harness.exec.recordCommands(async () => {
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "Lost");
      await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), "Lost");
    });
    assertEquals(changingCommands(commands), []);
    await harness.runAsAdmin("lvm", "lvremove", "--yes", path);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "a filesystem's UUID is recorded before mkfs, and its completion before the first mount",
    async (harness) => {
      const volumeId = await harness.create();
      const commands = await harness.exec.recordCommands(() => harness.stage(volumeId));
      const indexOf = (form: RegExp) => commands.findIndex((command) => form.test(command));
      const order = [
        /^cmp /,
        /addtag denolith.fs=formatting:ext4:/,
        /^mke2fs /,
        /addtag denolith.fs=formatted:ext4:/,
        /^mount /,
      ];
      assertEquals(order.map(indexOf), order.map(indexOf).toSorted((a, b) => a - b), commands.join("\n"));
      assert(order.map(indexOf).every((index) => index >= 0), commands.join("\n"));
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  for (const type of ["ext4", "xfs", "btrfs"]) {
    contractTest(
      host,
      `${type}: a mkfs that takes longer than its call is recorded when it ends, and runs only once`,
      async (harness) => {
        const capability = mountCapability(type);
        const volumeId = await harness.create({
          volumeCapabilities: [capability],
          capacityRange: { requiredBytes: 300n << 20n },
        });
        harness.exec.deadlinesMs.set("mke2fs", 0).set("mkfs.xfs", 0).set("mkfs.btrfs", 0);
        const commands = await harness.exec.recordCommands(async () => {
          await assertFails("ABORTED", harness.stage(volumeId, capability), "still running");
          await retryWhileAborted(() => harness.stage(volumeId, capability));
        });
        assertEquals(commands.filter((command) => /^mk/.test(command)).length, 1, commands.join("\n"));
        const tags = (await harness.singleLv()).tags.filter((tag) => tag.startsWith("denolith.fs="));
        assertEquals([tags.length, tags[0]!.startsWith(`denolith.fs=formatted:${type}:`)], [1, true], tags.join());
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
        await harness.csi.controller.deleteVolume({ volumeId });
      },
    );
  }

  contractTest(
    host,
    "a device with a foreign filesystem is never formatted, and the error names the filesystem",
    async (harness) => {
      for (const [program, args, type] of FOREIGN_FILESYSTEMS) {
        const volumeId = await harness.create({ capacityRange: { requiredBytes: 300n << 20n } });
        const { devicePath } = await harness.singleLv();
        await harness.runAsAdmin(program, ...args, devicePath);
        const commands = await harness.exec.recordCommands(() =>
          assertFails("FAILED_PRECONDITION", harness.stage(volumeId), type)
        );
        assertEquals(destructiveCommands(commands), []);
        await harness.csi.controller.deleteVolume({ volumeId });
      }
    },
  );

  contractTest(host, "a device with data that nobody can name is never formatted", async (harness) => {
    const volumeId = await harness.create();
    const { devicePath } = await harness.singleLv();
    await harness.runAsAdmin(
      "dd",
      "if=/dev/urandom",
      `of=${devicePath}`,
      "bs=4096",
      "count=1",
      "oflag=direct",
      "status=none",
    );
    const commands = await harness.exec.recordCommands(() =>
      assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "not zeros")
    );
    assertEquals(destructiveCommands(commands), []);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "a new volume on the extents of one that was not erased is blank: lvcreate zeroes and wipes them",
    async (harness) => {
      const capability = mountCapability("btrfs"); // its signature is at 64 KiB, beyond what is zeroed
      const request = { volumeCapabilities: [capability], capacityRange: { requiredBytes: 300n << 20n } };
      const parameters = { erase: "none", volumeGroup: harness.groups[1] };
      for (let round = 0; round < 2; round++) {
        const volumeId = await harness.create({ ...request, name: `round ${round}`, parameters });
        const stagingTargetPath = await harness.stage(volumeId, capability);
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
        await harness.csi.controller.deleteVolume({ volumeId });
        assertEquals(await harness.lvs(), []);
      }
    },
  );

  contractTest(
    host,
    "a device that somebody made read-only is made writable before it is formatted",
    async (harness) => {
      const volumeId = await harness.create();
      await harness.runAsAdmin("blockdev", "--setro", (await harness.singleLv()).devicePath);
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "a formatted volume whose filesystem is gone is not formatted again", async (harness) => {
    const volumeId = await createUsedVolume(harness);
    const { devicePath } = await harness.singleLv();
    await harness.runAsAdmin("wipefs", "--all", devicePath);
    const commands = await harness.exec.recordCommands(() =>
      assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "holds nothing")
    );
    assertEquals(destructiveCommands(commands), []);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "a formatted volume with another filesystem in its place is an error", async (harness) => {
    const volumeId = await createUsedVolume(harness);
    const { devicePath } = await harness.singleLv();
    await harness.runAsAdmin("mke2fs", "-q", "-t", "ext4", "-U", "00000000-0000-4000-8000-000000000000", devicePath);
    const commands = await harness.exec.recordCommands(() =>
      assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "00000000-0000-4000-8000-000000000000")
    );
    assertEquals(destructiveCommands(commands), []);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  for (const type of ["ext4", "xfs", "btrfs"]) {
    contractTest(
      host,
      `${type}: a crash between mkfs and its record is redone, with the UUID that was recorded`,
      async (harness) => {
        const capability = mountCapability(type);
        const volumeId = await harness.create({
          volumeCapabilities: [capability],
          capacityRange: { requiredBytes: 300n << 20n },
        });
        await harness.stage(volumeId, capability);
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
        const { path, tags } = await harness.singleLv();
        const formatted = tags.find((tag) => tag.includes("formatted:"))!;
        const formatting = formatted.replace("formatted", "formatting");
        await harness.runAsAdmin("lvm", "lvchange", "--deltag", formatted, "--addtag", formatting, path);

        await using restarted = await harness.restart(); // which knows nothing of the volume, as after a crash
        const commands = await restarted.exec.recordCommands(() => restarted.stage(volumeId, capability));
        assert(
          commands.some((command) => /^mk/.test(command) && command.includes(formatted.split(":").at(-1)!)),
          commands.join("\n"),
        );
        assert((await restarted.singleLv()).tags.includes(formatted));
        await restarted.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${restarted.folder}/staging` });
        await restarted.csi.controller.deleteVolume({ volumeId });
      },
    );
  }

  contractTest(
    host,
    "a crash between mkfs and its record is not redone over a filesystem that is not ours",
    async (harness) => {
      const volumeId = await createUsedVolume(harness);
      const { path, tags, devicePath } = await harness.singleLv();
      const formatted = tags.find((tag) => tag.includes("formatted:"))!;
      await harness.runAsAdmin(
        "lvm",
        "lvchange",
        "--deltag",
        formatted,
        "--addtag",
        formatted.replace("formatted", "formatting"),
        path,
      );
      await harness.runAsAdmin("mke2fs", "-q", "-t", "ext4", "-U", "00000000-0000-4000-8000-000000000000", devicePath);
      const commands = await harness.exec.recordCommands(() =>
        assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "ext4")
      );
      assertEquals(destructiveCommands(commands), []);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a device that a crash left suspended is resumed when the driver starts, or the volume is staged or resized",
    async (harness) => {
      const volumeId = await harness.create();
      const { devicePath } = await harness.singleLv();
      const suspend = () => harness.runAsAdmin("dmsetup", "suspend", devicePath.replace("/dev/mapper/", ""));
      await suspend();
      assertEquals((await harness.singleLv()).suspended, true);
      await using restarted = await harness.restart();
      assertEquals((await restarted.singleLv()).suspended, false);
      await suspend();
      const stagingTargetPath = await restarted.stage(volumeId);
      await suspend();
      await restarted.csi.node.nodeExpandVolume({ volumeId, volumePath: stagingTargetPath });
      assertEquals((await restarted.singleLv()).suspended, false);
      await restarted.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await restarted.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "two LVs that claim to be one volume are both left alone", async (harness) => {
    const volumeId = await harness.create();
    const { path, tags } = await harness.singleLv();
    const group = path.split("/")[0]!;
    await harness.runAsAdmin(
      "lvm",
      "lvcreate",
      "--yes",
      "--name",
      "copy",
      "--size",
      "33554432b",
      ...tags.flatMap((tag) => ["--addtag", tag]),
      group,
    );
    const commands = await harness.exec.recordCommands(async () => {
      await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), "copy");
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "copy");
    });
    assertEquals(changingCommands(commands), []);
    await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/copy`);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "an LV of the volume's name that is not ours is left alone", async (harness) => {
    const request = { ...volumeRequest(), parameters: { volumeGroup: harness.groups[0] } };
    const volumeId = await harness.create(request);
    const { path } = await harness.singleLv();
    await harness.csi.controller.deleteVolume({ volumeId });
    await harness.runAsAdmin(
      "lvm",
      "lvcreate",
      "--yes",
      "--name",
      path.split("/")[1]!,
      "--size",
      "33554432b",
      harness.groups[0],
    );
    await assertFails("ALREADY_EXISTS", harness.create(request), "already exists in volume group");
    await harness.csi.controller.deleteVolume({ volumeId });
    assertEquals((await harness.singleLv()).path, path);
    await harness.runAsAdmin("lvm", "lvremove", "--yes", path);
  });
}

/** Foreign filesystems, and how the error names them. */
const FOREIGN_FILESYSTEMS = [
  ["mke2fs", ["-q", "-t", "ext4", "-U", "00000000-0000-4000-8000-000000000001"], "ext4"],
  ["mkfs.xfs", ["-q", "-m", "uuid=00000000-0000-4000-8000-000000000002"], "xfs"],
  ["mkfs.btrfs", ["-q", "-U", "00000000-0000-4000-8000-000000000003"], "btrfs"],
] as const;

/** Repeats a call while it fails with ABORTED, as an orchestrator does. */
async function retryWhileAborted(call: () => Promise<unknown>): Promise<void> {
  for (let tries = 0;; tries++) {
    const { code, details } = await failureStatus(call());
    if (code === "OK") return;
    assert(code === "ABORTED" && tries < 200, `${code}: ${details}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Creates a volume that was staged once, so that it may hold data. */
async function createUsedVolume(harness: Harness, request = volumeRequest()): Promise<string> {
  const volumeId = await harness.create(request);
  const stagingTargetPath = await harness.stage(volumeId);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  return volumeId;
}

/** Commands that write to a device. */
function destructiveCommands(commands: readonly string[]): string[] {
  return commands.filter((command) => /^(?:mk|wipefs --all|resize2fs|e2fsck|mount)/.test(command));
}

/** Commands that change anything. */
function changingCommands(commands: readonly string[]): string[] {
  return commands.filter((command) =>
    !/^(?:lvm fullreport|findmnt|lsblk|wipefs --no-act|cmp|df|dmsetup info)/.test(command)
  );
}
