import { assertEquals, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { snapshotIdOf, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { openMachine } from "../machine.ts";
import { ANY_GROUP, exactMatcher } from "../model/groups.ts";
import { FULL_COW, type SizeOrPercent } from "../settings/cow_size.ts";

const MiB = 1n << 20n;
const id = volumeIdOf("one");
const name = volumeLvName(id);
const access = { kind: "mount", flags: [] } as const;

/** Creates a machine with one group, whose report has just been read. */
async function setUp() {
  const root = await Deno.realPath(await Deno.makeTempDir());
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const programs: string[] = [];
  const exec = {
    run: (command: Command) => {
      if (command.program === "lvm") programs.push(command.args[0]!);
      return machine.run(command);
    },
    idle: () => Promise.resolve(),
  };
  const own = openMachine({ exec, driver: "test", groups: ANY_GROUP, mountRoots: [root], scratch: "/scratch" });
  const { lvm, volumes, staging } = own;
  await lvm.report();
  /** Runs steps. @returns LVM's commands, and the kind of the error */
  const run = async (steps: () => Promise<unknown>) => {
    programs.splice(0);
    const outcome = await steps().then(() => [], (error) => {
      if (!(error instanceof StorageError)) throw error;
      return [error.kind as string];
    });
    return [...programs, ...outcome].join(" ");
  };
  const create = (request = {}) => volumes.create(namedRequest("one", 32n * MiB, request));
  const use = async () => {
    await staging.stage(id, `${root}/staged`, access);
    await staging.unstage(id, `${root}/staged`);
  };
  const admin = async (...args: string[]) =>
    assertEquals((await machine.run({ program: "lvm", args, mutates: true })).code, 0, args.join(" "));
  return {
    ...{ ...own, root, machine, group, run, create, use, admin },
    names: () => group.lvs.map((lv) => lv.name),
    isDeleted: () => group.lvs.some(({ tags }) => tags.has(`denolith.deleted=${id}`)),
    [Symbol.asyncDispose]: async () => {
      await own.background.stop();
      await Deno.remove(root, { recursive: true });
    },
  };
}

Deno.test("create() of a volume that is known not to exist needs no report, also after a deletion", async () => {
  await using own = await setUp();
  assertEquals([await own.run(own.create), own.names()], ["lvcreate", [name]]);
  assertEquals(await own.run(own.create), "fullreport");
  assertEquals(await own.run(() => own.volumes.delete(id)), "lvremove");
  assertEquals([await own.run(own.create), own.names()], ["lvcreate", [name]]);
});

Deno.test("create() and delete() need no report where LVM has several groups, also while the disk of another one hangs", async () => {
  await using own = await setUp();
  const other = own.machine.addGroup("more", 1n << 30n);
  await own.lvm.report();
  own.machine.hungPvs.set(other.pvs[0]!.path, Promise.withResolvers());
  const groups = exactMatcher("data");
  assertEquals([await own.run(() => own.create({ groups })), own.names()], ["lvcreate", [name]]);
  own.machine.hungPvs.clear();
  await own.lvm.report();
  own.machine.hungPvs.set(other.pvs[0]!.path, Promise.withResolvers());
  assertEquals([await own.run(() => own.volumes.delete(id)), own.names()], ["lvremove", []]);
});

Deno.test("create() and delete() change nothing before a report where a disk was added to the group since", async () => {
  await using own = await setUp();
  const addDisk = () =>
    own.group.pvs.push({ path: `/dev/new${own.group.pvs.length}`, uuid: `new${own.group.pvs.length}` });
  addDisk();
  assertEquals([await own.run(own.create), own.names()], ["lvcreate fullreport lvcreate", [name]]);
  await own.lvm.report();
  addDisk();
  assertEquals([await own.run(() => own.volumes.delete(id)), own.names()], ["lvremove fullreport lvremove", []]);
  await own.create();
  await own.use();
  await own.lvm.report();
  addDisk();
  const ran = await own.run(() => own.volumes.delete(id));
  assertEquals([ran.split(" ").slice(0, 3), own.isDeleted()], [["lvchange", "fullreport", "lvchange"], true]);
});

Deno.test("create() reads a report for a layout, a choice of groups, and a name that a deleted LV still has", async () => {
  await using own = await setUp();
  assertEquals(
    await own.run(() => own.create({ thin: { poolSize: { percent: 50n } } })).then((ran) => ran.split(" ")[0]),
    "fullreport",
  );
  await using second = await setUp();
  second.machine.addGroup("more", 1n << 30n);
  await second.lvm.report();
  assertEquals(await second.run(second.create), "fullreport lvcreate");
  await using third = await setUp();
  await third.create();
  await third.admin(
    "lvchange",
    "--deltag",
    `denolith.volume=${id}`,
    "--addtag",
    `denolith.deleted=${id}`,
    `data/${name}`,
  );
  await third.lvm.report();
  assertEquals(await third.run(third.create), "fullreport lvcreate");
  assertEquals(third.names().length, 2);
});

Deno.test("create() returns a volume that came back after the report: LVM refuses a second one of its name", async () => {
  await using own = await setUp();
  await own.create();
  const [lv] = own.group.lvs.splice(0);
  await own.lvm.report();
  own.group.lvs.push(lv!); // an administrator restored the metadata
  assertEquals(await own.run(own.create), "lvcreate fullreport");
  assertEquals(own.group.lvs, [lv]);
});

Deno.test("create() reads a report when LVM refuses: the group was renamed, is full, or lacks a disk since", async () => {
  await using renamed = await setUp();
  renamed.group.name = "other";
  assertEquals([await renamed.run(renamed.create), renamed.names()], ["lvcreate fullreport lvcreate", [name]]);
  await using full = await setUp();
  await full.admin("lvcreate", "--name", "large", "--size", `${1000n * MiB}b`, "data");
  assertEquals([await full.run(full.create), full.names()], ["lvcreate fullreport NoSpace", ["large"]]);
  await using broken = await setUp();
  broken.group.missingPvs = 1;
  assertEquals([await broken.run(broken.create), broken.names()], ["lvcreate fullreport NoSpace", []]);
});

Deno.test("create() reads a report where the group has space for the metadata of few further volumes", async () => {
  await using own = await setUp();
  own.group.maxLvs = 3;
  await own.lvm.report();
  const create = (name: string) => own.run(() => own.volumes.create(namedRequest(name, 32n * MiB)));
  assertEquals(await Promise.all(["a", "b", "c"].map((name) => own.volumes.create(namedRequest(name, 32n * MiB)))), [
    ...[32n * MiB, 32n * MiB, 32n * MiB],
  ]);
  assertEquals(await create("d"), "fullreport NoSpace");
});

Deno.test("create() of a volume that was in use and is gone is Lost, with and without a report", async () => {
  await using own = await setUp();
  await own.create();
  await own.use();
  own.group.lvs.splice(0);
  await own.lvm.report();
  assertEquals([await own.run(own.create), own.names()], ["fullreport Lost", []]);
});

Deno.test("delete() of a volume that was in use marks it without a report, if it is known", async () => {
  await using own = await setUp();
  await own.create();
  await own.use();
  const ran = await own.run(() => own.volumes.delete(id));
  assertEquals([ran.split(" ")[0], own.isDeleted()], ["lvchange", true]);
});

Deno.test("delete() of a volume that was never used removes it without a report, if its UUID is known", async () => {
  await using own = await setUp();
  await own.create();
  assertEquals(await own.run(() => own.volumes.delete(id)), "fullreport lvremove");
  await own.create();
  await own.lvm.report();
  assertEquals([await own.run(() => own.volumes.delete(id)), own.names()], ["lvremove", []]);
});

Deno.test("delete() removes nothing at once that was used since the report", async () => {
  await using recorded = await setUp();
  await recorded.create();
  await recorded.lvm.report();
  const [lv] = recorded.group.lvs;
  recorded.group.tags.add(`denolith.used=test:${id}:${lv!.uuid}`);
  assertEquals(await recorded.run(() => recorded.volumes.delete(id)).then((ran) => ran.split(" ").slice(0, 3)), [
    ...["lvremove", "fullreport", "lvchange"],
  ]);
  assertEquals([recorded.names(), recorded.isDeleted()], [[name], true]);
  await using formatted = await setUp();
  await formatted.create();
  await formatted.lvm.report();
  const format = "formatted:ext4:00000000-0000-4000-8000-000000000001";
  await formatted.admin(
    "lvchange",
    "--deltag",
    "denolith.fs=wanted:ext4",
    "--addtag",
    `denolith.fs=${format}`,
    `data/${name}`,
  );
  assertEquals(await formatted.run(() => formatted.volumes.delete(id)).then((ran) => ran.split(" ").slice(0, 3)), [
    ...["lvremove", "fullreport", "lvchange"],
  ]);
});

for (const isUsed of [false, true]) {
  const what = isUsed ? "that was in use" : "that was never used";
  const first = isUsed ? "lvchange" : "lvremove";
  const prepare = async () => {
    const own = await setUp();
    await own.create();
    if (isUsed) await own.use();
    await own.lvm.report();
    return own;
  };

  Deno.test(`delete() leaves another LV alone that has the name of a volume ${what} by now`, async () => {
    await using own = await prepare();
    own.group.lvs[0]!.name = "renamed";
    await own.admin("lvcreate", "--name", name, "--size", `${4n * MiB}b`, "data");
    const other = own.group.lvs.at(-1)!;
    await own.run(() => own.volumes.delete(id));
    assertEquals([own.group.lvs.includes(other), other.tags.size], [true, 0]);
    assertEquals([own.names().includes("renamed"), own.isDeleted()], [true, true], "it is erased first");
  });

  Deno.test(`delete() does not delete a volume ${what} with a snapshot since the report, or one that is open`, async () => {
    await using snapshotted = await prepare();
    await snapshotted.snapshots.create({ id: snapshotIdOf("cut"), source: id, cowSize: FULL_COW });
    assertEquals((await snapshotted.run(() => snapshotted.volumes.delete(id))).endsWith("fullreport InUse"), true);
    await using backedUp = await prepare();
    await backedUp.admin("lvcreate", "--snapshot", "--name", "backup", "--size", `${4n * MiB}b`, `data/${name}`);
    assertEquals(await backedUp.run(() => backedUp.volumes.delete(id)), `${first} fullreport InUse`);
    await using open = await prepare();
    open.machine.openLvs.push(open.group.lvs[0]!);
    await assertRejects(() => open.volumes.delete(id), StorageError, "in use");
    assertEquals([open.names(), open.isDeleted()], [[name], false]);
  });

  Deno.test(`delete() leaves a volume ${what} alone that an administrator gave to another driver`, async () => {
    await using own = await prepare();
    await own.admin("lvchange", "--deltag", "denolith=test", "--addtag", "denolith=other", `data/${name}`);
    assertEquals(await own.run(() => own.volumes.delete(id)).then((ran) => ran.split(" ").slice(0, 2)), [
      ...[first, "fullreport"],
    ]);
    assertEquals([own.names(), own.isDeleted()], [[name], false]);
  });

  Deno.test(`delete() of a volume ${what} reads a report when the group or the LV has another name`, async () => {
    await using own = await prepare();
    own.group.name = "other";
    const ran = await own.run(() => own.volumes.delete(id));
    assertEquals(ran.split(" ").slice(0, 3), [first, "fullreport", first]);
  });
}

const cut = snapshotIdOf("cut");

/** Creates the snapshot of the volume. */
function takeSnapshot({ snapshots }: Awaited<ReturnType<typeof setUp>>, cowSize: SizeOrPercent = FULL_COW) {
  return snapshots.create({ id: cut, source: id, cowSize });
}

Deno.test("a snapshot of a known volume is created without a report before it", async () => {
  await using own = await setUp();
  await own.create();
  await own.lvm.report();
  assertEquals(await own.run(() => takeSnapshot(own)), "lvcreate fullreport");
  assertEquals(await own.run(() => takeSnapshot(own)), "fullreport");
  await using unknown = await setUp();
  await unknown.create();
  assertEquals(await unknown.run(() => takeSnapshot(unknown)), "fullreport lvcreate fullreport");
});

Deno.test("a snapshot that came back after the report, or whose volume is gone or renamed, is decided by a report", async () => {
  await using back = await setUp();
  await back.create();
  await takeSnapshot(back);
  const lv = back.group.lvs.pop()!;
  await back.lvm.report();
  back.group.lvs.push(lv);
  assertEquals([await back.run(() => takeSnapshot(back)), back.names().length], ["lvcreate fullreport", 2]);
  await using gone = await setUp();
  await gone.create();
  await gone.lvm.report();
  gone.group.lvs.splice(0);
  assertEquals(await gone.run(() => takeSnapshot(gone)), "lvcreate fullreport NotFound");
  await using renamed = await setUp();
  await renamed.create();
  await renamed.lvm.report();
  renamed.group.lvs[0]!.name = "renamed";
  assertEquals(await renamed.run(() => takeSnapshot(renamed)), "lvcreate fullreport lvcreate fullreport");
  assertEquals(renamed.group.lvs[1]!.origin?.name, "renamed");
});

Deno.test("a snapshot of an LV that has the name of the volume by now is deleted, and one of the volume is created", async () => {
  await using own = await setUp();
  await own.create();
  await own.lvm.report();
  own.group.lvs[0]!.name = "renamed";
  await own.admin("lvcreate", "--name", name, "--size", `${4n * MiB}b`, "data");
  const { ready } = await takeSnapshot(own);
  await own.background.idle();
  assertEquals([ready, own.group.lvs.map((lv) => [lv.name.split("-")[0], lv.origin?.name])], [true, [
    ...[["renamed", undefined], ["vol", undefined], ["snap", "renamed"]],
  ]]);
});

Deno.test("create() needs no report after the reaper removed the volume of that name", async () => {
  await using own = await setUp();
  own.background.start();
  await own.create();
  await own.use();
  await takeSnapshot(own);
  await own.snapshots.delete(cut);
  await own.background.idle();
  await own.volumes.delete(id);
  await own.background.idle();
  assertEquals([await own.run(own.create), own.names()], ["lvcreate", [name]]);
});

/** Stages a volume for btrfs, and leaves it staged. */
async function stageBtrfs(own: Awaited<ReturnType<typeof setUp>>) {
  await own.volumes.create(
    namedRequest("one", 512n * MiB, { format: { state: "unformatted", type: "btrfs" } }),
  );
  await own.staging.stage(id, `${own.root}/staged`, access);
}

Deno.test("a snapshot of a btrfs that was mounted after the report has what was written to it", async () => {
  await using own = await setUp();
  await stageBtrfs(own);
  const synced: string[] = [];
  own.machine.fault = ({ program, args }) => {
    if (program === "btrfs") synced.push(args.join(" "));
    return undefined;
  };
  assertEquals(await own.run(() => takeSnapshot(own, { percent: 10n })), "lvcreate fullreport");
  assertEquals(synced, [`filesystem sync ${own.root}/staged`]);
});

Deno.test("COW space for all of a volume is not that of its size before an administrator extended it", async () => {
  await using own = await setUp();
  await own.create();
  await own.lvm.report();
  await own.admin("lvextend", "--size", `${64n * MiB}b`, `data/${name}`);
  const { size } = await takeSnapshot(own);
  await own.background.idle();
  const cows = own.group.lvs.filter(({ origin }) => origin !== undefined);
  assertEquals([size, cows.map((cow) => cow.size >= 64n * MiB)], [64n * MiB, [true]]);
});

Deno.test("a snapshot of another LV is never one of the volume, also when nobody could look at it when it was created", async () => {
  await using own = await setUp();
  await own.create();
  await own.lvm.report();
  own.group.lvs[0]!.name = "renamed";
  await own.admin("lvcreate", "--name", name, "--size", `${4n * MiB}b`, "data");
  own.machine.fault = ({ args }) => args[0] === "fullreport" ? failure(5, "  no") : undefined;
  await assertRejects(() => takeSnapshot(own), StorageError, "no");
  own.machine.fault = undefined;
  assertEquals(own.group.lvs[2]!.origin?.name, name);
  const error = await assertRejects(() => takeSnapshot(own), StorageError, "is a snapshot of");
  assertEquals([error.kind, own.group.lvs.length], ["ForeignData", 3]);
  await own.snapshots.delete(cut);
  await own.background.idle();
  assertEquals((await takeSnapshot(own)).ready, true);
});

for (const isKnown of [false, true]) {
  Deno.test(`a deletion whose mark ends after its deadline is completed by the next call, ${isKnown ? "known" : "by a report"}`, async () => {
    await using own = await setUp();
    await own.create();
    await own.use();
    if (isKnown) await own.lvm.report();
    const late = Promise.withResolvers<void>();
    own.machine.fault = (command) => {
      if (command.args[0] !== "lvchange") return undefined;
      own.machine.fault = undefined;
      const completion = late.promise.then(() => own.machine.run(command));
      throw new StorageError("StillRunning", "lvchange: still running", { completion });
    };
    assertEquals((await own.run(() => own.volumes.delete(id))).endsWith("StillRunning"), true);
    late.resolve();
    await own.lvm.exec.idle();
    await new Promise((resolve) => setTimeout(resolve, 1));
    assertEquals(own.isDeleted(), true);
    await own.volumes.delete(id);
    await own.background.idle();
    assertEquals(own.names(), []);
  });
}
