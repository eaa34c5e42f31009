/** The interval of progress messages of long steps, in milliseconds. */
const PROGRESS_INTERVAL_MS = 5000;

/** Returns a log that puts the seconds since now before each line. */
export function timedLog(log: (line: string) => void): (line: string) => void {
  const start = performance.now();
  return (line) => log(`[${Math.round((performance.now() - start) / 1000)} s] ${line}`);
}

/** Runs `work`, and logs the result of `state` every few seconds. */
export async function withProgress<T>(
  log: (line: string) => void,
  state: () => string,
  work: () => Promise<T>,
): Promise<T> {
  const timer = setInterval(() => log(`  ${state()}`), PROGRESS_INTERVAL_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
