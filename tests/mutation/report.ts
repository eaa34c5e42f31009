/**
 * The scores by folder.
 *
 * @module
 */

import { dirname } from "@std/path";
import { columns } from "../bench/table.ts";
import type { Mutant } from "./instrument.ts";
import { isKilled, type Status } from "./results.ts";

/** Returns what became of a mutant; nothing if it was not tried. */
export type StatusOf = (mutant: Mutant) => Status | "equivalent" | undefined;

/** What became of the mutants of a folder. */
export interface FolderScore {
  readonly folder: string;
  readonly mutants: number;
  /** Killed when they were tried first, of those that are not equivalent. */
  readonly killedFirst: number;
  readonly killed: number;
  /** Killed because a test no longer ended. */
  readonly timedOut: number;
  /** Not killed, also because no test reaches them. */
  readonly survived: number;
  readonly equivalent: number;
  /** Not tried yet. */
  readonly untried: number;
  /** The part of the tried mutants that were killed, without the equivalent ones: 0 to 100. */
  readonly score: number;
}

/**
 * Counts mutants by folder, with a last row for all.
 *
 * @param mutants the mutants
 * @param statusOf what became of each, `equivalent` if the list has it, and nothing if it was not tried
 * @param firstOf what became of each when it was tried first
 */
export function scores(mutants: readonly Mutant[], statusOf: StatusOf, firstOf: StatusOf): FolderScore[] {
  const byFolder = new Map<string, Mutant[]>();
  for (const mutant of mutants) {
    const folder = dirname(mutant.file);
    byFolder.set(folder, [...byFolder.get(folder) ?? [], mutant]);
  }
  const rows = [...byFolder].sort(([a], [b]) => a < b ? -1 : 1).map(([folder, list]) =>
    score(folder, list, statusOf, firstOf)
  );
  return [...rows, score("all", mutants, statusOf, firstOf)];
}

function score(folder: string, mutants: readonly Mutant[], statusOf: StatusOf, firstOf: StatusOf): FolderScore {
  const counts: Partial<Record<Status | "equivalent" | "untried", number>> = {};
  for (const mutant of mutants) {
    const status = statusOf(mutant) ?? "untried";
    counts[status] = (counts[status] ?? 0) + 1;
  }
  const { killed = 0, timeout = 0, survived = 0, uncovered = 0, equivalent = 0, untried = 0 } = counts;
  const tried = killed + timeout + survived + uncovered;
  const isTried = (mutant: Mutant) => !["equivalent", undefined].includes(statusOf(mutant));
  const isKilledFirst = (mutant: Mutant) => {
    const first = firstOf(mutant);
    return first !== undefined && first !== "equivalent" && isKilled(first);
  };
  return {
    folder: folder === "." ? "main.ts" : folder,
    mutants: mutants.length,
    killedFirst: mutants.filter(isTried).filter(isKilledFirst).length,
    killed,
    timedOut: timeout,
    survived: survived + uncovered,
    equivalent,
    untried,
    score: tried === 0 ? 0 : 100 * (killed + timeout) / tried,
  };
}

/** Formats scores as a table. */
export function scoreTable(rows: readonly FolderScore[]): string {
  const head = ["folder", "mutants", "killed", "timed out", "survived", "equivalent", "not tried", "score"];
  return columns([
    head,
    ...rows.map(({ folder, mutants, killed, timedOut, survived, equivalent, untried, score }) => [
      folder,
      ...[mutants, killed, timedOut, survived, equivalent, untried].map(String),
      `${score.toFixed(1)} %`,
    ]),
  ]).join("\n");
}

/** Formats scores as a table in Markdown, with the scores of the first tries. */
export function scoreMarkdown(rows: readonly FolderScore[]): string {
  const head = ["Folder", "Mutants", "Tried", "Killed at first", "Score at first", "Killed since", "Survived"];
  const cells = rows.map(({ folder, mutants, killedFirst, killed, timedOut, survived, equivalent, score }) => {
    const tried = killed + timedOut + survived;
    const percent = (part: number) => tried === 0 ? "" : `${part.toFixed(0)} %`;
    const counts = [mutants, tried, killedFirst].map(String);
    const later = [killed + timedOut - killedFirst, survived, equivalent].map(String);
    return [folder, ...counts, percent(100 * killedFirst / tried), ...later, percent(score)];
  });
  const table = [[...head, "Equivalent", "Score"], ["---", ...Array.from({ length: 8 }, () => "---:")], ...cells];
  return table.map((row) => `| ${row.join(" | ")} |`).join("\n");
}

/** Describes a mutant in one line. */
export function describeMutant({ file, line, scope, mutator, original, replacement }: Mutant): string {
  const short = (code: string) => code.length > 100 ? `${code.slice(0, 99)}…` : code;
  return `${file}:${line} ${scope}: ${short(original)} → ${short(replacement) || "(nothing)"} [${mutator}]`;
}
