/**
 * The loop of background work: passes, one at a time, when something wakes it or a time has passed.
 *
 * @module
 */

import { type Clock, systemClock } from "./clock.ts";
import { withoutRequestId } from "./request_id.ts";

/** Options of {@linkcode BackgroundWorker}. */
export interface BackgroundWorkerOptions {
  /** Does what there is to do. A pass decides that by what it reads itself, so that two wakes may share one pass. */
  readonly pass: () => Promise<void>;
  /** Called with the error of a pass that failed. It may set the time of the next pass. */
  readonly onError: (error: unknown) => void;
  /** The delay after which a pass that failed is repeated, in milliseconds; by default it is not repeated. */
  readonly retryMs?: number | undefined;
  /** The clock; the machine's by default. */
  readonly clock?: Clock | undefined;
}

/**
 * Background work in passes, one at a time.
 *
 * After each {@linkcode BackgroundWorker.wake} a pass begins: at once, or after the one that is running, because that one may
 * have read the state before the change. Several wakes during one pass share the next pass.
 */
export class BackgroundWorker {
  readonly #options: BackgroundWorkerOptions;
  readonly #clock: Clock;
  #wakePending = false;
  #running = false;
  #passes: Promise<void> | undefined;
  #stopped = false;
  #cancelTimer: (() => void) | undefined;

  /** Creates a worker that does nothing before it is woken. */
  constructor(options: BackgroundWorkerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** True while a pass is running. */
  get running(): boolean {
    return this.#running;
  }

  /** True while a pass is running, or will begin at a known time. */
  get active(): boolean {
    return this.#running || this.#cancelTimer !== undefined;
  }

  /** True if another pass follows the one that is running. */
  get woken(): boolean {
    return this.#wakePending;
  }

  /** True after {@linkcode BackgroundWorker.stop} was called: a pass then ends as soon as it can. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Starts a pass; while one is running, another follows it. Does nothing once the worker is stopped. */
  wake(): void {
    this.#wakePending = true;
    if (this.#stopped || this.#running) return;
    this.#running = true;
    this.#passes = withoutRequestId(() => this.#runPasses()); // a pass does the work of several requests
  }

  /**
   * Wakes the worker after a time, unless a pass begins before. It replaces the time that was set before.
   *
   * @param ms The time, in milliseconds; `undefined` for never.
   */
  wakeAfter(ms: number | undefined): void {
    this.#cancelTimer?.();
    this.#cancelTimer = ms === undefined || this.#stopped ? undefined : this.#clock.after(ms, () => this.wake());
  }

  /** Waits until no pass is running. A time that was set is not waited for. */
  async idle(): Promise<void> {
    while (this.#running) await this.#passes;
  }

  /** Stops the worker, and waits for the pass that is running. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.wakeAfter(undefined);
    await this.idle();
  }

  async #runPasses(): Promise<void> {
    const { pass, onError, retryMs } = this.#options;
    while (this.#wakePending && !this.#stopped) {
      this.#wakePending = false;
      this.wakeAfter(undefined);
      try {
        await pass();
      } catch (error) {
        onError(error);
        if (retryMs !== undefined) this.wakeAfter(retryMs);
      }
    }
    this.#running = false; // in one step with the look at #wakePending, so that no wake is lost
  }
}
