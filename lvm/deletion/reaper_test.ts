import { assert, assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { systemClock } from "../../base/clock.ts";
import { describeCommand } from "../exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { Snapshots } from "../snapshots/snapshots.ts";
import { FULL_COW } from "../settings/cow_size.ts";
import { type Erasure, markErased, markVolumeDeleted } from "../model/tags.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "../volumes/volumes.ts";

const GIB = 1n << 30n;
const id = volumeIdOf("one");

/** Creates a machine with a volume, and a reaper; `mark` marks the volume as deleted. */
async function setUpDeleted(size: bigint, erase: Erasure = "zero") {
  const machine = new FakeMachine();
  machine.addGroup("data", 200n * GIB);
  const lvm = new Lvm(machine);
  const errors: string[] = [];
  const reservation = new PoolReservation(lvm);
  const onError = (error: unknown) => errors.push(String(error));
  let skippedMs = 0;
  const clock = { ...systemClock, now: () => systemClock.now() + skippedMs };
  const skip = (ms: number) => void (skippedMs += ms);
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError, retryMs: 1, clock });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } });
  await volumes.create(namedRequest("one", size, { format: { state: "raw" }, erase }));
  const { lv, group } = await volumes.get(id);
  const path = `${group.name}/${lv.name}`;
  const commands: string[] = [];
  const record = () => {
    machine.fault = (command) => {
      if (command.mutates && command.program !== "sync") commands.push(describeCommand(command));
      return undefined;
    };
  };
  const mark = (...more: string[]) =>
    lvm.change(group, ["lvchange", ...markVolumeDeleted(id, { state: "raw" }), ...more, path]);
  return { machine, lvm, reaper, finder, reservation, volumes, errors, commands, record, mark, path, skip };
}

/** Returns the offsets of the commands that write zeros, in GiB. */
function offsets(commands: readonly string[]): number[] {
  return commands.flatMap((command) => {
    const offset = /^blkdiscard --zeroout --offset (\d+)/.exec(command)?.[1];
    return offset === undefined ? [] : [Number(BigInt(offset) / GIB)];
  });
}

Deno.test("Reaper overwrites a GiB at a time, and records its progress every 32", async () => {
  const { reaper, commands, record, mark, machine } = await setUpDeleted(70n * GIB + (8n << 20n));
  await mark();
  record();
  reaper.wake();
  await reaper.idle();
  assertEquals(offsets(commands), Array.from({ length: 71 }, (_, index) => index));
  assertEquals(
    commands.filter((command) => command.includes("denolith.erased")).map((command) => command.split(" data/")[0]),
    [
      `lvm lvchange --addtag denolith.erased=${32n * GIB}`,
      `lvm lvchange --deltag denolith.erased=${32n * GIB} --addtag denolith.erased=${64n * GIB}`,
    ],
  );
  assertEquals(commands.at(-1)?.startsWith("lvm lvremove"), true);
  assertEquals(machine.allLvs(), []);
});

Deno.test("Reaper waits until zeros are on the disk, before it records them and before it removes the LV", async () => {
  const { reaper, mark, machine, path } = await setUpDeleted(33n * GIB);
  await mark();
  const events: string[] = [];
  machine.fault = ({ program, args }) => {
    if (program === "sync") events.push(args[0]!.includes("vol") ? "zeros are on the disk" : "change is on the disk");
    else if (program === "blkdiscard" && events.at(-1) !== "zeros are written") events.push("zeros are written");
    else if (args.at(-1) === path) events.push(args[0]!);
    return undefined;
  };
  reaper.wake();
  await reaper.idle();
  assertEquals(events, [
    ...["zeros are written", "zeros are on the disk", "lvchange", "change is on the disk"],
    ...["zeros are written", "zeros are on the disk", "lvremove", "change is on the disk"],
  ]);
});

Deno.test("Reaper removes no LV whose zeros could not be flushed to its disks", async () => {
  const { reaper, mark, machine, errors } = await setUpDeleted(GIB);
  await mark();
  machine.fault = ({ program, args }) =>
    program === "sync" && args[0]!.includes("vol") ? failure(1, "sync: error syncing: Input/output error") : undefined;
  reaper.wake();
  await reaper.idle();
  await reaper.stop();
  assertEquals(machine.allLvs().length, 1);
  assert(errors[0]?.includes("error syncing"), errors[0]);
});

Deno.test("Reaper continues at the offset that an earlier process recorded", async () => {
  const { reaper, commands, record, mark } = await setUpDeleted(35n * GIB);
  await mark(...markErased(0n, 32n * GIB));
  record();
  reaper.start();
  await reaper.idle();
  assertEquals(offsets(commands), [32, 33, 34]);
});

