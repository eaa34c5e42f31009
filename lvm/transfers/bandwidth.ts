/**
 * The bound of what an agent sends and receives.
 *
 * @module
 */

import { type Clock, sleep, systemClock } from "../../base/clock.ts";

/** Spreads bytes over time. All transfers of an agent share it. */
export class Bandwidth {
  readonly #bytesPerSecond: number | undefined;
  readonly #clock: Clock;
  /** The time at which what was taken has passed, by the clock's `now()`. */
  #passedAt = -Infinity;

  /** Creates a bound. @param bytesPerSecond without it, nothing is bounded */
  constructor(bytesPerSecond?: bigint, clock: Clock = systemClock) {
    this.#bytesPerSecond = bytesPerSecond === undefined ? undefined : Number(bytesPerSecond);
    this.#clock = clock;
  }

  /** Waits until bytes may pass, after those that were taken before. */
  async take(bytes: number): Promise<void> {
    if (this.#bytesPerSecond === undefined) return;
    const now = this.#clock.now();
    const begin = Math.max(now, this.#passedAt);
    this.#passedAt = begin + bytes * 1000 / this.#bytesPerSecond;
    if (begin > now) await sleep(this.#clock, begin - now);
  }
}
