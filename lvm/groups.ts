/**
 * Which volume group takes a new volume.
 *
 * @module
 */

import { StorageError } from "./error.ts";
import type { VolumeGroup } from "./report.ts";
import { formatBytes, sizeInExtents, type SizeRange } from "./size.ts";

/** Tells whether a volume group may be used, by its name. */
export interface GroupMatcher {
  /** Whether the group's name is meant. */
  matches(name: string): boolean;
  /** The name or pattern, for messages. */
  toString(): string;
  /** Those that it is made of, if it is made of several. */
  readonly members?: readonly GroupMatcher[];
}

/** Which of several groups with room to prefer: the one with the least free space that fits, or the one with the most. */
export type GroupPreference = "leastFree" | "mostFree";

/** What it takes to know of a group to choose it. */
export interface GroupRoom
  extends Pick<VolumeGroup, "name" | "free" | "extentSize" | "missingPvs" | "writeable" | "answers"> {
  /** What is not free because volumes that were asked for will yet take it, in bytes; nothing by default. */
  readonly pending?: bigint;
  /** What its free space is for messages, when it is not simply that: what a thin pool in it may still promise. */
  readonly freeIs?: string;
}

/** A group that can take a volume, and the size that the volume would have there, in bytes. */
export interface Candidate<G extends GroupRoom = VolumeGroup> {
  /** The group. */
  readonly group: G;
  /** The requested size in whole extents of the group. */
  readonly size: bigint;
}

/** What groups could still take, in bytes. */
export interface GroupCapacity {
  /** All that is free in them. */
  readonly available: bigint;
  /** The largest volume that one of them could take. */
  readonly largest: bigint;
  /** The smallest size that a volume can have in one of them. */
  readonly smallest: bigint;
}

/** A matcher for whatever there is. */
export const ANY_GROUP: GroupMatcher = { matches: () => true, toString: () => "any" };

/** A matcher for one exact name. */
export function exactly(name: string): GroupMatcher {
  return { matches: (candidate) => candidate === name, toString: () => name };
}

/** A matcher for whatever any of the given ones matches. */
export function anyOf(matchers: readonly GroupMatcher[]): GroupMatcher {
  return {
    matches: (name) => matchers.some((matcher) => matcher.matches(name)),
    toString: () => matchers.join(", "),
    members: matchers,
  };
}

/** Whether LVM would make an LV in the group now: all disks there and answering, writeable, not exported (vgcreate(8)). */
export function usable(group: GroupRoom): boolean {
  return group.answers && group.writeable && group.missingPvs === 0;
}

/**
 * The groups that can take a volume of the range, best first.
 *
 * @throws {StorageError} `OutOfRange` when the range holds no whole extent in any group; `NoSpace` when no group matches
 * or none has room, with what each of them has.
 */
export function candidates<G extends GroupRoom>(
  groups: readonly G[],
  wanted: GroupMatcher,
  range: SizeRange,
  preference: GroupPreference,
): Candidate<G>[] {
  const matching = groups.filter((group) => wanted.matches(group.name));
  if (matching.length === 0) {
    throw new StorageError(
      "NoSpace",
      `choosing a volume group: none is called ${wanted}; there are ${
        groups.map((group) => group.name).join(", ") || "none"
      }`,
    );
  }
  const fitting = matching.filter(usable)
    .map((group) => ({ group, size: sizeInExtents(range, group.extentSize) }))
    .filter(({ group, size }) => size <= group.free);
  if (fitting.length === 0) {
    throw new StorageError(
      "NoSpace",
      `choosing a volume group for ${formatBytes(range.required)}: no room in ${matching.map(account).join(", ")}`,
    );
  }
  const sign = preference === "leastFree" ? 1 : -1;
  return fitting.sort((a, b) => sign * compare(a.group.free, b.group.free) || compare(a.group.name, b.group.name));
}

/** What the matching groups could still take: all their free space, and the largest single volume, in bytes. */
export function capacity(
  groups: readonly GroupRoom[],
  wanted: GroupMatcher,
): GroupCapacity {
  const free = groups.filter((group) => wanted.matches(group.name) && usable(group));
  return {
    available: free.reduce((sum, group) => sum + group.free, 0n),
    largest: free.reduce((most, group) => group.free > most ? group.free : most, 0n),
    smallest: free.reduce((least, group) => group.extentSize < least || least === 0n ? group.extentSize : least, 0n),
  };
}

function account(group: GroupRoom): string {
  if (!group.answers) return `${group.name} (it does not answer)`;
  if (group.missingPvs > 0) return `${group.name} (${group.missingPvs} of its disks are missing)`;
  if (!group.writeable) return `${group.name} (read-only or exported)`;
  const pending = group.pending ? `, ${formatBytes(group.pending)} more for volumes that are being made` : "";
  return `${group.name} (${formatBytes(group.free)} ${group.freeIs ?? "free"}${pending})`;
}

/** How two values are sorted. */
export function compare<T>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
