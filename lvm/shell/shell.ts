/**
 * A shell of lvm(8) that takes one command after the other.
 *
 * @module
 */

import { StorageError, truncate } from "../error.ts";
import type { Output } from "../exec.ts";
import { withinDeadline } from "../clock.ts";
import { AnswerSplitter, LASTLOG, parseAnswer, parseMessages } from "./answer.ts";
import type { ShellLine } from "./line.ts";
import type { ShellProcess, StartShell } from "./shell_process.ts";

/** A question of LVM. The end of the input answers it with "no", as in a process without input. */
const QUESTION = /\[y\/n\]: ?$/;

/** The maximum length of the messages that are kept, in characters. */
const MAX_MESSAGES_LENGTH = 1_000;

/** The time in which the messages of a failed command are read, in milliseconds. No disk is read for them. */
const MESSAGES_MS = 5_000;

/** The error of a command whose answer did not come: the shell ended, or its answer cannot be understood. */
export class ShellLost extends Error {}

/** A shell of lvm(8). It runs one command at a time. */
export class LvmShell {
  readonly #process: ShellProcess;
  readonly #splitter = new AnswerSplitter();
  /** The command whose answer is awaited; or the last one of a shell that was given up. */
  #pending: PromiseWithResolvers<string> | undefined;
  #lost: ShellLost | undefined;
  #messages = "";
  #isRunning = false;
  #commands = 0;

  /** Starts a shell. */
  constructor(start: StartShell) {
    this.#process = start({ onReport: (text) => this.#onReport(text), onMessage: (text) => this.#onMessage(text) });
    void this.#process.exited.then((code) => this.#giveUp(`it ended with status ${code}`));
  }

  /** Its exit status, as {@linkcode ShellProcess.exited}. */
  get exited(): Promise<number> {
    return this.#process.exited;
  }

  /** The number of commands that it has run. */
  get commands(): number {
    return this.#commands;
  }

  /** The reason why it runs no further command. */
  get lost(): ShellLost | undefined {
    return this.#lost;
  }

  /** Reports whether it can run a command now. */
  get isIdle(): boolean {
    return !this.#isRunning && this.#lost === undefined;
  }

  /**
   * Runs a command. The output is that of a process, with two differences: the reports have the log beside them, and the
   * messages of a command that succeeded are not read.
   *
   * @throws {ShellLost} when no answer came that can be understood; the shell runs no further command, and ends when this
   * one has ended
   */
  async run(line: Pick<ShellLine, "name" | "text">): Promise<Output> {
    if (this.#lost !== undefined) throw this.#lost;
    if (this.#isRunning) throw new StorageError("Busy", "the shell of lvm runs another command");
    this.#isRunning = true;
    try {
      return await this.#run(line);
    } finally {
      this.#isRunning = false;
    }
  }

  async #run({ name, text }: Pick<ShellLine, "name" | "text">): Promise<Output> {
    const answer = await this.#ask(text);
    const { code, hasReports } = this.#understand(() => parseAnswer(name, answer));
    this.#commands++;
    if (code === 0) return { code, stdout: hasReports ? answer : "", stderr: "", lacksMessages: true };
    const log = await withinDeadline(this.#ask(LASTLOG).catch(() => undefined), MESSAGES_MS);
    try {
      if (log === undefined || parseAnswer(name, log).code !== code) throw new Error("it is not of this command");
      const { stdout, stderr } = parseMessages(log);
      return { code, stdout: hasReports ? answer : stdout, stderr };
    } catch (error) {
      this.#giveUp(`its messages cannot be read: ${(error as Error).message}`);
      return { code, stdout: "", stderr: `  the messages of the command could not be read\n` };
    }
  }

  /** Lets it end after the command that is running. It runs no further one. */
  close(): void {
    this.#lost ??= new ShellLost("it was closed");
    this.#process.closeInput();
  }

  /** Kills it. Returns false when it has just ended. Only while it runs a command that reads, or none. */
  kill(): boolean {
    this.#lost ??= new ShellLost("it was killed");
    return this.#process.kill();
  }

  /** Lets this process end before it. */
  detach(): void {
    this.#process.detach();
  }

  async #ask(line: string): Promise<string> {
    if (this.#lost !== undefined) throw this.#lost;
    const pending = this.#pending = Promise.withResolvers<string>();
    this.#messages = "";
    this.#process.write(line);
    return await pending.promise;
  }

  #understand<T>(parse: () => T): T {
    try {
      return parse();
    } catch (error) {
      throw this.#giveUp((error as Error).message);
    }
  }

  #onReport(text: string): void {
    try {
      for (const answer of this.#splitter.push(text)) {
        const pending = this.#pending;
        if (pending === undefined) throw new Error("an answer came to no command");
        this.#pending = undefined;
        pending.resolve(answer);
      }
      if (this.#pending === undefined && this.#splitter.isPartial) throw new Error("an answer came to no command");
    } catch (error) {
      this.#giveUp((error as Error).message);
    }
  }

  #onMessage(text: string): void {
    this.#messages = (this.#messages + text).slice(-MAX_MESSAGES_LENGTH);
    if (this.#pending !== undefined && QUESTION.test(this.#messages)) this.close();
  }

  /** Ends the shell, and the wait for an answer. */
  #giveUp(reason: string): ShellLost {
    const messages = this.#messages.trim() === ""
      ? ""
      : `; it printed ${JSON.stringify(truncate(this.#messages, 200))}`;
    const lost = new ShellLost(`the shell of lvm was given up: ${reason}${messages}`);
    this.#lost ??= lost;
    this.#process.closeInput();
    this.#pending?.reject(lost);
    return lost;
  }
}
