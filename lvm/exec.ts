/**
 * The only code that runs commands.
 *
 * A command is a program of a closed list and an array of arguments; there is no shell. A command that only reads is
 * killed at its deadline. A command that changes something is never killed: if it were killed halfway, LVM's metadata
 * and the kernel's tables could differ. So only the wait ends, and the command continues.
 *
 * {@linkcode HostExec} implements the interface {@linkcode Exec} on this host. Tests implement it with a fake machine.
 *
 * @module
 */

import { defined } from "../base/defined.ts";
import { lateCompletion, StorageError, type StorageErrorOptions, truncate } from "../base/error.ts";
import { withinDeadline } from "../base/clock.ts";
import { attempt, type CommandStreams, outputOf } from "./command_streams.ts";

/** The programs that the driver may run. */
export const PROGRAMS = [
  "blkdiscard",
  "blockdev",
  "btrfs",
  "btrfstune",
  "cmp",
  "cryptsetup",
  "dd",
  "df",
  "dmsetup",
  "e2fsck",
  "find",
  "findmnt",
  "fstrim",
  "losetup",
  "lsblk",
  "lvm",
  "mke2fs",
  "mkfs.btrfs",
  "mkfs.xfs",
  "modinfo",
  "mount",
  "resize2fs",
  "sync",
  "thin_delta",
  "tune2fs",
  "udevadm",
  "umount",
  "whereis",
  "wipefs",
  "xfs_db",
  "xfs_growfs",
] as const;

/** A program of the closed list. */
export type Program = typeof PROGRAMS[number];

/** The directories in which programs are searched, in this order. */
export const PROGRAM_DIRECTORIES = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"] as const;

/** A command. */
export interface Command extends CommandStreams {
  /** The program. */
  readonly program: Program;
  /** The arguments, one element each. They are never joined and never passed to a shell. */
  readonly args: readonly string[];
  /** True if the command changes anything. Such a command is not killed at its deadline. */
  readonly mutates: boolean;
  /**
   * The time to wait, in milliseconds. The default is one of {@linkcode Deadlines}, for commands that read or for those
   * that change something.
   */
  readonly deadlineMs?: number;
  /** Ends a command that only reads, before its deadline. */
  readonly signal?: AbortSignal;
  /** Settings for a command of lvm, which override {@linkcode HostExecOptions.lvmConfig}. */
  readonly config?: string;
}

/** The result of a command. */
export interface Output {
  /** Its exit status. */
  readonly code: number;
  /** Its standard output. */
  readonly stdout: string;
  /** Its standard error. */
  readonly stderr: string;
}

/** Runs commands. */
export interface Exec {
  /**
   * Runs a command until it ends, whatever its exit status.
   *
   * @throws {StorageError} `Unavailable` when the program is missing, or when a reading command passed its deadline or
   * was aborted; `StillRunning` when a changing command passed its deadline
   * @throws {unknown} what the input or the receiver of the output failed with, after the command has ended
   */
  run(command: Command): Promise<Output>;
  /** Resolves when no changing command is running. */
  idle(): Promise<void>;
  /**
   * Reads the mount table of the kernel (proc_pid_mountinfo(5)) without a command, as it is after the call began.
   *
   * @returns the whole table; `undefined` when it cannot be read, so that a command must list the mounts
   */
  readMountTable?(): Promise<string | undefined>;
}

/** Deadlines of commands, in milliseconds. */
export interface Deadlines {
  /** Of a command that only reads. */
  readMs: number;
  /** Of a command that changes something. Less than the two minutes that kubelet and the sidecars wait. */
  changeMs: number;
}

/** Deadlines for callers that stop waiting after two minutes. */
export const DEFAULT_DEADLINES: Deadlines = { readMs: 30_000, changeMs: 100_000 };

/** Milliseconds to wait for a killed command to end. */
const KILL_WAIT_MS = 1_000;

