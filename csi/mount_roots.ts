/**
 * The directories below which volumes may be staged and published.
 *
 * @module
 */

import { invalidArgument, requirePath } from "./request.ts";

/**
 * Parses a list of directories, separated by commas.
 *
 * @throws {StorageError} `InvalidArgument` for a relative path, one with dots, the root directory, or an empty list
 */
export function parseMountRoots(list: string): readonly string[] {
  const roots = list.split(",").map((entry) => entry.trim()).filter((entry) => entry !== "");
  if (roots.length === 0) throw invalidArgument("mount roots: none named");
  return [...new Set(roots.map((root) => requirePath("mount roots", root)))];
}
