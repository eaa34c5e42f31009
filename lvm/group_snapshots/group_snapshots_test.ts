import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { machineWithVolumes, only, openDriver, thin, volumeRequest } from "../../tests/fake/machine/group_machine.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { guardsOf, setResumed, write } from "../../tests/fake/machine/suspension.ts";
import { nextTurn } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { Command, Output } from "../exec.ts";
import { groupSnapshotIdOf, type VolumeId, volumeIdOf } from "../../base/ids.ts";
import type { Machine } from "../machine.ts";

const MiB = 1n << 20n;
const ID = groupSnapshotIdOf("group");

const create = (machine: Machine, sources: readonly VolumeId[]) =>
  machine.groupSnapshots.create({ id: ID, sources, cowSize: { bytes: 8n * MiB } });

/** Returns the LVs of snapshots that are not deleted. */
const snapshotLvs = (fake: FakeMachine) =>
  fake.allLvs().map(({ lv }) => lv).filter(({ tags }) => [...tags].some((tag) => tag.startsWith("denolith.snapshot=")));

/** Runs before each command, once it is what a test waits for. */
function onCommand(
  fake: FakeMachine,
  pattern: RegExp,
  action: () => Output | undefined | Promise<Output | undefined>,
): void {
  fake.fault = async ({ program, args }: Command) => {
    if (!pattern.test([program, ...args].join(" "))) return undefined;
    fake.fault = undefined;
    return await action();
  };
}

Deno.test("a group snapshot has of writes that follow each other in its volumes no later one without the earlier", async () => {
  for (let start = 0; start < 12; start++) {
    const { fake, machine, sources, lvs } = await machineWithVolumes();
    let isEnding = false;
    let commands = 0;
    fake.fault = async () => {
      // the writer gets on between any two commands
      commands++;
      await nextTurn();
      return undefined;
    };
    const writer = (async () => {
      for (let count = 0; !isEnding; count++) {
        for (const lv of lvs) {
          await write(lv, `${count}`);
          if (count % 3 === start % 3) await nextTurn();
        }
        await nextTurn();
      }
    })();
    const { snapshots } = await create(machine, sources);
    isEnding = true;
    await writer;
    assert(commands > 10);
    const sets = snapshots.map(({ source }) => sources.indexOf(source)).map((index, at) => {
      const tag = `denolith.snapshot=${snapshots[at]!.id}`;
      return { index, data: fake.allLvs().find(({ lv }) => lv.tags.has(tag))!.lv.content.data };
    }).toSorted((x, y) => x.index - y.index).map(({ data }) => data.size);
    const [first, second, third] = sets as [number, number, number];
    assert(first >= second && second >= third && first - third <= 1, `${sets}`);
    assertEquals(lvs.map(({ suspended }) => suspended), [false, false, false]);
    assertEquals(guardsOf(fake).length, 0);
    await machine.background.stop();
  }
});

Deno.test("a group snapshot that was not taken in time leaves no volume suspended, and nothing of it", async () => {
  const { fake, machine, sources, lvs } = await machineWithVolumes();
  // the process that resumes devices does it, and the driver's command then comes too late
  onCommand(fake, /^lvm lvcreate .*a\//, async () => {
    assertEquals(lvs.map(({ suspended }) => suspended), [true, false, true]);
    guardsOf(fake)[0]!.expire();
    await nextTurn();
    assertEquals(lvs.map(({ suspended }) => suspended), [false, false, false]);
    return { code: 5, stdout: "", stderr: "  Cannot process" };
  });
  await assertRejects(() => create(machine, sources), StorageError, "Cannot process");
  assertEquals(snapshotLvs(fake), []);
  await machine.background.stop();
});