/** The complete environment of every command: messages in English, nothing inherited. */
export const ENVIRONMENT = {
  LC_ALL: "C",
  PATH: PROGRAM_DIRECTORIES.join(":"),
  LVM_SUPPRESS_FD_WARNINGS: "1",
};

/**
 * The environment of cryptsetup. In a container it would wait for ever for the host's udev, in another namespace. So it makes
 * the nodes of its devices itself, as LVM does there.
 */
const CRYPTSETUP_ENVIRONMENT = { ...ENVIRONMENT, DM_DISABLE_UDEV: "1" };

/** The end of a command, or of the wait for it. */
export interface CommandEnd {
  /** The duration in milliseconds. */
  readonly durationMs: number;
  /** Its exit status; absent when it did not end in time or did not start. */
  readonly code?: number;
}

/** Options of a {@linkcode HostExec}. */
export interface HostExecOptions extends Partial<Deadlines> {
  /** Called after each command. */
  readonly onCommand?: (command: Command, end: CommandEnd) => void;
  /** Settings for every command of lvm that override lvm.conf, as `--config` takes them (lvm(8)); none by default. */
  readonly lvmConfig?: string | undefined;
  /**
   * Whether each command is in a session of its own (setsid(2)); true by default. Signals to this process's group do not
   * reach it then: Ctrl-C, and the SIGTERM of timeout(1). That copies this process's page tables for each command: tens of
   * milliseconds.
   */
  readonly ownSessions?: boolean;
}

/** A command that is running. */
export interface RunningCommand {
  /** Its output, when it has ended. */
  readonly output: Promise<Output>;
  /** Kills it. Returns false when it has just ended by itself. */
  kill(): boolean;
  /** Lets this process end before it. */
  detach(): void;
}

/**
 * Waits for the output of a command until its deadline. A command that only reads is killed then.
 *
 * @throws {StorageError} as {@linkcode Exec.run}
 */
export async function awaitOutput(command: Command, running: RunningCommand, deadlines: Deadlines): Promise<Output> {
  const { output } = running;
  const deadlineMs = command.deadlineMs ?? (command.mutates ? deadlines.changeMs : deadlines.readMs);
  const signal = command.mutates ? undefined : command.signal;
  const outcome = await withinDeadline(output, deadlineMs, { signal });
  if (outcome !== undefined) return outcome;
  if (command.mutates) {
    throw new StorageError(
      "StillRunning",
      `${describeCommand(command)}: still running after ${deadlineMs / 1000} s; it is left to finish, try again later`,
      { completion: output },
    );
  }
  const hasExited = !running.kill();
  // a killed process that waits for a failed disk does not end, and must not block the driver
  const lateOutput = await withinDeadline(output.catch(() => undefined), KILL_WAIT_MS);
  if (lateOutput === undefined) running.detach();
  else if (hasExited) return lateOutput;
  const reason = signal?.aborted
    ? "it was ended, since its caller no longer waits"
    : `no answer within ${deadlineMs / 1000} s`;
  throw new StorageError("Unavailable", `${describeCommand(command)}: ${reason}`, { completion: output });
}

/**
 * Runs commands on this host.
 *
 * Without {@linkcode HostExecOptions.ownSessions}, Deno kills the commands that still run when the thread ends that started
 * them, and not when the process ends. So a thread with changing commands must live as long as the process.
 */
export class HostExec implements Exec {
  readonly #deadlines: Deadlines;
  readonly #lvmConfig: string | undefined;
  readonly #ownSessions: boolean;
  readonly #onCommand: HostExecOptions["onCommand"];
  readonly #directories = new Map<Program, string>();
  /** What settles when the commands have ended that change something and are still running. */
  readonly #changing = new Set<Promise<unknown>>();
  /** Reads the mount table; by default nothing does, and a command lists the mounts. */
  readMountTable?: () => Promise<string | undefined>;

