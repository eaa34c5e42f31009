import { run } from "./process.ts";

/** The seed that draws nothing. */
const NOTHING = "none";

/** One in so many is drawn. */
const CHANCE = 3;

/**
 * Returns the seed of samples: the variable SAMPLE, or the hash of the commit that is checked out. A random one where there
 * is neither. The same seed draws the same sample, and `none` draws nothing.
 */
export async function sampleSeed(): Promise<string> {
  const given = Deno.env.get("SAMPLE");
  if (given) return given;
  const root = new URL("../..", import.meta.url).pathname;
  const hash = await run("read the commit", "git", ["-C", root, "rev-parse", "HEAD"]).catch(() => crypto.randomUUID());
  return hash.trim().slice(0, 12);
}

/**
 * Returns the names that a seed draws: of each three neighbours, one. So each has a chance of one in three, and what the drawn
 * ones take together differs little from seed to seed when neighbours take about as long.
 *
 * @param names those that take longest first
 */
export function draw(names: readonly string[], seed: string): string[] {
  if (seed === NOTHING) return [];
  const drawn: string[] = [];
  for (let start = 0; start < names.length; start += CHANCE) {
    const neighbours = names.slice(start, start + CHANCE);
    const name = neighbours[hashOf(`${seed} ${neighbours[0]}`) % CHANCE];
    if (name !== undefined) drawn.push(name);
  }
  return drawn;
}

/** Whether all cases run, as in `task test:crashes`. */
const ALL = Deno.env.get("CRASHES") === "all";

/** Returns the number of random runs of a test: few in `task test`, many in `task test:crashes`. */
export function randomRuns(few: number, many: number): number {
  return ALL ? many : few;
}

/**
 * Returns about one in a number of cases, drawn by the seed of samples; all of them in `task test:crashes`.
 *
 * @param name what the cases are of: each name draws others
 */
export async function sampleCases<T>(name: string, cases: readonly T[], oneIn: number): Promise<T[]> {
  const isDrawn = await drawer(oneIn);
  return cases.filter((_, index) => isDrawn(`${name} ${index}`));
}

/** Returns what adds a test as Deno.test() does, but only about one in a number of them; all in `task test:crashes`. */
export async function sampledTests(
  oneIn: number,
): Promise<(title: string, options: Omit<Deno.TestDefinition, "name" | "fn">, body: () => Promise<void>) => void> {
  const isDrawn = await drawer(oneIn);
  return (title, options, body) => isDrawn(title) && Deno.test(title, options, body);
}

/** Returns what draws about one in a number of names; all of them in `task test:crashes`. */
export async function drawer(oneIn: number): Promise<(name: string) => boolean> {
  if (ALL) return () => true;
  const seed = await sampleSeed();
  return (name) => hashOf(`${seed} ${name}`) % oneIn === 0;
}

/** Returns a number that depends on each character of a text (FNV-1a). */
function hashOf(text: string): number {
  let hash = 2_166_136_261;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 16_777_619) >>> 0;
  return hash >>> 8; // the low bits differ least
}
