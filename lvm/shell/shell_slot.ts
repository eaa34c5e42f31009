/**
 * A place for one shell of lvm(8): starts it, and replaces it.
 *
 * @module
 */

import { type Clock, systemClock, withinDeadline } from "../clock.ts";
import type { Exec } from "../exec.ts";
import { requireProfile } from "./profile.ts";
import { LvmShell } from "./shell.ts";
import type { StartShell } from "./shell_process.ts";

/** The number of commands after which a new shell replaces the old one, so that its memory is bounded. */
const MAX_COMMANDS = 1_000;

/** The time in which a new shell must answer, in milliseconds. */
const START_MS = 10_000;

/** The time after which a shell is tried again that did not start or was lost, in milliseconds. */
const RETRY_MS = 5 * 60_000;

/** The command that a new shell must answer. It reads no disk. */
const FIRST_LINE = { name: "version", text: "version\n" };

/** Options of a {@linkcode ShellSlot}. */
export interface ShellSlotOptions {
  /** Reads LVM's profile before a shell starts. */
  readonly processes: Exec;
  /** Starts a shell. It is called after a command of lvm has run as a process. */
  readonly start: StartShell;
  /** Called when a shell could not be started, or was given up. */
  readonly onShellLost?: (reason: string) => void;
  /** The number of commands that a shell runs. */
  readonly maxCommands?: number;
  /** The clock. */
  readonly clock?: Clock;
}

/**
 * A place for one shell. The shell starts in the background when it is first needed. A shell that is given up ends by
 * itself or is killed. While it is still there, no other one starts.
 */
export class ShellSlot {
  readonly #options: ShellSlotOptions;
  readonly #clock: Clock;
  #shell: LvmShell | undefined;
  /** The end of the last shell; or its start, while it is starting. */
  #previous: Promise<unknown> | undefined;
  #retryAt = -Infinity;

  /** Creates a place without a shell. */
  constructor(options: ShellSlotOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Returns the shell if it can run a command now. Starts one when there is none. */
  idleShell(): LvmShell | undefined {
    if (this.#shell?.lost !== undefined) this.lose(this.#shell, this.#shell.lost.message);
    const isVacant = this.#shell === undefined && this.#previous === undefined;
    if (isVacant && this.#clock.now() >= this.#retryAt) this.#start();
    return this.#shell?.isIdle ? this.#shell : undefined;
  }

  #start(): void {
    const starting = this.#tryStart().catch((error) => {
      this.#retryAt = this.#clock.now() + RETRY_MS;
      this.#options.onShellLost?.((error as Error).message);
    }).finally(() => {
      if (this.#previous === starting) this.#previous = undefined;
    });
    this.#previous = starting;
  }

  async #tryStart(): Promise<void> {
    await requireProfile(this.#options.processes);
    const shell = new LvmShell(this.#options.start);
    const first = await withinDeadline(shell.run(FIRST_LINE).catch((error: Error) => error), START_MS, {
      clock: this.#clock,
    });
    this.#shell = shell;
    if (first !== undefined && !(first instanceof Error) && first.code === 0) return;
    shell.kill();
    this.lose(shell, first instanceof Error ? first.message : "the shell of lvm did not answer");
  }

  /** Gives a shell up. Another one starts later, when this one has ended. */
  lose(shell: LvmShell, reason: string): void {
    if (this.#shell !== shell) return;
    this.#release(shell);
    this.#retryAt = this.#clock.now() + RETRY_MS;
    this.#options.onShellLost?.(reason);
  }

  /** Lets a shell end that has run many commands. Another one starts when it has ended. */
  replaceWhenOld(shell: LvmShell): void {
    const isOld = shell.commands >= (this.#options.maxCommands ?? MAX_COMMANDS);
    if (this.#shell !== shell || !isOld || !shell.isIdle) return; // another command may have begun already
    this.#release(shell);
    shell.close();
  }

  /** Lets another shell start when this one has ended. */
  #release(shell: LvmShell): void {
    this.#shell = undefined;
    const ended = shell.exited.then(() => {
      if (this.#previous === ended) this.#previous = undefined;
    });
    this.#previous = ended;
  }
}
