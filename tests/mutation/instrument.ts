/**
 * Makes an instrumented copy of a file: one text that contains all of its mutants, switched at run time (switch.ts).
 *
 * @module
 */

import { Instrumenter } from "@stryker-mutator/instrumenter";
import { dirname, relative } from "@std/path";
import { cacheKey } from "../rig/cache.ts";
import { chooseMutators, ignorer, type Mutator } from "./mutators.ts";

/** Raise it when mutators change, so that files are instrumented again. */
export const INSTRUMENTER_VERSION = "6";

/** One change of one file. */
export interface Mutant {
  /** Its key: it stays the same while the declaration that it is in does. */
  readonly key: string;
  /** The file, below the root of the project. */
  readonly file: string;
  /** The line, counted from 1. */
  readonly line: number;
  /** The function, method or constant that it is in. */
  readonly scope: string;
  /** The name of the mutator. */
  readonly mutator: string;
  /** The original code, in one line. */
  readonly original: string;
  /** What replaces it, in one line. */
  readonly replacement: string;
}

/** A file with its mutants, which are numbered from 0. */
export interface InstrumentedFile {
  readonly text: string;
  readonly mutants: readonly Mutant[];
}

/** Lets the instrumenter use our choice of mutators. Its list is a module's array. */
async function installMutators(): Promise<void> {
  const main = import.meta.resolve("@stryker-mutator/instrumenter");
  const { allMutators } = await import(import.meta.resolve(new URL("mutators/mutate.js", resolvedFile(main)).href)) as {
    allMutators: Mutator[];
  };
  allMutators.splice(0, allMutators.length, ...chooseMutators(allMutators));
}

/** Returns the file of a module of npm. */
function resolvedFile(specifier: string): string {
  if (specifier.startsWith("file:")) return specifier;
  return import.meta.resolve(`${specifier}/package.json`).replace(/package\.json$/, "dist/src/index.js");
}

let installed: Promise<void> | undefined;

const QUIET = new Proxy({}, { get: () => () => false });

/**
 * Instruments a file.
 *
 * @param file its path below the root of the project
 * @param text its content
 */
export async function instrument(file: string, text: string): Promise<InstrumentedFile> {
  await (installed ??= installMutators());
  const { files, mutants } = await new Instrumenter(QUIET as never).instrument(
    [{ name: file, content: text, mutate: true }],
    { plugins: null, excludedMutations: [], ignorers: [ignorer], noHeader: true } as never,
  );
  const placed = mutants.filter(({ status }) => status === undefined);
  const ids = new Map(placed.map(({ id }, index) => [id, index]));
  const described = await Promise.all(placed.map(async ({ location: { start, end }, mutatorName, replacement }) => {
    const offset = offsetOf(text, start);
    const original = text.slice(offset, offsetOf(text, end));
    const { name, from, code } = declarationAt(text, offset);
    return {
      key: await cacheKey([file, code, offset - from, original.length, mutatorName, replacement].join("\0")),
      file,
      line: start.line + 1,
      scope: name,
      mutator: mutatorName,
      original: oneLine(original),
      replacement: oneLine(replacement ?? ""),
    };
  }));
  const numbered = files[0]!.content.replace(
    /\b(stryMutAct_9fa48|stryCov_9fa48)\(([^)]*)\)/g,
    (_, call, list: string) => `${call}(${list.split(",").map((id) => ids.get(JSON.parse(id.trim()))).join(", ")})`,
  );
  return { text: numbered, mutants: described };
}

/**
 * Returns the text of an instrumented file for a copy of the project, in which its mutants are numbered from `first`.
 *
 * @param file its path below the root
 * @param instrumented the file
 * @param first the number of its first mutant
 */
export function placed(file: string, { text }: InstrumentedFile, first: number): string {
  const shifted = text.replace(
    /\b(stryMutAct_9fa48|stryCov_9fa48)\(([\d, ]*)\)/g,
    (_, call, list: string) => `${call}(${list.split(",").map((id) => first + Number(id)).join(", ")})`,
  );
  const path = relative(dirname(file), "tests/mutation/switch.ts");
  return `import "${path.startsWith(".") ? path : `./${path}`}";\n${shifted}`;
}

function offsetOf(text: string, { line, column }: { line: number; column: number }): number {
  let offset = 0;
  for (let index = 0; index < line; index++) offset = text.indexOf("\n", offset) + 1;
  return offset + column;
}

const DECLARATION =
  /^(?:export )?(?:default )?(?:abstract |async |declare )*(?:function\*?|class|const|let|var|interface|type|enum) +([\w$]+)/gm;

const MEMBER =
  /^ {2}(?:(?:static|async|override|readonly|get|set|private|protected|public) )*\*?(#?[\w$]+|\[[\w.]+\])/gm;

/**
 * Returns the declaration of a module that has an offset.
 *
 * @returns its name, with the member's if it is a class; where it starts; and its text
 */
export function declarationAt(text: string, offset: number): { name: string; from: number; code: string } {
  let [from, to, name, isClass] = [0, text.length, "", false];
  for (const match of text.matchAll(DECLARATION)) {
    if (match.index > offset) {
      to = match.index;
      break;
    }
    [from, name, isClass] = [match.index, match[1]!, /\bclass /.test(match[0])];
  }
  const code = text.slice(from, to);
  if (!isClass) return { name, from, code };
  let [start, end, member] = [0, code.length, ""];
  for (const match of code.matchAll(MEMBER)) {
    if (from + match.index > offset) {
      end = match.index;
      break;
    }
    [start, member] = [match.index, match[1]!];
  }
  return { name: member === "" ? name : `${name}.${member}`, from: from + start, code: code.slice(start, end) };
}

/** Returns code in one line, without the blanks between its words that do not matter. */
export function oneLine(code: string): string {
  return code.replace(/\s+/g, " ").trim();
}
