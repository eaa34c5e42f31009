import { assertEquals, assertRejects } from "@std/assert";
import findmnt from "../../tests/fixtures/findmnt.json" with { type: "text" };
import lsblk from "../../tests/fixtures/lsblk.json" with { type: "text" };
import report from "../../tests/fixtures/report.json" with { type: "text" };
import wipefs from "../../tests/fixtures/wipefs_ext4.json" with { type: "text" };
import leftover from "../../tests/fixtures/wipefs_leftover.json" with { type: "text" };
import blank from "../../tests/fixtures/wipefs_blank.json" with { type: "text" };
import df from "../../tests/fixtures/df.txt" with { type: "text" };
import {
  allowWrites,
  readBlockDevice,
  readBlockDevices,
  readSignatures,
  refuseWrites,
  requireBlank,
  verifyDevice,
  wipeSignatures,
} from "./device.ts";
import { StorageError } from "../../base/error.ts";
import type { Command, Exec } from "../exec.ts";
import {
  bindMount,
  deviceMounts,
  filesystemMounts,
  isDeviceOfLv,
  isMountOfLv,
  mountDevice,
  readMounts,
  readUsage,
  readUsages,
} from "./mounts.ts";
import { parseReport } from "../model/report_parser.ts";

/** Returns one captured output for every command. */
function execReturning(stdout: string, code = 0): Exec {
  return {
    run: () => Promise.resolve({ code, stdout, stderr: code === 0 ? "" : "failed" }),
    idle: () => Promise.resolve(),
  };
}

const volume = parseReport(report)[0]!.lvs.find((lv) => lv.name.startsWith("vol-"))!;

Deno.test("the output of util-linux 2.38 and coreutils 9 is parsed", async () => {
  assertEquals(await readBlockDevice(execReturning(lsblk), "/x"), {
    path: "/x",
    name: "vg1-vol--11111111111111111111111111111111",
    number: "253:0",
    size: 67108864n,
    readOnly: false,
  });
  assertEquals(await readSignatures(execReturning(wipefs), "/x"), [{
    type: "ext4",
    uuid: "11111111-2222-3333-4444-555555555555",
  }]);
  assertEquals(await readSignatures(execReturning(blank), "/x"), []);
  assertEquals(await readSignatures(execReturning(leftover), "/x"), [{ type: "DM_snapshot_cow" }]);
  const { bytes, inodes } = await readUsage(execReturning(df), "/x");
  assertEquals([bytes.total > bytes.available, inodes?.total], [true, 16384n]);
});

Deno.test("the mounts of a volume are found among all others, also with a blank in a path, and of a device node", async () => {
  const mounts = await readMounts(execReturning(findmnt));
  assertEquals(filesystemMounts(mounts, volume).map(({ target, readOnly }) => [target, readOnly]), [["/mnt/s", false], [
    "/mnt/a b",
    true,
  ]]);
  assertEquals(deviceMounts(mounts, volume).map(({ target }) => target), ["/mnt/blk"]);
  assertEquals(mounts.filter((mount) => isMountOfLv(mount, volume.name)).length, 2);
  assertEquals(mounts.filter((mount) => isMountOfLv(mount, "11111111111111111111111111111111")), []);
});

Deno.test("isDeviceOfLv() handles hyphens as device-mapper joins and doubles them", () => {
  const cases: [string, string, boolean][] = [
    ["vg-vol--1", "vol-1", true],
    ["my--vg-vol--1", "vol-1", true],
    ["vg---vol--1", "vol-1", true], // the group is called "vg-"
    ["vg-a--vol--1", "vol-1", false], // the LV is called "a-vol-1"
    ["vg-vol--12", "vol-1", false],
    ["vol--1", "vol-1", false],
    ["vg-vol--1-real", "vol-1", false],
    ["vg-vol--1.2", "vol-1", true], // a deleted LV still had the name
    ["vg-vol--1.2-real", "vol-1", false],
    ["vg-vol--1.", "vol-1", false],
    ["vg-vol--1.2", "vol-1.2", true],
  ];
  for (const [device, lv, expected] of cases) assertEquals(isDeviceOfLv(device, lv), expected, device);
});

