/**
 * Commands that derive keys from passphrases, one at a time: each of them takes as much memory as all else together.
 *
 * @module
 */

import { lateCompletion } from "../error.ts";
import type { Command, Exec, Output } from "../exec.ts";

/** Runs commands that derive keys. */
export class KeyDerivation {
  readonly #exec: Exec;
  #last: Promise<unknown> = Promise.resolve();

  /** Creates the service. */
  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Runs a command after those that were given before it, also when one of them outlasts its deadline. */
  async run(command: Command): Promise<Output> {
    const run = this.#last.then(() => this.#exec.run(command));
    this.#last = run.catch((error) => lateCompletion(error)).catch(() => {});
    return await run;
  }
}
