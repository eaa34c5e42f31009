/**
 * Random choices that can be repeated: the same seed makes the same choices.
 *
 * @module
 */

/** Numbers from 0 to below 1. */
export type RandomSource = () => number;

/** Returns the random numbers of a seed (mulberry32). */
export function seededRandom(seed: number): RandomSource {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Returns a number for a text, as a seed. */
export async function seedOf(text: string): Promise<number> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return new DataView(digest).getUint32(0);
}

/** Returns the random numbers of this run, and prints the seed: `SEED=…` repeats the run. */
export function runRandom(): RandomSource {
  const seed = Number(Deno.env.get("SEED") ?? crypto.getRandomValues(new Uint32Array(1))[0]);
  console.error(`SEED=${seed}`);
  return seededRandom(seed);
}

/** Picks one of several values at random. */
export function pick<T>(random: RandomSource, from: readonly T[]): T {
  return from[Math.floor(random() * from.length)]!;
}
