import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import { endSync } from "../../tests/fake/machine/pvs.ts";
import { FakeMachine, newUuid } from "../../tests/fake/machine/machine.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, type VolumeId, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { findOrphanLvs, type KnownObjects } from "../inventory/inventory.ts";
import { readStatus, type Status } from "./status.ts";
import { statusText } from "./text.ts";
import { readSurvey } from "../model/survey.ts";
import { usedTag, volumeTags } from "../model/tags.ts";
import { addInconsistencies, DRIVER, type Healthy, statusOf } from "../../tests/fake/machine/status_machine.ts";

Deno.test("readStatus() returns groups, volumes with their mounts and usage, and snapshots, with four commands", async () => {
  const healthy = healthyMachine();
  const commands: string[] = [];
  healthy.machine.fault = ({ program, mutates, deadlineMs }) =>
    void commands.push(`${program} ${mutates} ${deadlineMs}`);
  const { id, snapshotId, group, lv, snapshot } = healthy;
  assertEquals(await statusOf(healthy), {
    driver: DRIVER,
    groups: [{
      name: "data",
      uuid: group.uuid,
      size: 1n << 30n,
      free: 944n << 20n,
      spare: 0n,
      used: 80n << 20n,
      metadata: { size: 1044480n, free: 518918n },
      physicalVolumes: { count: 1, missing: 0 },
      writeable: true,
    }],
    pools: [],
    volumes: [{
      id,
      state: "Ready",
      group: "data",
      lv: lv.name,
      size: 64n << 20n,
      layout: "linear",
      format: "ext4",
      formatState: "formatted",
      active: true,
      mounts: [{ target: "/staging", readOnly: false }],
      usage: {
        bytes: { total: 64n << 20n, used: 4096n, available: (64n << 20n) - 4096n },
        inodes: { total: 8192n, used: 11n, available: 8181n },
      },
    }],
    snapshots: [{
      id: snapshotId,
      source: id,
      group: "data",
      lv: snapshot.name,
      size: 64n << 20n,
      cowSize: 16n << 20n,
      cowPercent: 0,
      state: "Ready",
      createdAt: 1,
    }],
    deleted: [],
    inconsistencies: [],
    orphans: [],
  });
  assertEquals(commands.toSorted(), ["df false 20000", "findmnt false 20000", "lvm false 20000"]);
});

Deno.test("readStatus() returns Lost, Inconsistent and Partial volumes, overflowed snapshots and inconsistencies", async () => {
  const healthy = healthyMachine();
  addInconsistencies(healthy);
  healthy.snapshot.invalid = true;
  const { volumes, snapshots, inconsistencies } = await statusOf(healthy);
  assertEquals(
    Object.fromEntries(volumes.map(({ id, state }) => [id, state])),
    {
      [healthy.id]: "Ready",
      [volumeIdOf("gone")]: "Lost",
      [volumeIdOf("twice")]: "Inconsistent",
      [volumeIdOf("raw")]: "Partial",
    },
  );
  assertMatch(volumes.find(({ state }) => state === "Lost")!.problem!, /^Lost: /);
  assertEquals(volumes.find(({ state }) => state === "Partial")!.mounts, [{ target: "/block", readOnly: true }]);
  assertEquals(volumes.find(({ state }) => state === "Partial")!.format, "block");
  assertEquals(snapshots.map(({ state }) => state), ["Overflowed"]);
  assertEquals(inconsistencies.map(({ kind, subject }) => `${kind} ${subject}`), [
    "duplicate data/twice-a",
    "duplicate data/twice-b",
    "unreadable data/odd",
    `untagged data/${volumeLvName(volumeIdOf("bare"))}`,
    `dangling ${usedTag(DRIVER, volumeIdOf("gone"), "gone-uuid")}`,
    `dangling denolith.used=${DRIVER}:odd`,
  ]);
});

