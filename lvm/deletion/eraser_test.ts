import { assertEquals, assertMatch } from "@std/assert";
import { failure, FakeMachine, ok } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { type Command, describeCommand } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { type Erasure, markVolumeDeleted } from "../model/tags.ts";
import type { Layout } from "../model/layout.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "../volumes/volumes.ts";

const GIB = 1n << 30n;
const id = volumeIdOf("one");
const RAID1: Layout = { type: "raid1", mirrors: 1 };

/** Creates a machine with a deleted volume that has data, and a reaper. */
async function setUp(
  size: bigint,
  { erase = "zero", layout, retryMs = 1 }: { erase?: Erasure; layout?: Layout; retryMs?: number } = {},
) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 400n * GIB, 4n << 20n, 2);
  const lvm = new Lvm(machine);
  const errors: string[] = [];
  const reservation = new PoolReservation(lvm);
  const reaper = new Reaper({
    ...{ lvm, driver: "test", reservation, retryMs },
    onError: (error) => errors.push(String(error)),
  });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } });
  const addDeleted = async (name: string) => {
    await volumes.create(namedRequest(name, size, { format: { state: "raw" }, erase, ...(layout && { layout }) }));
    const id = volumeIdOf(name);
    const { lv, group } = await volumes.get(id);
    const args = ["lvchange", ...markVolumeDeleted(id, { state: "raw" }), `${group.name}/${lv.name}`];
    await lvm.change(group, args);
  };
  await addDeleted("one");
  const [fake] = group.lvs;
  fake!.content.data.add("secret");
  const run = async () => {
    reaper.wake();
    await reaper.idle();
  };
  return {
    machine,
    group,
    lv: fake!,
    errors,
    reaper,
    volumes,
    run,
    addDeleted,
    [Symbol.asyncDispose]: () => reaper.stop(),
  };
}

/** Makes each blkdiscard outlast its deadline. It ends when the test says so. */
function slowDown(machine: FakeMachine) {
  const running: { command: Command; end: () => Promise<void> }[] = [];
  machine.fault = (command) => {
    if (command.program !== "blkdiscard") return undefined;
    const { promise, resolve } = Promise.withResolvers<unknown>();
    const end = async () => {
      machine.fault = undefined;
      const output = await machine.run(command);
      slowDownAgain();
      resolve(output);
      await promise;
    };
    running.push({ command, end });
    throw new StorageError("StillRunning", `${describeCommand(command)}: still running`, { completion: promise });
  };
  const { fault } = machine;
  const slowDownAgain = () => machine.fault = fault;
  return running;
}

for (const [erase, sizes] of [["discard", [40n, 16n, 8n]], ["zero", [3n, 1n, 1n]]] as const) {
  Deno.test(`Eraser continues after a command that outlasts its deadline, and erases no part twice: ${erase}`, async () => {
    const [size, chunk, last] = sizes;
    await using fixture = await setUp(size * GIB, { erase });
    const { machine, run, reaper } = fixture;
    const running = slowDown(machine);
    await run();
    for (let index = 0; index < 3; index++) {
      assertEquals(running.length, index + 1);
      await run();
      assertEquals(running.length, index + 1, "no second command runs beside it");
      await running[index]!.end();
      for (let turn = 0; turn < 10; turn++) await Promise.resolve();
      await reaper.idle();
    }
    const ranges = running.map(({ command: { args } }) => args.slice(args.indexOf("--offset") + 1, -1).join(" "));
    const expected = [[0n, chunk], [chunk, chunk], [2n * chunk, last]];
    assertEquals(ranges, expected.map(([offset, length]) => `${offset! * GIB} --length ${length! * GIB}`));
    assertEquals(machine.allLvs(), []);
  });
}

