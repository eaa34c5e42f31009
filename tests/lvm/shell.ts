/**
 * The shell of lvm(8) on real LVM: `deno test` runs this in the guest, as one bundle. The same commands run in the shell
 * and as processes, each way in a group of its own, and are compared.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { defined } from "../../lvm/defined.ts";
import { HostExec, type Output } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { classifyRefusal } from "../../lvm/client/refusals.ts";
import { type Clock, systemClock } from "../../lvm/clock.ts";
import { lvchangeTags, lvcreate, lvextend, vgchange } from "../../lvm/model/commands.ts";
import type { LogicalVolume, PvSegment, VolumeGroup } from "../../lvm/model/report.ts";
import { REPORT_COMMAND } from "../../lvm/model/report_command.ts";
import { ShellExec } from "../../lvm/shell/shell_exec.ts";
import { shellLine } from "../../lvm/shell/line.ts";
import { openShellProgram, type ShellProcess } from "../../lvm/shell/shell_process.ts";
import { run } from "../demo/command.ts";
import { FakeClock } from "../fake/clock.ts";
import { productCommands } from "../fake/product_commands.ts";
import { runRandom } from "../rig/seeded_random.ts";

const disks = (Deno.env.get("DATA_DISKS") ?? "").split(" ");
if (disks.length !== 4) throw new Error("DATA_DISKS: must name four empty disks");

/** The groups, by how their commands run. Their names have the same length, since some messages are aligned. */
const GROUPS = { shell: "by-shell", process: "by-fork-" } as const;

/** The PVs of each group. */
const PVS = { shell: disks.slice(0, 2), process: disks.slice(2) } as const;

type Way = keyof typeof GROUPS;

const processes = new HostExec();

await run("load modules", "modprobe", ["-a", "dm-raid", "dm-thin-pool", "dm-snapshot"]);
for (const way of ["shell", "process"] as const) {
  await run("make a group", "vgcreate", ["-qq", "--yes", GROUPS[way], ...PVS[way]]);
}

const startShell = await openShellProgram();

/** Opens an exec whose two shells have started. Its list has the lines that they were given. */
async function openShell(clock: Clock = systemClock, lvmConfig?: string) {
  const [lost, lines]: [string[], string[]] = [[], []];
  const shells: ShellProcess[] = [];
  const exec = new ShellExec({
    ...{ clock, processes: new HostExec(defined({ lvmConfig })), ...defined({ lvmConfig }) },
    onShellLost: (reason) => lost.push(reason),
    start: (listener) => {
      const shell = startShell("/usr/sbin/lvm", listener);
      shells.push(shell);
      return { ...shell, write: (line) => (lines.push(line), shell.write(line)) };
    },
  });
  for (const args of [[...REPORT_COMMAND.args], ["vgchange", "--addtag", "a", "not-there"]]) {
    while (lost.length === 0 && !lines.some((line) => line.startsWith(args[0]!))) {
      await exec.run({ program: "lvm", args, mutates: args[0] === "vgchange" });
    }
  }
  assertEquals([lost, shells.length], [[], 2], "the shells start");
  lines.length = 0;
  const end = async () => {
    for (const shell of shells) shell.closeInput();
    await Promise.all(shells.map(({ exited }) => exited));
  };
  return { exec, shells, lines, lost, [Symbol.asyncDispose]: end };
}

async function readGroup(way: Way): Promise<VolumeGroup> {
  const group = (await new Lvm(processes).report()).find(({ name }) => name === GROUPS[way]);
  assert(group !== undefined, `${GROUPS[way]} is there`);
  return group;
}

/** Returns a text without what differs between the two groups. */
function normalize(text: string, way: Way): string {
  return [...PVS[way].entries()].reduce((text, [index, pv]) => text.replaceAll(pv, `/dev/pv${index}`), text)
    .replaceAll(GROUPS[way], "group").replaceAll(GROUPS[way].replaceAll("-", "--"), "group")
    .replaceAll(/\b\w{6}(?:-\w{4}){5}-\w{6}\b/g, "UUID").replaceAll(
      /("lv_(?:kernel_minor|time|device_open)":)"-?\d+"/g,
      '$1""',
    );
}