Deno.test("a group snapshot is given up when another program resumes a volume", async () => {
  const { fake, machine, sources, lvs } = await machineWithVolumes();
  onCommand(fake, /^dmsetup message .* create_snap/, () => {
    setResumed(lvs[2]!);
    return undefined;
  });
  const error = await assertRejects(() => create(machine, sources), StorageError, "another program has resumed it");
  assertEquals(error.kind, "Busy");
  assertEquals(lvs.map(({ suspended }) => suspended), [false, false, false]);
  assertEquals(snapshotLvs(fake), []);
  assertEquals((await create(machine, sources)).snapshots.length, 3);
  await machine.background.stop();
});

Deno.test("a volume is not suspended when find(1), which resumes it, cannot be started", async () => {
  const { fake, machine, sources } = await machineWithVolumes();
  fake.host.missing.add("find");
  let suspended = 0;
  const exec = fake.run.bind(fake);
  fake.run = (command) => {
    if (command.args[0] === "suspend") suspended++;
    return exec(command);
  };
  await assertRejects(() => create(machine, sources), StorageError, "find: not found");
  assertEquals(suspended, 0);
  assertEquals(snapshotLvs(fake), []);
  await machine.background.stop();
});

Deno.test("a volume is not suspended that is swap space, or on which there is another device", async () => {
  const { fake, machine, sources, lvs } = await machineWithVolumes();
  fake.host.swapLvs.add(lvs[0]!);
  await assertRejects(() => create(machine, sources), StorageError, "it is swap space of this machine");
  fake.host.swapLvs.clear();
  fake.host.holders.set(lvs[2]!, "/dev/mapper/crypt");
  await assertRejects(() => create(machine, sources), StorageError, "/dev/mapper/crypt is on it");
  assertEquals(snapshotLvs(fake), []);
  await machine.background.stop();
});

Deno.test("what is left of a failed group snapshot is removed soon when that fails at first, and again later", async () => {
  using time = new FakeTime();
  const { fake, machine, sources } = await machineWithVolumes();
  machine.background.start();
  await machine.background.idle();
  const before = fake.allLvs().length;
  let refusals = 3;
  fake.fault = ({ args }) => {
    const isLast = args[0] === "lvcreate" && args.some((arg) => arg.includes(sources[2]!.slice(3)));
    const isRemoval = args[0] === "lvchange" && args.some((arg) => arg.startsWith("denolith.deleted"));
    return isLast || (isRemoval && refusals-- > 0) ? { code: 5, stdout: "", stderr: "  no" } : undefined;
  };
  await assertRejects(() => create(machine, sources), StorageError, "no");
  assertEquals([snapshotLvs(fake).length, refusals], [2, 2]);
  for (const [ms, left] of [[4_999, 2], [1, 2], [60_000, 2], [60_000, 0]] as const) {
    time.tick(ms);
    await machine.background.idle();
    assertEquals(snapshotLvs(fake).length, left);
  }
  assertEquals(fake.allLvs().length, before);
  await machine.background.stop();
});

// the dead drivers leave the timers of their deadlines
const DEAD_DRIVERS = { sanitizeOps: false, sanitizeResources: false };

Deno.test("a group snapshot is complete or removed, whenever the driver dies", DEAD_DRIVERS, async () => {
  for (let last = 1;; last++) {
    const { fake, machine, sources, lvs } = await machineWithVolumes();
    let commands = 0;
    const died = Promise.withResolvers<void>();
    const exec = fake.run.bind(fake);
    fake.run = (command) => {
      if (command.program === "find") return exec(command); // it outlives the driver
      if (++commands === last) died.resolve();
      return commands >= last ? new Promise(() => {}) : exec(command); // a dead driver starts nothing
    };
    const outcome = await Promise.race([create(machine, sources), died.promise.then(() => "died" as const)]);
    void machine.background.stop(); // it would go on with its timers in the next tests
    fake.run = exec;
    for (const guard of guardsOf(fake)) guard.expire();
    await nextTurn();
    assertEquals(lvs.map(({ suspended }) => suspended), [false, false, false], `killed before command ${last}`);
    const next = openDriver(fake);
    next.background.start();
    await next.background.idle();
    const left = snapshotLvs(fake).length;
    assert(left === 0 || left === 3, `killed before command ${last}: ${left} snapshots`);
    assertEquals((await create(next, sources)).snapshots.length, 3);
    assertEquals(snapshotLvs(fake).length, 3);
    await next.groupSnapshots.delete(ID, []);
    await next.background.idle();
    assertEquals(snapshotLvs(fake), []);
    await next.background.stop();
    if (outcome !== "died") break;
    assert(last < 60);
  }
});

