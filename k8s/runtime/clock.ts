/**
 * Time and chance, so that tests can stand still.
 *
 * @module
 */

/** Time and chance. */
export interface Clock {
  /** Milliseconds since some moment; never goes back. */
  now(): number;
  /** The time of day. */
  date(): Date;
  /** Calls once after `ms`; the answer takes it back. */
  after(ms: number, call: () => void): () => void;
  /** From 0 up to, not including, 1. */
  random(): number;
}

/** The machine's own. */
export const systemClock: Clock = {
  now: () => performance.now(),
  date: () => new Date(),
  after: (ms, call) => {
    const timer = setTimeout(call, ms);
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
};

/** Comes back when the signal is aborted. */
export function waitForAbort(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** A moment as the API has it: RFC 3339, in whole seconds (apimachinery's metav1.Time). */
export function timestamp(date: Date): string {
  return date.toISOString().replace(/\.\d+Z$/, "Z");
}

/**
 * Comes back after `ms`, or as soon as one of the signals is aborted. They are not made one by `AbortSignal.any`: Deno's garbage
 * collection may take such a signal from who listens to it (denoland/deno issue 29075).
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

/** How waiting grows with the failures in a row. */
export interface Backoff {
  /** Milliseconds after the first failure. */
  readonly startMs: number;
  /** Milliseconds that it never exceeds. */
  readonly capMs: number;
}

/**
 * Milliseconds to wait after so many failures in a row: doubled with each, and of that a random part between the half and
 * the whole, so that those who failed together do not come back together.
 */
export function backoffMs({ startMs, capMs }: Backoff, failures: number, clock: Clock): number {
  const whole = Math.min(capMs, startMs * 2 ** Math.min(failures - 1, 30));
  return whole * (0.5 + clock.random() / 2);
}
