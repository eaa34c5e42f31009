import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { failure, FakeMachine, type Fault } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { describeCommand } from "../exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { exactMatcher } from "../model/groups.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";
import { usedTag } from "../model/tags.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Snapshots } from "../snapshots/snapshots.ts";
import { FULL_COW } from "../settings/cow_size.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "../volumes/volumes.ts";

const GIB = 1n << 30n;
const id = volumeIdOf("one");
const noReaper = { wake: () => {} };

/** Creates a machine with a volume, and a reaper that removes empty pools. */
async function setUp({ isThin = false, pvCount = 1 } = {}) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 8n * GIB, 4n << 20n, pvCount);
  const clock = new FakeClock();
  const lvm: Lvm = new Lvm(machine, undefined, () => reaper.repairSoon());
  const errors: string[] = [];
  const reservation = new PoolReservation(lvm);
  const onError = (error: unknown) => errors.push(String(error));
  const options = { lvm, driver: "test", reservation, onError, clock };
  const reaper = new Reaper({ ...options, retryMs: 60_000, removeEmptyPools: true });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper: noReaper });
  const thin = isThin ? { thin: { poolSize: DEFAULT_POOL_SIZE } } : {};
  await volumes.create(namedRequest("one", GIB, { format: { state: "raw" }, ...thin }));
  const snapshots = new Snapshots({
    ...{ lvm, volumes: finder, reservation, reaper: noReaper },
    finder: new SnapshotFinder({ driver: "test" }),
  });
  const finish = async () => {
    await reaper.idle();
    await reaper.stop();
    return errors;
  };
  return { machine, group, clock, reaper, volumes, snapshots, finish };
}

Deno.test("a device that a killed command left suspended is resumed while the driver lives", async () => {
  const { machine, group, clock, reaper, volumes, finish } = await setUp();
  reaper.start();
  await reaper.idle();
  const [lv] = group.lvs;
  const refreshes: string[] = [];
  const kill = (subcommand: string): Fault => ({ args }) => {
    if (args[0] !== subcommand) return undefined;
    if (subcommand === "lvchange") refreshes.push(args.join(" "));
    lv!.suspended = true;
    return failure(137, "");
  };
  machine.fault = kill("lvextend");
  await assertRejects(() => volumes.expand(id, { required: 2n * GIB }), StorageError, "exit 137");
  machine.fault = kill("lvchange");
  await clock.advance(5_000);
  await reaper.idle();
  await clock.advance(59_000);
  assertEquals([lv!.suspended, refreshes.length], [true, 1], "a repair that is killed is repeated later");
  machine.fault = undefined;
  await clock.advance(1_000);
  await reaper.idle();
  const errors = await finish();
  assertEquals([lv!.suspended, errors.length], [false, 1], errors.join());
});

Deno.test("what a killed command of the reaper itself left is repaired as soon as that of others", async () => {
  const { machine, group, clock, reaper, volumes, finish } = await setUp();
  await volumes.delete(id);
  const [lv] = group.lvs;
  machine.fault = ({ args }) => {
    if (args[0] !== "lvremove") return undefined;
    lv!.suspended = true;
    return failure(137, "");
  };
  reaper.wake();
  await reaper.idle();
  machine.fault = undefined;
  await clock.advance(5_000);
  const errors = await finish();
  assertEquals([lv!.suspended, group.lvs, errors.length], [false, [], 1], errors.join());
});

Deno.test("Reaper removes COW space that never became a snapshot at the start, without another call", async () => {
  const { group, reaper, snapshots, finish } = await setUp();
  await snapshots.create({ id: snapshotIdOf("cut"), source: id, cowSize: FULL_COW });
  delete group.lvs[1]!.origin; // its lvcreate was killed
  reaper.start();
  assertEquals([await finish(), group.lvs.map(({ name }) => name.split("-")[0])], [[], ["vol"]]);
});

Deno.test("Reaper does not activate a deleted LV of which a disk is missing", async () => {
  const { machine, group, reaper, volumes, finish } = await setUp();
  await volumes.delete(id);
  group.lvs[0]!.active = false;
  group.missingPvs = 1;
  const changes: string[] = [];
  machine.fault = (command) => void (command.mutates && changes.push(describeCommand(command)));
  reaper.wake();
  const errors = await finish();
  assertEquals([changes, errors.length], [[], 1]);
  assert(errors[0]!.includes("physical volumes of it are missing"), errors[0]);
});

