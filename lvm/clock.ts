/**
 * Time: for what is done in the background, so that tests can stand still, and as a limit of waiting.
 *
 * @module
 */

/** Time. */
export interface Clock {
  /** The time of day. */
  date(): Date;
  /** Calls once after `ms`; the answer takes it back. */
  after(ms: number, callback: () => void): () => void;
}

/** The machine's own. */
export const systemClock: Clock = {
  date: () => new Date(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};

/** What comes of the promise, or `undefined` when the time is over before or the signal is given. */
export async function withinDeadline<T>(
  promise: Promise<T>,
  ms: number,
  signal?: AbortSignal,
): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const deadline = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
    signal?.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