Deno.test("verifyDevice() refuses another device, and another size", async () => {
  assertEquals((await verifyDevice(execReturning(lsblk), volume)).number, "253:0");
  for (const other of [{ deviceNumber: "253:9" }, { size: 1n }]) {
    const error = await assertRejects(() => verifyDevice(execReturning(lsblk), { ...volume, ...other }), StorageError);
    assertEquals(error.kind, "FailedPrecondition");
  }
});

Deno.test("requireBlank() reads the last 64 KiB of a device, or all of a smaller one", async () => {
  const device = { path: "/x", name: "dm-0", number: "253:0", readOnly: false };
  for (const [size, skip] of [[1n << 20n, "skip=983040"], [65536n, "skip=0"], [4096n, "skip=0"]] as const) {
    const commands: Command[] = [];
    const run = (command: Command) => {
      commands.push(command);
      return Promise.resolve({ code: 0, stdout: blank, stderr: "" });
    };
    await requireBlank({ run, idle: () => Promise.resolve() }, { ...device, size });
    assertEquals(commands.map(({ program }) => program), ["wipefs", "cmp", "dd"]);
    assertEquals(commands[2]!.args.find((arg) => arg.startsWith("skip=")), skip);
  }
});

Deno.test("output that cannot be parsed is an error, never an empty list", async () => {
  for (const odd of ["", "{}", '{"signatures": null}', '{"signatures": [{"type": 1}]}', '{"signatures": [']) {
    assertEquals(
      (await assertRejects(() => readSignatures(execReturning(odd), "/x"), StorageError)).kind,
      "CommandFailed",
    );
  }
  await assertRejects(() => readSignatures(execReturning(blank, 1), "/x"), StorageError, "exit 1");
  await assertRejects(() => readMounts(execReturning("{}")), StorageError);
  await assertRejects(() => readBlockDevice(execReturning('{"blockdevices": []}'), "/x"), StorageError);
  await assertRejects(() => readUsage(execReturning("x y z"), "/x"), StorageError);
});

Deno.test("what changes a device or a mount is never killed, and gets its options in one argument", async () => {
  const commands: Command[] = [];
  const exec: Exec = {
    run: (command) => {
      commands.push(command);
      return Promise.resolve({ code: 0, stdout: "", stderr: "" });
    },
    idle: () => Promise.resolve(),
  };
  await refuseWrites(exec, "/d");
  await allowWrites(exec, "/d");
  await wipeSignatures(exec, "/d");
  await mountDevice(exec, "/d", "/t", { type: "xfs", flags: [] });
  await mountDevice(exec, "/d", "/t", { type: "ext4", flags: ["ro", "noatime"] });
  await bindMount(exec, "/s", "/t", ["nosuid"]);
  assertEquals(commands.map(({ program, args, mutates }) => `${[program, ...args].join(" ")} ${mutates}`), [
    "blockdev --setro /d true",
    "blockdev --setrw /d true",
    "wipefs --all /d true",
    "mount -t xfs /d /t true",
    "mount -t ext4 -o ro,noatime /d /t true",
    "mount -o bind,nosuid /s /t true",
  ]);
});

Deno.test("readBlockDevices() takes no output for no devices, and trims what lsblk pads", async () => {
  assertEquals(await readBlockDevices(execReturning("\n", 32), ["/gone"]), []);
  const device = { name: "vg-lv", "maj:min": " 253:0  ", size: 4096, ro: "1" };
  assertEquals(await readBlockDevices(execReturning(JSON.stringify({ blockdevices: [device] }), 64), ["/d", "/gone"]), [
    { name: "vg-lv", number: "253:0", size: 4096n, readOnly: true },
  ]);
});

Deno.test("readUsages() leaves out the inodes of a filesystem that does not count them", async () => {
  const lines = [
    " 1B-blocks Used Avail Inodes IUsed IFree File",
    "100 40 60 - - - /a",
    "100 40 60 0 0 0 /b",
    "1 1 0 8 2 6 /c",
  ];
  const usages = await readUsages(execReturning(lines.join("\n")), ["/a", "/b", "/c"]);
  const bytes = { total: 100n, used: 40n, available: 60n };
  assertEquals([...usages], [
    ["/a", { bytes }],
    ["/b", { bytes }],
    ["/c", { bytes: { total: 1n, used: 1n, available: 0n }, inodes: { total: 8n, used: 2n, available: 6n } }],
  ]);
});
