import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { openMachine } from "../machine.ts";
import { ANY_GROUP } from "../model/groups.ts";
import { lvPath } from "../model/report.ts";

const MiB = 1n << 20n;
const id = volumeIdOf("one");
const name = volumeLvName(id);
const access = { kind: "mount", flags: [] } as const;
const CHECKS = "dmsetup lsblk wipefs e2fsck mount";

/** Creates a machine with a volume, as a report shows it. Groups beside its own are empty. */
async function setUp(...otherGroups: string[]) {
  const root = await Deno.realPath(await Deno.makeTempDir());
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  for (const other of otherGroups) machine.addGroup(other, 1n << 30n);
  const programs: string[] = [];
  const exec = {
    run: (command: Command) => {
      if (!["sync", "findmnt"].includes(command.program)) {
        programs.push(command.program === "lvm" ? command.args[0]! : command.program);
      }
      return machine.run(command);
    },
    idle: () => Promise.resolve(),
  };
  const own = openMachine({ exec, driver: "test", groups: ANY_GROUP, mountRoots: [root], scratch: "/scratch" });
  const { lvm, volumes, staging } = own;
  await volumes.create(namedRequest("one", 32n * MiB));
  await lvm.report();
  const path = `${root}/staged`;
  /** Runs steps. @returns the programs that they run, and the kind of the error */
  const run = async (steps: () => Promise<unknown>) => {
    programs.splice(0);
    const outcome = await steps().then(() => [], (error) => {
      if (!(error instanceof StorageError)) throw error;
      return [error.kind as string];
    });
    return [...programs, ...outcome].join(" ");
  };
  const stage = () => run(() => staging.stage(id, path, access));
  const unstage = () => staging.unstage(id, path);
  const admin = async (program: Command["program"], ...args: string[]) => {
    const { code, stderr } = await machine.run({ program, args, mutates: true });
    assertEquals(code, 0, stderr);
  };
  return {
    ...{ ...own, machine, group, run, stage, unstage, admin },
    use: () => stage().then(unstage),
    tagLike: (text: string) => [...group.lvs[0]!.tags].find((tag) => tag.includes(text))!,
    [Symbol.asyncDispose]: async () => {
      await own.background.stop();
      await Deno.remove(root, { recursive: true });
    },
  };
}

Deno.test("a volume that was staged before is staged again without LVM, also where LVM has several groups", async () => {
  for (const others of [[], ["more"]]) {
    await using own = await setUp(...others);
    await own.use();
    assertEquals(await own.stage(), CHECKS);
    assertEquals(await own.stage(), "dmsetup lsblk resize2fs"); // staged already
  }
});

Deno.test("a volume that a report shows is staged the first time without another one, also where LVM has several groups", async () => {
  for (const others of [[], ["more"]]) {
    await using own = await setUp(...others);
    const format = "lvchange mke2fs wipefs lvchange mount";
    assertEquals(await own.stage(), `dmsetup lsblk vgchange wipefs cmp dd ${format}`);
    assertEquals([own.group.tags.size, own.tagLike("formatted:") !== undefined], [1, true]);
  }
});

Deno.test("a report decides when the device is of another LV than the one that is known, and nothing is formatted", async () => {
  await using own = await setUp();
  await own.use();
  const { tags, minor } = own.group.lvs[0]!;
  const addtags = [...tags].flatMap((tag) => ["--addtag", tag]);
  await own.admin("lvm", "lvremove", "--yes", `data/${name}`);
  await own.admin("lvm", "lvcreate", "--yes", "--name", name, "--size", `${32n * MiB}b`, ...addtags, "data");
  assertEquals(own.group.lvs[0]!.minor, minor);
  assertEquals(await own.stage(), "dmsetup fullreport Lost");
});

