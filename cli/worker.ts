/**
 * The worker in which the bodies of subcommands run: the entry point of its thread. It is a module of its own, so that the
 * main thread, which only parses the command line, does not hold the driver's code a second time.
 *
 * @module
 */

import { exitStatusOf, type Flags } from "./command_line.ts";
import { isSandboxed, serveWorker, type WorkerRequest } from "./sandbox.ts";

/** The bodies of the subcommands by name. Each returns the exit status; `end` is aborted when the process is to end. */
const BODIES: Readonly<Record<string, (flags: Flags, end: AbortSignal) => Promise<number>>> = {
  standalone: async (flags, end) => await (await import("./standalone.ts")).standalone(flags, end),
  node: async (flags, end) => await (await import("./node.ts")).node(flags, end),
  controller: async (flags, end) => await (await import("./controller.ts")).controller(flags, end),
  doctor: async (flags) => await (await import("./inspect.ts")).doctor(flags),
  status: async (flags) => await (await import("./inspect.ts")).status(flags),
};

/** The names of the subcommands that have a body. */
export const WORKING_SUBCOMMANDS: readonly string[] = Object.keys(BODIES);

/** Runs the body of a subcommand. @returns its exit status */
export function execute({ name, flags }: WorkerRequest, end: AbortSignal): Promise<number> {
  return exitStatusOf(() => BODIES[name]!(flags, end));
}

if (isSandboxed()) serveWorker(execute);
