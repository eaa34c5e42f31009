/**
 * A worker that runs command lines of both programs. Its permissions show what they reach for: without any, whatever reaches
 * for a file, a socket, the network or another program fails, and says so.
 *
 * @module
 */

import { runPlugin } from "../../plugin/subcommands/run.ts";
import { main } from "../../main.ts";

/** A command line. */
export interface JudgeRequest {
  readonly program: string;
  readonly args: readonly string[];
}

/** What came of it. */
export interface JudgeAnswer {
  readonly status: number;
  readonly output: string;
  readonly errors: string;
}

/** The global scope of the worker. */
interface Scope {
  onmessage: (event: MessageEvent<JudgeRequest>) => void;
  postMessage(answer: JudgeAnswer): void;
}

async function run({ program, args }: JudgeRequest): Promise<JudgeAnswer> {
  const [output, errors]: [string[], string[]] = [[], []];
  console.log = (text: string) => void output.push(text);
  console.error = (text: string) => void errors.push(text);
  const status = program === "denolith" ? await main(args) : await runPlugin(args);
  return { status, output: output.join("\n"), errors: errors.join("\n") };
}

if ("WorkerGlobalScope" in globalThis) {
  const scope = globalThis as unknown as Scope;
  scope.onmessage = async ({ data }) => scope.postMessage(await run(data));
}
