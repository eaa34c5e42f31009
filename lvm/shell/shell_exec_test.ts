import { assert, assertEquals, assertRejects } from "@std/assert";
import { type FakeShell, fakeShells, shellAnswer } from "../../tests/fake/lvm_shell.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { nextTurn } from "../clock.ts";
import { StorageError } from "../error.ts";
import type { Command, Exec, Output } from "../exec.ts";
import { PROFILE_SETTINGS } from "./profile.ts";
import { ShellExec, type ShellExecOptions } from "./shell_exec.ts";

const PROFILE = [
  ...Object.entries(PROFILE_SETTINGS).map(([name, value]) => `${name.split("/")[1]}="${value}"`),
  `command_log_cols="log_seq_num,log_type,log_context,log_object_type,log_object_name,log_message,log_errno,log_ret_code"`,
].join("\n");

const CHANGE: Command = { program: "lvm", args: ["lvchange", "--addtag", "a", "data/v"], mutates: true };
const CHANGE_LINE = "lvchange data/v --addtag a";
const READ: Command = { program: "lvm", args: ["fullreport", "--units", "b"], mutates: false };

/** Processes that succeed, with the commands that were run. */
class Processes implements Exec {
  readonly ran: string[] = [];
  profile = PROFILE;

  run({ program, args }: Command): Promise<Output> {
    if (args[0] === "lvmconfig") return Promise.resolve({ code: 0, stdout: this.profile, stderr: "" });
    this.ran.push([program, ...args].join(" "));
    return Promise.resolve({ code: 0, stdout: "by a process", stderr: "" });
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }
}

/** Answers each command at once: lvm's way of success. */
function succeed(line: string, shell: FakeShell): void {
  shell.report(shellAnswer(line.split(" ")[0]!, 1));
}

/** An exec whose two shells have started: that for reports, and that for changes. */
async function started(play: typeof succeed, options: Partial<ShellExecOptions> = {}) {
  const processes = new Processes();
  const { start, shells } = fakeShells((line, shell) => line === "version" ? succeed(line, shell) : play(line, shell));
  const lost: string[] = [];
  const clock = new FakeClock();
  const exec = new ShellExec({ processes, start, clock, onShellLost: (reason) => lost.push(reason), ...options });
  for (const command of [READ, CHANGE]) {
    assertEquals((await exec.run(command)).stdout, "by a process", "while the shell starts");
    await settle();
  }
  processes.ran.length = 0;
  assertEquals(shells.length, 2);
  return { exec, processes, shells, lost, clock };
}

/** Lets everything run that is due. */
async function settle(): Promise<void> {
  for (let i = 0; i < 5; i++) await nextTurn();
}

Deno.test("ShellExec: runs reports in one shell, changes in another, and all else as processes", async () => {
  const { exec, processes, shells } = await started(succeed);
  assertEquals(await exec.run(CHANGE), { code: 0, stdout: "", stderr: "", lacksMessages: true });
  assertEquals((await exec.run(READ)).code, 0);
  assertEquals((await exec.run(CHANGE)).code, 0);
  assertEquals(shells.map(({ lines }) => lines), [
    ["version", "fullreport --units b"],
    ["version", CHANGE_LINE, CHANGE_LINE],
  ]);
  await exec.run({ program: "sync", args: ["/dev/sda"], mutates: true });
  await exec.run({ program: "lvm", args: ["version"], mutates: false });
  await exec.run({ program: "lvm", args: ["lvremove", "--select", "lv_uuid=x", "data/pool"], mutates: true });
  assertEquals(processes.ran, ["sync /dev/sda", "lvm version", "lvm lvremove --select lv_uuid=x data/pool"]);
});

Deno.test("ShellExec: a command that fails has its messages, and the shell goes on", async () => {
  const { exec, shells } = await started((line, shell) => {
    const messages = [["error", "insufficient free space"], ["print", "printed"]] as const;
    const log = line === "lastlog" ? messages.map(([type, message]) => [type, message] as [string, string]) : [];
    shell.report(shellAnswer("lvchange", 5, log));
  });
  const output = { code: 5, stdout: "  printed\n", stderr: "  insufficient free space\n" };
  assertEquals([await exec.run(CHANGE), await exec.run(CHANGE)], [output, output]);
  assertEquals(shells[1]!.lines, ["version", CHANGE_LINE, "lastlog", CHANGE_LINE, "lastlog"]);
});

Deno.test("ShellExec: what comes while the shell is busy runs as a process", async () => {
  const { exec, processes, shells } = await started(() => {});
  const running = [exec.run(CHANGE), exec.run(READ)];
  assertEquals((await exec.run(READ)).stdout, "by a process");
  assertEquals((await exec.run(CHANGE)).stdout, "by a process");
  assertEquals(processes.ran.length, 2);
  shells[1]!.report(shellAnswer("lvchange", 1));
  shells[0]!.report(shellAnswer("fullreport", 1));
  assertEquals((await Promise.all(running)).map(({ code }) => code), [0, 0]);
  await exec.idle();
});

