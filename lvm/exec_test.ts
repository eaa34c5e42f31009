import { assert, assertEquals, assertRejects } from "@std/assert";
import { nextTurn } from "../base/clock.ts";
import { defined } from "../base/defined.ts";
import { StorageError } from "../base/error.ts";
import { type Command, commandError, describeCommand, HostExec, isNotInstalled, runOk } from "./exec.ts";
import { currentRequestId, withRequestId } from "../base/request_id.ts";

const ENDLESS = { program: "dd", args: ["if=/dev/zero", "of=/dev/null", "status=none"] } as const;

Deno.test("HostExec: returns the exit status, the output and the error text in English", async () => {
  const output = await new HostExec().run({ program: "df", args: ["/nowhere/at/all"], mutates: false });
  assertEquals([output.code, output.stdout], [1, ""]);
  assert(output.stderr.includes("No such file or directory"), output.stderr);
});

Deno.test("HostExec: arguments are passed unchanged, and no shell interprets them", async () => {
  const path = "/nowhere/$(touch /tmp/denolith-injected);`id` '\"";
  const output = await new HostExec().run({ program: "df", args: [path], mutates: false });
  assert(output.stderr.includes("$(touch"), output.stderr);
  await assertRejects(() => Deno.stat("/tmp/denolith-injected"), Deno.errors.NotFound);
});

Deno.test("HostExec: commands run in sessions of their own, which signals to the process group do not reach, unless they need not", async () => {
  const args = ["if=/proc/self/stat", "status=none"];
  for (const mutates of [true, false]) {
    for (const ownSessions of [undefined, true, false]) {
      const { stdout } = await new HostExec(defined({ ownSessions })).run({ program: "dd", args, mutates });
      const [, pid, session] = /^(\d+) \(dd\) \S \d+ \d+ (\d+) /.exec(stdout) ?? []; // proc(5): pid, comm, state, ppid, pgrp, session
      assertEquals([pid === undefined, pid === session], [false, ownSessions ?? true], stdout);
    }
  }
});

Deno.test("HostExec: a reading command is killed at its deadline", async () => {
  const exec = new HostExec({ readMs: 100, changeMs: 100 });
  const error = await assertRejects(
    () => exec.run({ ...ENDLESS, mutates: false }),
    StorageError,
    "no answer within 0.1 s",
  );
  assertEquals(error.kind, "Unavailable");
  await exec.idle();
});

Deno.test("HostExec: an abort signal ends a reading command, and not a changing one", async () => {
  const exec = new HostExec();
  const [reading, changing] = [new AbortController(), new AbortController()];
  const begun = performance.now();
  const running = exec.run({ ...ENDLESS, mutates: false, signal: reading.signal });
  reading.abort();
  const error = await assertRejects(() => running, StorageError, "it was ended");
  assertEquals(error.kind, "Unavailable");
  assert(performance.now() - begun < 20_000, "long before its deadline");
  const args = ["if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"];
  const change = exec.run({ program: "dd", args, mutates: true, signal: changing.signal });
  changing.abort();
  assertEquals((await change).code, 0);
});

Deno.test("HostExec: a reading command that ends just at its deadline returns its output or throws Unavailable", async () => {
  const exec = new HostExec();
  for (let i = 0; i < 36; i++) {
    const ended = exec.run({ program: "df", args: ["/"], mutates: false, deadlineMs: i % 12 });
    // A process without CPU time sees the end and the deadline in the same turn of the event loop.
    for (const until = performance.now() + 20; performance.now() < until;);
    const answer = await ended.then(({ code }) => code, (error) => error.kind ?? String(error));
    assert([0, "Unavailable"].includes(answer), answer);
  }
});

