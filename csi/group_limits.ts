/**
 * The default IO limits by volume group, which flags set for volumes without limits of their own.
 *
 * @module
 */

import { type IoLimitName, type IoLimits, parseIoLimitParameters } from "../lvm/settings/io_limits.ts";
import type { GroupMatcher } from "../lvm/model/groups.ts";
import { parseGroupList } from "./group_list.ts";
import { splitGroupEntries } from "./driver_options.ts";
import { messageOf, quote } from "../base/error.ts";
import { invalidArgument } from "./request.ts";

/** The flags, each with the limit that it sets for each GiB. */
const GROUP_LIMIT_FLAGS = {
  "read-iops-per-gib": "readIops",
  "write-iops-per-gib": "writeIops",
  "read-bps-per-gib": "readBps",
  "write-bps-per-gib": "writeBps",
} as const satisfies Record<string, IoLimitName>;

/** One entry of a flag. */
interface GroupLimitEntry {
  readonly groups: GroupMatcher;
  readonly limits: IoLimits;
}

/**
 * Parses the flags. Each is a list of `GROUP=RATE`, separated by commas. A group is a name or a pattern in slashes. The
 * first entry that matches applies.
 *
 * @returns a function from the name of a volume group to its limits
 * @throws {StorageError} `InvalidArgument` with the flag and the invalid entry
 */
export function parseGroupLimits(flags: Readonly<Record<string, string | undefined>>): (group: string) => IoLimits {
  const entries = Object.entries(GROUP_LIMIT_FLAGS).map(([flag, name]) => parseGroupLimitFlag(flag, name, flags[flag]));
  return (group) =>
    Object.assign({}, ...entries.map((list) => list.find(({ groups }) => groups.matches(group))?.limits));
}

function parseGroupLimitFlag(flag: string, name: IoLimitName, text: string | undefined): GroupLimitEntry[] {
  if (text === undefined) return [];
  const entries = splitGroupEntries(text);
  if (entries.length === 0) throw invalidArgument(`--${flag} ${quote(text)}: must be GROUP=RATE, separated by commas`);
  return entries.map((entry) => {
    const at = entry.lastIndexOf("=");
    const group = entry.slice(0, at);
    const rate = entry.slice(at + 1);
    if (!entry.includes("=") || group === "") {
      throw invalidArgument(`--${flag} ${quote(entry)}: must be GROUP=RATE`);
    }
    try {
      return {
        groups: parseGroupList(group),
        limits: parseIoLimitParameters(new Map([[`${name}PerGiB`, rate.trim()]])),
      };
    } catch (error) {
      throw invalidArgument(`--${flag} ${quote(entry)}: ${messageOf(error)}`);
    }
  });
}
