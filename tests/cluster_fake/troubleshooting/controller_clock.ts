/**
 * The clock of a controller in tests that wait for minutes.
 *
 * @module
 */

import { type Clock, systemClock } from "../../../base/clock.ts";

/** The time that the controller waits for the agent of a node, in milliseconds. */
export const NODE_WAIT_MS = 60_000;

/** The clock of the controller. It can be put forward, and its timers end with the cluster. */
export class ControllerClock implements Clock, Disposable {
  readonly random = systemClock.random;
  /** In place of {@linkcode NODE_WAIT_MS}. Another process would hold the Leases if all time went faster. */
  readonly #nodeWaitMs: number;
  readonly #pending = new Set<{ readonly at: number; readonly callback: () => void; readonly cancel: () => void }>();
  #aheadMs = 0;

  /** Creates it. @param nodeWaitMs the time that the controller waits for the agent of a node, in milliseconds */
  constructor(nodeWaitMs: number) {
    this.#nodeWaitMs = nodeWaitMs;
  }

  now(): number {
    return systemClock.now() + this.#aheadMs;
  }

  date(): Date {
    return systemClock.date();
  }

  after(ms: number, callback: () => void): () => void {
    const waitMs = ms === NODE_WAIT_MS ? this.#nodeWaitMs : ms;
    const fire = () => {
      this.#pending.delete(timer);
      callback();
    };
    const timer = { at: this.now() + waitMs, callback: fire, cancel: systemClock.after(waitMs, fire) };
    this.#pending.add(timer);
    return () => {
      this.#pending.delete(timer);
      timer.cancel();
    };
  }

  /** Lets time pass at once. @param ms how long, in milliseconds */
  skip(ms: number): void {
    this.#aheadMs += ms;
    for (const { at, callback, cancel } of [...this.#pending]) {
      if (at > this.now()) continue;
      cancel();
      callback();
    }
  }

  [Symbol.dispose](): void {
    for (const { cancel } of this.#pending) cancel();
  }
}
