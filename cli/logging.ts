/**
 * The log, on standard error.
 *
 * @module
 */

import {
  configure,
  getLogger,
  jsonLinesFormatter,
  type LogLevel,
  type LogRecord,
  type TextFormatter,
} from "@logtape/logtape";
import { defined } from "../base/defined.ts";
import { causeOf } from "../base/error.ts";
import { type Command, type CommandEnd, describeCommand } from "../lvm/exec.ts";
import { currentRequestId } from "../base/request_id.ts";
import { escapeControls } from "../base/text_table.ts";
import { LOG_FORMATS, LOG_LEVELS, oneOf } from "./shared_flags.ts";

/** Starts the log. @throws {UsageError} for an unknown level or format */
export async function startLogging(level: string, format: string): Promise<void> {
  const lowestLevel: LogLevel = oneOf(LOG_LEVELS)(level, "--log-level");
  const formatter = oneOf(LOG_FORMATS)(format, "--log-format") === "json" ? jsonLinesFormatter : formatText;
  await configure({
    sinks: { stderr: (record) => console.error(escapeControls(formatter(withReasonField(record)).trimEnd())) },
    loggers: [
      { category: ["denolith"], sinks: ["stderr"], lowestLevel },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
}

/** Adds the reason of a record's error as a field of its own. */
function withReasonField(record: LogRecord): LogRecord {
  const reason = causeOf(record.properties["error"]);
  return reason === undefined ? record : { ...record, properties: { ...record.properties, reason } };
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

/** Replaces a `bigint`, which JSON does not have. A record that cannot be formatted would be lost. */
function bigintAsNumber(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? Number(value) : value;
}

/** Logs, at level debug, why the mount table cannot be read from a file. */
export function logNoMountTable(error: unknown): void {
  commandLog.debug("findmnt lists the mounts", { error });
}

/** Logs that a node takes no part in transfers, although it should. */
export function logNoTransferAddress(advertised: string | undefined): void {
  const message = "this node takes no part in transfers: it has no IPv4 address, or --transfer-domain is missing";
  getLogger(["denolith", "transfer"]).warn(message, { advertised });
}

const formatText: TextFormatter = ({ timestamp, level, category, rawMessage, properties }) => {
  const facts = Object.entries(properties).map(([key, value]) =>
    `${key}=${JSON.stringify(value instanceof Error ? value.message : value, bigintAsNumber) ?? value}`
  );
  return [new Date(timestamp).toISOString(), level, category.at(-1), `${rawMessage}`, ...facts].join(" ");
};
