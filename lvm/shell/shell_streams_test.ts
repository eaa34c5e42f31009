import { assertEquals } from "@std/assert";
import type { ChildProcess, spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { nextTurn } from "../clock.ts";
import { startShellProcess } from "./shell_process.ts";

/** Starts a shell whose process is none, but events that the test sends. */
function start() {
  const calls: unknown[][] = [];
  const [stdin, stdout, stderr, reports, child] = Array.from({ length: 5 }, () => new EventEmitter());
  Object.assign(child!, { stdin, stdout, stderr, stdio: [stdin, stdout, stderr, reports] });
  const texts: string[] = [];
  const shell = startShellProcess(
    ((...args: unknown[]) => {
      calls.push(args);
      return child as unknown as ChildProcess;
    }) as unknown as typeof spawn,
    "/sbin/lvm",
    { onReport: (text) => texts.push(`report ${text}`), onMessage: (text) => texts.push(`message ${text}`) },
  );
  return { shell, calls, texts, child: child!, reports: reports!, stdout: stdout!, stderr: stderr! };
}

Deno.test("startShellProcess(): the program has no arguments, four pipes, and a process group and an environment of its own", () => {
  const { calls: [[path, args, options]] } = start() as unknown as { calls: [[string, string[], object]] };
  const { env, ...others } = options as { env: object };
  assertEquals([path, args, others], [
    "/sbin/lvm",
    [],
    { stdio: ["pipe", "pipe", "pipe", "pipe"], detached: true, cwd: "/" },
  ]);
  assertEquals(Object.keys(env).includes("LVM_REPORT_FD"), true);
});

Deno.test("startShellProcess(): what comes on each stream is passed on, and the last report before the end of the shell", async () => {
  for (const end of ["end", "close", "error"]) {
    const { shell, texts, child, reports, stdout, stderr } = start();
    const text = (one: string) => new TextEncoder().encode(one);
    stdout.emit("data", text("out"));
    stderr.emit("data", text("err"));
    let code: number | undefined;
    void shell.exited.then((status) => code = status);
    child.emit("exit", null, "SIGSEGV");
    await nextTurn();
    assertEquals(code, undefined, "a report may still come");
    reports.emit("data", text("last"));
    reports.emit(end);
    await nextTurn();
    assertEquals([texts, code], [["message out", "message err", "report last"], 139], end);
  }
});
