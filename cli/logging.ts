/**
 * The log, on standard error.
 *
 * @module
 */

import { configure, getLogger, jsonLinesFormatter, type LogLevel, type TextFormatter } from "@logtape/logtape";
import { defined } from "../lvm/defined.ts";
import { type Command, type CommandEnd, describeCommand } from "../lvm/exec.ts";
import { currentRequestId } from "../lvm/request_id.ts";
import { LOG_FORMATS, LOG_LEVELS, oneOf } from "./flags.ts";

/** Starts the log. @throws {UsageError} for an unknown level or format */
export async function startLogging(level: string, format: string): Promise<void> {
  const lowestLevel: LogLevel = oneOf(LOG_LEVELS)(level, "--log-level");
  const formatter = oneOf(LOG_FORMATS)(format, "--log-format") === "json" ? jsonLinesFormatter : formatText;
  await configure({
    sinks: { stderr: (record) => console.error(formatter(record).trimEnd()) },
    loggers: [
      { category: ["denolith"], sinks: ["stderr"], lowestLevel },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
}

const commandLog = getLogger(["denolith", "exec"]);

/** Logs a command that ended, at level debug. */
export function logCommand(command: Command, { durationMs, code }: CommandEnd): void {
  if (!commandLog.isEnabledFor("debug")) return;
  commandLog.debug("command", {
    ...defined({ requestId: currentRequestId() }),
    command: describeCommand(command),
    durationMs: Math.round(durationMs),
    ...defined({ code }),
  });
}

const formatText: TextFormatter = ({ timestamp, level, category, rawMessage, properties }) => {
  const facts = Object.entries(properties).map(([key, value]) =>
    `${key}=${value instanceof Error ? JSON.stringify(value.message) : JSON.stringify(value) ?? value}`
  );
  return [new Date(timestamp).toISOString(), level, category.at(-1), `${rawMessage}`, ...facts].join(" ");
};
