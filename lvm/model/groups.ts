/**
 * Which volume group takes a new volume.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import {
  allocatedBytes,
  bytesPerPv,
  choosePvs,
  describeLayout,
  describePvSpace,
  isStripeSizeSupported,
  type Layout,
  type LayoutSpace,
  layoutSpace,
  LINEAR,
  type PvSpace,
  sizeStep,
} from "./layout.ts";
import type { VolumeGroup } from "./report.ts";
import { formatBytes, roundToExtents, type SizeRange } from "../size.ts";

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
export interface GroupSpace
  extends Pick<VolumeGroup, "name" | "free" | "extentSize" | "missingPvs" | "writeable" | "responsive"> {
  /** Its disks; none where they are not known, and then it takes nothing but linear volumes. */
  readonly pvs: readonly PvSpace[];
  /** What is not free because volumes that were asked for will yet take it, in bytes; nothing by default. */
  readonly pending?: bigint;
  /** What its free space is for messages, when it is not simply that: what a thin pool in it may still promise. */
  readonly freeDescription?: string;
}

/** A group that can take a volume, and the size that the volume would have there, in bytes. */
export interface Candidate<G extends GroupSpace = VolumeGroup> {
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
  readonly maximumVolumeSize: bigint;
  /** The smallest size that a volume can have in one of them. */
  readonly minimumVolumeSize: bigint;
}

/** A matcher for whatever there is. */
export const ANY_GROUP: GroupMatcher = { matches: () => true, toString: () => "any" };

/** A matcher for one exact name. */
export function exactMatcher(name: string): GroupMatcher {
  return { matches: (candidate) => candidate === name, toString: () => name };
}

/** A matcher for whatever any of the given ones matches. */
export function anyMatcherOf(matchers: readonly GroupMatcher[]): GroupMatcher {
  return {
    matches: (name) => matchers.some((matcher) => matcher.matches(name)),
    toString: () => matchers.join(", "),
    members: matchers,
  };
}

/** Whether LVM would make an LV in the group now: all disks there and answering, writeable, not exported (vgcreate(8)). */
export function isUsable(group: GroupSpace): boolean {
  return group.responsive && group.writeable && group.missingPvs === 0;
}

/**
 * The groups that can take a volume of the range, best first.
 *
 * @throws {StorageError} `OutOfRange` when the range holds no whole extent in any group; `NoSpace` when no group matches
 * or none has room, with what each of them has.
 */
export function selectCandidates<G extends GroupSpace>(
  groups: readonly G[],
  matcher: GroupMatcher,
  range: SizeRange,
  preference: GroupPreference,
  layout: Layout = LINEAR,
): Candidate<G>[] {
  const matching = groups.filter((group) => matcher.matches(group.name));
  if (matching.length === 0) {
    throw new StorageError(
      "NoSpace",
      `choosing a volume group: none is called ${matcher}; there are ${
        groups.map((group) => group.name).join(", ") || "none"
      }`,
    );
  }
  const fitting = matching.filter(isUsable)
    .map((group) => ({ group, size: roundToExtents(range, sizeStep(layout, group.extentSize)) }))
    .filter(({ group, size }) => canHoldVolume(layout, size, group));
  if (fitting.length === 0) {
    const descriptions = matching.map((group) => describeSpace(group, range, layout)).join(", ");
    throw new StorageError(
      "NoSpace",
      `choosing a volume group for ${formatBytes(range.required)}: no room in ${descriptions}`,
    );
  }
  const sign = preference === "leastFree" ? 1 : -1;
  return fitting.sort((a, b) => sign * compare(a.group.free, b.group.free) || compare(a.group.name, b.group.name));
}

/** What the matching groups could still take of a layout: all volumes together, and the largest single one, in bytes. */
export function groupCapacity(
  groups: readonly GroupSpace[],
  matcher: GroupMatcher,
  layout: Layout = LINEAR,
): GroupCapacity {
  const spaces = groups.filter((group) => matcher.matches(group.name) && isUsable(group))
    .map((group) => spaceIn(layout, group));
  return {
    available: spaces.reduce((sum, { available }) => sum + available, 0n),
    maximumVolumeSize: spaces.reduce(
      (max, { maximumVolumeSize }) => maximumVolumeSize > max ? maximumVolumeSize : max,
      0n,
    ),
    minimumVolumeSize: spaces.reduce(
      (min, { minimumVolumeSize }) => minimumVolumeSize < min || min === 0n ? minimumVolumeSize : min,
      0n,
    ),
  };
}

/** A linear volume is laid on whatever is free, on several disks if need be. */
function canHoldVolume(layout: Layout, size: bigint, group: GroupSpace): boolean {
  const { free, extentSize } = group;
  if (layout.type === "linear") return size <= free;
  // not all that is free on disks need be free for this volume: what copying it takes will be anywhere
  return isStripeSizeSupported(layout, extentSize) && choosePvs(layout, size, group) !== undefined &&
    allocatedBytes(layout, size, extentSize) <= free;
}

function spaceIn(layout: Layout, { free, pvs, extentSize }: GroupSpace): LayoutSpace {
  if (layout.type === "linear") return { available: free, maximumVolumeSize: free, minimumVolumeSize: extentSize };
  return layoutSpace(layout, pvs, extentSize);
}

function describeSpace(group: GroupSpace, range: SizeRange, layout: Layout): string {
  if (!group.responsive) return `${group.name} (it does not answer)`;
  if (group.missingPvs > 0) return `${group.name} (${group.missingPvs} of its disks are missing)`;
  if (!group.writeable) return `${group.name} (read-only or exported)`;
  const pending = group.pending ? `, ${formatBytes(group.pending)} more for volumes that are being made` : "";
  if (layout.type !== "linear") return `${group.name} (${describePvs(group, range, layout)}${pending})`;
  return `${group.name} (${formatBytes(group.free)} ${group.freeDescription ?? "free"}${pending})`;
}

function describePvs({ pvs, extentSize }: GroupSpace, { required }: SizeRange, layout: Layout): string {
  if (!isStripeSizeSupported(layout, extentSize)) {
    return `${describeLayout(layout)} does not fit its extents of ${formatBytes(extentSize)}`;
  }
  return describePvSpace(layout, bytesPerPv(layout, required, extentSize), pvs);
}

/** How two values are sorted. */
export function compare<T>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
