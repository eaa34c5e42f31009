/**
 * Commands that derive keys from passphrases, one at a time: each of them takes as much memory as all else together.
 *
 * @module
 */

import { type Clock, systemClock, withinDeadline } from "../../base/clock.ts";
import { lateCompletion } from "../../base/error.ts";
import type { Command, Exec, Output } from "../exec.ts";

/**
 * The time for which others wait for a command that has outlasted its deadline, in milliseconds. A derivation has ended by then,
 * on a busy machine, too. What still runs waits for its disk, and has released the memory.
 */
const LATE_MS = 100_000;

/** Runs commands that derive keys. */
export class KeyDerivation {
  readonly #exec: Exec;
  readonly #clock: Clock;
  #last: Promise<unknown> = Promise.resolve();

  /** Creates the service. */
  constructor(exec: Exec, clock: Clock = systemClock) {
    this.#exec = exec;
    this.#clock = clock;
  }

  /** Runs a command after those that were given before it. If one of them outlasts its deadline, it is waited for a while. */
  async run(command: Command): Promise<Output> {
    const run = this.#last.then(() => this.#exec.run(command));
    this.#last = run.catch(async (error) => {
      const late = lateCompletion(error);
      if (late !== undefined) await withinDeadline(late, LATE_MS, { clock: this.#clock });
    }).catch(() => {});
    return await run;
  }
}
