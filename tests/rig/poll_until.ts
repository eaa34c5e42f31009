/** Settings of {@linkcode pollUntil}. */
export interface PollOptions {
  /** The awaited condition, in the words that the error starts with. */
  readonly action: string;
  readonly timeoutMs: number;
  /** Time between two looks, in milliseconds; 100 by default. */
  readonly intervalMs?: number;
  /** Throws when there is no more hope. */
  readonly failFast?: () => Promise<void>;
  readonly signal?: AbortSignal;
}

/**
 * Polls until a probe returns a value, and returns that value.
 *
 * @param probe returns the expected value, or a falsy one as long as there is none
 * @throws {Error} when it does not come in time, and what `check` throws
 */
export async function pollUntil<T>(probe: () => Promise<T>, options: PollOptions): Promise<NonNullable<T>> {
  const end = performance.now() + options.timeoutMs;
  for (;;) {
    options.signal?.throwIfAborted();
    const value = await probe();
    if (value) return value;
    await options.failFast?.();
    if (performance.now() > end) throw new Error(`${options.action}: not done after ${options.timeoutMs / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, options.intervalMs ?? 100));
  }
}