Deno.test("no other change of a volume group comes between the snapshots of a group", async () => {
  const { fake, machine, sources } = await machineWithVolumes();
  const ended: string[] = [];
  let other: Promise<unknown> = Promise.resolve();
  onCommand(fake, /^dmsetup suspend a-/, () => {
    other = machine.volumes.expand(volumeIdOf("three"), { required: 64n * MiB }).then(
      () => ended.push("extended"),
      () => {
        ended.push("refused");
      },
    );
    return undefined;
  });
  await create(machine, sources).then(() => ended.push("created"), () => ended.push("failed"));
  await other;
  assert(ended.length === 2);
  await machine.background.stop();
});

Deno.test("two group snapshots of thin volumes in the same groups do not wait for each other", async () => {
  const { fake, machine } = await machineWithVolumes();
  const create = (name: string, ...volumes: string[]) =>
    machine.groupSnapshots.create({
      ...{ id: groupSnapshotIdOf(name), sources: volumes.map(volumeIdOf), cowSize: { bytes: 8n * MiB } },
    });
  for (const group of ["a", "b"]) {
    for (const name of ["x", "y"]) {
      await machine.volumes.create(volumeRequest(group + name, { groups: only(group), thin }));
    }
  }
  const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  onCommand(fake, /^lvm lvcreate /, () => {
    begun.resolve();
    return gate.promise.then(() => undefined);
  });
  // which has the pools of the first group until each request has the place that it asked for first
  const other = machine.volumes.create(volumeRequest("other", { groups: only("a"), thin }));
  await begun.promise;
  let ended = 0;
  for (const created of [create("x", "ax", "bx"), create("y", "by", "ay")]) void created.then(() => ended++);
  for (let turn = 0; turn < 100; turn++) await nextTurn();
  gate.resolve();
  await other;
  for (let turn = 0; turn < 1000 && ended < 2; turn++) await nextTurn();
  assertEquals(ended, 2);
  await machine.background.stop();
});

Deno.test("inactive thin volumes, of which a reservation activates one, get a group snapshot", async () => {
  const { fake, machine } = await machineWithVolumes();
  await machine.volumes.create(volumeRequest("four", { groups: only("b"), thin }));
  for (const { lv } of fake.allLvs()) lv.active = false;
  let messages = 0;
  const exec = fake.run.bind(fake);
  fake.run = (command) => {
    if (command.program === "dmsetup" && command.args[0] === "message") messages++;
    return exec(command);
  };
  const { snapshots } = await create(machine, ["two", "four"].map(volumeIdOf));
  assertEquals(snapshots.length, 2);
  assertEquals(messages, 2); // a pool that no LV has open is not active, and gets none
  await machine.background.stop();
});

Deno.test("a group snapshot that cannot be read keeps no other one from being removed after a crash", async () => {
  const { fake, machine, sources } = await machineWithVolumes();
  const ids = ["one", "two", "three"].map(groupSnapshotIdOf).toSorted();
  for (const id of ids) {
    await machine.groupSnapshots.create({ id, sources: [sources[0]!], cowSize: { bytes: 8n * MiB } });
    for (const { tags } of snapshotLvs(fake)) {
      if (tags.delete(`denolith.group=${id}:1`)) tags.add(`denolith.group=${id}:1:new`);
    }
  }
  // two LVs claim to be the same snapshot
  const twins = snapshotLvs(fake).filter(({ tags }) => tags.has(`denolith.group=${ids[0]}:1:new`));
  fake.groups[1]!.lvs.push({ ...twins[0]!, name: "twin", uuid: "twin", tags: new Set(twins[0]!.tags) });
  await assertRejects(
    () => machine.lvm.report().then((groups) => machine.groupSnapshots.removeUnconfirmed(groups)),
    StorageError,
    "both claim to be it",
  );
  assertEquals(snapshotLvs(fake).length, 2);
  await machine.background.stop();
});

