import { assertEquals, assertRejects } from "@std/assert";
import disks from "../../tests/fixtures/doctor/lsblk_disks.json" with { type: "text" };
import info from "../../tests/fixtures/doctor/dmsetup_info.txt" with { type: "text" };
import targets from "../../tests/fixtures/doctor/dmsetup_targets.txt" with { type: "text" };
import df from "../../tests/fixtures/doctor/df_several.txt" with { type: "text" };
import findmnt from "../../tests/fixtures/doctor/findmnt_deleted.json" with { type: "text" };
import version from "../../tests/fixtures/doctor/lvm_version.txt" with { type: "text" };
import {
  MappedDeviceReader,
  readDmTargets,
  readLvmVersion,
  readMappedDevices,
  readPoolUsage,
} from "./device_mapper.ts";
import { readDisks } from "./disks.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { isDriverDeviceName } from "../../base/ids.ts";
import { isDeletedNodeMount, isDriverVolumeMount, readMounts, readUsages } from "./mounts.ts";

function execReturning(stdout: string, code = 0): Exec {
  return { run: () => Promise.resolve({ code, stdout, stderr: "" }), idle: () => Promise.resolve() };
}

Deno.test("readMappedDevices() asks again when a device goes while dmsetup lists them, some times", async () => {
  const outputs = [[1, "Device does not exist.\nCommand failed."], [0, ""], [1, "no permission"]] as const;
  let count = 0;
  const exec = (from: (index: number) => readonly [number, string]): Exec => ({
    run: () => {
      const [code, stderr] = from(count++);
      return Promise.resolve({ code, stdout: "a|LVM-a|253:1|Active||Live\n", stderr });
    },
    idle: () => Promise.resolve(),
  });
  assertEquals((await readMappedDevices(exec((index) => outputs[index]!))).map(({ name }) => name), ["a"]);
  await assertRejects(() => readMappedDevices(exec(() => outputs[2])), StorageError, "no permission");
  count = 0;
  await assertRejects(() => readMappedDevices(exec(() => outputs[0])), StorageError, "does not exist");
  assertEquals(count, 5);
});

Deno.test("MappedDeviceReader reads one device by its name, and all of them for callers that ask at the same time", async () => {
  const commands: string[] = [];
  const output = (name: string) => `${name}|LVM-${name}|253:1|Active||Live\n`;
  const reader = new MappedDeviceReader({
    run: ({ args }) => {
      const name = args.at(-1)!;
      const isAll = name.includes(",");
      commands.push(isAll ? "all" : name);
      if (name === "gone") return Promise.resolve({ code: 1, stdout: "", stderr: "Device does not exist." });
      return Promise.resolve({ code: 0, stdout: isAll ? output("a") + output("b") : output(name), stderr: "" });
    },
    idle: () => Promise.resolve(),
  });
  const uuids = async (...names: string[]) =>
    (await Promise.all(names.map((name) => reader.read(name)))).map((device) => device?.uuid);
  assertEquals([await uuids("a"), await uuids("gone")], [["LVM-a"], [undefined]]);
  assertEquals(await uuids("a", "gone", "b"), ["LVM-a", undefined, "LVM-b"]);
  const [first, ...others] = [uuids("a"), Promise.resolve().then(() => uuids("b"))];
  assertEquals([await first, ...await Promise.all(others)], [["LVM-a"], ["LVM-b"]]);
  assertEquals(commands, ["a", "gone", "all", "a", "b"]);
});

