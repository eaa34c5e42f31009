/**
 * What the fake machine's tools read and print alike.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { failure } from "./machine.ts";

/** Returns the argument after a flag. */
export function optionValue(args: readonly string[], flag: string): string {
  const value = args[args.indexOf(flag) + 1];
  if (!args.includes(flag) || value === undefined) throw new Error(`expected ${flag} in ${args.join(" ")}`);
  return value;
}

/** Returns a tool's error about a device that is read-only. */
export function notPermitted(tool: string, path: string): Output {
  return failure(1, `${tool}: ${path}: Operation not permitted`);
}

/** Returns a tool's error about a path without a device. */
export function deviceNotFound(tool: string, path: string): Output {
  return failure(1, `${tool}: ${path}: No such file or directory`);
}