Deno.test("what is left of a group snapshot is not removed while it is being created, and is after that", async () => {
  const { fake, machine, sources } = await machineWithVolumes();
  const left: number[] = [];
  onCommand(fake, /^dmsetup message .* create_snap/, async () => {
    await machine.groupSnapshots.removeUnconfirmed(await machine.lvm.report());
    left.push(snapshotLvs(fake).length);
    return undefined;
  });
  const { snapshots } = await create(machine, sources);
  assertEquals([left, snapshotLvs(fake).length], [[1], 3]);
  // as if the driver had died before it recorded that the last one is complete
  const last = snapshotLvs(fake).find(({ tags }) => tags.has(`denolith.snapshot=${snapshots.at(-1)!.id}`))!;
  last.tags = new Set([...last.tags].map((tag) => tag.endsWith(":3") ? `${tag}:new` : tag));
  await machine.groupSnapshots.removeUnconfirmed(await machine.lvm.report());
  assertEquals(snapshotLvs(fake), []);
  await machine.background.stop();
});

Deno.test("a group snapshot is given up when another volume has the name and the id of its own meanwhile", async () => {
  const { fake, machine, sources, lvs } = await machineWithVolumes();
  fake.fault = ({ args }) => {
    if (args[0] === "fullreport" && snapshotLvs(fake).length === 3) lvs[0]!.uuid = "another";
    return undefined;
  };
  await assertRejects(
    () => create(machine, sources),
    StorageError,
    "was renamed, resumed, extended or deleted meanwhile",
  );
  await machine.background.stop();
});

Deno.test("a group snapshot does not exceed the virtual size of a pool", async () => {
  const fake = new FakeMachine();
  fake.addGroup("a", 1024n * MiB);
  const machine = openDriver(fake);
  const thin = { poolSize: { bytes: 64n * MiB } };
  await machine.volumes.create(volumeRequest("thin", { range: { required: 48n * MiB }, thin }));
  const error = await assertRejects(() => create(machine, [volumeIdOf("thin")]), StorageError);
  assertEquals([error.kind, snapshotLvs(fake)], ["NoSpace", []]);
  await machine.background.stop();
});

Deno.test("before volumes are suspended their files are written out, or their devices if they have none", async () => {
  const fake = new FakeMachine();
  fake.addGroup("a", 1024n * MiB);
  const machine = openDriver(fake);
  const unformatted = { state: "unformatted", type: "ext4" } as const;
  for (const name of ["mounted", "idle"]) await machine.volumes.create(volumeRequest(name, { format: unformatted }));
  await machine.volumes.create(volumeRequest("raw"));
  const { lv } = fake.allLvs()[0]!;
  fake.mounts.push({
    ...{ target: "/pods/one", source: `/dev/mapper/a-${lv.name.replaceAll("-", "--")}`, fsType: "ext4", root: "/" },
    ...{ readOnly: false, filesystemReadOnly: false, deviceNumber: `253:${lv.minor}`, lv, flags: [] },
  });
  const synced: [boolean, string][] = [];
  fake.fault = ({ program, args, mutates }) => {
    if (program === "sync" && !args[0]!.startsWith("/dev/fake")) synced.push([mutates, args.join(" ")]);
    return undefined;
  };
  await create(machine, ["mounted", "idle", "raw"].map(volumeIdOf));
  const written = synced.filter(([, args]) => /file-system|mapper/.test(args));
  assertEquals(written.map(([mutates, args]) => [mutates, args.replace(/vol--.*/, "")]), [
    [true, "--file-system /pods/one"],
    [true, "/dev/mapper/a-"],
  ]);
  await machine.background.stop();
});