Deno.test("Eraser goes on with other LVs of a group while one hangs, but not when three do", async () => {
  await using fixture = await setUp(2n * GIB);
  const { machine, run, addDeleted } = fixture;
  for (const name of ["two", "three", "four", "five"]) await addDeleted(name);
  const hanging: string[] = [];
  let hangs = (path: string) => path === hanging[0];
  machine.fault = (command) => {
    const path = command.args.at(-1)!;
    if (command.program !== "blkdiscard") return undefined;
    if (hanging.length === 0 || hangs(path)) {
      hanging.push(path);
      throw new StorageError("StillRunning", "blkdiscard: still running", { completion: new Promise(() => {}) });
    }
    return undefined;
  };
  await run();
  assertEquals([machine.allLvs().length, hanging.length], [1, 1], "the others are erased and removed");
  hangs = () => true;
  for (const name of ["six", "seven", "eight", "nine"]) await addDeleted(name);
  await run();
  await run();
  assertEquals([machine.allLvs().length, new Set(hanging).size, hanging.length], [5, 3, 3]);
});

Deno.test("Eraser records each part that outlasts its deadline, so that a later process does not zero it again", async () => {
  await using fixture = await setUp(4n * GIB);
  const { machine, lv, run, reaper } = fixture;
  const running = slowDown(machine);
  await run();
  for (const parts of [1n, 2n]) {
    await running[Number(parts) - 1]!.end();
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    await reaper.idle();
    const recorded = [...lv.tags].filter((tag) => tag.startsWith("denolith.erased="));
    assertEquals(recorded, [`denolith.erased=${parts * GIB}`]);
  }
});

Deno.test("Eraser reports a discard that fails after its deadline, and does not repeat it", async () => {
  await using fixture = await setUp(GIB, { erase: "discard" });
  const { machine, run, reaper, errors } = fixture;
  const { promise, resolve } = Promise.withResolvers<unknown>();
  machine.fault = ({ program }) => {
    if (program !== "blkdiscard") return undefined;
    throw new StorageError("StillRunning", "blkdiscard: still running", { completion: promise });
  };
  await run();
  resolve({ ...ok(), code: 1, stderr: "blkdiscard: BLKDISCARD ioctl failed: Operation not supported" });
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  await reaper.idle();
  assertMatch(errors.at(-1)!, /not supported/);
  assertEquals(machine.allLvs(), []);
});

Deno.test("Eraser reports zeroing that fails after its deadline, and the LV is kept", async () => {
  await using fixture = await setUp(GIB);
  const { machine, run, reaper, errors } = fixture;
  const { promise, resolve } = Promise.withResolvers<unknown>();
  machine.fault = ({ program }) => {
    if (program !== "blkdiscard") return undefined;
    machine.fault = ({ program }) => program === "blkdiscard" ? failure(1, "blkdiscard: it failed again") : undefined;
    throw new StorageError("StillRunning", "blkdiscard: still running", { completion: promise });
  };
  await run();
  resolve({ ...ok(), code: 1, stderr: "blkdiscard: BLKZEROOUT ioctl failed: Input/output error" });
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  await reaper.stop();
  assertEquals(errors.filter((error) => error.includes("Input/output error")).length, 1, errors.join("\n"));
  assertEquals(machine.allLvs().length, 1);
});

for (const [again, offset] of [["once more", 0n], ["", GIB]] as const) {
  Deno.test(`Eraser continues where it was while an LV stays deleted, and begins ${again || "not"} again`, async () => {
    await using fixture = await setUp(3n * GIB, { retryMs: 60_000 });
    const { machine, lv, run } = fixture;
    const offsets: bigint[] = [];
    machine.fault = ({ program, args }) => {
      if (program !== "blkdiscard") return undefined;
      offsets.push(BigInt(args[args.indexOf("--offset") + 1]!));
      return offsets.length === 2 ? failure(1, "blkdiscard: it failed") : undefined;
    };
    await run();
    if (again) {
      const { tags } = lv;
      lv.tags = new Set([...tags].map((tag) => tag.replace(".deleted=", ".volume="))); // an administrator restores it
      await run();
      lv.tags = tags;
    }
    await run();
    assertEquals(offsets.slice(0, 3), [0n, GIB, offset]);
  });
}

Deno.test("Eraser begins again after a volume was rescued, used and deleted once more, also in another process", async () => {
  await using fixture = await setUp(40n * GIB);
  const { machine, lv, group, volumes, run } = fixture;
  const erased = `denolith.erased=${32n * GIB}`;
  lv.tags.add(erased);
  lv.tags.delete(`denolith.deleted=${id}`);
  for (const tag of [`denolith.volume=${id}`, "denolith.fs=raw"]) lv.tags.add(tag); // an administrator rescues it
  group.tags.add(`denolith.used=test:${id}:${lv.uuid}`);
  await volumes.delete(id);
  assertEquals(lv.tags.has(erased), false);
  await run();
  assertEquals([machine.allLvs(), [...group.residualData]], [[], []]);
});

