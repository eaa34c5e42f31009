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
import { abortOnSignals } from "./cli/shutdown.ts";
import { StorageError } from "./lvm/error.ts";

/**
 * Runs a command line.
 *
 * @param options `runInSandbox` runs a subcommand that has permissions of its own; `waitForSignals` returns what is aborted
 * when the process is asked to end
 * @returns the exit status: 0 when it succeeded, 1 when it failed, 2 when the command line is invalid
 */
export function main(
  args: readonly string[],
  { runInSandbox = runSandboxed, waitForSignals = (): AbortSignal => abortOnSignals() } = {},
): Promise<number> {
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
    const end = waitForSignals();
    if (access === undefined) return await execute({ name, flags }, end);
    const permissions = permissionsFor(await access(flags), import.meta.filename!);
    return await runInSandbox({ name, flags }, { module: import.meta.url, permissions, end });
  });
}

/** Runs the body of a subcommand. @returns its exit status */
export function execute({ name, flags }: WorkerRequest, end: AbortSignal): Promise<number> {
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