Deno.test("a stopped Reaper ends after the running command, and removes nothing that is not erased", async () => {
  const { reaper, commands, mark, machine } = await setUpDeleted(10n * GIB);
  await mark();
  let stopping: Promise<void> | undefined;
  machine.fault = (command) => {
    if (command.mutates) commands.push(describeCommand(command));
    if (command.program === "blkdiscard") stopping ??= reaper.stop();
  };
  reaper.wake();
  await reaper.idle();
  await stopping;
  assertEquals([offsets(commands), commands.length, machine.allLvs().length], [[0], 1, 1]);
});

Deno.test("Reaper reports a failure and tries again; nothing that is not erased is removed meanwhile", async () => {
  const { reaper, errors, mark, machine } = await setUpDeleted(GIB);
  await mark();
  machine.fault = ({ program }) => {
    if (program !== "blkdiscard") return undefined;
    machine.fault = undefined;
    return failure(1, "blkdiscard: BLKZEROOUT ioctl failed: Input/output error");
  };
  reaper.wake();
  await reaper.idle();
  assertEquals([errors.length, machine.allLvs().length], [1, 1]);
  assert(errors[0]!.includes("Input/output error"));
  for (let tries = 0; tries < 1000 && machine.allLvs().length > 0; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await reaper.stop();
  assertEquals(machine.allLvs(), []);
});

Deno.test("Reaper resumes suspended devices at the start, also when LVM fails at first", async () => {
  const { reaper, errors, machine } = await setUpDeleted(GIB);
  const { lv } = machine.allLvs()[0]!;
  lv.suspended = true;
  machine.fault = ({ mutates }) => {
    if (!mutates) return undefined;
    machine.fault = undefined;
    return failure(5, "  a lock is held");
  };
  reaper.start();
  await reaper.idle();
  assertEquals([errors.length, lv.suspended], [1, true]);
  for (let tries = 0; tries < 1000 && lv.suspended; tries++) await new Promise((resolve) => setTimeout(resolve, 1));
  await reaper.stop();
  assertEquals(lv.suspended, false);
});

Deno.test("Reaper repairs the other LVs while one device cannot be resumed, and starts the copies", async () => {
  const { lvm, reservation, volumes, machine, errors } = await setUpDeleted(GIB);
  await volumes.create(namedRequest("two", GIB, { format: { state: "raw" } }));
  const [stuck, other] = machine.allLvs().map(({ lv }) => lv);
  stuck!.suspended = other!.suspended = true;
  machine.fault = ({ args }) =>
    args.includes("--refresh") && args.at(-1) === `data/${stuck!.name}`
      ? failure(5, `  Refusing refresh of partial LV data/${stuck!.name}.`)
      : undefined;
  let starts = 0;
  const onError = (error: unknown) => errors.push(String(error));
  const onResumed = () => starts++;
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError, onResumed, retryMs: 60_000 });
  reaper.start();
  await reaper.idle();
  assertEquals([other!.suspended, stuck!.suspended, starts, errors.length], [false, true, 1, 1]);
  machine.fault = undefined;
  reaper.wake();
  await reaper.idle();
  await reaper.stop();
  assertEquals([stuck!.suspended, starts, errors.length], [false, 2, 1]);
});

Deno.test("Reaper removes an LV whose physical volumes support no discards, and reports it", async () => {
  const { reaper, errors, mark, machine } = await setUpDeleted(GIB, "discard");
  await mark();
  machine.fault = ({ program }) =>
    program === "blkdiscard" ? failure(1, "blkdiscard: BLKDISCARD ioctl failed: Operation not supported") : undefined;
  reaper.wake();
  await reaper.idle();
  assertEquals([errors.length, machine.allLvs()], [1, []]);
});

/** Returns the snapshots of a machine, without the reaper: a test wakes it. */
function snapshotsOf({ lvm, finder, reservation }: Awaited<ReturnType<typeof setUpDeleted>>): Snapshots {
  return new Snapshots({
    ...{ lvm, volumes: finder, reservation, reaper: { wake: () => {} } },
    finder: new SnapshotFinder({ driver: "test" }),
  });
}

/** Sets up a machine as {@linkcode setUpDeleted} does, with a deleted snapshot of the volume that the reaper has to split. */
async function setUpDeletedSnapshot(): ReturnType<typeof setUpDeleted> {
  const s = await setUpDeleted(GIB);
  const snapshots = snapshotsOf(s);
  await snapshots.create({ id: snapshotIdOf("cut"), source: id, cowSize: FULL_COW });
  await snapshots.delete(snapshotIdOf("cut"));
  return s;
}