Deno.test("Reaper keeps a pool in which an LV was created when its last one was removed", async () => {
  const { machine, group, reaper, volumes, finish } = await setUp({ isThin: true });
  const pool = group.lvs.find(({ thinPool }) => thinPool !== undefined)!;
  await volumes.delete(id);
  const poolChanges: string[] = [];
  const recordPoolChanges: Fault = (command) =>
    void (command.mutates && command.args.at(-1) === `data/${pool.name}` && poolChanges.push(describeCommand(command)));
  let isRemoved = false; // before that, the pool is full
  machine.fault = async ({ args }) => {
    const isNext = isRemoved;
    isRemoved ||= args[0] === "lvremove";
    if (!isNext) return undefined;
    machine.fault = recordPoolChanges;
    const create = ["lvcreate", "--yes", "--type", "thin", "--virtualsize", `${1 << 20}b`, "--name", "other"];
    const { code } = await machine.run({
      ...{ program: "lvm", args: [...create, "--thinpool", pool.name, "data"], mutates: true },
    });
    assertEquals(code, 0);
    return undefined;
  };
  reaper.wake();
  assertEquals([await finish(), poolChanges], [[], []]);
  assertEquals(group.lvs.map(({ name }) => name).sort(), [pool.name, "other"].sort());
});

/** Deletes the volume, with the record of its use, and lets something happen after it was erased. */
async function removeDespite(happens: (parts: Awaited<ReturnType<typeof setUp>>) => unknown) {
  const parts = await setUp({ pvCount: 2 });
  const { machine, group, reaper, volumes, finish } = parts;
  const [lv] = group.lvs;
  const record = `denolith.used=test:${id}:${lv!.uuid}`;
  group.tags.add(record);
  await volumes.delete(id);
  machine.fault = async ({ args }) => {
    if (args[0] !== "vgchange") return undefined;
    machine.fault = undefined;
    await happens(parts);
    return undefined;
  };
  reaper.wake();
  return { errors: await finish(), names: group.lvs.map(({ name }) => name), hasRecord: group.tags.has(record) };
}

Deno.test("Reaper keeps a volume, and the record of its use, from which an administrator took the mark after it was erased", async () => {
  const { errors, names, hasRecord } = await removeDespite(({ group }) =>
    group.lvs[0]!.tags.delete(`denolith.deleted=${id}`)
  );
  assertEquals([errors, names.length, hasRecord], [[], 1, true]);
});

Deno.test("Reaper keeps a volume, and the record of its use, whose disk went missing after it was erased", async () => {
  const { errors, names, hasRecord } = await removeDespite(({ group }) => {
    group.missingPvs = 2;
  });
  assertEquals([names.length, hasRecord, errors.length], [1, true, 1]);
  assert(errors[0]!.includes("physical volumes of it are missing"), errors[0]);
});

Deno.test("Reaper removes a volume, and the record of its use, that an administrator renamed after it was erased", async () => {
  const result = await removeDespite(({ group }) => group.lvs[0]!.name = "renamed");
  assertEquals(result, { errors: [], names: [], hasRecord: false });
});

Deno.test("Reaper keeps another LV that has the name of a deleted one since it was erased, and removes that one", async () => {
  const { errors, names, hasRecord } = await removeDespite(async ({ machine, group }) => {
    const { name } = group.lvs[0]!;
    group.lvs[0]!.name = "renamed";
    const args = ["lvcreate", "--yes", "--name", name, "--size", "4194304b", "data"];
    assertEquals((await machine.run({ program: "lvm", args, mutates: true })).code, 0);
  });
  assertEquals([errors, names.length, names.includes("renamed"), hasRecord], [[], 1, false, false]);
});

Deno.test("Reaper keeps a volume, and the record of its use, that an administrator gave to another driver, or a tag of a volume, after it was erased", async () => {
  const changes: ((tags: Set<string>) => void)[] = [
    (tags) => void tags.add("denolith=other").delete("denolith=test"),
    (tags) => void tags.add(`denolith.volume=${id}`),
    (tags) => void tags.add(`denolith.snapshot=${id}`),
  ];
  for (const change of changes) {
    const { errors, names, hasRecord } = await removeDespite(({ group }) => change(group.lvs[0]!.tags));
    assertEquals([errors, names.length, hasRecord], [[], 1, true]);
  }
});

Deno.test("a repair, and deletions without erasure, do not wait for the erasures that run", async () => {
  const { machine, group, reaper, volumes, finish } = await setUp();
  const other = machine.addGroup("other", 8n * GIB);
  const create = (name: string, size: bigint, more: object = {}) =>
    volumes.create(namedRequest(name, size, { format: { state: "raw" }, ...more }));
  await create("large", 6n * GIB, { groups: exactMatcher("data") });
  await create("elsewhere", 5n * GIB, { groups: exactMatcher("other") });
  await create("kept", GIB, { erase: "none", groups: exactMatcher("other") });
  for (const name of ["large", "elsewhere", "kept"]) await volumes.delete(volumeIdOf(name));
  const [used] = group.lvs;
  const events: string[] = [];
  const nameOf = (path: string) => /large|elsewhere/.exec([...machine.lvAt(path)!.tags].map(knownName).join())?.[0];
  machine.fault = ({ program, args }) => {
    if (program === "blkdiscard") events.push(`erase ${nameOf(args.at(-1)!)}`);
    if (args[0] === "lvremove") events.push(`remove from ${args.at(-1)!.split("/")[0]}`);
    if (args.includes("--refresh")) events.push("repair");
    if (events.length !== 4 || used!.suspended) return undefined;
    used!.suspended = true; // by a command that was killed
    reaper.start();
    return undefined;
  };
  reaper.wake();
  assertEquals(await finish(), []);
  assertEquals([events[0], events.slice(1, 3).sort()], ["remove from other", ["erase elsewhere", "erase large"]]);
  assert(events.indexOf("repair") < 7, events.join());
  assertEquals(events.filter((event) => event.startsWith("erase")).length, 11, "no part is erased twice");
  assertEquals([group.lvs.map(({ uuid }) => uuid), other.lvs], [[used!.uuid], []]);
});

