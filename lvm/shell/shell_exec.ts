/**
 * Runs commands of lvm in shells that stay, and all others as processes.
 *
 * @module
 */

import {
  awaitOutput,
  type Command,
  type Deadlines,
  DEFAULT_DEADLINES,
  describeCommand,
  type Exec,
  type HostExecOptions,
  type Output,
  RunningChanges,
} from "../exec.ts";
import { defined } from "../defined.ts";
import { type ShellLine, shellLine, type ShellName } from "./line.ts";
import { type LvmShell, ShellLost } from "./shell.ts";
import { ShellSlot, type ShellSlotOptions } from "./shell_slot.ts";

/** The exit status of a change whose shell ended well without an answer: LVM's own for a failure. */
const ECMD_FAILED = 5;

/** Options of a {@linkcode ShellExec}. */
export interface ShellExecOptions extends HostExecOptions, ShellSlotOptions {}

/** A shell in use, and its place. */
interface UsedShell {
  readonly slot: ShellSlot;
  readonly shell: LvmShell;
}

/**
 * Runs commands of lvm in long-lived shells, one for reports and one for changes. A process runs what the shells cannot
 * run ({@linkcode shellLine}), what comes while a shell runs another command, and everything while there is none. So no
 * command waits for another one, and a group that hangs delays no other.
 */
export class ShellExec implements Exec {
  readonly #options: ShellExecOptions;
  readonly #deadlines: Deadlines;
  readonly #changing = new RunningChanges();
  readonly #slots: Readonly<Record<ShellName, ShellSlot>>;

  /** Creates an exec. */
  constructor(options: ShellExecOptions) {
    this.#options = options;
    this.#deadlines = { ...DEFAULT_DEADLINES, ...defined({ readMs: options.readMs, changeMs: options.changeMs }) };
    this.#slots = { reports: new ShellSlot(options), changes: new ShellSlot(options) };
  }

  /** Runs a command in the shell if it can, otherwise as a process. */
  async run(command: Command): Promise<Output> {
    const isForShell = command.program === "lvm" && command.asProcess === undefined;
    const settings = [this.#options.lvmConfig, command.config].filter((text) => text !== undefined).join(" ");
    const line = isForShell ? shellLine(command.args, settings) : undefined;
    if (line === undefined) return await this.#options.processes.run(command);
    const slot = this.#slots[line.shell];
    const shell = slot.idleShell();
    if (shell === undefined) return await this.#options.processes.run(command);
    const start = performance.now();
    let code: number | undefined;
    try {
      const output = await this.#runInShell({ slot, shell }, command, line);
      code = output.code;
      return output;
    } catch (error) {
      if (!(error instanceof ShellLost)) throw error;
    } finally {
      this.#options.onCommand?.(command, { durationMs: performance.now() - start, ...defined({ code }) });
    }
    return await this.#options.processes.run(command);
  }

  /** Reads the mount table as that which runs the processes does. */
  async readMountTable(): Promise<string | undefined> {
    return await this.#options.processes.readMountTable?.();
  }

  /** Waits for the changing commands that are running, and for those that start meanwhile. */
  async idle(): Promise<void> {
    do {
      await this.#changing.settled();
      await this.#options.processes.idle();
    } while (this.#changing.size > 0);
  }

  /** @throws {ShellLost} for a command that only reads, which a process must run; besides those of {@linkcode Exec.run} */
  async #runInShell({ slot, shell }: UsedShell, command: Command, line: ShellLine): Promise<Output> {
    const output = command.mutates ? this.#change({ slot, shell }, command, line) : shell.run(line);
    if (command.mutates) this.#changing.add(output);
    try {
      return await awaitOutput(
        command,
        { output, kill: () => shell.kill(), detach: () => shell.detach() },
        this.#deadlines,
      );
    } catch (error) {
      // what it changes is never cut off: only its input ends
      if (command.mutates) shell.close();
      else shell.kill();
      slot.lose(shell, (error as Error).message);
      throw error;
    } finally {
      slot.replaceWhenOld(shell);
    }
  }

  /** Runs a change. When its answer does not come, it has ended with the shell, as if its process had been killed. */
  async #change({ slot, shell }: UsedShell, command: Command, line: ShellLine): Promise<Output> {
    try {
      return await shell.run(line);
    } catch (error) {
      if (!(error instanceof ShellLost)) throw error;
      slot.lose(shell, error.message);
      const code = await shell.exited;
      const stderr = `  ${describeCommand(command)}: its outcome is not known: ${error.message}\n`;
      return { code: code === 0 ? ECMD_FAILED : code, stdout: "", stderr };
    }
  }
}
