/**
 * What the tests know of a case of the troubleshooting pages.
 *
 * @module
 */

import type { Stage } from "./stage.ts";

/** Brings a situation about. @returns the time at which it is asked about, in place of now */
export type Play = (stage: Stage) => Promise<Date | void>;

/** A case. */
export interface Case {
  /** The reason that the plugin names; `undefined` where nothing is wrong. */
  readonly reason: string | undefined;
  /** How it comes about, by what the page quotes of messages; `""` where it quotes none. */
  readonly plays: Readonly<Record<string, Play | readonly Play[]>>;
  /** What is asked; by default that of the chapter. */
  readonly asks?: readonly string[];
}

/** A chapter. */
export interface Chapter {
  /** What is asked. */
  readonly asks: readonly string[];
  /**
   * Its cases, by the beginnings of its list items without markup; and those of the chapter itself, as `COMMAND: REASON`. A text
   * says why a case is not played.
   */
  readonly cases: Readonly<Record<string, Case | string>>;
}

/** Returns a case that comes about in one way, of which the page quotes no message. */
export function once(reason: string | undefined, play: Play, asks?: readonly string[]): Case {
  return { reason, plays: { "": play }, ...(asks && { asks }) };
}
