/**
 * Situations in which people elsewhere had trouble with storage of this kind, and what must happen here. Each is a row of a table
 * in this folder. docs/reference/situations.md lists them, so that who has the trouble finds it by its public number.
 *
 * @module
 */

/** A test that shows a situation. */
export interface ShownBy {
  /** Its file, from the root of the repository. */
  readonly file: string;
  /** A part of its name. */
  readonly test: string;
}

/** A situation. */
export interface Situation {
  /** Where it was met, as `project#number`; a manual page or a specification where there is no public number. */
  readonly seen: readonly [string, ...string[]];
  /** What happened there, in a sentence. */
  readonly happened: string;
  /** What happens here, in a sentence. */
  readonly here: string;
  /** The tests that show it; or what plays it over the fakes. */
  readonly shown: readonly [ShownBy, ...ShownBy[]] | (() => Promise<void>);
}

/** Names a test that shows a situation. */
export function by(file: string, test: string): ShownBy {
  return { file, test };
}