Deno.test("deleting a volume right after its snapshot leaves the snapshot's COW space to be erased", async () => {
  const { reaper, volumes, machine, commands, record } = await setUpDeletedSnapshot();
  await volumes.delete(id);
  assertEquals(machine.allLvs().map(({ lv }) => lv.name.split("-")[0]), ["vol", "snap"]);
  record();
  reaper.wake();
  await reaper.idle();
  assertEquals([offsets(commands).length, machine.allLvs()], [3, []]);
});

for (
  const refusal of [
    "  Required device-mapper target(s) not detected in your kernel.",
    '  Volume group "data" not found',
  ]
) {
  Deno.test(`Reaper waits before it splits a snapshot again that LVM did not split:${refusal}`, async () => {
    const { reaper, machine, commands, errors } = await setUpDeletedSnapshot();
    machine.fault = ({ args }) => {
      if (args[0] !== "lvconvert") return undefined;
      commands.push("lvconvert");
      if (commands.length > 10) machine.fault = undefined; // it would never end
      return failure(5, refusal);
    };
    reaper.wake();
    await reaper.idle();
    assertEquals([commands.length <= 2, errors.length], [true, 1], errors.join());
    await reaper.stop();
  });
}

Deno.test("Reaper splits a snapshot after a refusal without a further error", async () => {
  const { reaper, machine, errors } = await setUpDeletedSnapshot();
  machine.fault = ({ args }) => {
    if (args[0] !== "lvconvert") return undefined;
    machine.fault = undefined;
    return failure(5, "  Required device-mapper target(s) not detected in your kernel.");
  };
  reaper.wake();
  for (let tries = 0; tries < 1000 && machine.allLvs().length > 1; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await reaper.stop();
  assertEquals([machine.allLvs().length, errors.length], [1, 1], errors.join());
});

Deno.test("Reaper removes no pool that was created while it resumed a device, and had the name of an incomplete one", async () => {
  const { machine, reaper, lvm, errors, volumes } = await setUpDeleted(GIB);
  const [group] = machine.groups;
  const thin = { poolSize: { percent: 50n } };
  const createThin = (name: string) => volumes.create(namedRequest(name, GIB, { format: { state: "raw" }, thin }));
  await createThin("two");
  const pool = group!.lvs.find(({ thinPool }) => thinPool !== undefined)!;
  const isThin = ({ pool }: { readonly pool?: string }) => pool !== undefined;
  group!.lvs = group!.lvs.filter((lv) => !isThin(lv));
  delete pool.thinPool; // its lvcreate was killed
  group!.lvs[0]!.suspended = true;
  let created: Promise<unknown> | undefined;
  machine.fault = ({ args }) => {
    if (!args.includes("--refresh")) return undefined;
    machine.fault = undefined;
    created = createThin("three"); // removes the incomplete pool first
    return undefined;
  };
  reaper.start();
  await reaper.idle();
  await created;
  await reaper.stop();
  assertEquals([errors, group!.lvs.filter(isThin).length, (await lvm.report()).length], [[], 1, 1]);
});

Deno.test("Reaper neither erases nor removes an LV that has the name of a deleted one by now", async () => {
  const { machine, reaper, mark, volumes, lvm, errors, skip } = await setUpDeleted(2n * GIB);
  const second = volumeIdOf("two");
  await volumes.create(namedRequest("two", 3n * GIB, { format: { state: "raw" } }));
  const { lv, group } = await volumes.get(second);
  const path = `${group.name}/${lv.name}`;
  await lvm.change(group, ["lvchange", ...markVolumeDeleted(second, { state: "raw" }), path]);
  await mark();
  machine.fault = async ({ program }) => {
    if (program !== "blkdiscard") return undefined;
    machine.fault = undefined;
    skip(2_001);
    // an administrator removes it, and makes room for the next one of that name
    await machine.run({ program: "lvm", args: ["lvremove", "--yes", path], mutates: true });
    await volumes.create(namedRequest("two", GIB, { format: { state: "raw" } }));
    machine.allLvs().find(({ lv: { name } }) => name === lv.name)!.lv.content.data.add("precious");
    return undefined;
  };
  reaper.wake();
  await reaper.idle();
  await reaper.stop();
  assertEquals(errors, []);
  assertEquals(machine.allLvs().map(({ lv }) => [lv.name, [...lv.content.data]]), [[lv.name, ["precious"]]]);
});

for (const isErased of [true, false]) {
  Deno.test(`Reaper removes the record of use that vgsplit left in another group, of an LV that ${isErased ? "is" : "is not"} erased`, async () => {
    const { machine, reaper, mark, volumes, errors } = await setUpDeleted(GIB, isErased ? "zero" : "none");
    const [{ group: first, lv }] = machine.allLvs() as [ReturnType<FakeMachine["allLvs"]>[number]];
    await mark();
    first.tags.add(`denolith.used=test:${id}:${lv.uuid}`);
    const split = machine.addGroup("split", 2n * GIB);
    delete lv.pvSegments; // they are on its own PVs
    split.lvs.push(...first.lvs.splice(0));
    reaper.wake();
    await reaper.idle();
    assertEquals([errors, machine.allLvs(), [...first.tags]], [[], [], []]);
    await volumes.create(namedRequest("one", GIB, { format: { state: "raw" } })); // it is not Lost
  });
}

Deno.test("Reaper keeps an LV from which an administrator took the mark while it was erased", async () => {
  const { machine, reaper, mark, path } = await setUpDeleted(GIB);
  await mark();
  machine.fault = async ({ program }) => {
    if (program !== "blkdiscard") return undefined;
    machine.fault = undefined;
    const args = ["lvchange", "--deltag", `denolith.deleted=${id}`, path];
    await machine.run({ program: "lvm", args, mutates: true });
    return undefined;
  };
  reaper.wake();
  await reaper.idle();
  await reaper.stop();
  assertEquals(machine.allLvs().length, 1);
});

for (const when of ["before", "while"] as const) {
  Deno.test(`Reaper removes no snapshot that somebody created of a deleted LV ${when} it was erased`, async () => {
    const { machine, reaper, mark, path, errors, record, commands } = await setUpDeleted(GIB);
    const snapshot = ["lvcreate", "--yes", "--snapshot", "--name", "backup", "--size", "8388608b", path];
    const backUp = () => machine.run({ program: "lvm", args: snapshot, mutates: true });
    await mark();
    if (when === "before") {
      await backUp();
      record();
    } else {
      machine.fault = async ({ program }) => {
        if (program !== "blkdiscard") return undefined;
        machine.fault = undefined;
        await backUp();
        return undefined;
      };
    }
    reaper.wake();
    await reaper.idle();
    await reaper.stop();
    assertEquals(machine.allLvs().map(({ lv }) => lv.name).includes("backup"), true);
    assertEquals([commands, errors.length], [[], 1]);
    assert(errors[0]!.includes("is the origin of the snapshots backup"), errors[0]);
  });
}

Deno.test("Reaper keeps an LV that needs no erasure, and from which an administrator took the mark meanwhile", async () => {
  const { machine, reaper, mark, volumes, lvm } = await setUpDeleted(GIB);
  const second = volumeIdOf("two");
  await volumes.create(namedRequest("two", GIB, { format: { state: "raw" }, erase: "none" }));
  const { lv, group } = await volumes.get(second);
  const path = `${group.name}/${lv.name}`;
  await mark();
  await lvm.change(group, ["lvchange", ...markVolumeDeleted(second, { state: "raw" }), path]);
  machine.fault = async (command) => {
    if (command.args[0] !== "lvremove") return undefined;
    machine.fault = undefined;
    const args = ["lvchange", "--deltag", `denolith.deleted=${second}`, path];
    await machine.run({ program: "lvm", args, mutates: true });
    return undefined;
  };
  reaper.wake();
  await reaper.idle();
  await reaper.stop();
  assertEquals(machine.allLvs().map(({ lv }) => lv.uuid), [lv.uuid]);
});

Deno.test("Reaper deletes no snapshot that was created while it resumed a device, and had the name of an incomplete one", async () => {
  const s = await setUpDeleted(GIB, "none");
  const { machine, reaper, errors } = s;
  const cut = snapshotIdOf("cut");
  const snapshots = snapshotsOf(s);
  const take = () => snapshots.create({ id: cut, source: id, cowSize: FULL_COW });
  await take();
  const [volume, incomplete] = machine.groups[0]!.lvs;
  delete incomplete!.origin; // its lvcreate was killed
  volume!.suspended = true;
  let again: Promise<unknown> | undefined;
  machine.fault = ({ args }) => {
    if (!args.includes("--refresh")) return undefined;
    machine.fault = undefined;
    again = snapshots.delete(cut).then(take);
    return undefined;
  };
  reaper.start();
  await reaper.idle();
  await again;
  await reaper.stop();
  assertEquals([errors, (await snapshots.get(cut)).id], [[], cut]);
});
