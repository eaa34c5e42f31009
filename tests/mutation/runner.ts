/**
 * The process that runs tests of the instrumented copy with one mutant after the other. Its parent is
 * {@linkcode RunnerProcess}.
 *
 * @module
 */

import "./switch.ts";
import { TextLineStream } from "./lines.ts";
import { MESSAGE, type Reply, type Request, type TestCoverage, type TestToTry } from "./messages.ts";
import { TestRegistry } from "./registry.ts";

/** The limit of a test without a mutant, in milliseconds. */
const LIMIT_MS = 600_000;

/** The limit of loading a file with a mutant, in milliseconds. */
const LOAD_LIMIT_MS = 30_000;

/** A test that takes less is run twice, to see whether it can be repeated in one process. In milliseconds. */
const REPEATED_MS = 100;

/** More than there are mutants. */
const MAX_MUTANTS = 1 << 16;

const registry = new TestRegistry();
const { mutantSwitch } = globalThis;

/** The mutant that is active from the start of this process, or -1. */
const fromStart = mutantSwitch.active;

const encoder = new TextEncoder();

function send(reply: Reply): void {
  const bytes = encoder.encode(`\n${MESSAGE}${JSON.stringify(reply)}\n`);
  for (let written = 0; written < bytes.length;) written += Deno.stdout.writeSync(bytes.subarray(written));
}

/** Runs `body` with this mutant, and with the original code afterward. */
async function withMutant<T>(mutant: number, hitLimit: number, body: () => Promise<T>): Promise<T> {
  [mutantSwitch.active, mutantSwitch.hits, mutantSwitch.hitLimit] = [mutant, 0, hitLimit];
  try {
    return await body();
  } finally {
    [mutantSwitch.active, mutantSwitch.hitLimit] = [fromStart, Infinity];
  }
}

/** Runs each test of a file twice without a mutant, and notes what it reaches. */
async function cover(file: string): Promise<Reply> {
  const loaded = new Uint32Array(MAX_MUTANTS);
  mutantSwitch.coverage = loaded;
  send({ kind: "begin", test: file, limitMs: LIMIT_MS });
  const tests = await registry.load(file);
  const covered: TestCoverage[] = [];
  for (const test of tests) {
    if (test.isIgnored) {
      covered.push({ name: test.name, ms: 0, mutants: [], maxHits: 0, leaks: false, problem: "ignored" });
      continue;
    }
    send({ kind: "begin", test: test.name, limitMs: 2 * LIMIT_MS });
    const reached = new Uint32Array(MAX_MUTANTS);
    mutantSwitch.coverage = reached;
    let first = await registry.run(test, LIMIT_MS);
    if (first.failure !== undefined) first = await registry.run(test, LIMIT_MS); // a busy machine can make a test fail
    mutantSwitch.coverage = undefined;
    const isRepeated = first.failure === undefined && first.ms < REPEATED_MS;
    const second = isRepeated ? await registry.run(test, LIMIT_MS) : first;
    const { name } = test;
    const problem = first.failure ?? (second.failure === undefined ? undefined : `run again: ${second.failure}`);
    covered.push({
      ...{ name, ms: Math.min(first.ms, second.ms), mutants: reachedOf(reached) },
      ...{ maxHits: reached.reduce((most, hits) => Math.max(most, hits)), leaks: first.leaks || second.leaks },
      ...(problem === undefined ? {} : { problem }),
    });
    mutantSwitch.coverage = loaded;
  }
  mutantSwitch.coverage = undefined;
  return { kind: "covered", tests: covered, loaded: reachedOf(loaded) };
}

function reachedOf(counts: Uint32Array): number[] {
  return [...counts.keys()].filter((mutant) => counts[mutant]! > 0);
}

/** Runs tests with a mutant until one fails. */
async function tryMutant(mutant: number, tests: readonly TestToTry[]): Promise<Reply> {
  const done = (
    outcome: { status: "killed" | "timeout" | "survived"; by?: string; failure?: string; isSound: boolean },
  ) => ({ kind: "tried", ...outcome, rss: Deno.memoryUsage().rss }) as const;
  for (const { file, index, limitMs, hitLimit, checksLeaks } of tests) {
    send({ kind: "begin", test: file, limitMs: LOAD_LIMIT_MS });
    let test;
    try {
      test = (await registry.load(file))[index];
    } catch (error) {
      return done({ status: "killed", by: file, failure: `not loaded: ${error}`, isSound: fromStart >= 0 });
    }
    if (test === undefined) return done({ status: "killed", by: file, failure: "a test is missing", isSound: true });
    const by = `${file}: ${test.name}`;
    send({ kind: "begin", test: by, limitMs });
    const outcome = await withMutant(mutant, hitLimit, () => registry.run(test, limitMs));
    if (outcome.isTimeout) return done({ status: "timeout", by, isSound: false });
    const failure = outcome.failure ?? (outcome.leaks && checksLeaks ? "resources were left open" : undefined);
    if (failure === undefined) continue;
    send({ kind: "begin", test: by, limitMs });
    const isSound = fromStart >= 0 || (await registry.run(test, limitMs)).failure === undefined;
    return done({ status: "killed", by, failure, isSound });
  }
  return done({ status: "survived", isSound: true });
}

registry.install();
for await (const line of Deno.stdin.readable.pipeThrough(new TextDecoderStream()).pipeThrough(new TextLineStream())) {
  if (line === "") continue;
  const request: Request = JSON.parse(line);
  send(request.kind === "cover" ? await cover(request.file) : await tryMutant(request.mutant, request.tests));
}
