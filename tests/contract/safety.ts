/**
 * Contract: nothing is recreated, nothing is formatted that may hold data, nothing half-made stays unnoticed.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails, type Bench, contract, type Host, mountCapability, volumeRequest } from "./host.ts";

/** Registers the tests. */
export function safetyContract(host: Host): void {
  contract(
    host,
    "an LV removed behind the driver's back is Lost: no new one is made, nothing is formatted",
    async (bench) => {
      const request = volumeRequest();
      const volumeId = await usedOnce(bench, request);
      await bench.admin("lvm", "lvremove", "--yes", (await bench.onlyLv()).path);

      const commands = await bench.exec.during(async () => {
        await assertFails("FAILED_PRECONDITION", bench.create(request), "Lost");
        await assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "Lost");
        await assertFails("FAILED_PRECONDITION", bench.publish(volumeId), "Lost");
        await assertFails("FAILED_PRECONDITION", bench.csi.controller.controllerGetVolume({ volumeId }), "Lost");
        const capacityRange = { requiredBytes: 64n << 20n };
        await assertFails(
          "FAILED_PRECONDITION",
          bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange }),
          "Lost",
        );
      });
      assertEquals(changing(commands), []);

      await using restarted = await bench.restart();
      await assertFails("FAILED_PRECONDITION", restarted.create(request), "Lost");
      await restarted.csi.controller.deleteVolume({ volumeId }); // the owner gives it up
      assertEquals(await restarted.create(request), volumeId);
      await restarted.csi.controller.deleteVolume({ volumeId });
      assertEquals((await restarted.report()).flatMap(({ tags }) => tags), []);
    },
  );

  contract(host, "another LV in the place of a volume's is Lost, too, and left alone", async (bench) => {
    const request = volumeRequest();
    const volumeId = await usedOnce(bench, request);
    const { path, tags } = await bench.onlyLv();
    await bench.admin("lvm", "lvremove", "--yes", path);
    const [group, name] = path.split("/") as [string, string];
    await bench.admin(
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
    const commands = await bench.exec.during(async () => {
      await assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "Lost");
      await assertFails("FAILED_PRECONDITION", bench.csi.controller.deleteVolume({ volumeId }), "Lost");
    });
    assertEquals(changing(commands), []);
    await bench.admin("lvm", "lvremove", "--yes", path);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(
    host,
    "a filesystem's UUID is recorded before it is made, and that it is whole before it is mounted",
    async (bench) => {
      const volumeId = await bench.create();
      const commands = await bench.exec.during(() => bench.stage(volumeId));
      const at = (form: RegExp) => commands.findIndex((command) => form.test(command));
      const order = [
        /^cmp /,
        /addtag denolith.fs=formatting:ext4:/,
        /^mke2fs /,
        /addtag denolith.fs=formatted:ext4:/,
        /^mount /,
      ];
      assertEquals(order.map(at), order.map(at).toSorted((a, b) => a - b), commands.join("\n"));
      assert(order.map(at).every((index) => index >= 0), commands.join("\n"));
      await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(host, "a device with a foreign filesystem is never formatted, and what is on it is named", async (bench) => {
    for (const [program, args, type] of FOREIGN) {
      const volumeId = await bench.create({ capacityRange: { requiredBytes: 300n << 20n } });
      const { devicePath } = await bench.onlyLv();
      await bench.admin(program, ...args, devicePath);
      const commands = await bench.exec.during(() => assertFails("FAILED_PRECONDITION", bench.stage(volumeId), type));
      assertEquals(destructive(commands), []);
      await bench.csi.controller.deleteVolume({ volumeId });
    }
  });

  contract(host, "a device with data that nobody can name is never formatted", async (bench) => {
    const volumeId = await bench.create();
    const { devicePath } = await bench.onlyLv();
    await bench.admin("dd", "if=/dev/urandom", `of=${devicePath}`, "bs=4096", "count=1", "oflag=direct", "status=none");
    const commands = await bench.exec.during(() =>
      assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "not zeros")
    );
    assertEquals(destructive(commands), []);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "a formatted volume whose filesystem is gone is not formatted again", async (bench) => {
    const volumeId = await usedOnce(bench);
    const { devicePath } = await bench.onlyLv();
    await bench.admin("wipefs", "--all", devicePath);
    const commands = await bench.exec.during(() =>
      assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "holds nothing")
    );
    assertEquals(destructive(commands), []);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "a formatted volume with another filesystem in its place is an error", async (bench) => {
    const volumeId = await usedOnce(bench);
    const { devicePath } = await bench.onlyLv();
    await bench.admin("mke2fs", "-q", "-t", "ext4", "-U", "00000000-0000-4000-8000-000000000000", devicePath);
    const commands = await bench.exec.during(() =>
      assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "00000000-0000-4000-8000-000000000000")
    );
    assertEquals(destructive(commands), []);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  for (const type of ["ext4", "xfs", "btrfs"]) {
    contract(
      host,
      `${type}: a crash between mkfs and its record is redone, with the UUID that was recorded`,
      async (bench) => {
        const capability = mountCapability(type);
        const volumeId = await bench.create({
          volumeCapabilities: [capability],
          capacityRange: { requiredBytes: 300n << 20n },
        });
        await bench.stage(volumeId, capability);
        await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
        const { path, tags } = await bench.onlyLv();
        const formatted = tags.find((tag) => tag.includes("formatted:"))!;
        const formatting = formatted.replace("formatted", "formatting");
        await bench.admin("lvm", "lvchange", "--deltag", formatted, "--addtag", formatting, path);

        const commands = await bench.exec.during(() => bench.stage(volumeId, capability));
        assert(
          commands.some((command) => /^mk/.test(command) && command.includes(formatted.split(":").at(-1)!)),
          commands.join("\n"),
        );
        assert((await bench.onlyLv()).tags.includes(formatted));
        await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
        await bench.csi.controller.deleteVolume({ volumeId });
      },
    );
  }

  contract(
    host,
    "a crash between mkfs and its record is not redone over a filesystem that is not ours",
    async (bench) => {
      const volumeId = await usedOnce(bench);
      const { path, tags, devicePath } = await bench.onlyLv();
      const formatted = tags.find((tag) => tag.includes("formatted:"))!;
      await bench.admin(
        "lvm",
        "lvchange",
        "--deltag",
        formatted,
        "--addtag",
        formatted.replace("formatted", "formatting"),
        path,
      );
      await bench.admin("mke2fs", "-q", "-t", "ext4", "-U", "00000000-0000-4000-8000-000000000000", devicePath);
      const commands = await bench.exec.during(() => assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "ext4"));
      assertEquals(destructive(commands), []);
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(
    host,
    "what a crash left suspended is resumed when the driver starts, or the volume is staged",
    async (bench) => {
      const volumeId = await bench.create();
      const { devicePath } = await bench.onlyLv();
      const suspend = () => bench.admin("dmsetup", "suspend", devicePath.replace("/dev/mapper/", ""));
      await suspend();
      assertEquals((await bench.onlyLv()).suspended, true);
      await using restarted = await bench.restart();
      assertEquals((await restarted.onlyLv()).suspended, false);
      await suspend();
      const stagingTargetPath = await restarted.stage(volumeId);
      await restarted.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await restarted.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(host, "two LVs that claim to be one volume are both left alone", async (bench) => {
    const volumeId = await bench.create();
    const { path, tags } = await bench.onlyLv();
    const group = path.split("/")[0]!;
    await bench.admin(
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
    const commands = await bench.exec.during(async () => {
      await assertFails("FAILED_PRECONDITION", bench.csi.controller.deleteVolume({ volumeId }), "copy");
      await assertFails("FAILED_PRECONDITION", bench.stage(volumeId), "copy");
    });
    assertEquals(changing(commands), []);
    await bench.admin("lvm", "lvremove", "--yes", `${group}/copy`);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "an LV of the volume's name that is not ours is left alone", async (bench) => {
    const request = { ...volumeRequest(), parameters: { volumeGroup: bench.groups[0] } };
    const volumeId = await bench.create(request);
    const { path } = await bench.onlyLv();
    await bench.csi.controller.deleteVolume({ volumeId });
    await bench.admin(
      "lvm",
      "lvcreate",
      "--yes",
      "--name",
      path.split("/")[1]!,
      "--size",
      "33554432b",
      bench.groups[0],
    );
    await assertFails("ALREADY_EXISTS", bench.create(request), "already exists in volume group");
    await bench.csi.controller.deleteVolume({ volumeId });
    assertEquals((await bench.onlyLv()).path, path);
    await bench.admin("lvm", "lvremove", "--yes", path);
  });
}

/** Filesystems that somebody else might have put there, and how their presence is told. */
const FOREIGN = [
  ["mke2fs", ["-q", "-t", "ext4", "-U", "00000000-0000-4000-8000-000000000001"], "ext4"],
  ["mkfs.xfs", ["-q", "-m", "uuid=00000000-0000-4000-8000-000000000002"], "xfs"],
  ["mkfs.btrfs", ["-q", "-U", "00000000-0000-4000-8000-000000000003"], "btrfs"],
] as const;

/** A volume that was staged once, so that it may hold data. */
async function usedOnce(bench: Bench, request = volumeRequest()): Promise<string> {
  const volumeId = await bench.create(request);
  const stagingTargetPath = await bench.stage(volumeId);
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  return volumeId;
}

/** Commands that write to a device. */
function destructive(commands: readonly string[]): string[] {
  return commands.filter((command) => /^(?:mk|wipefs --all|resize2fs|e2fsck|mount)/.test(command));
}

/** Commands that change anything. */
function changing(commands: readonly string[]): string[] {
  return commands.filter((command) => !/^(?:lvm fullreport|findmnt|lsblk|wipefs --no-act|cmp|df)/.test(command));
}
