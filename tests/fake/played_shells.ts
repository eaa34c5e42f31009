/**
 * Shells of lvm(8) whose commands another exec runs, such as a fake machine, for tests of the driver with shells.
 *
 * @module
 */

import type { Command, Exec, Output } from "../../lvm/exec.ts";
import { shellLine } from "../../lvm/shell/line.ts";
import { PROFILE_SETTINGS } from "../../lvm/shell/profile.ts";
import { ShellExec } from "../../lvm/shell/shell_exec.ts";
import { FakeClock } from "./clock.ts";
import { type FakeShell, fakeShells, shellAnswer } from "./lvm_shell.ts";

/** What LVM prints of the profile of its shells. */
const PROFILE = [
  ...Object.entries(PROFILE_SETTINGS).map(([name, value]) => `${name.split("/")[1]}="${value}"`),
  'command_log_cols="log_type,log_context,log_object_type,log_object_name,log_message,log_ret_code"',
].join("\n");

/** LVM's own code for a command that succeeded. */
const ECMD_PROCESSED = 1;

/** An exec that also answers what LVM's profile is. */
class ProfileExec implements Exec {
  readonly #exec: Exec;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  run(command: Command): Promise<Output> {
    const isProfile = command.program === "lvm" && command.args[0] === "lvmconfig";
    return isProfile ? Promise.resolve({ code: 0, stdout: PROFILE, stderr: "" }) : this.#exec.run(command);
  }

  idle(): Promise<void> {
    return this.#exec.idle();
  }
}

/** An exec that runs commands of lvm in shells. Another exec does what the shells and the processes would do. */
export class PlayedShellExec extends ShellExec {
  /** The shells that it started. */
  readonly shells: readonly FakeShell[];
  /** The commands that can run in shells, by their lines. */
  readonly #commands: Map<string, Command>;

  /** Creates an exec; its shells start when they are first needed. */
  constructor(exec: Exec) {
    const commands = new Map<string, Command>();
    let log = "";
    const { start, shells } = fakeShells((line, shell) => {
      if (line === "lastlog") return shell.report(log);
      if (line === "version") return shell.report(shellAnswer(line, ECMD_PROCESSED));
      const command = commands.get(line)!;
      void exec.run(command).then((output) => {
        const answer = answerOf(command, output);
        log = JSON.stringify({ log: answer.log });
        shell.report(JSON.stringify(answer));
      });
    });
    super({ processes: new ProfileExec(exec), start, clock: new FakeClock() });
    this.shells = shells;
    this.#commands = commands;
  }

  override run(command: Command): Promise<Output> {
    const line = command.program === "lvm" ? shellLine(command.args) : undefined;
    if (line !== undefined) this.#commands.set(line.text.trimEnd(), command);
    return super.run(command);
  }
}

/** Returns what a shell answers, by the output of a process. */
function answerOf({ args: [name = ""] }: Command, { code, stdout, stderr }: Output): { readonly log: unknown } {
  const isReport = name === "fullreport";
  const messages: [string, string][] = [
    ...linesOf(isReport ? "" : stdout).map((line): [string, string] => ["print", line]),
    ...linesOf(stderr).map((line): [string, string] => ["error", line]),
  ];
  const answer = JSON.parse(shellAnswer(name, code === 0 ? ECMD_PROCESSED : code, messages));
  return isReport && code === 0 ? { ...JSON.parse(stdout), ...answer } : answer;
}

function linesOf(text: string): string[] {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}
