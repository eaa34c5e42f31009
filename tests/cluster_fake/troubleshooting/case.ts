/**
 * What the tests know of a case of the troubleshooting pages.
 *
 * @module
 */

import type { Stage } from "./stage.ts";

/** Brings a situation about. @returns the time at which it is asked about, in place of now */
export type Play = (stage: Stage) => Promise<Date | void>;

/** A case of which the page describes what is observed. */
export interface Case {
  /** The reason that the plugin names; `undefined` where nothing is wrong. */
  readonly reason: string | undefined;
  /** How it comes about. */
  readonly plays: readonly Play[];
  /** What is asked; by default that of the chapter. */
  readonly asks?: readonly string[];
}

/** A chapter. */
export interface Chapter {
  /** What is asked. */
  readonly asks: readonly string[];
  /**
   * Its cases: by their reasons, how they come about; by the beginnings of other list items without markup, or for the chapter
   * itself as `COMMAND: REASON`, cases. A text says why a case is not played.
   */
  readonly cases: Readonly<Record<string, Play | readonly Play[] | Case | string>>;
}

/** Returns a case that comes about in one way. */
export function once(reason: string | undefined, play: Play, asks?: readonly string[]): Case {
  return { reason, plays: [play], ...(asks && { asks }) };
}
