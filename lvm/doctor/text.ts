/**
 * Formatting a diagnosis for users and for programs.
 *
 * @module
 */

import { CHECK_NAMES, type Diagnosis, type Finding } from "./doctor.ts";
import type { Level } from "./finding.ts";
import { escapeControls, withoutControls, wrapText } from "../../base/text_table.ts";

const MARKS: Readonly<Record<Level, string>> = { ok: "✓", info: "i", warning: "!", error: "✗" };

/** The width of the column of check names. */
const NAME_WIDTH = Math.max(...CHECK_NAMES.map(({ length }) => length)) + 1;

/** Formats a diagnosis as JSON. */
export function diagnosisJson(diagnosis: Diagnosis): string {
  return escapeControls(JSON.stringify(diagnosis, null, 2));
}

/**
 * Formats a diagnosis as text: one line for each check, its findings below it, and the numbers of findings at the end.
 */
export function diagnosisText({ checks, findings }: Diagnosis): string {
  const lines = checks.flatMap(({ check, level, summary }) => [
    ...wrapText(`${MARKS[level]} ${check.padEnd(NAME_WIDTH)}`, withoutControls(summary)),
    ...findings.filter((finding) => finding.check === check).flatMap(findingLines),
  ]);
  return [...lines, "", summaryLine(findings)].join("\n");
}

function findingLines({ level, subject, message, remedy }: Finding): string[] {
  return [
    ...wrapText(`    ${MARKS[level]} `, withoutControls(`${subject}: ${message}`)),
    // a command stays on one line, so that it can be copied
    ...(remedy === undefined ? [] : [`      → ${withoutControls(remedy)}`]),
  ];
}

function summaryLine(findings: readonly Finding[]): string {
  const count = (level: Level, one: string, many: string) => {
    const number = findings.filter((finding) => finding.level === level).length;
    return number === 0 ? [] : [`${number} ${number === 1 ? one : many}`];
  };
  const parts = [
    ...count("error", "error", "errors"),
    ...count("warning", "warning", "warnings"),
    ...count("info", "note", "notes"),
  ];
  return parts.length === 0 ? "No problems found." : `${parts.join(", ")}.`;
}