Deno.test("HostExec: a changing command is never killed: only the wait ends, and idle() waits for it", async () => {
  const exec = new HostExec({ readMs: 100, changeMs: 10 });
  const folder = await Deno.makeTempDir();
  const [pipe, file] = [`${folder}/pipe`, `${folder}/file`];
  try {
    await new Deno.Command("mkfifo", { args: [pipe] }).output();
    using writer = await Deno.open(pipe, { read: true, write: true }); // opening a pipe for both does not block
    const args = [`if=${pipe}`, `of=${file}`, "bs=1", "count=1", "status=none"];
    const error = await assertRejects(() => exec.run({ program: "dd", args, mutates: true }), StorageError);
    assertEquals(error.kind, "StillRunning");
    assert(error.completion !== undefined);
    await writer.write(new Uint8Array([1])); // the input that dd waits for
    await exec.idle();
    assertEquals((await Deno.stat(file)).size, 1);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("HostExec: a command ends although a process that it started keeps its output open", async () => {
  const exec = new HostExec({ readMs: 100 });
  const folder = await Deno.makeTempDir();
  const [held, started] = [`${folder}/held`, `${folder}/started`];
  /** A shell whose child holds its output open, until somebody writes to a pipe. */
  const shell = (end: string) => ({
    program: "bash" as "lvm",
    args: ["-c", `{ echo >${started}; read line <${held}; } & ${end}`],
  });
  try {
    await new Deno.Command("mkfifo", { args: [held, started] }).output();
    using writer = await Deno.open(held, { read: true, write: true });
    using starts = await Deno.open(started, { read: true, write: true });
    const changed = await assertRejects(
      () => exec.run({ ...shell("exit 3"), mutates: true }),
      StorageError,
      "keeps its output",
    );
    assertEquals(changed.kind, "CommandFailed");
    await exec.idle();
    await starts.read(new Uint8Array(1));
    const abort = new AbortController();
    const reading = exec.run({ ...shell("wait"), mutates: false, deadlineMs: 60_000, signal: abort.signal });
    await starts.read(new Uint8Array(1)); // the child that keeps the output runs
    abort.abort();
    const read = await assertRejects(() => reading, StorageError);
    assertEquals(read.kind, "Unavailable");
    await assertRejects(() => read.completion!, StorageError, "keeps its output");
    await writer.write(new TextEncoder().encode("end\nend\n"));
    await new Promise((resolve) => setTimeout(resolve, 500)); // until the outputs end
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("HostExec: a missing program is Unavailable and named", async () => {
  const exec = new HostExec();
  const missing = { program: "no-such-program" as "lvm", args: [], mutates: false };
  const error = await assertRejects(() => exec.run(missing), StorageError, "no-such-program: not found");
  assertEquals([error.kind, isNotInstalled(error)], ["Unavailable", true]);
});

Deno.test("HostExec: a program that is there but cannot be started is not reported as missing", async () => {
  const args = ["x".repeat(1 << 20)]; // longer than the kernel accepts one argument (execve(2), MAX_ARG_STRLEN)
  const error = await assertRejects(() => new HostExec().run({ program: "df", args, mutates: false }));
  assert(!(error instanceof StorageError), String(error));
});

Deno.test("HostExec: idle() does not wait for a reading command", async () => {
  const exec = new HostExec();
  const reading = new AbortController();
  const running = exec.run({ ...ENDLESS, mutates: false, signal: reading.signal });
  const first = await Promise.race([exec.idle().then(() => "idle"), nextTurn().then(() => "still waiting")]);
  reading.abort();
  await assertRejects(() => running, StorageError, "it was ended");
  assertEquals(first, "idle");
});

Deno.test("runOk() throws an error with the command, its exit status and its messages", async () => {
  const error = await assertRejects(
    () => runOk(new HostExec(), { program: "df", args: ["/nowhere/at/all"], mutates: false }, () => "NotFound"),
    StorageError,
    "/nowhere/at/all: No such file or directory",
  );
  assertEquals(error.kind, "NotFound");
});

Deno.test("commandError() says the reason before the warnings, each once, and what a silent command said on its output", () => {
  const messageOf = (stderr: string, stdout = "") =>
    commandError({ program: "lvm", args: ["vgs"], mutates: false }, { code: 5, stdout, stderr }).message;
  assertEquals(
    messageOf("  WARNING: PV is gone.\n  Volume group not found.\n"),
    "lvm vgs: exit 5: Volume group not found.; WARNING: PV is gone.",
  );
  assertEquals(messageOf("", " said here\n"), "lvm vgs: exit 5: said here");
  assertEquals(messageOf(" \n"), "lvm vgs: exit 5: (no output)");
});

Deno.test("HostExec reports each command with its duration, its exit status and the request that it runs for", async () => {
  const reports: [string, number | undefined, string | undefined][] = [];
  const exec = new HostExec({
    readMs: 10_000,
    onCommand: (command, { code, durationMs }) => {
      assert(durationMs >= 0);
      reports.push([describeCommand(command), code, currentRequestId()]);
    },
  });
  const command: Command = { program: "df", args: ["/nowhere/at/all"], mutates: false };
  await withRequestId("1a2b3c4d", () => exec.run(command));
  await exec.run({ ...ENDLESS, mutates: false, deadlineMs: 10 }).catch(() => {});
  assertEquals(reports, [
    ["df /nowhere/at/all", 1, "1a2b3c4d"],
    ["dd if=/dev/zero of=/dev/null status=none", undefined, undefined],
  ]);
});
