/**
 * Reading what the tools answer as JSON: everything is `unknown` until it was looked at.
 *
 * @module
 */

import { StorageError } from "./error.ts";

/** The value that a tool's answer is. @throws {StorageError} `CommandFailed` when it is not JSON. */
export function parseJson(tool: string, stdout: string): unknown {
  try {
    return JSON.parse(stdout);
  } catch (cause) {
    throw new StorageError("CommandFailed", `reading the answer of ${tool}: it is not JSON: ${truncate(stdout)}`, {
      cause,
    });
  }
}

/** The value as an object. @throws {StorageError} `CommandFailed` when it is none. */
export function asObject(value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw unexpectedValueError("an object", value);
  }
  return value as Record<string, unknown>;
}

/** The value as an array. @throws {StorageError} `CommandFailed` when it is none. */
export function asArray(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw unexpectedValueError("a list", value);
  return value;
}

/** The value as text. @throws {StorageError} `CommandFailed` when it is none. */
export function asString(value: unknown): string {
  if (typeof value !== "string") throw unexpectedValueError("text", value);
  return value;
}

/** The value as an integer of a tool that writes numbers as such or as text. @throws {StorageError} `CommandFailed`. */
export function asInteger(value: unknown): bigint {
  if (typeof value === "number" && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === "string" && /^-?\d{1,19}$/.test(value)) return BigInt(value);
  throw unexpectedValueError("an integer", value);
}

/** The value as an integer that is not negative. @throws {StorageError} `CommandFailed`. */
export function asUnsignedInteger(value: unknown): bigint {
  const number = asInteger(value);
  if (number < 0n) throw unexpectedValueError("a number from 0 on", value);
  return number;
}

function unexpectedValueError(expected: string, value: unknown): StorageError {
  return new StorageError(
    "CommandFailed",
    `reading the answer of a tool: expected ${expected}, found ${truncate(JSON.stringify(value) ?? "nothing")}`,
  );
}

function truncate(text: string): string {
  return text.length > 200 ? text.slice(0, 200) + "…" : text;
}
