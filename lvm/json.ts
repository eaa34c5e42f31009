/**
 * Reading what the tools answer as JSON: everything is `unknown` until it was looked at.
 *
 * @module
 */

import { StorageError } from "./error.ts";

/** The value that a tool's answer is. @throws {StorageError} `CommandFailed` when it is not JSON. */
export function parseJson(tool: string, answer: string): unknown {
  try {
    return JSON.parse(answer);
  } catch (cause) {
    throw new StorageError("CommandFailed", `reading the answer of ${tool}: it is not JSON: ${excerpt(answer)}`, {
      cause,
    });
  }
}

/** The value as an object. @throws {StorageError} `CommandFailed` when it is none. */
export function object(value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw unexpected("an object", value);
  return value as Record<string, unknown>;
}

/** The value as an array. @throws {StorageError} `CommandFailed` when it is none. */
export function array(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw unexpected("a list", value);
  return value;
}

/** The value as text. @throws {StorageError} `CommandFailed` when it is none. */
export function text(value: unknown): string {
  if (typeof value !== "string") throw unexpected("text", value);
  return value;
}

/** The value as an integer of a tool that writes numbers as such or as text. @throws {StorageError} `CommandFailed`. */
export function integer(value: unknown): bigint {
  if (typeof value === "number" && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === "string" && /^-?\d{1,19}$/.test(value)) return BigInt(value);
  throw unexpected("an integer", value);
}

/** The value as an integer that is not negative. @throws {StorageError} `CommandFailed`. */
export function natural(value: unknown): bigint {
  const number = integer(value);
  if (number < 0n) throw unexpected("a number from 0 on", value);
  return number;
}

function unexpected(wanted: string, value: unknown): StorageError {
  return new StorageError(
    "CommandFailed",
    `reading the answer of a tool: expected ${wanted}, found ${excerpt(JSON.stringify(value) ?? "nothing")}`,
  );
}

function excerpt(text: string): string {
  return text.length > 200 ? text.slice(0, 200) + "…" : text;
}
