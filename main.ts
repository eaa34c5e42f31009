/**
 * The entry point of denolith: runs a subcommand in its sandbox, forwards signals, and exits with a status. Nothing
 * else exits the process.
 *
 * @module
 */

import { toFileUrl } from "@std/path";
import manifest from "./deno.json" with { type: "json" };
import { checkFlags, EXIT, exitStatusOf, type Flags, parseCommandLine } from "./cli/command_line.ts";
import { PLUGIN_SUBCOMMANDS, SUBCOMMANDS } from "./cli/subcommands.ts";
import { COMPLETE, completionLines, completionScript, type Shell } from "./cli/help/completion.ts";
import { DENOLITH } from "./cli/help/denolith.ts";
import { helpColumns, helpText } from "./cli/help/text.ts";
import { permissionsFor } from "./cli/permissions.ts";
import { abortOnSignals, runSandboxed } from "./cli/sandbox.ts";
import { StorageError } from "./base/error.ts";

/** The URL of this module. In the image, a link leads to it, which Deno does not follow. */
const MODULE = /\.[jt]s$/.test(import.meta.url)
  ? import.meta.url
  : toFileUrl(Deno.realPathSync(import.meta.filename!)).href;

/** The module of the worker. In the bundled driver, it is next to this one. */
const WORKER = new URL(MODULE.endsWith(".ts") ? "./cli/worker.ts" : "./worker.js", MODULE).href;

/** Returns where a subcommand of the plugin is when this module is started for it: head.sh of the executable starts the plugin. */
function otherFile(name: string): string {
  return `${name}: this build has it in another file: run kubectl denolith ${name}`;
}

/**
 * Runs a command line.
 *
 * @param options `runInSandbox` runs a subcommand that has permissions of its own; `waitForSignals` returns what is aborted
 * when the process is asked to end
 * @returns the exit status, see {@linkcode EXIT}
 */
export function main(
  args: readonly string[],
  { runInSandbox = runSandboxed, waitForSignals = (): AbortSignal => abortOnSignals() } = {},
): Promise<number> {
  return exitStatusOf(async () => {
    if (args[0] === COMPLETE) {
      console.log(await completionLines(DENOLITH, args.slice(1)));
      return EXIT.success;
    }
    const request = parseCommandLine(DENOLITH, args);
    if (request.kind === "help") {
      console.log(helpText(DENOLITH, request.topic, helpColumns()));
      return request.isRequested ? EXIT.success : EXIT.usage;
    }
    const { name, flags } = request;
    const subcommand = SUBCOMMANDS[name]!;
    await checkFlags(name, subcommand, flags);
    if (PLUGIN_SUBCOMMANDS.includes(name)) throw new StorageError("FailedPrecondition", otherFile(name));
    if (subcommand.access === undefined) {
      console.log(name === "version" ? versionText(flags) : completionScript(DENOLITH, flags["SHELL"] as Shell));
      return EXIT.success;
    }
    const end = waitForSignals();
    const permissions = permissionsFor(await subcommand.access(flags), decodeURIComponent(new URL(WORKER).pathname));
    return await runInSandbox({ name, flags }, { module: WORKER, permissions, end });
  });
}

function versionText({ json }: Flags): string {
  const versions = { denolith: manifest.version, deno: Deno.version.deno, v8: Deno.version.v8 };
  return json !== undefined
    ? JSON.stringify(versions, null, 2)
    : `denolith ${versions.denolith} (deno ${versions.deno}, V8 ${versions.v8})`;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
