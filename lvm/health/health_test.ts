import { assert, assertEquals, assertMatch } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { endSync } from "../../tests/fake/machine/pvs.ts";
import { Lvm } from "../client/client.ts";
import { CACHE_PV, poolTags } from "../model/tags.ts";
import { healthStatus, problemOf, storageProblems, volumeProblems } from "./health.ts";
import type { Mount } from "../host/mounts.ts";
import type { VolumeGroup } from "../model/report.ts";
import { parseReport } from "../model/report_parser.ts";
import { REPORT_COMMAND } from "../model/report_command.ts";

const DRIVER = "d";

/** Returns a group of two physical volumes: a linear LV on the first, a raid1 LV on both, and a thin LV. */
async function machineOfThree() {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  const lvcreate = async (...args: string[]) => {
    const { code, stderr } = await machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args], mutates: true });
    assertEquals(code, 0, stderr);
  };
  const size = `${32 << 20}b`;
  await lvcreate("--size", size, "--name", "linear", "data");
  await lvcreate("--type", "raid1", "--mirrors", "1", "--size", size, "--name", "raid1", "data");
  const tags = poolTags(DRIVER).flatMap((tag) => ["--addtag", tag]);
  await lvcreate("--type", "thin-pool", "--zero", "y", "--name", "pool", "--size", `${64 << 20}b`, ...tags, "data");
  await lvcreate("--type", "thin", "--thinpool", "pool", "--virtualsize", size, "--name", "thin", "data");
  endSync(group);
  const [linear, raid1, pool] = ["linear", "raid1", "pool"].map((name) => group.lvs.find((lv) => lv.name === name)!);
  const report = async () => parseReport((await machine.run(REPORT_COMMAND)).stdout)[0]!;
  return { group, linear: linear!, raid1: raid1!, pool: pool!.thinPool!, report };
}

/** Returns the problems of an LV of the group, as status and reason. */
function problems(group: VolumeGroup, name: string, mounts: readonly Mount[] = []): string[] {
  const lv = group.lvs.find((lv) => lv.name === name)!;
  const found = volumeProblems({ lv, group }, mounts);
  const reasons = found.map(({ reason }) => reason);
  assertEquals(new Set(reasons).size, reasons.length, "each reason once");
  for (const { message } of found) assert(message.includes(" "), message);
  return reasons.map((reason) => `${healthStatus(reason)} ${reason}`);
}

Deno.test("volumeProblems() finds nothing on a healthy machine", async () => {
  const { report } = await machineOfThree();
  const group = await report();
  for (const name of ["linear", "raid1", "thin"]) assertEquals(problems(group, name), []);
  assertEquals(storageProblems([group], DRIVER), []);
});

Deno.test("a missing physical volume makes a linear volume inaccessible and a raid1 volume degraded; two make both inaccessible", async () => {
  const { group, raid1, report } = await machineOfThree();
  const lvOf = (reported: VolumeGroup, name: string) => reported.lvs.find((lv) => lv.name === name)!;
  group.missingPvs = 1;
  const one = await report();
  assertEquals(problems(one, "linear"), ["Inaccessible Partial", "Degraded PhysicalVolumesMissing"]);
  raid1.raid!.syncPercent = 25;
  for (const { message } of volumeProblems({ lv: lvOf(await report(), "raid1"), group: one }, [])) {
    assert(!message.includes("undefined"), message);
  }
  raid1.raid!.syncPercent = 100;
  assertEquals(problems(one, "raid1"), ["Degraded Degraded", "Degraded PhysicalVolumesMissing"]);
  group.missingPvs = 2;
  assertEquals(problems(await report(), "raid1"), ["Inaccessible RaidFailed", "Degraded PhysicalVolumesMissing"]);
});

Deno.test("volumeProblems() reports a cache that fails, by LVM's words", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 256n << 20n, 4n << 20n, 2);
  group.pvs[1]!.tags = new Set([CACHE_PV]);
  const run = (...args: string[]) => machine.run({ program: "lvm", args, mutates: true });
  const size = ["--size", `${16n << 20n}b`];
  await run(
    "lvcreate",
    "--yes",
    "--zero",
    "n",
    "--wipesignatures",
    "n",
    "--activate",
    "n",
    "--name",
    "c",
    ...size,
    "data",
  );
  await run("lvcreate", "--yes", "--type", "writecache", "--cachevol", "c", "--name", "v", ...size, "data");
  const { lv } = machine.allLvs()[0]!;
  for (
    const [word, expected] of [
      ["", []],
      ["error", ["Inaccessible CacheFailed"]],
      ["failed", ["Inaccessible CacheFailed"]],
      ["metadata_read_only", ["Degraded CacheReadOnly"]],
    ] as const
  ) {
    lv.cacheHealth = word;
    const report = await new Lvm(machine).report();
    const problems = volumeProblems({ lv: report[0]!.lvs[0]!, group: report[0]! }, []);
    assertEquals(problems.map(({ reason }) => `${healthStatus(reason)} ${reason}`), [...expected], word);
  }
});

