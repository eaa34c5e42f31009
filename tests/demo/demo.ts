/**
 * `deno task demo`: plays the lifecycle of a volume through the driver's socket on real LVM.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import { unsupportedReason } from "./loop_group.ts";
import { type Output, Reporter, writeToStdout } from "./reporter.ts";

const HELP = `Usage: deno task demo [flags]

Shows the lifecycle of a volume on real LVM, through the driver's socket, as an orchestrator would: create, stage, publish,
write, grow under a writer, snapshot, delete. Ends with the time that each step took.

As root on a machine with device-mapper and lvm2 it runs on that machine, on a volume group of its own in a file. Anywhere
else it runs in a virtual machine, which is built on first use (takes root, Debian's packages, and one to two minutes) and
kept in the cache folder. Ctrl-C ends it at any time; nothing else is left behind.

Flags:
  --guest     use the virtual machine in any case
  -h, --help  show this help`;

/** A mistake in the command line. */
class UsageError extends Error {}

/** The reason why the demo ends early, with the exit status. */
class Interruption extends Error {
  constructor(message: string, readonly status: number) {
    super(message);
  }
}

/** The signals that end the demo, with their numbers. */
const SIGNALS = { SIGINT: 2, SIGTERM: 15, SIGHUP: 1 } as const;

/** Runs the demo. @returns its exit status: 0 success, 1 a failure, 2 an invalid command line, 128 and more a signal */
async function main(args: readonly string[]): Promise<number> {
  const { help, guest } = parseFlags(args);
  if (help) {
    console.log(HELP);
    return 0;
  }
  const end = new AbortController();
  const output = standardOutput(end);
  const reporter = new Reporter(output);
  endOnSignals(end, reporter);
  const guestReason = guest ? "--guest was given" : await unsupportedReason();
  const tempDir = Deno.env.get("TMPDIR") ?? "/tmp";
  reporter.title("denolith: the lifecycle of a volume");
  const { signal } = end;
  const conclude = (passed: boolean) => {
    if (passed) {
      const task = `npx --yes deno@${Deno.version.deno} task`;
      reporter.say(`In a cluster, a page in your browser shows all of this: ${task} cluster up, then ${task} ui`);
    }
    return passed ? 0 : 1;
  };
  try {
    if (guestReason !== undefined) {
      reporter.say(`In a small virtual machine with a kernel of its own: ${guestReason}. Ctrl-C ends it.`);
      const { runInGuest } = await import("./in_guest.ts");
      return conclude(await runInGuest({ output, signal, tempDir }));
    }
    reporter.say("On this machine, on a volume group of its own, removed afterwards. Ctrl-C ends it.");
    const { runLifecycle } = await import("./lifecycle.ts");
    const { ensureArtifact } = await import("../rig/artifact.ts");
    const driver = await ensureArtifact((line) => reporter.say(line));
    return conclude(await runLifecycle({ output, signal, driver, tempDir }));
  } catch (error) {
    if (!(error instanceof Interruption)) throw error;
    reporter.say(`${error.message}; nothing is left behind`);
    return error.status;
  }
}

function parseFlags(args: readonly string[]): { help: boolean; guest: boolean } {
  const known = ["guest", "help"];
  const parsed = parseArgs(args, {
    boolean: known,
    alias: { help: "h" },
    unknown: (arg) => {
      if (!arg.startsWith("-")) throw new UsageError(`unexpected argument ${JSON.stringify(arg)}; see --help`);
      const flag = arg.replace(/=.*$/s, "");
      throw new UsageError(`unknown flag ${flag}; did you mean --${closestString(flag.replace(/^-+/, ""), known)}?`);
    },
  });
  return { help: parsed.help === true, guest: parsed.guest === true };
}

/** Returns standard output. The demo ends when its reader closes it. */
function standardOutput(end: AbortController): Output {
  const terminal = Deno.stdout.isTerminal();
  const write = (text: string) => {
    try {
      writeToStdout(text);
    } catch {
      end.abort(new Interruption("output closed", 128 + 13));
    }
  };
  return { write, terminal, colors: terminal && !Deno.noColor };
}

function endOnSignals(end: AbortController, reporter: Reporter): void {
  for (const [signal, number] of Object.entries(SIGNALS)) {
    Deno.addSignalListener(signal as keyof typeof SIGNALS, () => {
      if (end.signal.aborted) return;
      reporter.title(`${signal}: ending, and cleaning up`);
      end.abort(new Interruption("ended", 128 + number));
    });
  }
}

if (import.meta.main) {
  try {
    Deno.exit(await main(Deno.args));
  } catch (error) {
    console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
    Deno.exit(error instanceof UsageError ? 2 : 1);
  }
}
