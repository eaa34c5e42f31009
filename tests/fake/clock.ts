/**
 * Time that passes when the test says so.
 *
 * @module
 */

import type { Clock } from "../../k8s/runtime/clock.ts";

/** A clock that stands still. Chance always answers one half. */
export class FakeClock implements Clock {
  readonly #timers = new Map<number, { at: number; call: () => void }>();
  #now = 0;
  #next = 0;

  /** See {@linkcode Clock}. */
  now(): number {
    return this.#now;
  }

  /** The time of day: that of the first of January 2026, and what passed. */
  date(): Date {
    return new Date(Date.UTC(2026, 0, 1) + this.#now);
  }

  /** See {@linkcode Clock}. */
  after(ms: number, call: () => void): () => void {
    const id = this.#next++;
    this.#timers.set(id, { at: this.#now + ms, call });
    return () => void this.#timers.delete(id);
  }

  /** See {@linkcode Clock}. */
  random(): number {
    return 0.5;
  }

  /** Milliseconds until the next call is due; infinite when none waits. */
  get msUntilNextTimer(): number {
    return Math.min(...[...this.#timers.values()].map(({ at }) => at - this.#now));
  }

  /** How many calls are waiting for their time. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Has time pass: what is due is called in order, and what follows from it without input or output happens in between. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await flushPromises();
    while (true) {
      const due = [...this.#timers].filter(([, { at }]) => at <= end).sort(([a, x], [b, y]) => x.at - y.at || a - b)[0];
      if (due === undefined) break;
      const [id, { at, call }] = due;
      this.#timers.delete(id);
      this.#now = Math.max(this.#now, at);
      call();
      await flushPromises();
    }
    this.#now = end;
  }
}

/** Settles when everything that only waits for promises has happened. */
export function flushPromises(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
