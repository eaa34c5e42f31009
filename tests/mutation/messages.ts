/**
 * What the process that runs tests (runner.ts) and its parent tell each other: JSON, one message in a line.
 *
 * @module
 */

/** The beginning of a line that is a message, and no output of a test. */
export const MESSAGE = "@@mutation ";

/** A test to run with a mutant. */
export interface TestToTry {
  readonly file: string;
  /** The number of the test in its file. */
  readonly index: number;
  /** The time after which it counts as hanging, in milliseconds. */
  readonly limitMs: number;
  /** The number of times that the test may reach the mutant. */
  readonly hitLimit: number;
  /** Whether open resources mean a failure: they do not where the test leaves some without any mutant. */
  readonly checksLeaks: boolean;
}

/** A request to the runner. */
export type Request =
  | { readonly kind: "cover"; readonly file: string }
  | { readonly kind: "try"; readonly mutant: number; readonly tests: readonly TestToTry[] };

/** What a test runs over, and how long it takes. */
export interface TestCoverage {
  readonly name: string;
  /** Its time in milliseconds. */
  readonly ms: number;
  /** The numbers of the mutants that it reaches. */
  readonly mutants: readonly number[];
  /** How often it reaches the mutant that it reaches most often. */
  readonly maxHits: number;
  readonly leaks: boolean;
  /** Why the test cannot be used, if it cannot. */
  readonly problem?: string;
}

/** An answer of the runner. */
export type Reply =
  /** A test begins, or a file is loaded; there will be another message within this time in milliseconds. */
  | { readonly kind: "begin"; readonly test: string; readonly limitMs: number }
  | { readonly kind: "covered"; readonly tests: readonly TestCoverage[]; readonly loaded: readonly number[] }
  | {
    readonly kind: "tried";
    readonly status: "killed" | "timeout" | "survived";
    /** The test that failed, and why. */
    readonly by?: string;
    readonly failure?: string;
    /** Whether the test that failed passes afterward without the mutant. */
    readonly isSound: boolean;
    /** The memory of the process in bytes. */
    readonly rss: number;
  };
