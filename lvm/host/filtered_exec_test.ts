import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { REPORT_COMMAND } from "../model/report_command.ts";
import { FakeMachine, ok } from "../../tests/fake/machine/machine.ts";
import { FilteredExec, filterSetting } from "./filtered_exec.ts";

const PATTERN = "r|^/dev/(loop|mapper/denolith.luks2-)|";

/** Starts an exec over a fake machine. @returns it, and the settings with which lvm ran, by subcommand */
function start(machine = new FakeMachine()) {
  const ran: string[] = [];
  machine.fault = ({ program, args, config }: Command) => {
    if (program === "lvm") ran.push(`${args[0]} ${config ?? "-"}`);
    return program !== "lvm" || args[0] === "fullreport" || args[0] === "lvmconfig" ? undefined : ok();
  };
  return { machine, exec: new FilteredExec(machine), ran };
}

const lvm = (...args: string[]): Command => ({ program: "lvm", args, mutates: false });

Deno.test("FilteredExec gives each command that reads disks the filter of the last report", async () => {
  const { machine, exec, ran } = start();
  await exec.run(lvm("lvchange"));
  machine.host.loops.push({ path: "/dev/loop0", file: "/var/tmp/disk.img" });
  await exec.run(lvm("lvchange"));
  await exec.run(REPORT_COMMAND);
  await exec.run(lvm("lvchange"));
  await exec.run(lvm("version"));
  await exec.run(lvm("lvchange", "--devices", "/dev/vdb"));
  const first = `devices/scan_lvs=0 devices/global_filter=["${PATTERN}"]`;
  const second = `devices/scan_lvs=0 devices/global_filter=["a|^/dev/(loop0)(p[0-9]+)?$|","${PATTERN}"]`;
  assertEquals(ran, [
    "lvmconfig -",
    `lvchange ${first}`,
    `lvchange ${first}`,
    "lvmconfig -",
    `fullreport ${second}`,
    `lvchange ${second}`,
    "version -",
    "lvchange -",
  ]);
});

Deno.test("FilteredExec reads the host's filters again after it could not read them", async () => {
  const { machine, exec, ran } = start();
  machine.host.missing.add("lvm");
  await exec.run(REPORT_COMMAND).catch(() => {});
  machine.host.missing.delete("lvm");
  machine.host.settings.set("global_filter", '["r|/dev/sr.*|"]');
  await exec.run(REPORT_COMMAND);
  assertEquals(ran.at(-1), `fullreport devices/scan_lvs=0 devices/filter=["${PATTERN}"]`);
});

Deno.test("FilteredExec keeps to the filters of the host also when they change", async () => {
  const { machine, exec, ran } = start();
  await exec.run(REPORT_COMMAND);
  machine.host.settings.set("global_filter", '["r|/dev/sdq|"]');
  await exec.run(REPORT_COMMAND);
  assertEquals(ran.at(-1), `fullreport devices/scan_lvs=0 devices/filter=["${PATTERN}"]`);
});

Deno.test("FilteredExec never runs a command without filters of the host that it cannot read", async () => {
  for (const isKnown of [false, true]) {
    const { machine, exec, ran } = start();
    machine.host.settings.set("global_filter", '["r|/dev/sdq|"]');
    if (isKnown) await exec.run(REPORT_COMMAND);
    const { fault } = machine;
    machine.fault = (command) =>
      command.args[0] === "lvmconfig" ? { code: 137, stdout: "", stderr: "" } : fault?.(command);
    if (isKnown) await exec.run(REPORT_COMMAND);
    else await assertRejects(() => exec.run(REPORT_COMMAND), StorageError, "exit 137");
    const filtered = `fullreport devices/scan_lvs=0 devices/filter=["${PATTERN}"]`;
    assertEquals(ran.filter((text) => text.startsWith("fullreport")), isKnown ? [filtered, filtered] : []);
  }
});

for (const program of ["losetup", "lsblk"] as const) {
  Deno.test(`FilteredExec keeps what ${program} listed before when it fails, so that no group vanishes or appears`, async () => {
    const { machine, exec, ran } = start();
    const loop = { name: "/dev/loop7", "back-file": "/var/tmp/disk.img", "back-maj:min": "254:0", ro: false };
    const md = { name: "/dev/md0", kname: "/dev/md0", type: "raid1" };
    const lv = { name: "/dev/mapper/vg-lv", kname: "/dev/dm-0", type: "lvm", children: [md] };
    const answers = { losetup: { loopdevices: [loop] }, lsblk: { blockdevices: [lv] } };
    const { fault } = machine;
    machine.fault = (command) =>
      command.program === "losetup" || command.program === "lsblk"
        ? ok(JSON.stringify(answers[command.program]))
        : fault?.(command);
    await exec.run(REPORT_COMMAND);
    const failing = machine.fault;
    machine.fault = (command) => command.program === program ? { code: 137, stdout: "", stderr: "" } : failing(command);
    await exec.run(REPORT_COMMAND);
    const [first, second] = ran.filter((text) => text.startsWith("fullreport"));
    assertEquals(second, first);
    assertMatch(first!, /loop7.*md0/);
  });
}

