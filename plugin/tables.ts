/**
 * Columns, ages and sizes as the plugin prints them, and problems.
 *
 * @module
 */

import { formatBytes } from "../base/size.ts";
import { wrapText } from "../base/text_table.ts";
import type { Problem } from "./problem.ts";
import type { Colours } from "./output.ts";
import { chapterCommand } from "./runbooks.ts";

/** How something is printed. */
export interface TableOptions {
  /** True with `--output wide`. */
  readonly wide: boolean;
  /** Colours. */
  readonly colours: Colours;
  /** The time of now, for ages. */
  readonly now: Date;
}

/** A column: its title, its text for a row, and what it looks like. */
export interface Column<T> {
  readonly title: string;
  readonly text: (row: T) => string;
  readonly right?: boolean;
  /** True if it is shown with `--output wide` only. */
  readonly wide?: boolean;
  readonly paint?: (text: string, row: T) => string;
}

/** Formats rows as kubectl does: titles in capitals, and three blanks between columns. */
export function formatColumns<T>(
  columns: readonly Column<T>[],
  rows: readonly T[],
  { wide }: { wide: boolean },
): string[] {
  const shown = columns.filter((column) => wide || column.wide !== true);
  const texts = rows.map((row) => shown.map(({ text }) => text(row)));
  const widths = shown.map(({ title }, index) =>
    texts.reduce((width, cells) => Math.max(width, cells[index]!.length), title.length)
  );
  const pad = (text: string, index: number) => {
    const blanks = " ".repeat(widths[index]! - text.length);
    return { before: shown[index]!.right === true ? blanks : "", after: shown[index]!.right === true ? "" : blanks };
  };
  const line = (cells: readonly string[], paint: (text: string, index: number) => string) =>
    cells.map((text, index) => {
      const { before, after } = pad(text, index);
      return before + paint(text, index) + (index === cells.length - 1 ? "" : after);
    }).join("   ").trimEnd();
  return [
    line(shown.map(({ title }) => title), (text) => text),
    ...texts.map((cells, row) => line(cells, (text, index) => shown[index]!.paint?.(text, rows[row]!) ?? text)),
  ];
}

/** Formats the time since a moment, as kubectl does: one unit below ten of it, two above it none. */
export function formatAge(time: string | undefined, now: Date): string {
  const ms = now.getTime() - Date.parse(time ?? "");
  if (Number.isNaN(ms)) return "";
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const units = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]] as const;
  const index = units.findIndex(([, size]) => seconds >= size * (size === 1 ? 0 : 2));
  const [unit, size] = units[index]!;
  const count = Math.floor(seconds / size);
  const next = units[index + 1];
  const rest = next === undefined || count >= 10 ? 0 : Math.floor(seconds % size / next[1]);
  return `${count}${unit}${rest === 0 ? "" : `${rest}${next![0]}`}`;
}

/** Returns what is said when there are no problems. @param unread kinds that could not be read, with the cause */
export function nothingWrongText(unread: readonly string[]): string {
  return unread.length === 0 ? "Nothing is wrong." : "Nothing is wrong in what you may read.";
}

/** Adds to a list what could not be read for it: an empty list may be empty because of that. */
export function withUnread(table: string, unread: readonly string[]): string {
  return [table, ...(unread.length === 0 ? [] : ["", ...unread.map((what) => `Not read: ${what}`)])].join("\n");
}

/** Formats problems: a line for each, with its age, and the message below it; with `--output wide` also the remedy. */
export function problemsText(problems: readonly Problem[], { wide, colours, now }: TableOptions): string[] {
  return problems.flatMap(({ severity, reason, object, message, since, remedy, runbook }) => {
    const age = formatAge(since, now);
    const title = `${colours.severity(severity, severity.toUpperCase())} ${colours.bold(reason)} ${object}`;
    return [
      `${title}${age === "" ? "" : `, for ${age}`}`,
      ...wrapText("  ", message.trim().replace(/\s+/g, " ")), // a line feed could begin another problem
      ...(wide && remedy !== undefined ? wrapText("  ", remedy) : []),
      ...(wide && runbook !== undefined ? [`  ${chapterCommand(runbook)}`] : []),
    ];
  });
}

/** Formats a size in bytes; empty for an unknown one. */
export function sizeText(bytes: bigint | undefined): string {
  return bytes === undefined ? "" : formatBytes(bytes);
}
