/**
 * Tries one mutant after the other, in one process as long as that is safe.
 *
 * @module
 */

import type { TestToTry } from "./messages.ts";
import { RunnerProcess, type RunnerResult } from "./runner_process.ts";
import type { Status } from "./results.ts";

/** The memory beyond which a process is replaced, in bytes. */
const MAX_RSS = 1.2 * 2 ** 30;

/** The number of mutants after which a process is replaced. */
const MAX_MUTANTS = 300;

/** What became of a mutant. */
export interface Attempt {
  readonly status: Status;
  readonly by?: string;
  readonly failure?: string;
}

/** A process that is replaced when it can no longer be trusted. Dispose of it to end it. */
export class Lane implements AsyncDisposable {
  #runner: RunnerProcess | undefined;
  #used = 0;

  constructor(readonly copy: string, readonly temp: string) {}

  /**
   * Runs tests with a mutant until one fails.
   *
   * @param mutant its number
   * @param tests the tests in their order
   * @param options `isAtLoad` says that the mutant must be active from the start of the process
   */
  async attempt(
    mutant: number,
    tests: readonly TestToTry[],
    { isAtLoad }: { readonly isAtLoad: boolean },
  ): Promise<Attempt> {
    if (isAtLoad) {
      await using runner = new RunnerProcess(this.copy, this.temp, mutant);
      return attemptOf(await runner.request({ kind: "try", mutant, tests }));
    }
    const isFresh = this.#used === 0;
    const result = await this.#request(mutant, tests);
    // A failure may come of what earlier mutants left behind. Then a new process decides.
    const isDoubtful = result.kind === "died" ||
      (result.kind === "tried" && result.status === "killed" && !result.isSound);
    if (!isDoubtful || isFresh) return attemptOf(result);
    return attemptOf(await this.#request(mutant, tests));
  }

  async #request(mutant: number, tests: readonly TestToTry[]): Promise<RunnerResult> {
    this.#runner ??= new RunnerProcess(this.copy, this.temp);
    this.#used++;
    const result = await this.#runner.request({ kind: "try", mutant, tests });
    const isReusable = result.kind === "tried" && result.isSound && result.rss < MAX_RSS && this.#used < MAX_MUTANTS;
    if (!isReusable) await this[Symbol.asyncDispose]();
    return result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#runner?.[Symbol.asyncDispose]();
    [this.#runner, this.#used] = [undefined, 0];
  }
}

function attemptOf(result: RunnerResult): Attempt {
  if (result.kind === "tried") {
    const { status, by, failure } = result;
    return { status, ...(by === undefined ? {} : { by }), ...(failure === undefined ? {} : { failure }) };
  }
  if (result.kind === "covered") throw new Error("try a mutant: the runner replied to another request");
  return {
    status: result.kind === "hung" ? "timeout" : "killed",
    by: result.test,
    failure: `the process ${result.kind}`,
  };
}
