/**
 * Which test reaches which mutants.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { cacheKey } from "../rig/cache.ts";
import { cachedJson, type Copy, mutationFolder } from "./copy.ts";
import { INSTRUMENTER_VERSION } from "./instrument.ts";
import type { TestCoverage } from "./messages.ts";
import { RunnerProcess } from "./runner_process.ts";

/** Tests that do not run the product in their own process, or that are about the files of the project. */
export const LEFT_OUT = /^(?:deploy|tests\/(?:process|meta|rig|bench|lvm|cluster|demo|mutation|std))\/|^tests\/[^/]+$/;

/** A test that can be run with mutants. */
export interface Test {
  readonly file: string;
  /** Its number in the file. */
  readonly index: number;
  readonly name: string;
  /** Its time in milliseconds. */
  readonly ms: number;
  readonly maxHits: number;
  readonly leaks: boolean;
}

/** What is known of the tests. */
export interface Coverage {
  /** The tests that reach a mutant, by the mutant's number. */
  readonly reaching: ReadonlyMap<number, readonly Test[]>;
  /** The tests that reach any mutant of a file. */
  readonly using: ReadonlyMap<string, ReadonlySet<Test>>;
  /** Mutants that are reached while modules are loaded, so that they must be active from the start of a process. */
  readonly atLoad: ReadonlySet<number>;
  /** All tests by file. */
  readonly tests: ReadonlyMap<string, readonly Test[]>;
  /** The files that each test file imports, also by way of others. */
  readonly imports: ReadonlyMap<string, ReadonlySet<string>>;
  /** Tests that cannot be used, with the reason. */
  readonly unusable: readonly string[];
}

/** What the cache has of a test file. Mutants are numbered within their files. */
interface FileCoverage {
  readonly tests: readonly (Omit<TestCoverage, "mutants"> & { readonly reached: Record<string, number[]> })[];
  readonly loaded: Record<string, number[]>;
}

/** Returns the files of the project that a file imports, also by way of others, and itself. */
export function importsOf(file: string, texts: ReadonlyMap<string, string>, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  const specifiers = texts.get(file)?.matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]+)"/g) ?? [];
  for (const [, specifier] of specifiers) {
    const target = join(dirname(file), specifier!);
    if (texts.has(target)) importsOf(target, texts, found);
  }
  return found;
}

/**
 * Finds out what tests reach. What was found before is kept in the cache, until a file changes that the tests import.
 *
 * @param copy the instrumented copy
 * @param options `folders` are those whose mutants matter, all if there is none; `lanes` is the number of processes
 */
export async function coverageOf(
  copy: Copy,
  { folders, lanes, temp, log }: {
    readonly folders: readonly string[];
    readonly lanes: number;
    readonly temp: string;
    readonly log: (line: string) => void;
  },
): Promise<Coverage> {
  const files = [...copy.texts.keys()].filter((file) => file.endsWith("_test.ts") && !LEFT_OUT.test(file));
  const imports = new Map(files.map((file) => [file, importsOf(file, copy.texts)]));
  const matters = (file: string) =>
    folders.length === 0 || [...imports.get(file)!].some((path) => folders.some((folder) => path.startsWith(folder)));
  const queue = files.filter(matters);
  const found = new Map<string, FileCoverage>();
  await Promise.all(Array.from({ length: lanes }, async () => {
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      const path = join(mutationFolder(), "coverage", `${await closureKey(imports.get(file)!, copy.texts)}.json`);
      const test = file;
      found.set(file, await cachedJson(path, () => coverFile(test, copy, { temp, log })));
    }
  }));
  return combine(found, imports, copy);
}

export async function closureKey(files: ReadonlySet<string>, texts: ReadonlyMap<string, string>): Promise<string> {
  return await cacheKey(
    [INSTRUMENTER_VERSION, ...[...files].sort().flatMap((file) => [file, texts.get(file)!])].join("\0"),
  );
}

async function coverFile(
  file: string,
  copy: Copy,
  { temp, log }: { readonly temp: string; readonly log: (line: string) => void },
): Promise<FileCoverage> {
  await using runner = new RunnerProcess(copy.folder, temp);
  const reply = await runner.request({ kind: "cover", file });
  if (reply.kind !== "covered") {
    const problem = reply.kind === "tried" ? "a wrong reply" : `the process ${reply.kind} in ${reply.test}`;
    log(`${file}: ${problem}`);
    return { tests: [{ name: file, ms: 0, maxHits: 0, leaks: false, reached: {}, problem }], loaded: {} };
  }
  log(`${file}: ${reply.tests.length} tests`);
  const tests = reply.tests.map(({ mutants, ...test }) => ({ ...test, reached: byFile(mutants, copy) }));
  return { tests, loaded: byFile(reply.loaded, copy) };
}

/** Numbers mutants within their files. */
function byFile(numbers: readonly number[], { mutants, first }: Copy): Record<string, number[]> {
  const result: Record<string, number[]> = {};
  for (const number of numbers) {
    const { file } = mutants[number]!;
    (result[file] ??= []).push(number - first.get(file)!);
  }
  return result;
}

function combine(
  found: ReadonlyMap<string, FileCoverage>,
  imports: ReadonlyMap<string, ReadonlySet<string>>,
  { first }: Copy,
): Coverage {
  const [reaching, atLoad] = [new Map<number, Test[]>(), new Set<number>()];
  const using = new Map<string, Set<Test>>();
  const [tests, unusable] = [new Map<string, Test[]>(), [] as string[]];
  for (const [file, coverage] of found) {
    const usable: Test[] = [];
    for (const [index, { reached, problem, ...rest }] of coverage.tests.entries()) {
      if (problem !== undefined) {
        unusable.push(`${file}: ${rest.name}: ${problem}`);
        continue;
      }
      const test = { file, index, ...rest };
      usable.push(test);
      for (const [path, numbers] of Object.entries(reached)) {
        using.set(path, (using.get(path) ?? new Set()).add(test));
        for (const number of numbers) {
          const mutant = first.get(path)! + number;
          const list = reaching.get(mutant);
          if (list === undefined) reaching.set(mutant, [test]);
          else list.push(test);
        }
      }
    }
    tests.set(file, usable);
    for (const [path, numbers] of Object.entries(coverage.loaded)) {
      for (const number of numbers) atLoad.add(first.get(path)! + number);
    }
  }
  return { reaching, using, atLoad, tests, imports, unusable };
}
