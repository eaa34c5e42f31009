/**
 * Which tests to run with a mutant, and in which order.
 *
 * @module
 */

import { dirname } from "@std/path";
import type { Coverage, Test } from "./coverage.ts";
import type { TestToTry } from "./messages.ts";

/** The time that a test may take with a mutant: a multiple of its usual time, and some more on a busy machine. */
const LIMIT = { factor: 5, plusMs: 2_000 };

/** The number of times that a test may reach a mutant: a multiple of the usual number, and some more. */
const HITS = { factor: 20, plus: 20_000 };

/** The time of the tests that are run with a mutant, in milliseconds, unless all are run. */
const BUDGET_MS = 30_000;

/** The same for a mutant that is active from the start of a process. */
const AT_LOAD_BUDGET_MS = 5_000;

/** Tests that killed mutants of the same file before, the latest last. */
export type Killers = ReadonlySet<string>;

/** Returns the name of a test with its file. */
export function titleOf({ file, name }: Test): string {
  return `${file}: ${name}`;
}

/**
 * Returns the tests to run with a mutant, those first that are likely to fail soon: tests that killed mutants of the same
 * file, then tests beside the file, then others; each from the fastest to the slowest.
 *
 * @param mutant its number and its file
 * @param coverage what the tests reach
 * @param killers the tests that killed other mutants of the file
 * @param isThorough whether all tests are run, instead of those that take the time of the budget
 */
export function testsFor(
  { number, file }: { readonly number: number; readonly file: string },
  coverage: Coverage,
  killers: Killers,
  isThorough = false,
): TestToTry[] {
  const reaching = coverage.reaching.get(number) ?? [];
  const isAtLoad = coverage.atLoad.has(number);
  const tests = isAtLoad ? atLoadTests(file, reaching, coverage) : reaching;
  const rank = (test: Test) => {
    if (isOwnTest(test, file)) return 0;
    if (killers.has(titleOf(test)) && test.ms < 500) return 1;
    return dirname(test.file) === dirname(file) ? 2 : 3;
  };
  const sorted = tests.toSorted((a, b) => rank(a) - rank(b) || a.ms - b.ms);
  let left = isThorough ? Infinity : isAtLoad ? AT_LOAD_BUDGET_MS : BUDGET_MS;
  return sorted.filter(({ ms }) => (left -= ms) > -ms).map(toTry);
}

/**
 * Returns tests that may notice a change of what a module is when it is loaded: those that use the module, or else those
 * that import it.
 */
function atLoadTests(file: string, reaching: readonly Test[], { tests, using, imports }: Coverage): Test[] {
  const users = using.get(file);
  const importing = [...tests].flatMap(([test, list]) => imports.get(test)!.has(file) ? list : []);
  return [...new Set([...reaching, ...users ?? importing])];
}

function isOwnTest(test: Test, file: string): boolean {
  return test.file === file.replace(/\.ts$/, "_test.ts");
}

function toTry({ file, index, ms, maxHits, leaks }: Test): TestToTry {
  const limitMs = Math.round(LIMIT.plusMs + LIMIT.factor * ms);
  return { file, index, limitMs, hitLimit: HITS.plus + HITS.factor * maxHits, checksLeaks: !leaks };
}