Deno.test("the output of dmsetup 1.02.185 and lvm 2.03.16 is parsed", async () => {
  assertEquals(await readLvmVersion(execReturning(version)), { lvm: "2.03.16", dmDriver: "4.47.0" });
  assertEquals(await readLvmVersion(execReturning(version.replace(/.*Driver version.*\n/, ""))), { lvm: "2.03.16" });
  await assertRejects(() => readLvmVersion(execReturning("")), StorageError, "lvm version");
  const found = await readDmTargets(execReturning(targets));
  assertEquals([found.get("snapshot"), found.get("snapshot-origin"), found.has("verity")], ["1.16.0", "1.9.0", false]);

  const devices = await readMappedDevices(execReturning(info));
  const [suspended] = devices.filter((device) => device.suspended);
  assertEquals(suspended?.name, "data-vol--33333333333333333333333333333333");
  assertEquals(devices.every(({ uuid }) => /^LVM-\w{64}(?:-real|-cow)?$/.test(uuid)), true);
  const origin = devices.find(({ name }) => name === "data-vol--11111111111111111111111111111111")!;
  const real = devices.find(({ name }) => name === `${origin.name}-real`)!;
  assertEquals([origin.dependencies, real.dependencies.length], [[real.number], 1]);
  assertEquals(await readMappedDevices(execReturning("No devices found\n")), []);
});

Deno.test("readPoolUsage() rounds the usage of thin pools down, and counts a failed pool, or one without a size, as full", async () => {
  const status = [
    "data-pool-tpool: 0 2097152 thin-pool 1 4161/4096000 401/2000 - rw discard_passdown queue_if_no_space - 1024",
    "data-full-tpool: 0 2097152 thin-pool 1 1024/1024 2000/2000 - out_of_data_space - queue_if_no_space - 1024",
    "data-failed-tpool: 0 2097152 thin-pool Fail",
    "data-unknown-tpool: 0 2097152 thin-pool Error",
    "data-none-tpool: 0 2097152 thin-pool 1 0/0 0/0 - rw discard_passdown queue_if_no_space - 1024",
  ].join("\n");
  assertEquals([...await readPoolUsage(execReturning(status))], [
    ["data-pool-tpool", { data: 20, metadata: 0 }],
    ["data-full-tpool", { data: 100, metadata: 100 }],
    ["data-failed-tpool", { data: 100, metadata: 100 }],
    ["data-unknown-tpool", { data: 100, metadata: 100 }],
    ["data-none-tpool", { data: 100, metadata: 100 }],
  ]);
  assertEquals((await readPoolUsage(execReturning("No devices found\n"))).size, 0);
});

Deno.test("the output of lsblk 2.38 about disks is parsed: which of them are physical volumes", async () => {
  const found = await readDisks(execReturning(disks));
  assertEquals(found.filter(({ pvUuid }) => pvUuid !== undefined).map(({ path, type }) => [path, type]), [
    ["/dev/vdc", "disk"],
    ["/dev/vdd", "disk"],
  ]);
  assertEquals(found.find(({ path }) => path === "/dev/vdc")?.number, "254:32");
});

Deno.test("the output of df of coreutils 9 about several paths is parsed, also with a blank in a path", async () => {
  const usages = await readUsages(execReturning(df), ["/mnt/s", "/mnt/a b", "/gone"]);
  assertEquals([...usages.keys()], ["/mnt/s", "/mnt/a b"]);
  assertEquals(usages.get("/mnt/a b")?.bytes, { total: 57381888n, used: 14336n, available: 52671488n });
  assertEquals(await readUsages(execReturning("", 1), []), new Map());
});

Deno.test("a mount of a removed device node differs from a mount of an existing one", async () => {
  const mounts = await readMounts(execReturning(findmnt));
  assertEquals(mounts.filter(isDeletedNodeMount).map(({ target }) => target), ["/mnt/blk8"]);
  assertEquals(mounts.filter(isDriverVolumeMount).map(({ target }) => target), ["/mnt/s", "/mnt/a b"]);
});

Deno.test("isDriverDeviceName() matches the names of volumes, snapshots and their hidden layers", () => {
  const hex = "0123456789abcdef".repeat(2);
  const ours = [
    `data-vol--${hex}`,
    `my--data-snap--${hex}`,
    `data-vol--${hex}-real`,
    `data-snap--${hex}-cow`,
    `vg---vol--${hex}`,
  ];
  const others = [
    "data-root",
    `data-vol--${hex}0`,
    `data--vol--${hex}`,
    `data-vol-${hex}`,
    `vol--${hex}`,
    `data-vol--${hex}-x`,
  ];
  assertEquals([...ours, ...others].filter(isDriverDeviceName), ours);
});
