/**
 * `deno task test:model`: plays random histories over whole clusters. See {@linkcode HELP}.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import fc from "fast-check";
import { RecordedRun } from "../record/record.ts";
import { histories, type History } from "./history.ts";
import { keptHistories, readHistory, writeHistory } from "./corpus.ts";
import { tallyText } from "./tally.ts";
import { play } from "./play.ts";

const HELP = `Usage: deno task test:model [-- [flags]]

Plays kept histories, and then random ones, over whole clusters in this process: claims, pods, deaths, outages. A
small model says what a user may see. A history that fails is made small, printed, and written to dist/histories/.
In tests/model/corpus/, it is repeated by "deno task test".

  --time TIME     The time for random histories, such as 90s, 3m or 8h (default 3m)
  --seed NUMBER   The seed of the first random history (default: by chance, and printed)
  --shrink TIME   The time in which a history that fails is made small (default 3m)
  --keep-going    Go on after a history that fails; what fails in the same way is not printed again
  --play FILE     Play one kept history, and print what happens
  -h, --help      Show this help`;

/** Parses a time such as `90s` or `8h`. @returns milliseconds, or `undefined` for another text */
function parseTime(text: string): number | undefined {
  const [, number, unit] = /^(\d{1,6})(s|m|h)$/.exec(text) ?? [];
  if (number === undefined) return undefined;
  return Number(number) * { s: 1_000, m: 60_000, h: 3_600_000 }[unit as "s" | "m" | "h"];
}

/** A history that failed. */
interface Finding {
  readonly history: History;
  readonly error: unknown;
}

/** Plays a history. @returns how it failed */
async function failureOf(history: History): Promise<Finding | undefined> {
  try {
    await play(history);
    return undefined;
  } catch (error) {
    return { history, error };
  }
}

/** Leaves out steps without which a history fails in the same way, many at once and then single ones. */
async function shrink(finding: Finding, ms: number): Promise<Finding> {
  const end = performance.now() + ms;
  let least = finding;
  for (let size = least.history.length >> 1; size > 0; size >>= 1) {
    for (let at = least.history.length; at > 0 && performance.now() < end; at -= size) {
      const smaller = await failureOf(least.history.toSpliced(Math.max(0, at - size), Math.min(at, size)));
      if (smaller !== undefined && kindOf(smaller.error) === kindOf(finding.error)) least = smaller;
    }
  }
  return least;
}

/** Plays the history of a seed. @returns how it failed */
async function playSeed(seed: number): Promise<Finding | undefined> {
  return await failureOf(fc.sample(histories, { seed, numRuns: 1 })[0]!);
}

/** Describes a failure without what differs from history to history. */
function kindOf(error: unknown): string {
  return String(error).split("\n")[0]!.replaceAll(/[0-9a-f]{8,}|\d+/g, "N");
}

function describe(error: unknown): string {
  return error instanceof Error ? error.stack ?? error.message : String(error);
}

async function main(): Promise<number> {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    string: ["time", "seed", "shrink", "play"],
    boolean: ["help", "keep-going"],
    alias: { h: "help" },
    default: { time: "3m", shrink: "3m", seed: String(crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1) },
  });
  if (args.help) {
    console.log(HELP);
    return 0;
  }
  const [timeMs, shrinkMs, seed] = [parseTime(String(args.time)), parseTime(String(args.shrink)), Number(args.seed)];
  if (timeMs === undefined || shrinkMs === undefined || !Number.isSafeInteger(seed)) {
    console.error(`deno task test:model: ${Deno.args.join(" ")}: not known; see --help`);
    return 2;
  }
  if (args.play !== undefined) {
    await play(readHistory(String(args.play)).history, { onLog: console.log });
    return 0;
  }
  const run = await RecordedRun.begin();
  const known = new Set<string>();
  let [passed, failed] = [0, 0];
  const fail = (error: unknown, file: string, text = "") => {
    failed++;
    // between two lines of `deno test`, for .ci/run
    console.log(` ERRORS\n${describe(error)}\n${text} FAILURES\n  repeat: deno task test:model -- --play ${file}`);
  };
  for (const { history, file } of keptHistories()) {
    await play(history).then(() => passed++, (error) => fail(error, file));
  }
  console.log(`seed ${seed}; ${passed} kept histories passed`);
  const start = performance.now();
  const mayGoOn = () => failed === 0 || args["keep-going"];
  for (let next = seed; performance.now() - start < timeMs && mayGoOn(); next++) {
    const finding = await playSeed(next);
    if (finding === undefined) passed++;
    else if (known.has(kindOf(finding.error))) failed++;
    else {
      known.add(kindOf(finding.error));
      const { history, error } = await shrink(finding, shrinkMs);
      const reason = String(error).split("\n")[0]!.slice(0, 300);
      const { file, text } = writeHistory(`seed-${next}`, { reason, history });
      fail(error, file, text);
    }
    if ((next - seed) % 100 === 99) console.log(`${passed} passed, ${failed} failed`);
  }
  console.log(tallyText());
  // as `deno test` prints it, for .ci/run
  console.log(`${failed === 0 ? "ok" : "FAILED"} | ${passed} passed | ${failed} failed`);
  if (failed === 0) await run.pass("test:model", { passed });
  return failed === 0 ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
