/**
 * How subcommands that serve come to their end.
 *
 * @module
 */

/** How long calls under way have to end after SIGTERM, in milliseconds: what the longest command is waited for. */
export const GRACE_MS = 110_000;

/** Resolves when the signal is aborted. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}