Deno.test("a report decides when the device has another size, is suspended, or cannot be read", async () => {
  await using grown = await setUp();
  await grown.use();
  await grown.admin("lvm", "lvextend", "--size", `${64n * MiB}b`, `data/${name}`);
  assertEquals(await grown.stage(), `dmsetup lsblk fullreport ${CHECKS.replace("dmsetup ", "")} resize2fs`);

  await using suspended = await setUp();
  await suspended.use();
  suspended.group.lvs[0]!.suspended = true;
  assertEquals(await suspended.stage(), `dmsetup fullreport dmsetup lvchange ${CHECKS.replace("dmsetup ", "")}`);

  for (const program of ["dmsetup", "wipefs"]) {
    await using broken = await setUp();
    await broken.use();
    let failures = 1;
    broken.machine.fault = (command) =>
      command.program === program && failures-- > 0 ? failure(1, `${program}: no`) : undefined;
    const before = program === "dmsetup" ? "dmsetup" : "dmsetup lsblk wipefs";
    assertEquals(await broken.stage(), `${before} fullreport ${CHECKS.replace("dmsetup ", "")}`);
  }
});

Deno.test("a report decides when another process has recorded something else for the volume, or changed its device", async () => {
  const uuid = "00000000-0000-4000-8000-000000000000";
  await using formatted = await setUp();
  const path = `data/${name}`;
  const wanted = formatted.tagLike("wanted:");
  const recorded = wanted.replace("wanted", "formatted") + `:${uuid}`;
  await formatted.admin("lvm", "lvchange", "--deltag", wanted, "--addtag", recorded, path);
  const known = "dmsetup lsblk vgchange wipefs cmp dd";
  assertEquals(await formatted.stage(), `${known} lvchange fullreport lsblk wipefs ForeignData`);

  await using foreign = await setUp();
  await foreign.admin("mke2fs", "-q", "-t", "ext4", "-U", uuid, `/dev/mapper/data-${name.replaceAll("-", "--")}`);
  assertEquals(await foreign.stage(), `${known} fullreport lsblk wipefs cmp dd ForeignData`);
  assertEquals(foreign.tagLike("formatting"), undefined);

  await using deleted = await setUp();
  await deleted.use();
  await deleted.volumes.delete(id);
  await deleted.background.stop();
  assertEquals(await deleted.stage(), "fullreport NotFound");
});

Deno.test("a filesystem that cannot be created is not tried again by a report, nor one whose creation was interrupted", async () => {
  await using own = await setUp();
  own.machine.fault = ({ program }) => program === "mke2fs" ? failure(1, "mke2fs: no") : undefined;
  assertEquals(await own.stage(), "dmsetup lsblk vgchange wipefs cmp dd lvchange mke2fs CommandFailed");
  own.machine.fault = undefined;
  assertEquals(await own.stage(), "fullreport lsblk wipefs mke2fs wipefs lvchange mount");
});

Deno.test("an LV that is known and not active is activated by a report", async () => {
  await using own = await setUp();
  await own.use();
  await own.admin("lvm", "lvchange", "--activate", "n", lvPath({ group: { name: "data" }, lv: { name } } as never));
  await own.lvm.report();
  assertEquals(await own.stage(), `fullreport lvchange fullreport ${CHECKS.replace("dmsetup ", "")}`);
});

Deno.test("a volume that another process removes meanwhile is not recorded as used", async () => {
  await using own = await setUp();
  own.machine.fault = ({ args }) => {
    if (args[0] === "vgchange") own.group.lvs.splice(0);
    return undefined;
  };
  assertEquals((await own.stage()).replace(/vgchange.*fullreport/, "fullreport"), "dmsetup lsblk fullreport NotFound");
  assertEquals(own.group.tags.size, 0);
});

Deno.test("no report decides while a command that outlasted its deadline may still change the volume", async () => {
  await using own = await setUp();
  own.machine.fault = ({ args }) => {
    if (args[0] !== "vgchange") return undefined;
    throw new StorageError("StillRunning", "running lvm: it still runs", { completion: Promise.resolve() });
  };
  assertEquals(await own.stage(), "dmsetup lsblk vgchange wipefs cmp dd StillRunning");
});