Deno.test("FilteredExec runs no LVM before the first answer of losetup and lsblk, unless they refuse to answer", async () => {
  for (const program of ["losetup", "lsblk"]) {
    for (const code of [1, 137]) {
      const { machine, exec, ran } = start();
      const { fault } = machine;
      machine.fault = (command) => command.program === program ? { code, stdout: "", stderr: "" } : fault?.(command);
      const [report] = await Promise.allSettled([exec.run(REPORT_COMMAND)]);
      const isRun = ran.some((text) => text.startsWith("fullreport"));
      assertEquals([report.status, isRun], code === 1 ? ["fulfilled", true] : ["rejected", false], program);
    }
  }
});

Deno.test("FilteredExec keeps to itself that LVM ignores filters beside a devices file", async () => {
  const { machine, exec } = start();
  machine.fault = ({ program, args }) =>
    program === "lvm" && args[0] === "vgs"
      ? {
        code: 5,
        stdout: "",
        stderr: "  Please remove the lvm.conf global_filter, it is ignored with the devices file.\n  No such group\n",
      }
      : undefined;
  assertEquals((await exec.run(lvm("vgs"))).stderr, "  No such group\n");
});

Deno.test("filterSetting() rejects further names of devices where the host uses both filters, and the names that are known do", () => {
  const others = [["/dev/sda", "/dev/sda"], ["/dev/mapper/mpatha", "/dev/dm-0"]];
  const setting = (filter: string[], global_filter: string[], devices = others) =>
    filterSetting({ filter, global_filter }, [PATTERN], devices).replace(/^devices\//, "");
  const [optical, byId] = [["r|/dev/sr0|", "a|.*|"], ["a|/dev/disk/by-id/x|", "r|.*|"]];
  const names = "r|^/dev/(disk|block|md|bcache)/|";
  assertEquals(setting(optical, optical), `filter=["${PATTERN}","${names}","r|/dev/sr0|","a|.*|"]`);
  assertEquals(setting(byId, optical), `global_filter=["${PATTERN}","${names}","r|/dev/sr0|","a|.*|"]`);
  // a disk that the host reads only by another name, or that may have none
  const kept = `filter=["${PATTERN}","a|/dev/disk/by-id/x|","r|.*|"]`;
  assertEquals([setting(byId, byId), setting(byId, optical, [])], [kept, kept]);
  const some = ["r|/dev/sda|", "a|.*|"];
  assertEquals(setting(some, some), `filter=["${PATTERN}","r|/dev/sda|","a|.*|"]`);
  assertEquals(setting(["r|/dev/sr0|"], some), `filter=["${PATTERN}","r|/dev/sr0|"]`, "no pattern accepts it");
});

Deno.test("FilteredExec rejects what is over a logical volume by all of its names, beside both filters of a host", async () => {
  const { machine, exec, ran } = start();
  machine.addGroup("data", 1n << 30n);
  for (const name of ["filter", "global_filter"]) machine.host.settings.set(name, '["r|/dev/sr0|", "a|.*|"]');
  await exec.run(REPORT_COMMAND);
  assertMatch(ran.at(-1)!, /devices\/filter=\["r\|\^\/dev\/\(loop.*\|","r\|\^\/dev\/\(disk\|block.*a\|\.\*\|"\]$/);
});

Deno.test("filterSetting() leaves the filters of the host as they are, if it can", () => {
  assertEquals(filterSetting({}, [PATTERN]), `devices/global_filter=["${PATTERN}"]`);
  const [some, all] = [["r|/dev/sr0|", "a|.*|"], ["a/.*/", "r|/dev/sr0|"]];
  assertEquals(filterSetting({ filter: some }, [PATTERN]), `devices/global_filter=["${PATTERN}"]`);
  assertEquals(filterSetting({ global_filter: some }, [PATTERN]), `devices/filter=["${PATTERN}"]`);
  assertEquals(filterSetting({ filter: all, global_filter: some }, [PATTERN]), `devices/filter=["${PATTERN}"]`);
  assertEquals(filterSetting({ filter: some, global_filter: all }, [PATTERN]), `devices/global_filter=["${PATTERN}"]`);
  assertEquals(
    filterSetting({ filter: ['r|"\\.x|'], global_filter: some }, [PATTERN]),
    `devices/filter=["${PATTERN}","r|\\"\\\\.x|"]`,
  );
});
