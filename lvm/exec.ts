/**
 * The exec seam: the one place that runs commands.
 *
 * A command is a program of a closed list and an array of arguments; there is no shell. A command that only reads is
 * killed at its deadline. A command that changes something never is: killed halfway, it can part LVM's metadata from the
 * kernel's tables, so only the waiting ends and the command goes on.
 *
 * The interface is small so that something else can sit behind it: the tests' machine, or one long-lived `lvm` shell fed
 * with the same arguments.
 *
 * @module
 */

import { StorageError } from "./error.ts";
import { withinDeadline } from "./clock.ts";

/** The programs that the driver may run, and no others. */
export const PROGRAMS = [
  "blkdiscard",
  "blockdev",
  "btrfs",
  "btrfstune",
  "cmp",
  "dd",
  "df",
  "dmsetup",
  "e2fsck",
  "findmnt",
  "fstrim",
  "lsblk",
  "lvm",
  "mke2fs",
  "mkfs.btrfs",
  "mkfs.xfs",
  "modinfo",
  "mount",
  "resize2fs",
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

/** The directories where a program may be, in the order in which they are tried. */
export const PROGRAM_DIRECTORIES = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"] as const;

/** One command to run. */
export interface Command {
  /** What to run. */
  readonly program: Program;
  /** Its arguments, one element each; never joined, never given to a shell. */
  readonly args: readonly string[];
  /** Whether it changes anything. Such a command is not killed at its deadline. */
  readonly mutates: boolean;
  /** How long to wait, in milliseconds; the seam has a default for reading and one for changing. */
  readonly deadlineMs?: number;
  /** Ends a command that only reads before its deadline. */
  readonly signal?: AbortSignal;
}

/** What a command answered. */
export interface Output {
  /** Its exit status. */
  readonly code: number;
  /** Its standard output. */
  readonly stdout: string;
  /** Its standard error. */
  readonly stderr: string;
}

/** Something that runs commands. */
export interface Exec {
  /**
   * Runs a command to its end, whatever its exit status.
   *
   * @throws {StorageError} `Unavailable` when the program is missing or a reading command passed its deadline or was ended,
   * `StillRunning` when a changing command passed its deadline.
   */
  run(command: Command): Promise<Output>;
  /** Resolves when no changing command is running any more. */
  idle(): Promise<void>;
}

/** How long commands may take, in milliseconds. */
export interface Deadlines {
  /** For a command that only reads. */
  readMs: number;
  /** For a command that changes something. Below the two minutes that kubelet and the sidecars wait. */
  changeMs: number;
}

/** Deadlines that suit a caller who gives up after two minutes. */
export const DEFAULT_DEADLINES: Deadlines = { readMs: 30_000, changeMs: 100_000 };

/** How long a killed command is waited for, in milliseconds. */
const KILL_WAIT_MS = 1_000;

/** The whole environment of every command: messages in English, nothing inherited. */
const ENVIRONMENT = {
  LC_ALL: "C",
  PATH: PROGRAM_DIRECTORIES.join(":"),
  LVM_SUPPRESS_FD_WARNINGS: "1",
};

/** How a {@linkcode HostExec} runs commands. */
export interface HostExecOptions extends Partial<Deadlines> {
  /** Settings for every command of lvm, over those of lvm.conf, as `--config` takes them (lvm(8)); none by default. */
  readonly lvmConfig?: string;
}

/** Runs commands on this host. */
export class HostExec implements Exec {
  readonly #deadlines: Deadlines;
  readonly #lvmConfig: string | undefined;
  readonly #directories = new Map<Program, string>();
  readonly #changing = new Set<Promise<unknown>>();

  /** Makes a runner. */
  constructor({ lvmConfig, ...deadlines }: HostExecOptions = {}) {
    this.#deadlines = { ...DEFAULT_DEADLINES, ...deadlines };
    this.#lvmConfig = lvmConfig;
  }

  /** Runs the command as a child process of its own group, so that a Ctrl-C meant for the driver does not reach it. */
  async run(command: Command): Promise<Output> {
    const child = this.#spawn(command);
    const output = child.output().then(({ code, stdout, stderr }) => ({
      code,
      stdout: new TextDecoder().decode(stdout),
      stderr: new TextDecoder().decode(stderr),
    }));
    if (command.mutates) this.#track(output);

    const deadlineMs = command.deadlineMs ??
      (command.mutates ? this.#deadlines.changeMs : this.#deadlines.readMs);
    const signal = command.mutates ? undefined : command.signal;
    const outcome = await withinDeadline(output, deadlineMs, { signal });
    if (outcome !== undefined) return outcome;
    if (command.mutates) {
      throw new StorageError(
        "StillRunning",
        `${describeCommand(command)}: still running after ${
          deadlineMs / 1000
        } s; it is left to finish, try again later`,
        { completion: output },
      );
    }
    const hasExited = !kill(child);
    // a process that cannot even die, because it waits for a dead disk, must not hold the driver up
    const lateOutput = await withinDeadline(output.catch(() => undefined), KILL_WAIT_MS);
    if (lateOutput === undefined) detach(child);
    else if (hasExited) return lateOutput;
    const reason = signal?.aborted
      ? "it was ended, since nobody waits for it"
      : `no answer within ${deadlineMs / 1000} s`;
    throw new StorageError("Unavailable", `${describeCommand(command)}: ${reason}`, { completion: output });
  }

  /** Waits for the changing commands under way, and for those that come meanwhile. */
  async idle(): Promise<void> {
    while (this.#changing.size > 0) await Promise.allSettled(this.#changing);
  }

  #track(output: Promise<Output>): void {
    const done = output.finally(() => this.#changing.delete(done));
    this.#changing.add(done);
    done.catch(() => {});
  }

  /** The command's arguments, with the settings for lvm among them: it takes `--config` only once (lvm(8)). */
  #buildArguments({ program, args }: Command): string[] {
    if (program !== "lvm" || this.#lvmConfig === undefined) return [...args];
    const configIndex = args.indexOf("--config") + 1;
    if (configIndex > 0) return args.with(configIndex, `${args[configIndex]} ${this.#lvmConfig}`);
    return [args[0] ?? "", "--config", this.#lvmConfig, ...args.slice(1)];
  }

  #spawn(command: Command): Deno.ChildProcess {
    let cause: unknown;
    const knownDirectory = this.#directories.get(command.program);
    for (const directory of knownDirectory === undefined ? PROGRAM_DIRECTORIES : [knownDirectory]) {
      try {
        const child = new Deno.Command(`${directory}/${command.program}`, {
          args: this.#buildArguments(command),
          clearEnv: true,
          env: ENVIRONMENT,
          cwd: "/",
          detached: true,
          stdin: "null",
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
      `${command.program}: not found in ${PROGRAM_DIRECTORIES.join(", ")}; install the package that brings it`,
      { cause },
    );
  }
}

/**
 * Runs a command that must succeed and answers its standard output.
 *
 * @throws {StorageError} of the kind that `classify` gives the answer (default `CommandFailed`), besides those of
 * {@linkcode Exec.run}.
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

/** The error for a command that answered something other than success. */
export function commandError(
  command: Command,
  output: Output,
  kind: StorageError["kind"] = "CommandFailed",
): StorageError {
  const lines = (output.stderr.trim() || output.stdout.trim() || "(it said nothing)").split(/\s*\n\s*/);
  const isWarning = (line: string) => line.startsWith("WARNING:"); // lvm has many of them, and the reason comes last
  const message = [...lines.filter((line) => !isWarning(line)), ...lines.filter(isWarning)].join("; ");
  return new StorageError(kind, `${describeCommand(command)}: exit ${output.code}: ${message.slice(0, 1000)}`);
}

/** Whether the error says that a program is not there, as opposed to one that did not answer in time. */
export function isNotInstalled(error: StorageError): boolean {
  return error.kind === "Unavailable" && error.cause instanceof Deno.errors.NotFound;
}

/** Whether the error says that a command did not answer in time. */
export function isTimeout(error: StorageError): boolean {
  return error.kind === "Unavailable" && !isNotInstalled(error);
}

/** The command as a person would read it. */
export function describeCommand(command: Command): string {
  return [command.program, ...command.args].join(" ");
}

/** Kills a process; answers false when it has just ended by itself, which Deno takes for a mistake. */
function kill(child: Deno.ChildProcess): boolean {
  try {
    child.kill("SIGKILL");
    return true;
  } catch (error) {
    if (error instanceof TypeError || error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Lets this process end without that one; of its pipes some may have been closed by now, which Deno takes for a mistake. */
function detach(child: Deno.ChildProcess): void {
  try {
    child.unref();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}
