/**
 * Runs subcommands of the driver in this process, over fakes.
 *
 * @module
 */

import { reset } from "@logtape/logtape";
import { type Flags, parseCommandLine } from "../../cli/command_line.ts";
import { DENOLITH } from "../../cli/help/denolith.ts";
import { waitUntil } from "./cluster/control_plane.ts";
import { kubeconfigOf } from "./cluster/kubeconfig.ts";

/** Returns the flags of a command line, with the defaults of those that are not given. */
export function flagsOf(...args: readonly string[]): Flags {
  const request = parseCommandLine(DENOLITH, args);
  if (request.kind !== "run") throw new Error(`${args.join(" ")}: asks for help`);
  return request.flags;
}

/** What a subcommand printed, on standard output and as its log. */
export interface Printed {
  readonly output: string[];
  readonly log: string[];
}

/** Collects what is printed in this process, until it is disposed of. */
export function collectPrinted(): Printed & AsyncDisposable {
  const { log, error } = console;
  const printed: Printed = { output: [], log: [] };
  console.log = (text: string) => void printed.output.push(text);
  console.error = (text: string) => void printed.log.push(text);
  return {
    ...printed,
    [Symbol.asyncDispose]: async () => {
      [console.log, console.error] = [log, error];
      await reset();
    },
  };
}

/** Returns the port on which a subcommand says that it serves HTTP. */
export function httpPort({ log }: Printed): string | undefined {
  return log.map((line) => /serving HTTP .*port=(\d+)/.exec(line)?.[1]).find((port) => port !== undefined);
}

/** Returns what a subcommand answers over HTTP. */
export async function httpGet(printed: Printed, path: string): Promise<string> {
  return await (await fetch(`http://127.0.0.1:${httpPort(printed)}${path}`)).text();
}

/** A folder for the sockets of subcommands, with a kubeconfig. It is removed when it is disposed of. */
export class SubcommandFolder implements AsyncDisposable {
  private constructor(readonly path: string, readonly kubeconfig: string) {}

  /** Creates one. @param server the URL of the API server */
  static async create(server: string, user: Record<string, string> = {}): Promise<SubcommandFolder> {
    const path = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-" }));
    await Deno.writeTextFile(`${path}/kubeconfig`, kubeconfigOf({ server }, user));
    return new SubcommandFolder(path, `${path}/kubeconfig`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.path, { recursive: true });
  }
}

/** A subcommand that runs in this process, until it is disposed of. */
export class RunningSubcommand implements AsyncDisposable {
  readonly #end = new AbortController();
  readonly #status: Promise<number>;
  #failure: unknown;

  private constructor(run: (end: AbortSignal) => Promise<number>) {
    this.#status = run(this.#end.signal);
    this.#status.catch((error) => this.#failure = error);
  }

  /**
   * Starts one.
   *
   * @param run runs its body, until its argument is aborted
   * @param until resolves when the subcommand is as far as the test needs it
   */
  static async start(run: (end: AbortSignal) => Promise<number>, until: () => boolean): Promise<RunningSubcommand> {
    const running = new RunningSubcommand(run);
    await waitUntil(() => {
      if (running.#failure !== undefined) throw running.#failure;
      return until();
    }, "the start of a subcommand");
    return running;
  }

  /** Asks it to end. @returns its exit status */
  stop(): Promise<number> {
    this.#end.abort();
    return this.#status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}
