import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { Command } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { openMachine } from "../machine.ts";
import { ANY_GROUP } from "../model/groups.ts";
import { StorageError } from "../../base/error.ts";
import type { Mount } from "../host/mounts.ts";
import { StagedVolumes } from "./staged_volumes.ts";

const id = volumeIdOf("one");
const MiB = 1n << 20n;
const access = { kind: "mount", flags: [] } as const;

/** Creates a machine with a volume for a filesystem that is staged. */
async function setUpStaged() {
  const root = await Deno.realPath(await Deno.makeTempDir());
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const programs: string[] = [];
  const exec = {
    run: (command: Command) => {
      programs.push(command.program === "lvm" ? command.args[0]! : command.program);
      return machine.run(command);
    },
    idle: () => Promise.resolve(),
  };
  const open = () => openMachine({ exec, driver: "test", groups: ANY_GROUP, mountRoots: [root], scratch: "/scratch" });
  const { volumes, staging, background } = open();
  await volumes.create(namedRequest("one", 32n * MiB));
  const [stagingPath, target] = [`${root}/staged`, `${root}/pod`];
  await staging.stage(id, stagingPath, access);
  /** Returns which of the programs some steps run. */
  const ran = async (program: string, steps: () => Promise<unknown>) => {
    programs.splice(0);
    await steps();
    return programs.filter((each) => each === program).length;
  };
  const publication = { stagingPath, target, access, readOnly: false, exclusive: false };
  return {
    ...{ machine, volumes, staging, open, ran, stagingPath, publication, lv: () => machine.groups[0]!.lvs[0]! },
    publish: () => staging.publish(id, publication),
    stageAgain: async (by = staging) => {
      await staging.unstage(id, stagingPath);
      await by.stage(id, stagingPath, access);
    },
    [Symbol.asyncDispose]: async () => {
      await background.stop();
      await Deno.remove(root, { recursive: true });
    },
  };
}

Deno.test("publish() needs no report for a volume that this process staged, and one in another process", async () => {
  await using own = await setUpStaged();
  assertEquals(await own.ran("fullreport", own.publish), 0);
  const { staging } = own.open();
  assertEquals(await own.ran("fullreport", () => staging.publish(id, own.publication)), 1);
});

Deno.test("publish() reads a report when something else is mounted where the volume was staged", async () => {
  await using own = await setUpStaged();
  const { machine, stagingPath } = own;
  await machine.run({ program: "umount", args: [stagingPath], mutates: true });
  const error = await assertRejects(own.publish, StorageError, "not staged");
  assertEquals(error.kind, "FailedPrecondition");
  await machine.run({
    program: "lvm",
    args: ["lvcreate", "--name", "other", "--size", `${4n * MiB}b`, "data"],
    mutates: true,
  });
  await machine.run({
    program: "mke2fs",
    args: ["-q", "-t", "ext4", "-U", crypto.randomUUID(), "/dev/mapper/data-other"],
    mutates: true,
  });
  await machine.run({ program: "mount", args: ["-t", "ext4", "/dev/mapper/data-other", stagingPath], mutates: true });
  await assertRejects(own.publish, StorageError, "not staged");
});

Deno.test("publish() publishes no other LV that got the number of the volume's device, and is mounted where it was staged", async () => {
  await using own = await setUpStaged();
  const { machine, stagingPath, publication } = own;
  const admin = async (program: Command["program"], ...args: string[]) =>
    assertEquals((await machine.run({ program, args, mutates: true })).code, 0, args.join(" "));
  await admin("umount", stagingPath);
  await admin("lvm", "lvchange", "--activate", "n", `data/${own.lv().name}`);
  await admin("lvm", "lvcreate", "--name", "other", "--size", `${16n * MiB}b`, "data");
  await admin("mke2fs", "-q", "-t", "ext4", "-U", crypto.randomUUID(), "/dev/mapper/data-other");
  await admin("mount", "-t", "ext4", "/dev/mapper/data-other", stagingPath);
  await assertRejects(own.publish, StorageError, "not staged");
  assertEquals(machine.mounts.filter(({ target }) => target === publication.target), []);
});

