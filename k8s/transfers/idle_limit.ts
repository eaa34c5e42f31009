/**
 * The time limit of a connection without progress, with one timer for the connection: a timer for each read costs as much as
 * the read, where V8 compiles nothing, as in the driver.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";

/** Calls a function when something takes too long. One thing at a time is waited for. */
export class IdleLimit {
  readonly #ms: number;
  readonly #clock: Clock;
  readonly #onIdle: () => void;
  /** When what is waited for began, by the clock's `now()`; `undefined` while nothing is. */
  #since: number | undefined;
  #cancel: (() => void) | undefined;
  #isOver = false;

  /**
   * Creates a limit. Nothing is waited for yet.
   *
   * @param ms the time, in milliseconds
   * @param onIdle called once when it is over
   */
  constructor(ms: number, clock: Clock, onIdle: () => void) {
    this.#ms = ms;
    this.#clock = clock;
    this.#onIdle = onIdle;
  }

  /** Reports whether something took too long. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Begins to wait. */
  begin(): void {
    this.#since = this.#clock.now();
    if (this.#cancel === undefined) this.#start(this.#ms);
  }

  /** Ends waiting: there was progress. The timer goes on, for what is waited for next. */
  end(): void {
    this.#since = undefined;
  }

  /** Ends the timer. */
  close(): void {
    this.end();
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #start(ms: number): void {
    this.#cancel = this.#clock.after(ms, () => {
      this.#cancel = undefined;
      if (this.#since === undefined) return;
      const left = this.#since + this.#ms - this.#clock.now();
      if (left > 0) return this.#start(left);
      this.#isOver = true;
      this.#onIdle();
    });
  }
}
