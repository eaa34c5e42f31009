/**
 * What every target expects of a parser: a failure of the right kind, or a value without holes.
 *
 * @module
 */

import { assert } from "@std/assert";
import { cpuMs } from "../fake/cpu_time.ts";
import { type ErrorKind, StorageError } from "../../base/error.ts";

/** The maximum length of the message of a parser's error, in characters. */
const MAX_MESSAGE_LENGTH = 2_000;

/**
 * Runs a parser, which may only fail with a StorageError of certain kinds.
 *
 * @returns the value, or `undefined` when the parser failed as it may
 * @throws {Error} any other failure, or for a value that contains NaN
 */
export function parsed<T>(kinds: readonly ErrorKind[], parse: () => T): T | undefined {
  try {
    const value = parse();
    requireNoNaN(value, "the result");
    return value;
  } catch (error) {
    requireKind(kinds, error);
    return undefined;
  }
}

/** The same as {@linkcode parsed} for a parser that waits for something. */
export async function parsedLater<T>(kinds: readonly ErrorKind[], parse: () => Promise<T>): Promise<T | undefined> {
  try {
    const value = await parse();
    requireNoNaN(value, "the result");
    return value;
  } catch (error) {
    requireKind(kinds, error);
    return undefined;
  }
}

/** Requires that an error is a StorageError of one of the kinds, with a short message. @throws {Error} the error */
function requireKind(kinds: readonly ErrorKind[], error: unknown): void {
  if (!(error instanceof StorageError) || !kinds.includes(error.kind)) throw error;
  assert(error.message.length <= MAX_MESSAGE_LENGTH, `a message of ${error.message.length} characters`);
}

/** Requires that a value contains no NaN, at any depth. */
export function requireNoNaN(value: unknown, path: string): void {
  assert(!(typeof value === "number" && Number.isNaN(value)), `${path} is NaN`);
  if (typeof value !== "object" || value === null) return;
  const entries = value instanceof Map ? value.entries() : Object.entries(value);
  for (const [key, inner] of entries) requireNoNaN(inner, `${path}.${String(key)}`);
}

/** How often a function that took too long is run again: processor time counts what a busy machine took away. */
const ATTEMPTS = 5;

/**
 * Runs a function without side effects, which must not take long.
 *
 * @throws {Error} when it took more milliseconds of processor time at each of some attempts
 */
export function within<T>(ms: number, what: string, body: () => T): T {
  let least = Infinity;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const start = cpuMs();
    const value = body();
    least = Math.min(least, cpuMs() - start);
    if (least <= ms) return value;
  }
  throw new Error(`${what} took ${Math.round(least)} ms`);
}
