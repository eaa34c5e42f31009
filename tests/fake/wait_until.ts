/**
 * Waits for what nothing announces.
 *
 * @module
 */

const { setTimeout } = globalThis; // tests replace it for a while

/** How often a condition is checked: some ten seconds long, and longer on a busy machine. All checks fail only after a fault. */
const MAX_CHECKS = 2_500;

/** Waits until a condition holds. @param what what is waited for, in words @throws {Error} when it does not come */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  what: string | (() => string) = "a condition",
): Promise<void> {
  for (let checks = 1; !await condition(); checks++) {
    if (checks === MAX_CHECKS) {
      throw new Error(`waiting for ${typeof what === "string" ? what : what()}: it does not come`);
    }
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}

/** Returns what a promise resolves to, if that is soon. @param what what is waited for, in words @throws {Error} when it does not come */
export async function soon<T>(promise: Promise<T>, what: string): Promise<T> {
  let isSettled = false;
  promise.catch(() => {}).finally(() => isSettled = true);
  await waitUntil(() => isSettled, what);
  return await promise;
}
