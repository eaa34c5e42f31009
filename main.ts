/**
 * The entry point of denolith: runs a subcommand in its sandbox, forwards signals, and exits with a status. Nothing
 * else exits the process.
 *
 * @module
 */

import { pathToFileURL } from "node:url";
import { checkFlags, exitStatusOf, parseCommandLine } from "./cli/command_line.ts";
import { SUBCOMMANDS } from "./cli/commands.ts";
import { permissionsFor } from "./cli/permissions.ts";
import { abortOnSignals, runSandboxed } from "./cli/sandbox.ts";

/** The URL of this module. In the image, a link leads to it, which Deno does not follow. */
const MODULE = /\.[jt]s$/.test(import.meta.url)
  ? import.meta.url
  : pathToFileURL(Deno.realPathSync(import.meta.filename!)).href;

/** The module of the worker. In the bundled driver, it is next to this one. */
const WORKER = new URL(MODULE.endsWith(".ts") ? "./cli/worker.ts" : "./worker.js", MODULE).href;

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
    if (subcommand.access === undefined) {
      console.log(subcommand.text());
      return 0;
    }
    const end = waitForSignals();
    const permissions = permissionsFor(await subcommand.access(flags), decodeURIComponent(new URL(WORKER).pathname));
    return await runInSandbox({ name, flags }, { module: WORKER, permissions, end });
  });
}

if (import.meta.main) Deno.exit(await main(Deno.args));