Deno.test("ShellExec: settings for lvm are words of each line", async () => {
  const { exec, shells } = await started(succeed, { lvmConfig: "a/b=0 c/d=1" });
  await exec.run(CHANGE);
  assertEquals(shells[1]!.lines[1], "lvchange data/v --config 'a/b=0 c/d=1' --addtag a");
});

Deno.test("ShellExec: a read that hangs is killed at its deadline, and processes run what comes then", async () => {
  const { exec, processes, shells, lost, clock } = await started(() => {}, { readMs: 10 });
  const error = await assertRejects(() => exec.run(READ), StorageError, "no answer within 0.01 s");
  assertEquals([error.kind, shells[0]!.isKilled], ["Unavailable", true]);
  await assertRejects(() => error.completion!);
  assertEquals(lost.length, 1);
  await exec.run(READ);
  assertEquals([processes.ran.length, shells.length], [1, 2], "none is started at once");
  await clock.advance(5 * 60_000);
  await exec.run(READ);
  await settle();
  assertEquals(shells.length, 3);
});

Deno.test("ShellExec: a change that hangs is never killed: its input ends, and idle() waits for it", async () => {
  const { exec, processes, shells, clock } = await started(() => {}, { changeMs: 10 });
  const shell = shells[1]!;
  const error = await assertRejects(() => exec.run(CHANGE), StorageError, "still running after 0.01 s");
  assertEquals([error.kind, shell.isKilled, shell.isClosed], ["StillRunning", false, true]);
  let isIdle = false;
  const idle = exec.idle().then(() => isIdle = true);
  await clock.advance(60 * 60_000);
  assertEquals((await exec.run(CHANGE)).stdout, "by a process");
  await settle();
  assertEquals([processes.ran.length, shells.length, isIdle], [1, 2, false], "no other shell while this one is there");
  shell.report(shellAnswer("lvchange", 1));
  assertEquals((await error.completion as Output).code, 0);
  await idle;
  shell.exit(0);
  await settle();
  await exec.run(CHANGE);
  await settle();
  assertEquals(shells.length, 3);
});

Deno.test("ShellExec: a change whose shell dies has its status, and a read is repeated as a process", async () => {
  for (const [code, seen] of [[139, 139], [0, 5]] as const) {
    const { exec, lost } = await started((_, shell) => shell.exit(code));
    const output = await exec.run(CHANGE);
    assertEquals([output.code, output.stdout], [seen, ""]);
    assert(output.stderr.includes("its outcome is not known"), output.stderr);
    assertEquals(lost.length, 1);
  }
  const { exec, processes } = await started((_, shell) => shell.exit(139));
  assertEquals((await exec.run(READ)).stdout, "by a process");
  assertEquals(processes.ran.length, 1);
});

Deno.test("ShellExec: an answer that nobody understands ends the shell", async () => {
  const wrong = [
    shellAnswer("lvremove", 1),
    `{"log": []}`,
    "lvm> ",
    shellAnswer("lvchange", 1) + shellAnswer("lvchange", 1),
    shellAnswer("lvchange", 1) + "{",
  ];
  for (const text of wrong) {
    const { exec, shells } = await started((_, shell) => shell.report(text));
    const shell = shells[1]!;
    const change = exec.run(CHANGE);
    await settle();
    assertEquals([shell.isClosed, shell.isKilled], [true, false], text);
    assertEquals((await exec.run(CHANGE)).stdout, "by a process");
    shell.exit(0);
    // an answer that was complete is that of the command; the rest came to none
    assertEquals((await change).code, text.startsWith(shellAnswer("lvchange", 1)) ? 0 : 5, text);
    const read = await started((_, shell) => shell.report(text));
    if (!text.startsWith(shellAnswer("lvchange", 1))) {
      assertEquals((await read.exec.run(READ)).stdout, "by a process", text);
    }
  }
});

Deno.test("ShellExec: what a shell writes without a command ends it", async () => {
  const { exec, shells, lost } = await started(succeed);
  shells[0]!.report(shellAnswer("lvchange", 1));
  assertEquals(shells[0]!.isClosed, true);
  assertEquals((await exec.run(READ)).stdout, "by a process");
  shells[0]!.exit(0);
  await settle();
  assertEquals(lost.length, 1);
});

Deno.test("ShellExec: a question is answered by the end of the input", async () => {
  const { exec, shells } = await started((_, shell) => shell.message("Do you really want to? [y/n]: "));
  const change = exec.run(CHANGE);
  assertEquals(shells[1]!.isClosed, true);
  shells[1]!.report(shellAnswer("lvchange", 5));
  const { code, stderr } = await change;
  assertEquals([code, stderr], [5, "  the messages of the command could not be read\n"]);
});

