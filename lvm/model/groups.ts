/**
 * Which volume group takes a new volume.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import {
  bytesPerDisk,
  describeLayout,
  describeRoom,
  type DiskRoom,
  disksFor,
  type Layout,
  type LayoutRoom,
  layoutRoom,
  LINEAR,
  rawBytes,
  sizeStep,
  takesStripes,
} from "./layout.ts";
import type { VolumeGroup } from "./report.ts";
import { formatBytes, sizeInExtents, type SizeRange } from "../size.ts";

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
  /** Its disks; none where they are not known, and then it takes nothing but linear volumes. */
  readonly pvs: readonly DiskRoom[];
  /** What is not free because volumes that were asked for will yet take it, in bytes; nothing by default. */
  readonly pending?: bigint;
  /** What its free space is for messages, when it is not simply that: what a thin pool in it may still promise. */
  readonly freeIs?: string;
}

/** A group that can take a volume, and the size that the volume would have there, in bytes. */
export interface Candidate<G extends GroupRoom = VolumeGroup> {
  /** The group. */
  readonly group: G;
  /** The requested size in whole extents of the group, the same on each disk. */
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
  layout: Layout = LINEAR,
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
    .map((group) => ({ group, size: sizeInExtents(range, sizeStep(layout, group.extentSize)) }))
    .filter(({ group, size }) => fits(layout, size, group));
  if (fitting.length === 0) {
    const accounts = matching.map((group) => account(group, range, layout)).join(", ");
    throw new StorageError(
      "NoSpace",
      `choosing a volume group for ${formatBytes(range.required)}: no room in ${accounts}`,
    );
  }
  const sign = preference === "leastFree" ? 1 : -1;
  return fitting.sort((a, b) => sign * compare(a.group.free, b.group.free) || compare(a.group.name, b.group.name));
}

/** What the matching groups could still take of a layout: all volumes together, and the largest single one, in bytes. */
export function capacity(
  groups: readonly GroupRoom[],
  wanted: GroupMatcher,
  layout: Layout = LINEAR,
): GroupCapacity {
  const rooms = groups.filter((group) => wanted.matches(group.name) && usable(group))
    .map((group) => roomIn(layout, group));
  return {
    available: rooms.reduce((sum, { available }) => sum + available, 0n),
    largest: rooms.reduce((most, { largest }) => largest > most ? largest : most, 0n),
    smallest: rooms.reduce((least, { step }) => step < least || least === 0n ? step : least, 0n),
  };
}

/** A linear volume is laid on whatever is free, on several disks if need be. */
function fits(layout: Layout, size: bigint, group: GroupRoom): boolean {
  const { free, extentSize } = group;
  if (layout.type === "linear") return size <= free;
  // not all that is free on disks need be free for this volume: what copying it takes will be anywhere
  return takesStripes(layout, extentSize) && disksFor(layout, size, group) !== undefined &&
    rawBytes(layout, size, extentSize) <= free;
}

function roomIn(layout: Layout, { free, pvs, extentSize }: GroupRoom): LayoutRoom {
  if (layout.type === "linear") return { available: free, largest: free, step: extentSize };
  return layoutRoom(layout, pvs, extentSize);
}

function account(group: GroupRoom, range: SizeRange, layout: Layout): string {
  if (!group.answers) return `${group.name} (it does not answer)`;
  if (group.missingPvs > 0) return `${group.name} (${group.missingPvs} of its disks are missing)`;
  if (!group.writeable) return `${group.name} (read-only or exported)`;
  const pending = group.pending ? `, ${formatBytes(group.pending)} more for volumes that are being made` : "";
  if (layout.type !== "linear") return `${group.name} (${accountOfDisks(group, range, layout)}${pending})`;
  return `${group.name} (${formatBytes(group.free)} ${group.freeIs ?? "free"}${pending})`;
}

function accountOfDisks({ pvs, extentSize }: GroupRoom, { required }: SizeRange, layout: Layout): string {
  if (!takesStripes(layout, extentSize)) {
    return `${describeLayout(layout)} does not fit its extents of ${formatBytes(extentSize)}`;
  }
  return describeRoom(layout, bytesPerDisk(layout, required, extentSize), pvs);
}

/** How two values are sorted. */
export function compare<T>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
