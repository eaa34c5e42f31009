/**
 * The entry point of denolith: runs a subcommand in its sandbox, forwards signals, and exits with a status. Nothing
 * else exits the process.
 *
 * @module
 */

import { checkFlags, messageOf, parseCommandLine, UsageError } from "./cli/command_line.ts";
import { SUBCOMMANDS } from "./cli/commands.ts";
import { permissionsFor } from "./cli/permissions.ts";
import { isSandboxed, runSandboxed, serveWorker, type WorkerRequest } from "./cli/sandbox.ts";
import { StorageError } from "./lvm/error.ts";

/** The time after the first signal in which a further SIGINT is ignored, in milliseconds. */
const REPEATED_SIGINT_MS = 1_000;

/**
 * Returns a signal that is aborted by SIGTERM or SIGINT. A supervisor may send the same signal twice (timeout(1) does),
 * so further SIGTERMs change nothing. A second Ctrl-C ends the process at once, unless it follows the first signal
 * within {@linkcode REPEATED_SIGINT_MS}.
 */
function abortOnSignals(): AbortSignal {
  const end = new AbortController();
  const onSignal = () => {
    if (!end.signal.aborted) {
      Deno.unrefTimer(setTimeout(() => Deno.removeSignalListener("SIGINT", onSignal), REPEATED_SIGINT_MS));
    }
    end.abort();
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, onSignal);
  return end.signal;
}

/**
 * Runs a command line.
 *
 * @returns the exit status: 0 when it succeeded, 1 when it failed, 2 when the command line is invalid
 */
function main(args: readonly string[]): Promise<number> {
  return exitStatusOf(async () => {
    const request = parseCommandLine(SUBCOMMANDS, args);
    if (request.kind === "help") {
      console.log(request.text);
      return request.isRequested ? 0 : 2;
    }
    const { name, flags } = request;
    const subcommand = SUBCOMMANDS[name]!;
    await checkFlags(name, subcommand, flags);
    const { access } = subcommand;
    const end = abortOnSignals();
    if (access === undefined) return await execute({ name, flags }, end);
    const permissions = permissionsFor(await access(flags), import.meta.filename!);
    return await runSandboxed({ name, flags }, { module: import.meta.url, permissions, end });
  });
}

/** Runs the body of a subcommand. @returns its exit status */
function execute({ name, flags }: WorkerRequest, end: AbortSignal): Promise<number> {
  return exitStatusOf(() => SUBCOMMANDS[name]!.run(flags, end));
}

/** Runs a function and prints its error, if any, on standard error. @returns the exit status */
async function exitStatusOf(body: () => Promise<number>): Promise<number> {
  try {
    return await body();
  } catch (error) {
    console.error(`denolith: ${messageOf(error)}`);
    if (error instanceof UsageError) return 2;
    return error instanceof StorageError && error.kind === "InvalidArgument" ? 2 : 1;
  }
}

// The sandbox's worker loads this module, too, and then runs the subcommand that the main thread sends.
if (isSandboxed()) serveWorker(execute);
else if (import.meta.main) Deno.exit(await main(Deno.args));