Deno.test("ShellExec: a new shell replaces one that has run many commands", async () => {
  const { exec, processes, shells, lost } = await started(succeed, { maxCommands: 3 });
  await exec.run(READ); // the first was "version"
  await exec.run(READ);
  assertEquals(shells[0]!.isClosed, true);
  assertEquals((await exec.run(READ)).stdout, "by a process");
  assertEquals(shells.length, 2, "while the old one is there");
  shells[0]!.exit(0);
  await settle();
  await exec.run(READ);
  await settle();
  assertEquals((await exec.run(READ)).stdout, "", "by the shell");
  assertEquals([shells.length, processes.ran.length, lost.length], [3, 2, 0]);
});

Deno.test("ShellExec: a shell that has run many commands is not closed under a command that has just begun", async () => {
  const fail = [["error", "insufficient free space"]] as [string, string][];
  for (let turns = 0; turns < 20; turns++) {
    const { exec, shells } = await started((line, shell) => {
      if (line !== CHANGE_LINE && !shell.isClosed) shell.report(shellAnswer("lvchange", 5, fail));
    }, { maxCommands: 2 });
    const [, shell] = shells;
    const first = exec.run(CHANGE);
    shell!.report(shellAnswer("lvchange", 1));
    for (let turn = 0; turn < turns; turn++) await Promise.resolve();
    const second = exec.run(CHANGE);
    await settle();
    assertEquals((await first).code, 0);
    if (shell!.lines.length > 2) shell!.report(shellAnswer("lvchange", 5));
    const { stdout, stderr } = await second;
    if (stdout !== "by a process") assertEquals(stderr, "  insufficient free space\n");
    assertEquals(shell!.isClosed, true);
  }
});

Deno.test("ShellExec: without the profile, or with another one, there is no shell", async () => {
  for (const profile of ["", PROFILE.replace("json", "basic"), PROFILE.replace("log_ret_code", "log_errno")]) {
    const processes = new Processes();
    processes.profile = profile;
    const { start, shells } = fakeShells(succeed);
    const lost: string[] = [];
    const exec = new ShellExec({
      processes,
      start,
      clock: new FakeClock(),
      onShellLost: (reason) => lost.push(reason),
    });
    for (let i = 0; i < 3; i++) {
      assertEquals((await exec.run(READ)).stdout, "by a process");
      await settle();
    }
    assertEquals([shells.length, lost.length], [0, 1]);
  }
});

Deno.test("ShellExec: a shell that does not answer at its start is killed", async () => {
  for (const play of [() => {}, (_: string, shell: FakeShell) => shell.exit(5)]) {
    const { start, shells } = fakeShells(play);
    const [lost, clock] = [[] as string[], new FakeClock()];
    const onShellLost = (reason: string) => lost.push(reason);
    const exec = new ShellExec({ processes: new Processes(), start, clock, onShellLost });
    await exec.run(READ);
    await settle();
    await clock.advance(10_000);
    await settle();
    assertEquals([shells.length, shells[0]!.isKilled, lost.length], [1, true, 1]);
    assertEquals((await exec.run(READ)).stdout, "by a process");
  }
});

Deno.test("ShellExec: no other shell starts while one that did not answer at its start is still there", async () => {
  const { start, shells } = fakeShells(() => {});
  const clock = new FakeClock();
  const exec = new ShellExec({
    ...{ processes: new Processes(), clock },
    start: (listener) => {
      const shell = start(listener);
      shell.kill = () => true; // it waits for a disk
      return shell;
    },
  });
  await exec.run(READ);
  for (let minute = 0; minute < 15; minute++) {
    await settle();
    await clock.advance(60_000);
    await exec.run(READ);
  }
  assertEquals(shells.length, 1);
  shells[0]!.exit(137);
  await settle();
  await exec.run(READ);
  await settle();
  assertEquals(shells.length, 2);
});

Deno.test("ShellExec: who asks for it learns the status of each command", async () => {
  const codes: unknown[] = [];
  const { exec } = await started(
    (line, shell) =>
      shell.report(
        shellAnswer(
          line === "lastlog" ? "lvchange" : line.split(" ")[0]!,
          line === "lastlog" || line === CHANGE_LINE ? 5 : 1,
          [],
        ),
      ),
    { onCommand: (_, { code }) => codes.push(code) },
  );
  await exec.run(READ);
  await exec.run(CHANGE);
  assertEquals(codes, [0, 5]);
});

Deno.test("ShellExec: idle() waits for processes, too", async () => {
  const { exec, processes } = await started(succeed);
  const { promise, resolve } = Promise.withResolvers<void>();
  processes.idle = () => promise;
  let isIdle = false;
  const idle = exec.idle().then(() => isIdle = true);
  await settle();
  assertEquals(isIdle, false);
  resolve();
  await idle;
});

Deno.test("a command that must be a process is one, and only a shell says that its messages were not read", async () => {
  const { exec, processes } = await started(succeed);
  assertEquals((await exec.run(READ)).lacksMessages, true);
  const output = await exec.run({ ...READ, asProcess: true });
  assertEquals([output.stdout, output.lacksMessages, processes.ran], ["by a process", undefined, [
    "lvm fullreport --units b",
  ]]);
});
