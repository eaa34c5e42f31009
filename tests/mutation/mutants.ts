/**
 * `deno task mutants`: mutation testing. See {@linkcode HELP}.
 *
 * @module
 */

import { join } from "@std/path";
import { parseArgs } from "@std/cli/parse-args";
import { type Copy, makeCopy, mutationFolder } from "./copy.ts";
import { type Coverage, coverageOf } from "./coverage.ts";
import { type Equivalent, means, problemsOf } from "./equivalents.ts";
import equivalents from "./equivalents.json" with { type: "json" };
import type { Mutant } from "./instrument.ts";
import { testsFor } from "./plan.ts";
import { describeMutant, scoreMarkdown, scores, scoreTable } from "./report.ts";
import { isKilled, Results, type Status } from "./results.ts";
import { Lane } from "./lane.ts";
import { RecordedRun } from "../record/record.ts";
import { drawer } from "../rig/sample.ts";

/** What a run of all code passes with: the part of the mutants that it tried and tests killed, in percent, and their number. */
const PASS = { score: 90, tried: 1_000 };

const HELP = `Usage: deno task mutants [-- [PATH...] [flags]]

Changes the code of the driver in thousands of places, one at a time, and runs the tests that reach the
changed code. A change (a mutant) that no test notices has survived: a test is missing, or the code does nothing.

  PATH             The beginning of a path, such as lvm/pools or csi/server.ts; otherwise all code of the driver
  --survivors      Try only the mutants again that survived before
  --again          Try all mutants again, also those that were killed
  --thorough       Run all tests that reach a mutant. Otherwise the slowest are left out that do not fit in half a minute
  --sample N       Try only one of N mutants, drawn by the commit, or by the variable SAMPLE; the others can be tried later
  --report         Try nothing, only print what is known
  --list           Also print the mutants that survived
  --json           Print the scores as JSON
  --markdown       Print the scores as a table in Markdown, also those of the first tries
  --lanes N        The number of processes at a time, 2 unless given
  -h, --help       Show this help

Results are kept in RESULTS, so a run that was stopped continues
where it was. A mutant is tried again when the function or constant changes that it is in.
tests/mutation/equivalents.json has the mutants that change nothing, with the reasons.
A run of all code passes when it has tried ${PASS.tried} mutants, and tests killed ${PASS.score} % of them.

Examples:
  deno task mutants -- lvm/pools --list
  deno task mutants -- csi/service.ts --survivors
  deno task mutants -- --again --sample 25`;

const ROOT = new URL("../..", import.meta.url).pathname;

/** Options of a run. */
interface Options {
  readonly paths: readonly string[];
  readonly lanes: number;
  /** Whether all tests are run that reach a mutant. */
  readonly isThorough: boolean;
  /** Whether a mutant is in the sample. */
  readonly isDrawn: (key: string) => boolean;
  readonly shouldTry: (status: Status | undefined) => boolean;
}

/** Returns the numbers of the mutants to try, file by file. */
function selected({ mutants }: Copy, results: Results, { paths, isDrawn, shouldTry }: Options): number[] {
  return [...mutants.keys()].filter((number) => {
    const mutant = mutants[number]!;
    if (!isBelow(mutant, paths) || equivalentOf(mutant) !== undefined) return false;
    return isDrawn(mutant.key) && shouldTry(results.of(mutant)?.status);
  });
}

function isBelow({ file }: Mutant, paths: readonly string[]): boolean {
  return paths.length === 0 || paths.some((path) => file.startsWith(path));
}

function equivalentOf(mutant: Mutant): Equivalent | undefined {
  return (equivalents as Equivalent[]).find((entry) => means(entry, mutant));
}

/** Tries the mutants, and adds their results. */
async function tryAll(copy: Copy, numbers: number[], results: Results, options: Options): Promise<Progress> {
  const { paths, lanes } = options;
  const temp = await Deno.makeTempDir({ prefix: "denolith-mutants-" });
  const log = (line: string) => console.error(line);
  try {
    const coverage = await coverageOf(copy, { folders: paths, lanes, temp, log });
    for (const line of coverage.unusable) log(`not used: ${line}`);
    const progress = { done: 0, all: numbers.length, survived: 0, start: Date.now() };
    const files = Map.groupBy(numbers, (number) => copy.mutants[number]!.file);
    const queue = [...files.values()];
    await Promise.all(Array.from({ length: lanes }, async () => {
      await using lane = new Lane(copy.folder, temp);
      for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
        await tryFile(file, { copy, coverage, results, lane, progress, options });
        log(progressLine(copy.mutants[file[0]!]!.file, progress));
      }
    }));
    return progress;
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
}