Deno.test("readStatus() of a copy on a missing physical volume reports both, and the damage first", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  const source = { kind: "snapshot", id: snapshotIdOf("cut") } as const;
  const lvcreate = async (id: VolumeId, ...layout: string[]) => {
    const format = { state: "raw" } as const;
    const tags = volumeTags(DRIVER, { id, format, mkfsOptions: [], shared: true, erase: "zero", source });
    const args = ["--name", volumeLvName(id), "--size", `${64 << 20}b`, ...tags.flatMap((tag) => ["--addtag", tag])];
    await machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args, ...layout, "data"], mutates: true });
  };
  const [redundant, plain] = [volumeIdOf("redundant"), volumeIdOf("plain")];
  await lvcreate(redundant, "--type", "raid1", "--mirrors", "1");
  await lvcreate(plain);
  endSync(group);
  const reported = async () => {
    const { volumes } = await readStatus({ exec: machine, driver: DRIVER });
    return Object.fromEntries(
      volumes.map(({ id, state, syncPercent, problem = "" }) => [id, [state, syncPercent, problem] as const]),
    );
  };
  const copying = `it is still being copied from snapshot ${source.id}: at least 0 B copied`;
  assertEquals(await reported(), { [redundant]: ["Copying", 100, copying], [plain]: ["Copying", undefined, copying] });
  group.lvs[0]!.raid!.syncPercent = 25;
  group.lvs[0]!.raid!.action = "resync";
  const [state, syncPercent, problem] = (await reported())[redundant]!;
  assertEquals([state, syncPercent], ["Rebuilding", 25]);
  assertMatch(problem, new RegExp(`^its images are being synchronized.*; ${copying}$`));
  group.missingPvs = 1;
  const degraded = await reported();
  assertEquals([degraded[redundant]![0], degraded[plain]![0]], ["Degraded", "Partial"]);
  for (const [, , problem] of Object.values(degraded)) assertMatch(problem, /missing.*; it is still being copied from/);
});

Deno.test("readStatus() returns deleted LVs that are not yet removed, and an incomplete snapshot", async () => {
  const healthy = healthyMachine();
  const { group, lv, snapshot } = healthy;
  const old = volumeIdOf("old");
  const tags = new Set([`denolith=${DRIVER}`, `denolith.deleted=${old}`]);
  group.lvs.push({ ...lv, name: volumeLvName(old), uuid: newUuid(), tags, active: false });
  const { origin: _, ...cow } = snapshot;
  group.lvs.splice(group.lvs.indexOf(snapshot), 1, cow);
  const found = await statusOf(healthy);
  assertEquals(found.deleted, [{ id: old, group: "data", lv: volumeLvName(old), size: lv.size, erase: "zero" }]);
  assertEquals([found.snapshots.map(({ state }) => state), found.inconsistencies], [["Incomplete"], []]);
  assertMatch(statusText(found), /\nDeleted, to be erased and removed\n.*\n.*v1-[0-9a-f]{32} +data +64 MiB +zero\n?/);
});

Deno.test("readStatus() returns orphans with the command that deletes them, and known volumes that are missing", async () => {
  const healthy = healthyMachine();
  const { machine, id, snapshotId, lv, snapshot } = healthy;
  const [missing, planned, away] = [volumeIdOf("missing"), volumeIdOf("planned"), volumeIdOf("away")];
  const removeCommand = (uuid: string) => `give up ${uuid}`;
  const readKnown = (known: Omit<KnownObjects, "removeCommand">) =>
    readStatus({ exec: machine, driver: DRIVER, known: { ...known, removeCommand } });
  const gone = { lvUuid: "gone-uuid", groupName: "data" };
  const recorded = [[missing, gone], [away, { ...gone, groupName: "pulled" }]] as const;
  const volumes = new Map([[id, undefined], [planned, undefined], ...recorded]);
  const all = await readKnown({ volumes, snapshots: new Set([snapshotId]) });
  assertEquals(all.orphans, []);
  const states = (status: Status) => Object.fromEntries(status.volumes.map(({ id, state }) => [id, state]));
  assertEquals(states(all), { [id]: "Ready", [missing]: "Lost", [away]: "Lost" });

  const none = await readKnown({ volumes: new Map(), snapshots: new Set() });
  const orphan = { group: "data", uuid: lv.uuid, size: lv.size, lvFullName: `data/${lv.name}` };
  assertEquals(none.orphans, [
    { ...orphan, taggedAs: { kind: "volume", id, removeCommand: removeCommand(lv.uuid) } },
    {
      ...{ group: "data", uuid: snapshot.uuid, size: snapshot.size, lvFullName: `data/${snapshot.name}` },
      taggedAs: { kind: "snapshot", id: snapshotId, removeCommand: removeCommand(snapshot.uuid) },
    },
  ]);
  assertEquals(states(none), { [id]: "Ready" }, "it is there all the same");
  const text = statusText(none).split("\nOrphans\n")[1]!;
  assertMatch(text, /^ {2}data\/vol-[0-9a-f]{32}: 64 MiB, volume v1-[0-9a-f]{32}/);
  assert(text.includes(`\n      give up ${lv.uuid}\n`), text);
});