/** Returns the reports about one of the two groups. */
function reportsOf(stdout: string, way: Way): unknown {
  if (!stdout.includes('"report"')) return undefined;
  const { report } = JSON.parse(stdout) as { report: Record<string, { vg_name?: string }[]>[] };
  const own = report.filter(({ vg }) => vg?.[0]?.vg_name === GROUPS[way]).map((parts) => Object.entries(parts));
  return own.map((parts) =>
    parts.map(([part, rows]) => [part, rows.map((row) => normalize(JSON.stringify(row), way)).sort()])
  );
}

/** Returns what the driver reads of an output. */
function outcome(output: Output, way: Way) {
  const { code, stdout, stderr } = output;
  const lines = code === 0 ? [] : normalize(stderr, way).split("\n").map((line) => line.trim());
  return { code, kind: code === 0 ? "" : classifyRefusal(output), lines, reports: reportsOf(stdout, way) };
}

function commandsOf(way: Way) {
  const uuidOf = async (name: string) => {
    const lv = (await readGroup(way)).lvs.find((lv) => lv.name === name);
    return lv?.uuid ?? "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa";
  };
  return productCommands({ group: GROUPS[way], pv: PVS[way][1]!, uuidOf });
}

async function cleanUp(): Promise<void> {
  for (const way of ["shell", "process"] as const) {
    const { lvs, tags, name } = await readGroup(way);
    if (lvs.length > 0) await run("clean up", "lvremove", ["-qq", "--yes", ...lvs.map((lv) => `${name}/${lv.name}`)]);
    if (tags.length > 0) await run("clean up", "vgchange", ["-qq", ...tags.flatMap((tag) => ["--deltag", tag]), name]);
  }
}

Deno.test("each command of the driver has the same outcome in the shell and as a process", async () => {
  await using opened = await openShell();
  const { exec, lines, lost } = opened;
  const ways = { shell: exec, process: processes };
  const commands = { shell: commandsOf("shell"), process: commandsOf("process") };
  let failed = 0;
  try {
    for (const index of commands.shell.keys()) {
      const outcomes: ReturnType<typeof outcome>[] = [];
      let text = "";
      for (const way of ["process", "shell"] as const) {
        const command = commands[way][index]!;
        const args = typeof command === "function" ? await command() : [...command];
        const output = await ways[way].run({ program: "lvm", args, mutates: args[0] !== "fullreport" });
        outcomes.push(outcome(output, way));
        text = args.join(" ");
      }
      console.log(`${outcomes[0]!.code} ${outcomes[0]!.kind} ${text.slice(0, 100)}`);
      assertEquals(outcomes[1], outcomes[0], text);
      if (outcomes[0]!.code !== 0) failed++;
      const groups = [await readGroup("process"), await readGroup("shell")];
      const [one, other] = groups.map((group, i) =>
        JSON.parse(normalize(toJson(group), i === 0 ? "process" : "shell"))
      );
      assertEquals(other, one, `after ${text}`);
    }
    assertEquals(lost, [], "no shell was lost");
    assert(lines.length > 25 && failed >= 8, `${lines.length} lines, ${failed} failures`);
  } finally {
    await cleanUp();
  }
});

/** Returns a group as text, without the device numbers and times of its LVs, and without which udev has open just now. */
function toJson(group: VolumeGroup): string {
  return JSON.stringify(group, (key, value) => {
    if (key === "pvSegments") return value.map(({ subLv, size }: PvSegment) => `${subLv} ${size}`).sort(); // by UUIDs of PVs
    if (["deviceNumber", "createdAt", "open"].includes(key)) return undefined;
    return typeof value === "bigint" ? `${value}` : value;
  });
}

/** The LV that the lines of the next test change. Other LVs have names that it begins with. */
const TARGET = "abc";

