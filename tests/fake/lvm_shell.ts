/**
 * A fake of the shell of lvm(8), for tests of what uses one.
 *
 * @module
 */

import type { ShellListener, ShellProcess, StartShell } from "../../lvm/shell/shell_process.ts";

/** The answer of a shell to a command, as LVM 2.03.16 writes it. @param code LVM's own code: 1 for success */
export function shellAnswer(name: string, code: number, messages: readonly [type: string, message: string][] = []) {
  const entry = (
    type: string,
    context: string,
    object: readonly [string, string],
    message: string,
    retCode: number,
  ) => ({
    log_seq_num: "1",
    log_type: type,
    log_context: context,
    log_object_type: object[0],
    log_object_name: object[1],
    log_message: message,
    log_ret_code: String(retCode),
  });
  const log = [
    ...messages.map(([type, message]) => entry(type, "processing", ["vg", "data"], message, 0)),
    entry("status", "shell", ["cmd", name], code === 1 ? "success" : "failure", code),
  ];
  return `  ${JSON.stringify({ log })}\n`;
}

/** A shell that a test plays. */
export class FakeShell implements ShellProcess {
  /** The lines that were written to it. */
  readonly lines: string[] = [];
  /** True when its input was closed. */
  isClosed = false;
  /** True when it was killed. */
  isKilled = false;
  readonly #listener: ShellListener;
  readonly #exit = Promise.withResolvers<number>();
  readonly #play: (line: string, shell: FakeShell) => void;
  readonly exited: Promise<number> = this.#exit.promise;

  /** Creates a shell. @param play is called with each line */
  constructor(listener: ShellListener, play: (line: string, shell: FakeShell) => void) {
    this.#listener = listener;
    this.#play = play;
  }

  write(text: string): void {
    const line = text.trimEnd();
    this.lines.push(line);
    this.#play(line, this);
  }

  closeInput(): void {
    this.isClosed = true;
  }

  kill(): boolean {
    this.isKilled = true;
    this.exit(137);
    return true;
  }

  detach(): void {}

  /** Writes to the descriptor of the reports. */
  report(text: string): void {
    this.#listener.onReport(text);
  }

  /** Writes to standard error. */
  message(text: string): void {
    this.#listener.onMessage(text);
  }

  /** Ends with a status. */
  exit(code: number): void {
    this.#exit.resolve(code);
  }
}

/** Returns a function that starts fake shells, and the list of those that it started. */
export function fakeShells(play: (line: string, shell: FakeShell) => void): { start: StartShell; shells: FakeShell[] } {
  const shells: FakeShell[] = [];
  return {
    shells,
    start: (listener) => {
      const shell = new FakeShell(listener, play);
      shells.push(shell);
      return shell;
    },
  };
}
