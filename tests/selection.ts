/**
 * Selects the tests that the filters of `deno task test` mean.
 *
 * @module
 */

import { basename, dirname, join } from "@std/path";
import { closestString } from "@std/text/closest-string";

/** A TypeScript file of the project. */
export interface TestFile {
  /** Its path below the root of the project. */
  readonly path: string;
  /** Its content. */
  readonly text: string;
}

/** The tests that filters mean. */
export interface Selection {
  /** Files to run as a whole. */
  readonly files: readonly string[];
  /** Tests to run by a part of their names, with the files that may have them. */
  readonly byTitle: readonly { readonly title: string; readonly files: readonly string[] }[];
  /** Filters that match no test. */
  readonly unmatched: readonly string[];
}

const isTest = ({ path }: TestFile) => path.endsWith("_test.ts");

/**
 * Selects tests.
 *
 * @param sources the TypeScript files of the project
 * @param filters each the beginning of a path, a part of a file's name, or a part of a test's name, in this order
 * @returns the selected tests, and the filters without any
 */
export function selectTests(sources: readonly TestFile[], filters: readonly string[]): Selection {
  const files = new Set<string>();
  const byTitle: { title: string; files: string[] }[] = [];
  const unmatched: string[] = [];
  for (const filter of filters) {
    const byPath = filesByPath(sources, filter);
    for (const path of byPath) files.add(path);
    if (byPath.length > 0) continue;
    const isPath = /^[\w.-]*\/[\w./-]*$/.test(filter);
    const match = isPath ? undefined : filesByTitle(sources, filter);
    if (match === undefined) unmatched.push(filter);
    else byTitle.push(match);
  }
  return { files: [...files], byTitle, unmatched };
}

/** Returns the test files below a path, or else those with this part in their paths. */
function filesByPath(sources: readonly TestFile[], filter: string): string[] {
  const path = filter.replace(/^\.\//, "").replace(/\/$/, "");
  const tests = sources.filter(isTest).map(({ path }) => path);
  const below = tests.filter((test) => test.startsWith(path));
  if (below.length > 0) return below;
  const tested = path.replace(/\.ts$/, "_test.ts"); // the tests of a source file
  return tests.filter((test) => test.startsWith(tested) || basename(test).includes(path));
}

/**
 * Returns the test files that may have tests with this part in their names. Names can be put together, as "TABLE: ROW", so
 * a file may contain only the end of the filter. Tests can also be registered by modules that a test file imports.
 */
function filesByTitle(
  sources: readonly TestFile[],
  filter: string,
): { title: string; files: string[] } | undefined {
  const texts = new Map(sources.map(({ path, text }) => [path, text]));
  for (const part of [filter, filter.slice(filter.indexOf(": ") + 2)]) {
    const files = sources.filter(isTest).map(({ path }) => path).filter((path) =>
      [path, ...helpers(path, texts)].some((file) => texts.get(file)!.includes(part))
    );
    if (files.length > 0) return { title: filter, files };
  }
}

/** Returns the modules of tests/ that a test file imports, also by way of others, and that may register tests for it. */
function helpers(path: string, texts: ReadonlyMap<string, string>, found = new Set<string>()): Set<string> {
  for (const [, specifier] of texts.get(path)!.matchAll(/from "(\.[^"]+)"/g)) {
    const target = join(dirname(path), specifier!);
    if (!target.startsWith("tests/") || found.has(target) || !texts.has(target)) continue;
    found.add(target);
    helpers(target, texts, found);
  }
  return found;
}

/** Returns up to three names of test folders, test files or tests that are nearest to a filter without a match. */
export function nearestNames(sources: readonly TestFile[], filter: string): string[] {
  const tests = sources.filter(isTest);
  const titles = tests.flatMap(({ text }) => [...text.matchAll(/^Deno\.test\("([^"]+)"/gm)].map(([, title]) => title!));
  const paths = tests.flatMap(({ path }) => [dirname(path), path, basename(path, "_test.ts")]);
  const names = new Set(filter.includes(" ") ? titles : paths);
  const nearest: string[] = [];
  while (names.size > 0 && nearest.length < 3) {
    const name = closestString(filter, [...names]);
    names.delete(name);
    nearest.push(name);
  }
  return nearest;
}