/** The LV that has a snapshot. */
const ORIGIN = "abd";

/** A group whose name the other one begins with. */
const SHORT = GROUPS.shell.slice(0, -2);

/** Returns the lines that are cut short. */
function linesToCut(): string[] {
  const group = GROUPS.shell;
  const target = `${group}/${TARGET}`;
  const addtag = ["t2", "t3"];
  const size = 8n << 20n;
  return [
    lvchangeTags(["--deltag", "t1", "--addtag", "t2"], target),
    lvextend({ size: 2n * size }, target, [PVS.shell[0]!]),
    lvcreate({ yes: true, wipesignatures: "y", name: "new", size, addtag }, group),
    lvcreate({ yes: true, snapshot: true, name: "new", size, addtag }, target),
    vgchange({ addtag: ["t4"] }, group),
  ].map((args) => shellLine(args)!.text);
}

/** Writes a text to a new shell, and waits for its end. */
async function writeToShell(text: string): Promise<void> {
  const shell = startShell("/usr/sbin/lvm", { onReport: () => {}, onMessage: () => {} });
  shell.write(text);
  shell.closeInput();
  await shell.exited;
}

Deno.test("a line that is cut short at any byte changes nothing but what it names", async () => {
  const random = runRandom();
  const [group, other] = [GROUPS.shell, GROUPS.process];
  const lvm = async (args: readonly string[]) => await run("prepare", "lvm", [...args, "-qq"]);
  const create = (name: string) => lvm(["lvcreate", "--yes", "--size", "8m", "--addtag", "t1", "--name", name, group]);
  await run("prepare", "vgrename", [other, SHORT]);
  try {
    for (const name of ["a", "ab", "idle"]) await create(name);
    await lvm(["lvchange", "--activate", "n", `${group}/idle`]);
    await lvm(["lvcreate", "--yes", "--size", "8m", "--name", TARGET, SHORT]);
    let [cuts, changes] = [0, 0];
    for (const index of (await prepared(lvm, create)).keys()) {
      let line = (await prepared(lvm, create))[index]!;
      const ends = [...line.matchAll(/ /g)].map(({ index }) => index);
      const some = [0, 0, 0].map(() => 1 + Math.floor(random() * (line.length - 2)));
      const lengths = new Set([...ends, ...some, line.length - 3, line.length - 2, line.length - 1]);
      for (const length of lengths) {
        const before = await bystanders();
        const cut = line.slice(0, length);
        await writeToShell(cut);
        cuts++;
        const after = await bystanders();
        assertEquals(after.others, before.others, `other LVs after ${JSON.stringify(cut)}`);
        assert(after.own.some(([name]) => name === TARGET), `the LV is there after ${JSON.stringify(cut)}`);
        const isWhole = length === line.length - 1;
        const isChanged = JSON.stringify(after.own) !== JSON.stringify(before.own);
        assert(isChanged || !isWhole, `the whole line changes something: ${line}`);
        if (!isChanged) continue;
        changes++;
        console.log(`${isWhole ? "whole" : "cut"}: ${cut}: ${JSON.stringify(after.own)}`);
        line = (await prepared(lvm, create))[index]!;
      }
    }
    console.log(`${cuts} cuts, ${changes} of them changed what they name`);
  } finally {
    await run("clean up", "lvremove", ["-qq", "--yes", SHORT]);
    await run("clean up", "vgrename", [SHORT, other]);
    await cleanUp();
  }
});

/** Creates anew what the lines change. @returns the lines */
async function prepared(
  lvm: (args: readonly string[]) => Promise<unknown>,
  create: (name: string) => Promise<unknown>,
) {
  const group = GROUPS.shell;
  const { lvs, tags } = await readGroup("shell");
  const own = lvs.filter(({ name }) => !BYSTANDERS.includes(name)).map(({ name }) => `${group}/${name}`);
  if (own.length > 0) await lvm(["lvremove", "--yes", ...own]);
  if (tags.length > 0) await lvm(["vgchange", ...tags.flatMap((tag) => ["--deltag", tag]), group]);
  for (const name of [TARGET, ORIGIN]) await create(name);
  await lvm(["lvcreate", "--yes", "--snapshot", "--size", "8m", "--name", "abcd", `${group}/${ORIGIN}`]);
  return linesToCut();
}

