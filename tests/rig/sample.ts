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
export async function draw(names: readonly string[], seed: string): Promise<string[]> {
  if (seed === NOTHING) return [];
  const drawn: string[] = [];
  for (let start = 0; start < names.length; start += CHANCE) {
    const neighbours = names.slice(start, start + CHANCE);
    const name = neighbours[await numberOf(`${seed} ${neighbours[0]}`) % CHANCE];
    if (name !== undefined) drawn.push(name);
  }
  return drawn;
}

/**
 * Returns about one in a number of cases, drawn by the seed of samples; all of them where the variable CRASHES is `all`, as in
 * `task test:crashes`.
 *
 * @param name what the cases are of: each name draws others
 */
export async function sampleCases<T>(name: string, cases: readonly T[], oneIn: number): Promise<T[]> {
  if (Deno.env.get("CRASHES") === "all") return [...cases];
  const seed = await sampleSeed();
  const drawn = await Promise.all(
    cases.map(async (_, index) => await numberOf(`${seed} ${name} ${index}`) % oneIn === 0),
  );
  return cases.filter((_, index) => drawn[index]);
}

async function numberOf(text: string): Promise<number> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return new DataView(digest).getUint32(0);
}
