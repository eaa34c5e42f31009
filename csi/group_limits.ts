/**
 * Limits by volume group, as flags say them: for volumes of which nothing else is said.
 *
 * @module
 */

import { type IoLimitName, type IoLimits, parseIoLimitParameters } from "../lvm/spec/io_limits.ts";
import type { GroupMatcher } from "../lvm/model/groups.ts";
import { parseGroupList } from "./parameters.ts";
import { invalidArgument, quote } from "./request.ts";

/** The flags, each with the limit that it says for each GiB. */
export const GROUP_LIMIT_FLAGS = {
  "read-iops-per-gib": "readIops",
  "write-iops-per-gib": "writeIops",
  "read-bps-per-gib": "readBps",
  "write-bps-per-gib": "writeBps",
} as const satisfies Record<string, IoLimitName>;

/** What one entry of a flag says. */
interface GroupLimitEntry {
  readonly groups: GroupMatcher;
  readonly limits: IoLimits;
}

/**
 * The limits of volumes by their group. Each flag is a list of `GROUP=RATE`, separated by commas, where a group is a name or a
 * pattern in slashes; the first that matches counts.
 *
 * @throws {StorageError} `InvalidArgument` naming the flag and the entry that is wrong.
 */
export function parseGroupLimits(flags: Readonly<Record<string, string | undefined>>): (group: string) => IoLimits {
  const entries = Object.entries(GROUP_LIMIT_FLAGS).map(([flag, name]) => parseGroupLimitFlag(flag, name, flags[flag]));
  return (group) =>
    Object.assign({}, ...entries.map((list) => list.find(({ groups }) => groups.matches(group))?.limits));
}

function parseGroupLimitFlag(flag: string, name: IoLimitName, text = ""): GroupLimitEntry[] {
  // a pattern may have commas in it
  return [...text.matchAll(/\s*((?:\/[^/]*\/|[^,/])+)\s*(?:,|$)/g)].map(([, entry = ""]) => {
    const [, group, rate] = /^(.+)=([^=]*)$/.exec(entry.trim()) ?? [];
    if (group === undefined || rate === undefined) {
      throw invalidArgument(`--${flag} ${quote(entry)}: must be GROUP=RATE`);
    }
    try {
      return {
        groups: parseGroupList(group),
        limits: parseIoLimitParameters(new Map([[`${name}PerGiB`, rate.trim()]])),
      };
    } catch (error) {
      throw invalidArgument(`--${flag} ${quote(entry)}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
}
