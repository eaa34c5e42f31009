/**
 * The division of the unit tests into processes.
 *
 * `deno test` loads all modules again for each file. A part has one module that imports its files, so that they are loaded
 * once: that halves the processor time of all tests.
 *
 * @module
 */

import type { TestFile } from "./selection.ts";

/** The tests of a process. */
export interface Part {
  /** Files that share an isolate. */
  readonly shared: readonly string[];
  /** Files that have an isolate of their own. */
  readonly alone: readonly string[];
}

/**
 * Reports whether a file needs an isolate of its own: when its tests leave timers behind, which would end in the tests of
 * another file, or when they find their snapshots by the name of the module.
 */
export function isAlone({ text }: TestFile): boolean {
  return /\bsanitize(Ops|Resources): false/.test(text) || text.includes('"@std/testing/snapshot"');
}

/**
 * Divides files into parts of about the same time, the slowest part first.
 *
 * @param count The number of parts.
 * @param seconds Returns the processor time of a file, in seconds.
 */
export function divide(files: readonly TestFile[], count: number, seconds: (path: string) => number): Part[] {
  const parts = Array.from({ length: count }, () => ({ shared: [] as string[], alone: [] as string[], seconds: 0 }));
  for (const file of files.toSorted((a, b) => seconds(b.path) - seconds(a.path))) {
    const part = parts.reduce((least, part) => part.seconds < least.seconds ? part : least);
    (isAlone(file) ? part.alone : part.shared).push(file.path);
    part.seconds += seconds(file.path);
  }
  return parts.filter(({ seconds }) => seconds > 0).toSorted((a, b) => b.seconds - a.seconds)
    .map(({ shared, alone }) => ({ shared: shared.toSorted(), alone: alone.toSorted() }));
}

/**
 * Returns the text of a module with the tests of all files.
 *
 * @param root The folder that the paths are relative to.
 */
export function importAll(paths: readonly string[], root: URL): string {
  return paths.map((path) => `import ${JSON.stringify(new URL(path, root).href)};\n`).join("");
}

/** Returns the files of a part whose tests failed, by the output of `deno test`; all of them when it names none. */
export function failedFiles(output: string, { shared, alone }: Part): string[] {
  // deno-lint-ignore no-control-regex -- the colours of the output
  const [, failures = ""] = output.replaceAll(/\x1b\[[0-9;]*m/g, "").split("\n FAILURES \n");
  const named = new Set([...failures.matchAll(/ => \.\/(\S+?):\d+:\d+$/gm)].map(([, path]) => path!));
  return named.size > 0 ? [...named] : [...shared, ...alone];
}
