/**
 * The part of `@std/testing/time` that the tests use, for where JSR is not reached: time that only the test moves.
 *
 * @module
 */

interface Timer {
  readonly at: number;
  readonly call: () => void;
  readonly everyMs?: number;
}

/**
 * Replaces `Date`, `setTimeout`, `setInterval`, `clearTimeout` and `clearInterval` until it is disposed of. Not used for code
 * that takes a clock as an argument: that gets a fake clock.
 */
export class FakeTime implements Disposable {
  readonly #real = { Date, setTimeout, setInterval, clearTimeout, clearInterval };
  readonly #timers = new Map<number, Timer>();
  #nextId = 1;
  #now: number;

  /** @param start the time at the beginning, in milliseconds since 1970; otherwise the real time */
  constructor(start: number | string | Date = Date.now()) {
    this.#now = new Date(start).getTime();
    const now = () => this.#now;
    const RealDate = this.#real.Date;
    const add = (call: (...args: unknown[]) => void, delayMs = 0, args: unknown[], isInterval: boolean) => {
      const at = this.#now + Math.max(0, delayMs);
      const id = this.#nextId++;
      this.#timers.set(id, { at, call: () => call(...args), ...(isInterval ? { everyMs: Math.max(1, delayMs) } : {}) });
      return id;
    };
    const clear = (id?: number) => void (id !== undefined && this.#timers.delete(id));
    Object.assign(globalThis, {
      Date: class extends RealDate {
        constructor(...args: [] | [number | string | Date]) {
          super(...(args.length === 0 ? [now()] : args) as [number]);
        }
        static override now = now;
      },
      setTimeout: (call: () => void, ms?: number, ...args: unknown[]) => add(call, ms, args, false),
      setInterval: (call: () => void, ms?: number, ...args: unknown[]) => add(call, ms, args, true),
      clearTimeout: clear,
      clearInterval: clear,
    });
  }

  /** The time in milliseconds since 1970. */
  get now(): number {
    return this.#now;
  }

  /** Lets time pass: the timers that are due are called in order. @param ms milliseconds */
  tick(ms = 0): void {
    const end = this.#now + ms;
    while (this.#callNext(end));
    this.#now = end;
  }

  /** Advances the time, and runs microtasks before each timer and at the end. @param ms milliseconds */
  async tickAsync(ms = 0): Promise<void> {
    const end = this.#now + ms;
    await this.runMicrotasks();
    while (this.#callNext(end)) await this.runMicrotasks();
    this.#now = end;
  }

  /** Runs microtasks until none is left. */
  runMicrotasks(): Promise<void> {
    return new Promise((resolve) => this.#real.setTimeout(resolve));
  }

  /** Calls the timer that is due next, if any is by then. */
  #callNext(end: number): boolean {
    const [next] = [...this.#timers].filter(([, { at }]) => at <= end).sort(([a, x], [b, y]) => x.at - y.at || a - b);
    if (next === undefined) return false;
    const [id, { at, call, everyMs }] = next;
    this.#now = Math.max(this.#now, at);
    if (everyMs === undefined) this.#timers.delete(id);
    else this.#timers.set(id, { at: this.#now + everyMs, call, everyMs });
    call();
    return true;
  }

  /** Puts the real functions back. */
  [Symbol.dispose](): void {
    Object.assign(globalThis, this.#real);
  }
}
