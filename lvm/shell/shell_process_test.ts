import { assert, assertEquals } from "@std/assert";
import { openShellProgram, type ShellProcess } from "./shell_process.ts";

const startShell = await openShellProgram();

/** Runs a script as if it were lvm. @returns what it wrote, when it has ended */
async function play(script: string, use: (shell: ShellProcess) => void = () => {}) {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(path, `#!/bin/sh\n${script}\n`);
    await Deno.chmod(path, 0o700);
    let [reports, messages] = ["", ""];
    const listener = {
      onReport: (text: string) => void (reports += text),
      onMessage: (text: string) => void (messages += text),
    };
    const shell = startShell(path, listener);
    use(shell);
    return { exit: await shell.exited, reports, messages };
  } finally {
    await Deno.remove(path);
  }
}

Deno.test("openShellProgram(): what the shell writes as reports is apart from its messages", async () => {
  const { exit, reports, messages } = await play("echo out; echo err >&2; echo report >&3; exit 5");
  assertEquals([exit, reports], [5, "report\n"]);
  assertEquals(messages.split("\n").toSorted(), ["", "err", "out"]);
});

Deno.test("openShellProgram(): the environment is that of commands, and has the profile", async () => {
  const { reports } = await play("env >&3");
  const names = reports.split("\n").map((line) => line.split("=")[0]!).filter((name) =>
    !["", "PWD", "_", "DENO_EXTRA_STDIO_FDS"].includes(name) // of the shell that runs this script, and of Deno
  );
  assertEquals(names.toSorted(), [
    ...["HOME", "LC_ALL", "LVM_COMMAND_PROFILE", "LVM_REPORT_FD", "LVM_SUPPRESS_FD_WARNINGS", "PATH"],
  ]);
  assert(reports.includes("LVM_REPORT_FD=3\n") && reports.includes("HOME=/dev/null\n"), reports);
});

Deno.test("openShellProgram(): a line comes by one write, and the end of the input ends the shell", async () => {
  const line = `${"x".repeat(4095)}\n`;
  const count = "dd bs=65536 count=1 2>/dev/null | wc -c >&3; cat >/dev/null";
  const { exit, reports } = await play(count, (shell) => {
    shell.write(line);
    shell.closeInput();
  });
  assertEquals([exit, reports.trim()], [0, "4096"]);
});

Deno.test("openShellProgram(): a shell that was killed, or is not there, has the status of such a process", async () => {
  const { exit } = await play("kill -SEGV $$");
  assertEquals(exit, 139);
  assertEquals((await play("exec sleep 60", (shell) => void shell.kill())).exit, 137);
  const missing = startShell("/nowhere/lvm", { onReport: () => {}, onMessage: () => {} });
  missing.write("version\n");
  assertEquals(await missing.exited, 127);
});

Deno.test("openShellProgram(): the shell is in a process group of its own", async () => {
  const { reports } = await play("cat /proc/self/stat >&3; echo $$ >&3");
  const [stat, pid] = reports.trim().split("\n");
  assertEquals(stat!.split(" ")[4], pid); // proc(5): pid, comm, state, ppid, pgrp
});