for (
  const [what, reason, change, undo] of [
    ["is missing", /missing; attach them/, ({ group }) => group.missingPvs = 1, ({ group }) => group.missingPvs = 0],
    [
      "is not used by the kernel",
      /lvchange --refresh data\/vol-/,
      ({ lv }) => lv.raid!.refreshNeeded = true,
      ({ lv }) => lv.raid!.refreshNeeded = false,
    ],
    [
      "is synchronized",
      /is being synchronized/,
      ({ lv }) => lv.raid!.action = "recover",
      ({ lv }) => lv.raid!.action = "idle",
    ],
  ] as [
    string,
    RegExp,
    (of: Awaited<ReturnType<typeof setUp>>) => unknown,
    (of: Awaited<ReturnType<typeof setUp>>) => unknown,
  ][]
) {
  for (const during of [false, true]) {
    const when = during ? "while it is erased" : "before it is erased";
    Deno.test(`a deleted RAID volume, one of whose images ${what} ${when}, is kept until all are erased`, async () => {
      await using fixture = await setUp(GIB, { layout: RAID1 });
      const { machine, group, errors, reaper } = fixture;
      if (!during) change(fixture);
      machine.fault = ({ program }) => {
        if (program !== "blkdiscard" || !during) return undefined;
        machine.fault = undefined;
        change(fixture);
      };
      reaper.wake();
      await reaper.idle();
      assertEquals([machine.allLvs().length, errors.length], [1, 1]);
      assertMatch(errors[0]!, reason);
      assertMatch(errors[0]!, /lvchange --addtag denolith\.erase=none data\/vol-/);
      undo(fixture);
      fixture.lv.raid!.staleData = undefined; // it was synchronized
      reaper.wake();
      await reaper.idle();
      await reaper.stop();
      assertEquals([group.lvs, [...group.residualData]], [[], []]);
    });
  }
}

Deno.test("a deleted volume to which somebody attached a cache pool is kept until that is detached", async () => {
  await using fixture = await setUp(GIB);
  const { machine, lv, errors, run } = fixture;
  for (const type of ["cache", "writecache"]) {
    lv.segment = { type, stripes: 1, stripeSize: 0n };
    await run();
    assertEquals([machine.allLvs().length, [...lv.content.data]], [1, ["secret"]]);
    assertMatch(errors.at(-1)!, /a cache pool .*lvconvert --uncache data\/vol-/);
  }
  delete lv.segment;
  await run();
  assertEquals(machine.allLvs(), []);
});

Deno.test("a deleted RAID volume whose erasure was given up is removed without its missing image", async () => {
  await using fixture = await setUp(GIB, { layout: RAID1, erase: "discard" });
  const { machine, group, lv, errors, run } = fixture;
  group.missingPvs = 1;
  await run();
  const [, , ...command] = /give the erasure up \((\S+) (.*)\)/.exec(errors[0]!)!;
  await machine.run({ program: "lvm", args: ["lvchange", ...command[0]!.split(" ")], mutates: true });
  assertEquals([...lv.tags].filter((tag) => tag.startsWith("denolith.erase=")), ["denolith.erase=none"]);
  await run();
  assertEquals(machine.allLvs(), []);
});

Deno.test("Eraser writes no further when another device has taken the place of its LV's device", async () => {
  await using here = await setUp(3n * GIB, { retryMs: 60_000 });
  const { machine, lv, errors, run } = here;
  let chunks = 0;
  machine.fault = ({ program }) => {
    if (program === "blkdiscard" && ++chunks === 1) lv.minor = 99;
    return undefined;
  };
  await run();
  assertEquals(chunks, 1);
  assertMatch(errors.join("\n"), /verifying .*: it is device 253:99 .*, but LVM reports/);
  assertEquals(machine.allLvs().length, 1, "it is not removed");
});
