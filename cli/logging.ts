/**
 * The log, on standard error.
 *
 * @module
 */

import { configure, jsonLinesFormatter, type LogLevel, type TextFormatter } from "@logtape/logtape";
import { UsageError } from "./command_line.ts";

const LEVELS = ["debug", "info", "warning", "error"] as const satisfies readonly LogLevel[];

/** Starts the log. @throws {UsageError} for an unknown level or format */
export async function startLogging(level: string, format: string): Promise<void> {
  const lowestLevel = LEVELS.find((known) => known === level);
  if (lowestLevel === undefined) throw new UsageError(`--log-level ${level}: must be one of ${LEVELS.join(", ")}`);
  if (format !== "text" && format !== "json") throw new UsageError(`--log-format ${format}: must be text or json`);
  const formatter = format === "json" ? jsonLinesFormatter : formatText;
  await configure({
    sinks: { stderr: (record) => console.error(formatter(record).trimEnd()) },
    loggers: [
      { category: ["denolith"], sinks: ["stderr"], lowestLevel },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
}

const formatText: TextFormatter = ({ timestamp, level, category, rawMessage, properties }) => {
  const facts = Object.entries(properties).map(([key, value]) =>
    `${key}=${value instanceof Error ? JSON.stringify(value.message) : JSON.stringify(value) ?? value}`
  );
  return [new Date(timestamp).toISOString(), level, category.at(-1), `${rawMessage}`, ...facts].join(" ");
};
