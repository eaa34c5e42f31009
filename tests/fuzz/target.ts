/**
 * Fuzz targets: what they feed to a parser, what must hold, and how inputs are kept.
 *
 * @module
 */

import fc from "fast-check";
import { join } from "@std/path";
import { withinDeadline } from "../../base/clock.ts";

/** A value that can be written as JSON, as every input is. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

/** A program under test, for which the inputs are prepared once. */
export interface Subject<I extends Json> extends AsyncDisposable {
  /** Feeds an input to the code under test. @throws {Error} when something does not hold */
  check(input: I): void | Promise<void>;
}

/** A fuzz target. */
export interface Target<I extends Json = Json> {
  /** Its name, which is also that of its folder in the corpus. */
  readonly name: string;
  /** The code under test, in a few words. */
  readonly description: string;
  /** The inputs. */
  readonly inputs: fc.Arbitrary<I>;
  /** The number of random inputs in `task test`. */
  readonly testRuns: number;
  /** Prepares the code under test. */
  open(): Promise<Subject<I>>;
}

/** A kept input. */
export interface KeptInput {
  /** The reason why it is kept. */
  readonly reason: string;
  /** The input. */
  readonly input: Json;
}

/** An input that made a target fail. */
export interface Finding {
  /** The target. */
  readonly target: string;
  /** The error. */
  readonly error: unknown;
  /** The path of the input in the corpus. */
  readonly file: string;
  /** The seed and the path by which fast-check generates the input again; absent for a kept input. */
  readonly repeat?: { readonly seed: number; readonly path: string };
}

/** Milliseconds that the check of one input may take. */
export const INPUT_DEADLINE_MS = 120_000;

const CORPUS = new URL("corpus", import.meta.url).pathname;

/**
 * Makes a target of a function without a state.
 *
 * @param check throws when something does not hold
 */
export function statelessTarget<I extends Json>(
  { check, ...target }: Omit<Target<I>, "open"> & Pick<Subject<I>, "check">,
): Target {
  const subject = { check, [Symbol.asyncDispose]: () => Promise.resolve() };
  return asTarget({ ...target, open: () => Promise.resolve(subject) });
}

/** Forgets the type of the inputs of a target. They come from the target itself, or from its folder of the corpus. */
export function asTarget<I extends Json>(target: Target<I>): Target {
  return target as unknown as Target;
}

/** Checks one input. @throws {Error} when something does not hold, or the check takes too long */
export async function checkInput(subject: Subject<Json>, input: Json): Promise<void> {
  const start = performance.now();
  const checked = Promise.resolve(subject.check(input)).then(() => "done" as const);
  const outcome = await withinDeadline(checked, INPUT_DEADLINE_MS);
  const ms = Math.round(performance.now() - start);
  // a parser without an await blocks the event loop, and with it the deadline
  if (outcome === undefined || ms > INPUT_DEADLINE_MS) throw new Error(`the check of one input took ${ms} ms`);
}

/** Yields the kept inputs of a target, with their paths. */
export function* keptInputs(target: string): Generator<KeptInput & { readonly file: string }> {
  const folder = join(CORPUS, target);
  let names: string[];
  try {
    names = [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  for (const name of names) {
    const file = join(folder, name);
    yield { ...JSON.parse(Deno.readTextFileSync(file)) as KeptInput, file };
  }
}

/** Writes an input to the corpus. @returns its path */
function keepInput(target: string, name: string, kept: KeptInput): string {
  const folder = join(CORPUS, target);
  Deno.mkdirSync(folder, { recursive: true });
  const file = join(folder, `${name}.json`);
  Deno.writeTextFileSync(file, JSON.stringify(kept, null, 2) + "\n");
  return file;
}

/** Checks the kept inputs of a target. @returns the number of inputs, and the failures */
export async function runKeptInputs(target: Target): Promise<{ runs: number; findings: Finding[] }> {
  const findings: Finding[] = [];
  let runs = 0;
  await using subject = await target.open();
  for (const { input, file } of keptInputs(target.name)) {
    runs++;
    try {
      await checkInput(subject, input);
    } catch (error) {
      findings.push({ target: target.name, error, file });
    }
  }
  return { runs, findings };
}

/** Options of {@linkcode runRandomInputs}. */
export interface RandomRun {
  /** The seed of the inputs. */
  readonly seed: number;
  /** The maximum number of inputs. */
  readonly runs: number;
  /** Milliseconds after which no further input is generated. */
  readonly timeMs?: number;
}

/**
 * Checks random inputs of a target, until one fails. That one is made as small as fast-check can, and written to the
 * corpus. An input whose check takes longer than the run is waited for, and kept as it is.
 */
export async function runRandomInputs(
  target: Target,
  { seed, runs, timeMs }: RandomRun,
): Promise<{ runs: number; finding?: Finding }> {
  await using subject = await target.open();
  let last: { readonly input: Json; readonly checked: Promise<void> } | undefined;
  const property = fc.asyncProperty(target.inputs, async (input) => {
    last = { input, checked: checkInput(subject, input) };
    await last.checked;
  });
  const result = await fc.check(property, {
    seed,
    numRuns: runs,
    ...(timeMs === undefined ? {} : { interruptAfterTimeLimit: timeMs, markInterruptAsFailure: false }),
  });
  const report = (error: unknown, input: Json): Finding => {
    const reason = (error instanceof Error ? error.message : String(error)).slice(0, 300);
    const file = keepInput(target.name, `seed-${seed}`, { reason, input });
    return { target: target.name, error, file, repeat: { seed, path: result.counterexamplePath ?? "" } };
  };
  const runsDone = { runs: result.numRuns };
  if (result.failed && result.counterexample !== null) {
    return { ...runsDone, finding: report(result.errorInstance, result.counterexample[0]) };
  }
  try {
    await last?.checked; // fast-check does not wait for it when the time is over
    return runsDone;
  } catch (error) {
    return { ...runsDone, finding: report(error, last!.input) };
  }
}

function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const stack = error.stack ?? error.message;
  return error.cause === undefined ? stack : `${stack}\ncaused by ${describeError(error.cause)}`;
}

/** Formats a failure for people, with the way to repeat it. */
export function describeFinding({ target, error, file, repeat }: Finding): string {
  const text = describeError(error);
  const seed = repeat === undefined ? "" : `\n  seed ${repeat.seed}, path ${repeat.path}`;
  return `${target}: ${text}${seed}\n  input: ${file}\n  repeat: deno task fuzz -- ${target} --time 0s`;
}