Deno.test("findOrphanLvs() leaves out deleted LVs and those of others, and returns those with unreadable tags", async () => {
  const healthy = healthyMachine();
  addInconsistencies(healthy);
  const { group, lv, id, snapshotId, machine } = healthy;
  const deleted = new Set([`denolith=${DRIVER}`, `denolith.deleted=${volumeIdOf("old")}`]);
  group.lvs.push({ ...lv, name: "old", uuid: newUuid(), tags: deleted, active: false });
  const known = { volumes: new Map([[id, undefined]]), snapshots: new Set([snapshotId]), removeCommand: String };
  const { groups } = await readSurvey(machine);
  assertEquals(findOrphanLvs(groups, DRIVER, known).map(({ lvFullName, taggedAs }) => [lvFullName, taggedAs?.id]), [
    ["data/twice-a", volumeIdOf("twice")],
    ["data/twice-b", volumeIdOf("twice")],
    ["data/odd", undefined],
    [`fast/${volumeLvName(volumeIdOf("raw"))}`, volumeIdOf("raw")],
  ]);
  assertEquals(findOrphanLvs(groups, "other.driver", known), []);
});

Deno.test("readStatus() shows the groups in use, or the requested ones, and searches volumes in all", async () => {
  const healthy = healthyMachine();
  const idle = healthy.machine.addGroup("idle", 1n << 30n);
  assertEquals((await statusOf(healthy)).groups.map(({ name }) => name), ["data"]);
  const other = await statusOf(healthy, "idle");
  assertEquals([other.groups.map(({ name }) => name), other.volumes, other.snapshots], [["idle"], [], []]);

  idle.lvs.push({ ...healthy.lv, name: "copy", uuid: newUuid(), active: false });
  const { volumes, inconsistencies } = await statusOf(healthy, "idle");
  assertEquals([volumes.map(({ state }) => state), inconsistencies.map(({ subject }) => subject)], [["Inconsistent"], [
    "idle/copy",
  ]]);
});

Deno.test("readStatus() fails when it is not root, or the report or the mount table cannot be read", async () => {
  const cases: [(healthy: Healthy) => unknown, StorageError["kind"]][] = [
    [({ machine }) => machine.host.root = false, "FailedPrecondition"],
    [({ machine }) => machine.host.missing.add("lvm"), "Unavailable"],
    [({ machine }) => machine.host.missing.add("findmnt"), "Unavailable"],
    [
      ({ machine }) =>
        machine.fault = ({ program }) => program === "lvm" ? { code: 5, stdout: "", stderr: "" } : undefined,
      "CommandFailed",
    ],
  ];
  for (const [damage, kind] of cases) {
    const healthy = healthyMachine();
    damage(healthy);
    assertEquals((await assertRejects(() => statusOf(healthy), StorageError)).kind, kind);
  }
});

Deno.test("readStatus() returns the progress of a copy from the cluster, or else the recorded one", async () => {
  const healthy = healthyMachine();
  const { group, lv, machine, snapshotId } = healthy;
  const id = volumeIdOf("copy");
  const source = { kind: "snapshot", id: snapshotId } as const;
  const format = { state: "unformatted", type: "ext4" } as const;
  const tags = volumeTags(DRIVER, { id, format, mkfsOptions: [], shared: true, erase: "zero", source });
  group.lvs.push({ ...lv, name: volumeLvName(id), uuid: newUuid(), tags: new Set(tags), minor: machine.nextMinor() });
  const total = 64n << 20n;
  const local = await statusOf(healthy);
  const copyIn = ({ volumes }: Status) => volumes.find((volume) => volume.id === id)!;
  assertEquals([copyIn(local).state, copyIn(local).copy], ["Copying", { copied: 0n, total }]);
  assertMatch(copyIn(local).problem!, /copied from snapshot v1-\S+: at least 0 B of 64 MiB copied$/);

  const copy = { copied: 16n << 20n, total, lastError: "a disk hangs" };
  const reported = new Map([[
    id as string,
    { limits: { readIops: "max" }, limitsProblem: "no cgroup", copy } as const,
  ]]);
  const more = await readStatus({ exec: machine, driver: DRIVER, reported });
  assertEquals([copyIn(more).copy, copyIn(more).ioLimits], [copy, { readIops: "max" }]);
  assertMatch(
    copyIn(more).problem!,
    /: 16 MiB of 64 MiB copied, and it does not continue: a disk hangs; its IO limits do not apply: no/,
  );
  assertMatch(statusText(more), /Copying 25 %\n/);
});
