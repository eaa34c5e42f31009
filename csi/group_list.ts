/**
 * Volume groups by name and by pattern, as flags and parameters name them.
 *
 * @module
 */

import { RE2JS } from "re2js";
import type { GroupMatcher } from "../lvm/model/groups.ts";
import { messageOf, quote } from "../base/error.ts";
import { parseGroupEntries } from "./driver_options.ts";
import { wrongParameter } from "./request.ts";

/** Maximum length of a pattern, in characters. */
const MAX_PATTERN_LENGTH = 256;

/**
 * The maximum number of instructions of a compiled pattern. The time of a match is proportional to it, and repetitions make
 * large programs of short patterns. With this limit, matching the longest name takes some tens of milliseconds.
 */
const MAX_PATTERN_INSTRUCTIONS = 1_000;

/**
 * Parses a list of volume groups: names and `/patterns/`, separated by commas.
 *
 * @param field the name of the list, for messages
 * @throws {StorageError} `InvalidArgument` for an invalid name or pattern, or an empty list
 */
export function parseGroupList(list: string, field = "volume groups"): GroupMatcher {
  return parseGroupEntries(list, field, (pattern, entry) => patternMatcher(field, pattern, entry));
}

/**
 * Creates a matcher of a pattern. RE2 matches in time proportional to its input, so no pattern can hang the process. It
 * is also the syntax of OpenEBS. {@linkcode parseGroupList} parses the string form of the matcher.
 *
 * @param field the name of the field, for messages
 * @param shown the pattern as messages show it
 * @throws {StorageError} `InvalidArgument` for a pattern that is too long, that repeats too much, or that RE2
 * refuses
 */
export function patternMatcher(field: string, pattern: string, shown = pattern): GroupMatcher {
  if (pattern.length > MAX_PATTERN_LENGTH) {
    throw wrongParameter(`${field} ${quote(shown)}: longer than ${MAX_PATTERN_LENGTH} characters`);
  }
  if (pattern.includes("/")) throw wrongParameter(`${field} ${quote(shown)}: no volume group's name has a slash`);
  let compiled: RE2JS;
  try {
    compiled = RE2JS.compile(pattern);
  } catch (error) {
    throw wrongParameter(
      `${field} ${quote(shown)}: must be a pattern in the syntax of RE2: ${messageOf(error)}`,
    );
  }
  if (compiled.programSize() > MAX_PATTERN_INSTRUCTIONS) {
    throw wrongParameter(`${field} ${quote(shown)}: repeats too much; use smaller numbers of repetitions`);
  }
  return { matches: (name) => compiled.matches(name), toString: () => `/${pattern}/` };
}