Deno.test("a repair waits for the erasure of one small LV, not for that of all", async () => {
  const { machine, group, reaper, volumes, finish } = await setUp();
  const names = ["a", "b", "c", "d"];
  for (const name of names) await volumes.create(namedRequest(name, GIB, { format: { state: "raw" } }));
  for (const name of names) await volumes.delete(volumeIdOf(name));
  const events: string[] = [];
  machine.fault = ({ program, args }) => {
    if (program === "blkdiscard" && events.push("erase") === 1) {
      group.lvs[0]!.suspended = true; // by a command that was killed
      reaper.start();
    }
    if (args.includes("--refresh")) events.push("repair");
    return undefined;
  };
  reaper.wake();
  assertEquals([await finish(), events], [[], ["erase", "repair", "erase", "erase", "erase"]]);
});

Deno.test("each pass erases something, even if another one is due at once", async () => {
  const { machine, group, reaper, volumes, finish } = await setUp();
  await volumes.create(namedRequest("large", 3n * GIB, { format: { state: "raw" } }));
  await volumes.delete(volumeIdOf("large"));
  let [wakes, parts] = [0, 0];
  machine.fault = ({ program, args }) => {
    if (program === "blkdiscard") parts++;
    if (args[0] === "fullreport" && wakes++ < 50 && group.lvs.length > 1) reaper.wake();
    return undefined;
  };
  reaper.wake();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals([await finish(), group.lvs.length, parts, wakes < 25], [[], 1, 3, true], `${wakes} reports`);
});

/** Adds an imported clone of a group (vgimportclone(8)): another group with the same LVs, tags and UUIDs of LVs. */
function addClone(machine: FakeMachine, { size, tags, pvs, lvs }: FakeMachine["groups"][number]) {
  const clone = machine.addGroup("clone", size);
  clone.tags = new Set(tags);
  clone.pvs.splice(0, clone.pvs.length, ...pvs.map((pv) => ({ ...pv, path: "/dev/vdz" })));
  clone.lvs = lvs.map((lv) => ({ ...lv, tags: new Set(lv.tags), minor: lv.minor + 500 }));
  return clone;
}

Deno.test("the erasure of a deleted LV knows nothing of that of its clone in an imported group", async () => {
  const { machine, group, reaper, volumes, finish } = await setUp();
  await volumes.create(namedRequest("large", 4n * GIB, { format: { state: "raw" } }));
  await volumes.delete(volumeIdOf("large"));
  group.lvs.shift();
  addClone(machine, group);
  const erased = new Map<string, Set<string>>();
  const run = machine.run.bind(machine);
  machine.run = async (command) => {
    const { program, args } = command;
    if (program !== "blkdiscard") return await run(command);
    const name = args.at(-1)!.includes("clone") ? "clone" : "data";
    const parts = erased.get(name) ?? new Set();
    erased.set(name, parts.add(args[2]!));
    const isInterrupted = name === "data" && parts.size === 3; // while the clone is less far
    if (isInterrupted) reaper.wake();
    if (isInterrupted || name === "clone") await new Promise((end) => setTimeout(end, isInterrupted ? 40 : 20));
    return await run(command);
  };
  reaper.wake();
  assertEquals(await finish(), []);
  assertEquals([erased.get("data")?.size, erased.get("clone")?.size, machine.allLvs().length], [4, 4, 0]);
});

Deno.test("the removal of a deleted LV leaves the record of its clone that is a volume", async () => {
  const { machine, group, reaper, finish } = await setUp();
  const [lv] = group.lvs;
  group.tags.add(usedTag("test", id, lv!.uuid));
  const clone = addClone(machine, group);
  lv!.tags = new Set([...lv!.tags].filter((tag) => tag !== `denolith.volume=${id}`).concat(`denolith.deleted=${id}`));
  reaper.wake();
  assertEquals(await finish(), []);
  assertEquals([group.lvs.length, [...group.tags], [...clone.tags]], [0, [], [usedTag("test", id, lv!.uuid)]]);
});

function knownName(tag: string): string {
  return ["large", "elsewhere"].find((name) => tag.endsWith(volumeIdOf(name))) ?? "";
}
