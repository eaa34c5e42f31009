/**
 * Findings of the doctor, and helpers that all of its checks use.
 *
 * @module
 */

import type { StorageError } from "../../base/error.ts";
import { defined } from "../../base/defined.ts";

/** The checks, in the order of the output. */
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
 * The level of a finding. `info`: for information. `warning`: something works now, or in most cases, but may fail
 * later. `error`: an operation of the driver fails, or will fail.
 */
export type Level = "ok" | "info" | "warning" | "error";

/** A finding of a check. */
export interface Finding {
  /** The check that found it. */
  readonly check: CheckName;
  /** The severity. */
  readonly level: Exclude<Level, "ok">;
  /** The subject: a program, a group, a logical volume, a setting. */
  readonly subject: string;
  /** The result of the check, in words. */
  readonly message: string;
  /** The remedy: a command where there is one. */
  readonly remedy?: string;
}

/** The result of a check. */
export interface CheckResult {
  /** A few words on what was checked. */
  readonly summary: string;
  /** The findings of the check; empty when nothing is wrong. */
  readonly findings: readonly Finding[];
}

/** A value that was read from the machine, or the error why it could not be read. */
export type Reading<T> = { readonly value: T } | { readonly error: StorageError };

/** Returns functions that create findings of a check, one for each level. */
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

/** Returns the highest of the levels; `ok` for none. */
export function worstLevel(levels: readonly Level[]): Level {
  return LEVELS[Math.max(0, ...levels.map((level) => LEVELS.indexOf(level)))]!;
}

/** Formats the error of a failed command without its arguments: those of a report fill a screen. */
export function failureSummary(error: StorageError): string {
  return error.message.replace(/^(\S+ \S+) .*?: (?=exit \d|no answer )/s, "$1: ");
}

/** Returns the result of a check whose subject could not be read, for a reason that another check reports. */
export function skippedCheck(check: CheckName, why: string): CheckResult {
  return { summary: "not checked", findings: [findingsOf(check).info("lvm", why)] };
}

/** Reasons to skip a check: there is no report, or there are no settings. */
export const NO_REPORT = "it does not report its volume groups";
export const NO_SETTINGS = "its settings cannot be read";
