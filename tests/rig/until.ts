/** Settings of {@linkcode until}. */
export interface UntilOptions {
  /** What is waited for, in the words that the error starts with. */
  readonly action: string;
  readonly timeoutMs: number;
  /** Time between two looks, in milliseconds; 100 by default. */
  readonly everyMs?: number;
  /** Throws when there is no more hope. */
  readonly check?: () => Promise<void>;
  readonly signal?: AbortSignal;
}

/**
 * Waits for a state that can only be asked for, and answers it.
 *
 * @param look answers what is waited for, or something falsy when it is not so yet
 * @throws {Error} when it does not come in time, and what `check` throws
 */
export async function until<T>(look: () => Promise<T>, options: UntilOptions): Promise<NonNullable<T>> {
  const end = performance.now() + options.timeoutMs;
  for (;;) {
    options.signal?.throwIfAborted();
    const seen = await look();
    if (seen) return seen;
    await options.check?.();
    if (performance.now() > end) throw new Error(`${options.action}: not done after ${options.timeoutMs / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, options.everyMs ?? 100));
  }
}