interface Progress {
  done: number;
  readonly all: number;
  survived: number;
  readonly start: number;
}

function progressLine(file: string, { done, all, survived, start }: Progress): string {
  const minutes = (Date.now() - start) / 60_000;
  const left = minutes / Math.max(1, done) * (all - done);
  return `${file}: ${done} of ${all} tried, ${survived} survived, ${left.toFixed(0)} min left`;
}

async function tryFile(
  numbers: readonly number[],
  { copy, coverage, results, lane, progress, options }: {
    readonly copy: Copy;
    readonly coverage: Coverage;
    readonly results: Results;
    readonly lane: Lane;
    readonly progress: Progress;
    readonly options: Options;
  },
): Promise<void> {
  const killers = new Set<string>();
  for (const number of numbers) {
    const mutant = copy.mutants[number]!;
    const tests = testsFor({ number, file: mutant.file }, coverage, killers, options.isThorough);
    const outcome = tests.length === 0
      ? { status: "uncovered" } as const
      : await lane.attempt(number, tests, { isAtLoad: coverage.atLoad.has(number) });
    await results.add({ ...mutant, ...outcome });
    if ("by" in outcome && outcome.by !== undefined) killers.add(outcome.by);
    progress.done++;
    if (!isKilled(outcome.status)) progress.survived++;
  }
}

/** Prints scores and survivors. @returns the exit status */
function report(
  copy: Copy,
  results: Results,
  paths: readonly string[],
  flags: { list: boolean; json: boolean; markdown: boolean },
): number {
  const mutants = copy.mutants.filter((mutant) => isBelow(mutant, paths));
  const statusOf = (mutant: Mutant) => equivalentOf(mutant) ? "equivalent" : results.of(mutant)?.status;
  const rows = scores(mutants, statusOf, (mutant) => results.firstOf(mutant));
  if (flags.list) {
    for (const mutant of mutants) {
      const status = statusOf(mutant);
      if (status === "survived" || status === "uncovered") console.log(`${status}: ${describeMutant(mutant)}`);
    }
  }
  if (flags.json) console.log(JSON.stringify(rows, undefined, 2));
  else console.log(flags.markdown ? scoreMarkdown(rows) : scoreTable(rows));
  const problems = problemsOf(equivalents, copy.mutants, (mutant) => results.of(mutant)?.status);
  for (const problem of problems) console.error(`equivalents.json: ${problem}`);
  return problems.length > 0 ? 1 : 0;
}

/** Records a run of all code that passes. @returns the exit status */
async function passes({ done, survived }: Pick<Progress, "done" | "survived">, run: RecordedRun): Promise<number> {
  const killed = done - survived;
  const isPass = done >= PASS.tried && killed / done >= PASS.score / 100;
  if (isPass) await run.pass("mutants", { passed: killed });
  else console.error(`no pass: ${killed} of ${done} killed, instead of ${PASS.score} % of at least ${PASS.tried}`);
  return isPass ? 0 : 1;
}

async function main(): Promise<number> {
  const flags = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    boolean: ["help", "survivors", "again", "thorough", "report", "list", "json", "markdown"],
    string: ["lanes", "sample"],
    alias: { h: "help" },
  });
  const path = join(mutationFolder(), "results.jsonl");
  if (flags.help) {
    console.log(HELP.replace("RESULTS", path));
    return 0;
  }
  const options: Options = {
    paths: flags._.map((path) => String(path).replace(/^\.\//, "")),
    lanes: Number(flags.lanes ?? 2),
    isThorough: flags.thorough === true,
    isDrawn: await drawer(Number(flags.sample ?? 1)),
    shouldTry: (status) => {
      if (flags.again === true) return true;
      return flags.survivors === true ? status !== undefined && !isKilled(status) : status === undefined;
    },
  };
  const run = await RecordedRun.begin();
  const results = await Results.read(path);
  using copy = await makeCopy(ROOT);
  const numbers = flags.report ? [] : selected(copy, results, options);
  const tried = numbers.length > 0 ? await tryAll(copy, numbers, results, options) : { done: 0, survived: 0 };
  const status = report(copy, results, options.paths, {
    ...{ list: flags.list === true, json: flags.json === true, markdown: flags.markdown === true },
  });
  return flags.report || options.paths.length > 0 || status !== 0 ? status : await passes(tried, run);
}

if (import.meta.main) Deno.exit(await main());