/** The LVs that no line names. */
const BYSTANDERS: readonly string[] = ["a", "ab", "idle"];

/** Returns the state of the LVs that lines name, and of all others. */
async function bystanders() {
  const groups = await new Lvm(processes).report();
  const describe = ({ name, uuid, size, tags, active, origin }: LogicalVolume) =>
    [name, uuid, `${size}`, tags.join(), active, origin ?? ""] as const;
  const lvs = groups.find(({ name }) => name === GROUPS.shell)!.lvs.toSorted((a, b) => a.name < b.name ? -1 : 1);
  return {
    own: [
      ...lvs.filter(({ name }) => !BYSTANDERS.includes(name)).map(describe),
      ...groups.map(({ name, tags }) => [name, ...tags]),
    ],
    others: [
      lvs.filter(({ name }) => BYSTANDERS.includes(name)).map(describe),
      groups.find(({ name }) => name === SHORT)!.lvs.map(describe),
    ],
  };
}

Deno.test("a shell that is killed while it reads is replaced, and a process reads instead", async () => {
  const clock = new FakeClock();
  await using opened = await openShell(clock);
  const { exec, shells, lines, lost } = opened;
  const reading = exec.run(REPORT_COMMAND);
  for (const shell of shells) shell.kill();
  assertEquals((await reading).code, 0);
  assertEquals((await exec.run(REPORT_COMMAND)).code, 0);
  assertEquals([lines.length, lost.length], [1, 1], "the second report was read by a process");
  await clock.advance(5 * 60_000);
  while (lost.length === 1 && lines.length < 3) await exec.run(REPORT_COMMAND);
  assertEquals([lost.length, shells.length], [1, 3]);
});

/** The number of times that each command is measured, each way. */
const MEASUREMENTS = 20;

Deno.test({
  name: "times of commands in the shell and as processes",
  ignore: Deno.env.get("FULL") !== "1",
  fn: async () => {
    for (const lvmConfig of [undefined, "activation/udev_sync=0 activation/udev_rules=0 activation/monitoring=0"]) {
      await using opened = await openShell(systemClock, lvmConfig);
      const { exec } = opened;
      // as in a service
      const ways = { process: new HostExec({ ownSessions: false, ...defined({ lvmConfig }) }), shell: exec };
      console.log(lvmConfig === undefined ? "without settings" : `with ${lvmConfig}`);
      const kinds: Record<string, (name: string, way: Way) => string[]> = {
        report: () => [...REPORT_COMMAND.args],
        lvcreate: (name, way) =>
          lvcreate({ yes: true, wipesignatures: "y", name, size: 8n << 20n, addtag: ["a"] }, GROUPS[way]),
        lvchange: (name, way) => lvchangeTags(["--addtag", "b"], `${GROUPS[way]}/${name}`),
      };
      for (const [kind, argsOf] of Object.entries(kinds)) {
        const times: Record<Way, number[]> = { process: [], shell: [] };
        for (let i = 0; i < MEASUREMENTS; i++) {
          for (const way of ["process", "shell"] as const) {
            const start = performance.now();
            const args = argsOf(`v${i}`, way);
            const { code, stderr } = await ways[way].run({ program: "lvm", args, mutates: kind !== "report" });
            times[way].push(performance.now() - start);
            assertEquals(code, 0, stderr);
          }
        }
        const median = (way: Way) => times[way].toSorted((a, b) => a - b)[MEASUREMENTS / 2]!.toFixed(0);
        console.log(`${kind}: ${median("process")} ms as a process, ${median("shell")} ms in the shell`);
      }
      await cleanUp();
    }
  },
});
