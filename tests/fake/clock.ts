/**
 * A clock that a test advances.
 *
 * @module
 */

import { type Clock, nextTurn } from "../../base/clock.ts";

/** A clock that changes only by {@linkcode FakeClock.advance}. Its random numbers are always one half. */
export class FakeClock implements Clock {
  readonly #timers = new Map<number, { at: number; callback: () => void }>();
  #now = 0;
  #next = 0;

  /** See {@linkcode Clock}. */
  now(): number {
    return this.#now;
  }

  /** Returns the time of day, which starts on the first of January 2026. */
  date(): Date {
    return new Date(Date.UTC(2026, 0, 1) + this.#now);
  }

  /** See {@linkcode Clock}. */
  after(ms: number, callback: () => void): () => void {
    const id = this.#next++;
    this.#timers.set(id, { at: this.#now + ms, callback });
    return () => void this.#timers.delete(id);
  }

  /** See {@linkcode Clock}. */
  random(): number {
    return 0.5;
  }

  /** Milliseconds until the next callback is due; `Infinity` when none is pending. */
  get msUntilNextTimer(): number {
    return Math.min(...[...this.#timers.values()].map(({ at }) => at - this.#now));
  }

  /** The number of callbacks that are pending. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /**
   * Lets time pass in which the process does nothing, as when it is stopped or its event loop is blocked: callbacks that
   * became due are called by the next {@linkcode FakeClock.advance}.
   *
   * @param ms How long, in milliseconds.
   */
  stall(ms: number): void {
    this.#now += ms;
  }

  /**
   * Lets time pass. Calls what is due in order; what follows from each call without input or output happens before the next.
   *
   * @param ms How long, in milliseconds.
   */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await flushPromises();
    while (true) {
      const due = [...this.#timers].filter(([, { at }]) => at <= end).sort(([a, x], [b, y]) => x.at - y.at || a - b)[0];
      if (due === undefined) break;
      const [id, { at, callback }] = due;
      this.#timers.delete(id);
      this.#now = Math.max(this.#now, at);
      callback();
      await flushPromises();
    }
    this.#now = end;
  }
}

/** Waits until everything has happened that waits for promises only. */
export function flushPromises(): Promise<void> {
  return nextTurn();
}