Deno.test("publish() reads a report after the volume was unstaged, extended, modified or deleted", async () => {
  const changes = {
    unstage: (own: Awaited<ReturnType<typeof setUpStaged>>) => own.staging.unstage(id, own.stagingPath),
    expand: ({ volumes }) => volumes.expand(id, { required: 64n * MiB }),
    setLimits: ({ volumes }) => volumes.setLimits(id, { readIops: { rate: 5n, perGiB: false } }),
    delete: ({ volumes }) => volumes.delete(id),
  } satisfies Record<string, (own: Awaited<ReturnType<typeof setUpStaged>>) => Promise<unknown>>;
  for (const [name, change] of Object.entries(changes)) {
    await using own = await setUpStaged();
    await change(own).catch(() => {}); // a volume that is in use is not deleted
    assertEquals(await own.ran("fullreport", () => own.publish().catch(() => {})), 1, name);
  }
});

Deno.test("stage() resizes no filesystem that it has just created, and none that fills its LV by its last resize", async () => {
  await using own = await setUpStaged();
  assertEquals(own.lv().content.filesystemBytes, 32n * MiB);
  assertEquals(await own.ran("resize2fs", own.stageAgain), 0);
  await own.volumes.expand(id, { required: 64n * MiB });
  assertEquals(await own.ran("resize2fs", own.stageAgain), 1);
  assertEquals(await own.ran("resize2fs", own.stageAgain), 0);
  assertEquals(own.lv().content.filesystemBytes, 64n * MiB);
});

Deno.test("stage() resizes the filesystem in another process, and after an administrator extended the LV", async () => {
  await using own = await setUpStaged();
  assertEquals(await own.ran("resize2fs", () => own.stageAgain(own.open().staging)), 1);
  const { name } = own.lv();
  await own.machine.run({
    program: "lvm",
    args: ["lvextend", "--size", `${64n * MiB}b`, `data/${name}`],
    mutates: true,
  });
  assertEquals(await own.ran("resize2fs", own.stageAgain), 1);
  assertEquals(own.lv().content.filesystemBytes, 64n * MiB);
});

Deno.test("stage() resizes the filesystem when an administrator put back content of a smaller one", async () => {
  await using own = await setUpStaged();
  own.lv().content.filesystemBytes = 12n * MiB;
  assertEquals(await own.ran("resize2fs", own.stageAgain), 1);
  assertEquals(own.lv().content.filesystemBytes, 32n * MiB);
});

Deno.test("stage() does not take the blocks of a smaller filesystem for four times larger ones", async () => {
  await using own = await setUpStaged();
  own.lv().content.blockBytes = 1024n;
  await own.volumes.expand(id, { required: 128n * MiB });
  assertEquals(await own.ran("resize2fs", own.stageAgain), 1);
  assertEquals(await own.ran("resize2fs", own.stageAgain), 0);
  own.lv().content.filesystemBytes = 32n * MiB; // an administrator put back what it had been
  assertEquals(await own.ran("resize2fs", own.stageAgain), 1);
  assertEquals(own.lv().content.filesystemBytes, 128n * MiB);
});

Deno.test("stage() checks a filesystem that an earlier call created, and not the one that it creates", async () => {
  await using own = await setUpStaged();
  assertEquals(await own.ran("e2fsck", own.stageAgain), 1);
  await own.volumes.create(namedRequest("two", 32n * MiB));
  const two = () => own.staging.stage(volumeIdOf("two"), `${own.stagingPath}2`, access);
  assertEquals(await own.ran("e2fsck", two), 0);
});

Deno.test("StagedVolumes keeps a volume without the rest of its report", async () => {
  await using own = await setUpStaged();
  const { lvm, volumeFinder } = own.open();
  const volume = volumeFinder.require(await lvm.report(), id);
  const staged = new StagedVolumes();
  staged.setStaged(volume, "/staged");
  const { devicePath: source, deviceNumber } = volume.lv;
  const mount = { target: "/staged", source, deviceNumber, fsType: "ext4" } as Mount;
  const { group, lv } = staged.stagedAt(id, "/staged", [mount])!;
  assertEquals([group.name, group.lvs, group.pvs, lv], [volume.group.name, [], [], volume.lv]);
});
