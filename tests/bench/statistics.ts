/**
 * Returns the median; of an even number of values, the mean of the two in the middle.
 *
 * @throws {RangeError} when there are none
 */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const [low, high] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]];
  if (low === undefined || high === undefined) throw new RangeError("take the median: there are no values");
  return (low + high) / 2;
}

/** Rounds a number to so many decimals. */
export function round(value: number, decimals = 0): number {
  return Number(value.toFixed(decimals));
}

/** Measures how long `body` takes. @returns milliseconds */
export async function measureMs(body: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await body();
  return performance.now() - start;
}
