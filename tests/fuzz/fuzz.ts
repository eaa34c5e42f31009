/**
 * `deno task fuzz`: feeds random inputs to everything that comes from outside. See {@linkcode HELP}.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { RecordedRun } from "../record/record.ts";
import { describeFinding, type Finding, runKeptInputs, runRandomInputs, type Target } from "./target.ts";
import { TARGETS } from "./targets.ts";

const HELP = `Usage: deno task fuzz [-- [TARGET...] [flags]]

Feeds kept inputs, and then random ones, to the code that reads what comes from outside. An input that
makes a target fail is made small, printed, and written to tests/fuzz/corpus/TARGET/, from where
"deno task test" repeats it.

  TARGET         Run only some targets
  --time TIME    The time for random inputs of all targets together, such as 90s or 60m (default 60s)
  --seed NUMBER  The seed of the first random inputs (default: by chance, and printed)
  --list         List the targets
  -h, --help     Show this help

Targets:
${TARGETS.map(({ name, description }) => `  ${name.padEnd(15)}${description}`).join("\n")}`;

/** The number of random inputs with one seed. A target starts its subject anew for each seed. */
const RUNS_PER_SEED = 5_000;

/** Milliseconds after which a target gets another seed. */
const SEED_MS = 20_000;

/** The time of a run of all targets that the record has, at least, in milliseconds. */
const RECORDED_MS = 60_000;

/** Parses a time such as `90s` or `60m`. @returns milliseconds, or `undefined` for another text */
function parseTime(text: string): number | undefined {
  const [, number, unit] = /^(\d{1,6})(s|m|h)$/.exec(text) ?? [];
  if (number === undefined) return undefined;
  return Number(number) * { s: 1_000, m: 60_000, h: 3_600_000 }[unit as "s" | "m" | "h"];
}

/** Runs one target for a time. */
async function fuzz(target: Target, firstSeed: number, timeMs: number): Promise<{ runs: number; findings: Finding[] }> {
  const end = performance.now() + timeMs;
  const kept = await runKeptInputs(target);
  for (const finding of kept.findings) console.log(describeFinding(finding));
  if (kept.findings.length > 0) return kept;
  let { runs } = kept;
  for (let seed = firstSeed; performance.now() < end; seed++) {
    const left = Math.min(SEED_MS, end - performance.now());
    const outcome = await runRandomInputs(target, { seed, runs: RUNS_PER_SEED, timeMs: left });
    runs += outcome.runs;
    if (outcome.finding === undefined) continue;
    console.log(describeFinding(outcome.finding));
    return { runs, findings: [outcome.finding] };
  }
  return { runs, findings: [] };
}

async function main(): Promise<number> {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    string: ["time", "seed"],
    boolean: ["help", "list"],
    alias: { h: "help" },
    default: { time: "60s", seed: String(crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1) },
  });
  if (args.help || args.list) {
    console.log(args.list ? TARGETS.map(({ name }) => name).join("\n") : HELP);
    return 0;
  }
  const names = args._.map(String);
  const unknown = names.find((name) => !TARGETS.some((target) => target.name === name));
  const [timeMs, seed] = [parseTime(String(args.time)), Number(args.seed)];
  if (unknown !== undefined || timeMs === undefined || !Number.isSafeInteger(seed)) {
    console.error(`deno task fuzz: ${unknown ?? `--time ${args.time} --seed ${args.seed}`}: not known; see --help`);
    return 2;
  }
  const targets = names.length === 0 ? TARGETS : TARGETS.filter(({ name }) => names.includes(name));
  console.log(`seed ${seed}`);
  const run = await RecordedRun.begin();
  let failed = 0;
  for (const target of targets) {
    const start = performance.now();
    const outcome = await fuzz(target, seed, timeMs / targets.length).catch((error) => {
      console.log(`${target.name}: the target itself failed, not the code under test`, error);
      return undefined; // the next targets have their time
    });
    const isOk = outcome?.findings.length === 0;
    if (!isOk) failed++;
    const seconds = Math.round((performance.now() - start) / 1000);
    console.log(`${target.name}: ${outcome?.runs ?? 0} inputs in ${seconds} s, ${isOk ? "ok" : "FAILED"}`);
  }
  // as `deno test` prints it, for .ci/run
  console.log(`${failed === 0 ? "ok" : "FAILED"} | ${targets.length - failed} passed | ${failed} failed`);
  if (failed === 0 && names.length === 0 && timeMs >= RECORDED_MS) await run.pass("fuzz", { passed: targets.length });
  return failed === 0 ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