  /** Creates an exec with the given deadlines. */
  constructor({ lvmConfig, ownSessions = true, onCommand, ...deadlines }: HostExecOptions = {}) {
    this.#ownSessions = ownSessions;
    this.#onCommand = onCommand;
    this.#deadlines = { ...DEFAULT_DEADLINES, ...deadlines };
    this.#lvmConfig = lvmConfig;
  }

  /** Runs a command as a child process. */
  async run(command: Command): Promise<Output> {
    const start = performance.now();
    let code: number | undefined;
    try {
      const output = await this.#run(command);
      code = output.code;
      return output;
    } finally {
      this.#onCommand?.(command, { durationMs: performance.now() - start, ...defined({ code }) });
    }
  }

  #run(command: Command): Promise<Output> {
    const child = this.#spawn(command);
    const output = this.#outputOf(command, child);
    if (command.mutates) {
      const ended: Promise<unknown> = output.catch(() => {}).then(() => this.#changing.delete(ended));
      this.#changing.add(ended);
    }
    const detach = () => void attempt(() => child.unref());
    return awaitOutput(command, { output, kill: () => attempt(() => child.kill("SIGKILL")), detach }, this.#deadlines);
  }

  async #outputOf(command: Command, child: Deno.ChildProcess): Promise<Output> {
    const output = await outputOf(child, command, this.#deadlines.readMs);
    if (output.stdout !== undefined) return output;
    const reason = `exit ${output.code}, but a process that it started keeps its output open`;
    throw new StorageError("CommandFailed", `${describeCommand(command)}: ${reason}`);
  }

  /** Waits for the changing commands that are running, and for those that start meanwhile. */
  async idle(): Promise<void> {
    while (this.#changing.size > 0) await Promise.all(this.#changing);
  }

  /** Returns the arguments of a command, with the settings for lvm, which accepts `--config` only once (lvm(8)). */
  #buildArguments({ program, args, config }: Command): string[] {
    const settings = [this.#lvmConfig, config].filter((text) => text !== undefined).join(" ");
    if (program !== "lvm" || settings === "") return [...args];
    const configIndex = args.indexOf("--config") + 1;
    if (configIndex > 0) return args.with(configIndex, `${args[configIndex]} ${settings}`);
    return [args[0] ?? "", "--config", settings, ...args.slice(1)];
  }

  #spawn(command: Command): Deno.ChildProcess {
    let cause: unknown;
    const knownDirectory = this.#directories.get(command.program);
    for (const directory of knownDirectory === undefined ? PROGRAM_DIRECTORIES : [knownDirectory]) {
      try {
        const child = new Deno.Command(`${directory}/${command.program}`, {
          args: this.#buildArguments(command),
          clearEnv: true,
          env: command.program === "cryptsetup" ? CRYPTSETUP_ENVIRONMENT : ENVIRONMENT,
          cwd: "/",
          detached: this.#ownSessions,
          stdin: command.input === undefined ? "null" : "piped",
          stdout: "piped",
          stderr: "piped",
        }).spawn();
        this.#directories.set(command.program, directory);
        return child;
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
        cause = error;
      }
    }
    this.#directories.delete(command.program);
    throw new StorageError(
      "Unavailable",
      `${command.program}: not found in ${PROGRAM_DIRECTORIES.join(", ")}; install the package that contains it`,
      { cause },
    );
  }
}

/**
 * Runs a command that must succeed.
 *
 * @param classify returns the kind of error for a failed command; `CommandFailed` by default
 * @returns the standard output
 * @throws {StorageError} of the kind that `classify` returns, besides those of {@linkcode Exec.run}
 */
export async function runOk(
  exec: Exec,
  command: Command,
  classify: (output: Output) => StorageError["kind"] = () => "CommandFailed",
): Promise<string> {
  const output = await exec.run(command);
  if (output.code !== 0) throw commandError(command, output, classify(output));
  return output.stdout;
}

/**
 * Runs dd(1), which says nothing of its own.
 *
 * @param operands its operands
 * @param options that differ from those of a command that only reads
 * @throws {StorageError} `CommandFailed`
 * @returns the standard output
 */
export async function dd(
  exec: Exec,
  operands: Readonly<Record<string, string | number | bigint>>,
  options: Partial<Omit<Command, "program" | "args">> = {},
): Promise<string> {
  const args = [...Object.entries(operands).map(([name, value]) => `${name}=${value}`), "status=none"];
  return await runOk(exec, { program: "dd", args, mutates: false, ...options });
}

/**
 * Runs a changing command, and then `next` with its result. When the command outlasts its deadline, only the caller's
 * wait ends: `next` still runs after the command, and the completion of the error settles after `next`.
 *
 * @throws {StorageError} `StillRunning` when the command passed its deadline; those of {@linkcode Exec.run} and `next`
 */
export async function runThen(exec: Exec, command: Command, next: (output: Output) => Promise<void>): Promise<void> {
  let output: Output;
  try {
    output = await exec.run(command);
  } catch (error) {
    const first = lateCompletion(error);
    if (first === undefined) throw error;
    const completion = first.then((late) => next(late as Output)).catch((late) => {
      // a command of `next` may outlast its deadline as well
      return lateCompletion(late) ?? Promise.reject(late);
    });
    completion.catch(() => {}); // a caller that waits for it sees the error
    throw new StorageError("StillRunning", (error as Error).message, { cause: error, completion });
  }
  await next(output);
}

/**
 * Waits for steps that run at the same time, also when one of them fails.
 *
 * @throws the error of a step; that of a command that still runs comes first, so that what it changes stays locked until it ends
 */
export async function allDone(steps: readonly Promise<void>[]): Promise<void> {
  const errors = (await Promise.allSettled(steps)).flatMap((step) => step.status === "rejected" ? [step.reason] : []);
  if (errors.length > 0) throw errors.find((error) => lateCompletion(error) !== undefined) ?? errors[0];
}

/** Returns an exec that runs each command as a function changes it. */
export function execWith(exec: Exec, change: (command: Command) => Command): Exec {
  return { run: (command) => exec.run(change(command)), idle: () => exec.idle() };
}

/** The maximum length of a command's output in a message, in characters. */
const MAX_OUTPUT_LENGTH = 1_000;

/** Creates the error for a command with an exit status other than 0. */
export function commandError(
  command: Command,
  output: Output,
  kind: StorageError["kind"] = "CommandFailed",
  options: StorageErrorOptions = {},
): StorageError {
  const lines = (output.stderr.trim() || output.stdout.trim() || "(no output)").split(/\s*\n\s*/);
  const isWarning = (line: string) => line.startsWith("WARNING:"); // lvm prints many warnings, and the reason after them
  const message = [...lines.filter((line) => !isWarning(line)), ...lines.filter(isWarning)].join("; ");
  const code = output.code === 137 ? "137 (SIGKILL, as when memory runs out)" : output.code;
  return new StorageError(
    kind,
    `${describeCommand(command)}: exit ${code}: ${truncate(message, MAX_OUTPUT_LENGTH)}`,
    options,
  );
}

/**
 * Returns the kind of error for a program that refuses to change something, and says why. One that was killed has refused nothing:
 * its exit status is above 128 (bash(1), EXIT STATUS).
 */
export function refusalKind({ code }: Output): "FailedPrecondition" | "CommandFailed" {
  return code > 128 ? "CommandFailed" : "FailedPrecondition";
}

/** Reports whether an error means that a program is missing, not that it did not respond in time. */
export function isNotInstalled(error: StorageError): boolean {
  return error.kind === "Unavailable" && error.cause instanceof Deno.errors.NotFound;
}

/** Reports whether an error means that a command did not respond in time. */
export function isTimeout(error: StorageError): boolean {
  return error.kind === "Unavailable" && !isNotInstalled(error);
}

/** Formats a command for messages. */
export function describeCommand(command: Command): string {
  return [command.program, ...command.args].join(" ");
}
