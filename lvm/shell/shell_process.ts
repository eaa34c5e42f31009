/**
 * The process of a shell of lvm(8): the program `lvm` without arguments.
 *
 * @module
 */

import type { ChildProcess, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { ENVIRONMENT } from "../exec.ts";
import { withinDeadline } from "../clock.ts";

/** The profile of LVM's own daemon, which uses the shell, too. It is part of LVM (lvm.conf(5), `config/profile_dir`). */
export const SHELL_PROFILE = "lvmdbusd";

/** The descriptor of the reports. It is none of the three that programs started by lvm may write to. */
const REPORT_FD = 3;

/**
 * The environment of the shell. Its history would be written to a file in `HOME`.
 */
const SHELL_ENVIRONMENT: Readonly<Record<string, string>> = {
  ...ENVIRONMENT,
  HOME: "/dev/null",
  LVM_COMMAND_PROFILE: SHELL_PROFILE,
  LVM_REPORT_FD: `${REPORT_FD}`,
};

/** The time to read what the shell wrote before its end, in milliseconds. */
const LAST_READ_MS = 1_000;

/** Receives what a shell writes. */
export interface ShellListener {
  /** Called with what it wrote to the descriptor of the reports. */
  onReport(text: string): void;
  /** Called with what it wrote to its standard output or standard error: questions, and messages of no command. */
  onMessage(text: string): void;
}

/** A shell that is running. */
export interface ShellProcess {
  /** Writes a line to its input by one write(2). */
  write(line: string): void;
  /** Closes its input: it ends after the command that is running. */
  closeInput(): void;
  /** Kills it. Returns false when it has ended. */
  kill(): boolean;
  /** Lets this process end before it. */
  detach(): void;
  /** Its exit status, or 128 and the number of the signal that ended it; after the last call of the listener. */
  readonly exited: Promise<number>;
}

/** Starts a shell. */
export type StartShell = (listener: ShellListener) => ShellProcess;

/**
 * Returns what starts shells of a program. The module of Node.js for that is loaded here: loading it takes memory and time,
 * which only a driver with shells needs.
 */
export async function openShellProgram(): Promise<(path: string, listener: ShellListener) => ShellProcess> {
  const { spawn } = await import("node:child_process");
  return (path, listener) => startShellProcess(spawn, path, listener);
}

/** Starts a shell in a process group of its own, so that Ctrl-C for the driver does not reach it. @param path the program */
export function startShellProcess(start: typeof spawn, path: string, listener: ShellListener): ShellProcess {
  const child: ChildProcess = start(path, [], {
    stdio: ["pipe", "pipe", "pipe", "pipe"],
    detached: true,
    cwd: "/",
    env: SHELL_ENVIRONMENT,
  });
  // a child that did not start has no streams
  const { stdin, stdout, stderr } = child as { [stream in "stdin" | "stdout" | "stderr"]?: ChildProcess[stream] };
  stdin?.on("error", () => {}); // the shell has ended: `exited` says so
  const lastReport = read(child.stdio?.[REPORT_FD] as Readable | undefined, listener.onReport);
  for (const stream of [stdout, stderr]) void read(stream, listener.onMessage);
  const exit = new Promise<number>((resolve) => {
    child.on("error", () => resolve(NOT_STARTED));
    child.on("exit", (code, signal) => resolve(code ?? 128 + (SIGNALS[signal ?? ""] ?? 0)));
  });
  return {
    write: (line) => void stdin?.write(line),
    closeInput: () => void stdin?.end(),
    kill: () => child.kill("SIGKILL"),
    detach: () => child.unref(),
    exited: exit.then(async (code) => {
      await withinDeadline(lastReport, LAST_READ_MS);
      return code;
    }),
  };
}

/** The status of a program that cannot be started, as shells have it. */
const NOT_STARTED = 127;

/** The numbers of the signals that may end a process (signal(7)). */
const SIGNALS: Readonly<Record<string, number>> = {
  SIGABRT: 6,
  SIGBUS: 7,
  SIGKILL: 9,
  SIGSEGV: 11,
  SIGPIPE: 13,
  SIGTERM: 15,
};

/** Reads a stream. @returns a promise that resolves at its end */
function read(stream: Readable | null | undefined, onText: (text: string) => void): Promise<void> {
  if (!stream) return Promise.resolve();
  const decoder = new TextDecoder();
  return new Promise((resolve) => {
    stream.on("data", (bytes: Uint8Array) => onText(decoder.decode(bytes, { stream: true })));
    stream.on("error", () => resolve());
    stream.on("end", () => resolve());
    stream.on("close", () => resolve());
  });
}