Deno.test("problems of RAID images are reported by their state", async () => {
  const { raid1, report } = await machineOfThree();
  raid1.raid!.syncPercent = 25;
  const rebuilding = await report();
  assertEquals(problems(rebuilding, "raid1"), ["Degraded Rebuilding"]);
  const lv = rebuilding.lvs.find(({ name }) => name === "raid1")!;
  for (const { message } of volumeProblems({ lv, group: rebuilding }, [])) assert(!/undefined$/.test(message), message);
  raid1.raid!.refreshNeeded = true;
  const group = await report();
  assertEquals(problems(group, "raid1"), ["Degraded RefreshNeeded"]);
  const [problem] = volumeProblems({ lv: group.lvs.find(({ name }) => name === "raid1")!, group }, []);
  assertMatch(problem!.message, /lvchange --refresh data\/raid1/);
});

Deno.test("a thin pool that is near full, full or damaged is reported for its volumes, and for the node's storage", async () => {
  const { pool, report } = await machineOfThree();
  const storage = async () =>
    storageProblems([await report()], DRIVER).map(({ status, reason }) => `${status} ${reason}`);
  pool.dataPercent = 85;
  assertEquals([problems(await report(), "thin"), await storage()], [["Degraded ThinPoolNearFull"], [
    "Degraded ThinPoolNearFull",
  ]]);
  pool.dataPercent = 100;
  assertEquals([problems(await report(), "thin"), await storage()], [["Degraded ThinPoolFull"], [
    "Degraded ThinPoolFull",
  ]]);
  pool.health = "failed";
  assertEquals([problems(await report(), "thin"), await storage()], [["Inaccessible ThinPoolDamaged"], [
    "Degraded ThinPoolDamaged",
  ]]);
  assertEquals(problems(await report(), "linear"), [], "it is not in the pool");
  assertEquals(storageProblems([await report()], "another"), [], "nor is anything of another driver");
});

Deno.test("a group that does not respond is unreachable, and reports nothing else about its volumes", async () => {
  const { group, pool, report } = await machineOfThree();
  group.missingPvs = 1;
  pool.dataPercent = 100;
  const unresponsive = { ...await report(), responsive: false };
  for (const name of ["linear", "raid1", "thin"]) {
    assertEquals(problems(unresponsive, name), ["Inaccessible VolumeGroupUnresponsive"]);
  }
  assertEquals(storageProblems([unresponsive], DRIVER).map(({ status, reason }) => [status, reason]), [[
    "Unreachable",
    "VolumeGroupUnresponsive",
  ]]);
});

Deno.test("storageProblems() returns each reason once, and names all groups", async () => {
  const { report } = await machineOfThree();
  const group = await report();
  const [missing, readOnly] = storageProblems([
    { ...group, missingPvs: 1 },
    { ...group, name: "other", missingPvs: 2 },
    { ...group, name: "old", writeable: false },
  ], DRIVER);
  assertEquals([missing!.reason, readOnly!.reason], ["PhysicalVolumesMissing", "VolumeGroupReadOnly"]);
  assertMatch(missing!.message, /group data has 1 .*; volume group other has 2 /);
  assertMatch(readOnly!.message, /group old is read-only/);
});

Deno.test("a filesystem that the kernel made read-only is reported, one that was mounted read-only is not", async () => {
  const { report } = await machineOfThree();
  const group = await report();
  const lv = group.lvs.find(({ name }) => name === "linear")!;
  const mount = (readOnly: boolean, filesystemWritable: boolean): Mount => ({
    ...{ target: "/mnt", source: lv.devicePath, fsType: "ext4", root: "/", readOnly, filesystemWritable },
    flags: [readOnly ? "ro" : "rw", "relatime"],
    deviceNumber: lv.deviceNumber!,
  });
  assertEquals(problems(group, "linear", [mount(false, true), mount(true, true)]), []);
  assertEquals(problems(group, "linear", [mount(true, false)]), [], "mount -o ro");
  assertEquals(problems(group, "linear", [mount(true, false), mount(false, false)]), ["Degraded FilesystemReadOnly"]);
  assertEquals(problems(group, "raid1", [mount(false, false)]), [], "it is another volume's");
});

Deno.test("problemOf() reports data loss for Lost, and no problem for Busy", () => {
  const reasonOf = (kind: Parameters<typeof problemOf>[0]["kind"]) => problemOf({ kind, message: "m" })?.reason;
  assertEquals([reasonOf("Lost"), reasonOf("ForeignData"), reasonOf("Busy"), reasonOf("NotFound")], [
    "Lost",
    "ForeignData",
    undefined,
    undefined,
  ]);
  assertEquals(healthStatus("Lost"), "DataLoss");
});
