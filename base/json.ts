/**
 * Parsing JSON that programs print: every value is `unknown` until it is checked.
 *
 * @module
 */

import { StorageError, truncate } from "./error.ts";

/** The maximum length of an excerpt of an output, in characters. */
const MAX_EXCERPT_LENGTH = 200;

/**
 * Parses the JSON output of a program.
 *
 * @param tool name of the program, for the error message
 * @throws {StorageError} `CommandFailed` when the output is not JSON
 */
export function parseJson(tool: string, stdout: string): unknown {
  try {
    return parseLvmJson(stdout);
  } catch (cause) {
    throw new StorageError(
      "CommandFailed",
      `reading the output of ${tool}: it is not JSON: ${truncate(stdout, MAX_EXCERPT_LENGTH)}`,
      {
        cause,
      },
    );
  }
}

/** Parses the JSON output of a program. @returns the objects in the list under a key */
export function parseRows(tool: string, stdout: string, key: string): Record<string, unknown>[] {
  return asArray(asObject(parseJson(tool, stdout))[key]).map(asObject);
}

/**
 * Parses JSON as LVM writes it: LVM 2.03.16 escapes no backslash, only quotes. The name of a device-mapper device has one for
 * each unusual character, and one such physical volume would make all reports unreadable.
 *
 * @throws {SyntaxError} when it is not JSON
 */
function parseLvmJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!text.includes("\\")) throw error;
    return JSON.parse(text.replace(/\\(?!")/g, "\\\\"));
  }
}

/**
 * Returns a value as an object.
 *
 * @throws {StorageError} `CommandFailed` when it is not an object
 */
export function asObject(value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw unexpectedValueError("an object", value);
  }
  return value as Record<string, unknown>;
}

/**
 * Returns a value as an array.
 *
 * @throws {StorageError} `CommandFailed` when it is not an array
 */
export function asArray(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw unexpectedValueError("a list", value);
  return value;
}

/**
 * Returns a value as a string.
 *
 * @throws {StorageError} `CommandFailed` when it is not a string
 */
export function asString(value: unknown): string {
  if (typeof value !== "string") throw unexpectedValueError("text", value);
  return value;
}

/**
 * Returns a value as an integer. Some programs write numbers as JSON numbers, others as strings.
 *
 * @throws {StorageError} `CommandFailed` when it is not an integer
 */
export function asInteger(value: unknown): bigint {
  if (typeof value === "number" && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === "string" && /^-?\d{1,19}$/.test(value)) return BigInt(value);
  throw unexpectedValueError("an integer", value);
}

/**
 * Returns a value as an integer that is not negative.
 *
 * @throws {StorageError} `CommandFailed` when it is not such an integer
 */
export function asUnsignedInteger(value: unknown): bigint {
  const number = asInteger(value);
  if (number < 0n) throw unexpectedValueError("a number of 0 or more", value);
  return number;
}

/**
 * Returns a value as a positive integer.
 *
 * @throws {StorageError} `CommandFailed` when it is not such an integer
 */
export function asPositiveInteger(value: unknown): bigint {
  const number = asInteger(value);
  if (number <= 0n) throw unexpectedValueError("a number above 0", value);
  return number;
}

/**
 * Returns a value as a percentage. LVM writes it as a string with decimals.
 *
 * @throws {StorageError} `CommandFailed` when it is not a percentage
 */
export function asPercent(value: unknown): number {
  if (typeof value === "string" && /^\d{1,3}(?:\.\d{1,9})?$/.test(value)) return Number(value);
  throw unexpectedValueError("a percentage", value);
}

function unexpectedValueError(expected: string, value: unknown): StorageError {
  return new StorageError(
    "CommandFailed",
    `reading the output of a program: expected ${expected}, found ${
      truncate(JSON.stringify(value) ?? "nothing", MAX_EXCERPT_LENGTH)
    }`,
  );
}
