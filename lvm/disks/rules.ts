/**
 * Rules that propose disks for volume groups, as a flag has them.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";
import { GROUP_NAME, type GroupMatcher } from "../model/groups.ts";
import { parseQuantity } from "../../base/size.ts";
import type { DiskRule } from "./reading.ts";

/** Creates the matcher of a pattern, or throws an error that shows the rule. */
export type CreateMatcher = (field: string, pattern: string, rule: string) => Pick<GroupMatcher, "matches">;

/**
 * Parses rules, separated by blanks: `data=/nvme-.+/;min=100Gi;max=4Ti;rotational=no`. The pattern is of names in
 * /dev/disk/by-id.
 *
 * @param createMatcher creates the matcher of a pattern
 * @param field the name of the list, for messages
 * @throws {StorageError} `InvalidArgument` with the rule that cannot be parsed
 */
export function parseDiskRules(text: string, createMatcher: CreateMatcher, field = "disk rules"): DiskRule[] {
  const rules = text.split(" ").filter((rule) => rule !== "").map((rule) => parseRule(rule, field, createMatcher));
  if (rules.length === 0) throw invalidRule(field, text);
  return rules;
}

function parseRule(text: string, field: string, createMatcher: CreateMatcher): DiskRule {
  const [, group = "", pattern = "", options = ""] = /^([^=]*)=\/([^/]+)\/((?:;[^;]*)*)$/.exec(text) ?? [];
  if (!GROUP_NAME.test(group)) throw invalidRule(field, text);
  const rule: { -readonly [K in keyof DiskRule]: DiskRule[K] } = { group, names: createMatcher(field, pattern, text) };
  for (const option of options.split(";").slice(1)) {
    const [, name = "", value = ""] = /^(min|max|rotational)=(.*)$/.exec(option) ?? [];
    const bytes = parseQuantity(value);
    if (name === "min" && bytes !== undefined) rule.minBytes = bytes;
    else if (name === "max" && bytes !== undefined) rule.maxBytes = bytes;
    else if (name === "rotational" && (value === "yes" || value === "no")) rule.rotational = value === "yes";
    else throw invalidRule(field, text);
  }
  return rule;
}

function invalidRule(field: string, text: string) {
  return new StorageError(
    "InvalidArgument",
    `${field} ${quote(text)}: must be GROUP=/PATTERN/, with ;min=SIZE, ;max=SIZE or ;rotational=yes or no after it, ` +
      "separated by blanks",
  );
}
