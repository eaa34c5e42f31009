/**
 * The answers of the shell of lvm(8).
 *
 * With `log/report_command_log` and JSON as the format of reports, the shell answers each command with one JSON object,
 * written to a descriptor on which it writes nothing else (`LVM_REPORT_FD`). The object has the reports of the command
 * (`report`) and its log (`log`), whose last entry has the status of the command. The messages of a command are in its log
 * alone; the command `lastlog` repeats the log with all of them (lvmreport(7), COMMAND LOG).
 *
 * @module
 */

import { StorageError, truncate } from "../error.ts";
import type { Output } from "../exec.ts";
import { asArray, asObject, asString, parseLvmJson } from "../json.ts";

/** The code with which LVM's functions say that a command succeeded (`ECMD_PROCESSED`); the exit status is 0 then. */
const ECMD_PROCESSED = 1;

/** The types of log entries that a process prints on standard error. `print` goes to standard output. */
const STDERR_TYPES: readonly string[] = ["fatal", "error", "warn"];

/** The maximum length of an excerpt of an answer, in characters. */
const MAX_EXCERPT_LENGTH = 200;

/** The command that repeats the log of the last command, with all its messages. */
export const LASTLOG = "lastlog\n";

/** Splits what the shell writes into its answers. */
export class AnswerSplitter {
  #text = "";
  #depth = 0;
  #isQuoted = false;
  #isEscaped = false;

  /**
   * Takes what was read, in pieces of any size.
   *
   * @returns the answers that are now complete
   * @throws {StorageError} `CommandFailed` for what is not part of a JSON object
   */
  push(piece: string): string[] {
    const answers: string[] = [];
    let start = 0;
    for (let i = 0; i < piece.length; i++) {
      const char = piece[i]!;
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#isQuoted) {
        if (char === "\\") this.#isEscaped = true;
        else if (char === '"') this.#isQuoted = false;
      } else if (char === '"' && this.#depth > 0) this.#isQuoted = true;
      else if (char === "{") {
        if (this.#depth++ === 0) start = i;
      } else if (char === "}" && this.#depth > 1) this.#depth--;
      else if (char === "}" && this.#depth === 1) {
        this.#depth = 0;
        answers.push(this.#text + piece.slice(start, i + 1));
        this.#text = "";
        start = i + 1;
      } else if (this.#depth === 0 && !/\s/.test(char)) {
        throw invalidAnswer(piece.slice(i), "it is outside of an answer");
      }
    }
    if (this.#depth > 0) this.#text += piece.slice(start);
    return answers;
  }

  /** Reports whether an answer has begun and is not complete. */
  get isPartial(): boolean {
    return this.#depth > 0;
  }
}

/** An entry of a log. */
interface LogEntry {
  readonly type: string;
  readonly context: string;
  readonly objectType: string;
  readonly objectName: string;
  readonly message: string;
  readonly code: string;
}

/** What an answer says. */
export interface Answer {
  /** The exit status that a process would have had. */
  readonly code: number;
  /** Whether the answer has reports. */
  readonly hasReports: boolean;
}

/**
 * Parses an answer.
 *
 * @param name the command
 * @param answer the answer to it, or to the `lastlog` after it
 * @throws {StorageError} `CommandFailed` when the answer is not to this command, or has no status
 */
export function parseAnswer(name: string, answer: string): Answer {
  const { log, hasReports } = parseObject(answer);
  const isStatus = ({ type, context, objectType }: LogEntry) =>
    type === "status" && context === "shell" && objectType === "cmd";
  const last = log.at(-1);
  if (last === undefined || !isStatus(last) || log.filter(isStatus).length !== 1) {
    throw invalidAnswer(answer, "it has not one status at its end");
  }
  if (last.objectName !== name) throw invalidAnswer(answer, `it is not to ${name}`);
  if (!/^\d{1,3}$/.test(last.code)) throw invalidAnswer(answer, "its status is no number");
  const code = Number(last.code);
  return { code: code === ECMD_PROCESSED ? 0 : code, hasReports };
}

/**
 * Returns what a process would have printed beside its reports.
 *
 * @param answer the answer to `lastlog`
 * @throws {StorageError} `CommandFailed` when it has no log
 */
export function parseMessages(answer: string): Pick<Output, "stdout" | "stderr"> {
  const { log } = parseObject(answer);
  const textOf = (types: readonly string[]) =>
    log.filter(({ type }) => types.includes(type)).map(({ message }) => `  ${message}\n`).join("");
  return { stdout: textOf(["print"]), stderr: textOf(STDERR_TYPES) };
}

function parseObject(answer: string): { readonly log: readonly LogEntry[]; readonly hasReports: boolean } {
  try {
    const object = asObject(parseLvmJson(withoutControlCharacters(answer)));
    const log = asArray(object.log).map((entry) => {
      const field = (name: string) => asString(asObject(entry)[`log_${name}`]);
      return {
        type: field("type"),
        context: field("context"),
        objectType: field("object_type"),
        objectName: field("object_name"),
        message: field("message"),
        code: field("ret_code"),
      };
    });
    return { log, hasReports: object.report !== undefined };
  } catch (error) {
    throw invalidAnswer(answer, (error as Error).message);
  }
}

/** LVM escapes only quotes. A message may have tabs and newlines, which JSON allows only outside of strings. */
function withoutControlCharacters(answer: string): string {
  // deno-lint-ignore no-control-regex
  return answer.replace(/[\0-\x1f\x7f]/g, " ");
}

function invalidAnswer(answer: string, reason: string): StorageError {
  return new StorageError(
    "CommandFailed",
    `reading an answer of the shell of lvm: ${reason}: ${JSON.stringify(truncate(answer, MAX_EXCERPT_LENGTH))}`,
  );
}
