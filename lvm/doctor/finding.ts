/**
 * What a check of the doctor found: the words that all checks share.
 *
 * @module
 */

import type { StorageError } from "../error.ts";
import { defined } from "../defined.ts";

/** The checks, in the order in which they are told. */
export const CHECKS = [
  "tools",
  "kernel",
  "locks",
  "filters",
  "groups",
  "metadata",
  "pools",
  "limits",
  "udev",
  "leftovers",
] as const;

/** The name of a check. */
export type CheckName = typeof CHECKS[number];

/**
 * How bad it is. `info`: worth knowing. `warning`: works now, or for most, but will not for ever. `error`: something that
 * the driver does fails, or will.
 */
export type Level = "ok" | "info" | "warning" | "error";

/** Something that a check found. */
export interface Finding {
  /** The check. */
  readonly check: CheckName;
  /** How bad it is. */
  readonly level: Exclude<Level, "ok">;
  /** On what: a program, a group, a logical volume, a setting. */
  readonly subject: string;
  /** What was found. */
  readonly message: string;
  /** What to do about it: a command where there is one. */
  readonly remedy?: string;
}

/** What a check says when there is nothing to say, in a few words; and what it found. */
export interface CheckResult {
  /** What was looked at. */
  readonly summary: string;
  /** What was found. */
  readonly findings: readonly Finding[];
}

/** What was read of the machine, or why it could not be. */
export type Reading<T> = { readonly value: T } | { readonly error: StorageError };

/** Makes findings of one check. */
export function findingsOf(check: CheckName) {
  const make = (level: Finding["level"]) => (subject: string, message: string, remedy?: string): Finding => ({
    check,
    level,
    subject,
    message,
    ...defined({ remedy }),
  });
  return { info: make("info"), warning: make("warning"), error: make("error") };
}

const LEVELS: readonly Level[] = ["ok", "info", "warning", "error"];

/** The worst of the levels; `ok` for none. */
export function worstLevel(levels: readonly Level[]): Level {
  return LEVELS[Math.max(0, ...levels.map((level) => LEVELS.indexOf(level)))]!;
}

/** What a failed command said, without its arguments: those of a report fill a screen. */
export function failureSummary(error: StorageError): string {
  return error.message.replace(/^(\S+ \S+) .*?: (?=exit \d|no answer )/s, "$1: ");
}

/** The result of a check whose subject could not be read, for a reason that another check tells. */
export function skippedCheck(check: CheckName, why: string): CheckResult {
  return { summary: "not checked", findings: [findingsOf(check).info("lvm", why)] };
}

/** Why a check is not made when there is no report, or there are no settings. */
export const NO_REPORT = "it does not report its groups";
export const NO_SETTINGS = "it does not tell its settings";
