/**
 * Time and chance as a seam, so that tests can stop the clock; and the ways to wait.
 *
 * @module
 */

/** Time and chance. */
export interface Clock {
  /** Returns the milliseconds since some moment; the value never decreases. */
  now(): number;
  /** Returns the time of day. */
  date(): Date;
  /** Calls back once after `ms` milliseconds, at most after 24 days. The returned function cancels that. */
  after(ms: number, callback: () => void): () => void;
  /** Returns a random number from 0 up to, but not including, 1. */
  random(): number;
}

/** The longest time of a timer, in milliseconds: 24 days. A longer one would be due at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The clock of the machine. */
export const systemClock: Clock = {
  now: () => performance.now(),
  date: () => new Date(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, Math.min(ms, MAX_TIMER_MS));
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
};

/**
 * Waits until the other tasks of the event loop that are due have run, such as timers and answers to requests. Promises
 * alone never let them run.
 */
export function nextTurn(): Promise<void> {
  // setTimeout() would wait for up to four milliseconds.
  return new Promise((resolve) => setImmediate(resolve));
}

/** Options of {@linkcode withinDeadline}. */
export interface DeadlineOptions {
  /** Ends the wait early. */
  readonly signal?: AbortSignal | undefined;
  /** The clock; the machine's by default. */
  readonly clock?: Clock | undefined;
}

/**
 * Waits for a promise for a limited time.
 *
 * @param ms The time limit, in milliseconds.
 * @returns the promise's value, or `undefined` when the time limit passes first or the signal is aborted.
 */
export async function withinDeadline<T>(
  promise: Promise<T>,
  ms: number,
  { signal, clock = systemClock }: DeadlineOptions = {},
): Promise<T | undefined> {
  const { promise: deadline, resolve } = Promise.withResolvers<undefined>();
  const giveUp = () => resolve(undefined);
  if (signal?.aborted) giveUp();
  const cancel = clock.after(ms, giveUp);
  signal?.addEventListener("abort", giveUp, { once: true });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    cancel();
    signal?.removeEventListener("abort", giveUp);
  }
}

/** Waits until the signal is aborted. */
export function waitForAbort(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/**
 * Returns a signal that is aborted with either of two, until it is disposed of. `AbortSignal.any` is not used: see
 * {@linkcode sleep}.
 */
export function eitherSignal(one: AbortSignal, other?: AbortSignal): Disposable & { readonly signal: AbortSignal } {
  const both = new AbortController();
  const abort = () => both.abort();
  const signals = [one, other].filter((signal) => signal !== undefined);
  for (const signal of signals) signal.addEventListener("abort", abort);
  if (signals.some(({ aborted }) => aborted)) abort();
  return {
    signal: both.signal,
    [Symbol.dispose]: () => signals.forEach((signal) => signal.removeEventListener("abort", abort)),
  };
}

/**
 * Waits until a time has passed or one of the signals is aborted. The signals are not combined by `AbortSignal.any`: Deno's
 * garbage collector may drop such a signal while somebody listens to it (denoland/deno issue 29075).
 *
 * @param ms The time, in milliseconds.
 */
export function sleep(clock: Clock, ms: number, ...signals: (AbortSignal | undefined)[]): Promise<void> {
  return new Promise((resolve) => {
    if (signals.some((signal) => signal?.aborted)) return resolve();
    const done = () => {
      cancel();
      for (const signal of signals) signal?.removeEventListener("abort", done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    for (const signal of signals) signal?.addEventListener("abort", done);
  });
}

/** The delays of an exponential backoff. */
export interface Backoff {
  /** The delay after the first failure, in milliseconds. */
  readonly startMs: number;
  /** The upper limit of the delay, in milliseconds. */
  readonly capMs: number;
}

/**
 * Returns how long to wait before the next attempt. The delay doubles with each failure. Between the half and the whole of it
 * is chosen at random, so that clients that failed together do not try again together.
 *
 * @param failures The number of failures in a row; at least 1.
 * @returns the delay, in milliseconds.
 */
export function backoffMs({ startMs, capMs }: Backoff, failures: number, clock: Clock): number {
  const whole = Math.min(capMs, startMs * 2 ** Math.min(failures - 1, 30));
  return whole * (0.5 + clock.random() / 2);
}

/** Returns a time as the Kubernetes API writes it: RFC 3339, in whole seconds (apimachinery's metav1.Time). */
export function timestamp(date: Date): string {
  return date.toISOString().replace(/\.\d+Z$/, "Z");
}
