/**
 * Selecting a volume group for a new volume.
 *
 * @module
 */

import { fitToExtents, formatBytes, max, min, roundToExtents, type SizeRange, sum } from "../../base/size.ts";
import { firstReason, type Reason, StorageError } from "../../base/error.ts";
import {
  allocatedBytes,
  bytesPerPv,
  cacheBytes,
  type CachedLayout,
  chooseCachePv,
  choosePvs,
  describeLayout,
  describePvSpace,
  isCached,
  isCachePv,
  isLinear,
  isStripeSizeSupported,
  type Layout,
  type LayoutSpace,
  layoutSpace,
  LINEAR,
  type PvSpace,
  sizeStep,
} from "./layout.ts";
import type { VolumeGroup } from "./report.ts";
import { CACHE_PV } from "./tags.ts";
import { describeFree } from "../settings/spare_space.ts";
import type { SETTINGS } from "../settings/settings.ts";

/** A name that LVM allows for a volume group (lvm(8), "VALID NAMES"), which may reach a command line. */
export const GROUP_NAME: RegExp = /^(?!-)(?!\.{1,2}$)[A-Za-z0-9+_.-]{1,127}$/;

/** A matcher of volume groups by name. */
export interface GroupMatcher {
  /** Reports whether a group with the name matches. */
  matches(name: string): boolean;
  /** Returns the name or pattern, for messages. */
  toString(): string;
  /** The matchers that it consists of, if there are several. */
  readonly members?: readonly GroupMatcher[];
}

/** The preference among several suitable groups: that with the least free space, or that with the most. */
export type GroupPreference = typeof SETTINGS.volumeGroupPreference.values[number];

/** The properties of a group that decide whether it is selected. */
export interface GroupSpace extends
  Pick<
    VolumeGroup,
    | "name"
    | "free"
    | "spare"
    | "extentSize"
    | "missingPvs"
    | "writeable"
    | "refusal"
    | "refusalReason"
    | "ambiguous"
    | "responsive"
    | "readError"
    | "hostUse"
    | "sectorBytes"
  > {
  /** Its physical volumes; none where they are not known: then the group takes only linear volumes. */
  readonly pvs: readonly PvSpace[];
  /** Bytes that are not free because pending volumes will take them; absent for none. */
  readonly pending?: bigint;
  /**
   * A description of its free space, for messages, if it is not simply free: such as the available virtual size of a
   * thin pool.
   */
  readonly freeDescription?: string;
}

/** A group that can take a volume, and the size of the volume in it. */
export interface Candidate<G extends GroupSpace = VolumeGroup> {
  /** The group. */
  readonly group: G;
  /** The requested size in bytes, in whole extents of the group, the same on each physical volume. */
  readonly size: bigint;
}

/** The capacity of groups, in bytes. */
export interface GroupCapacity {
  /** The free space of all of them. */
  readonly available: bigint;
  /** The size of the largest volume that fits into one of them. */
  readonly maximumVolumeSize: bigint;
  /** The size of the smallest volume in one of them. */
  readonly minimumVolumeSize: bigint;
}

/** A matcher of every group, which names none. */
export const ANY_GROUP: GroupMatcher = { matches: () => true, toString: () => "any" };

/** Returns a matcher of one name. */
export function exactMatcher(name: string): GroupMatcher {
  return { matches: (candidate) => candidate === name, toString: () => name };
}

/** Returns a matcher of every name that at least one of the matchers matches. */
export function anyMatcherOf(matchers: readonly GroupMatcher[]): GroupMatcher {
  return {
    matches: (name) => matchers.some((matcher) => matcher.matches(name)),
    toString: () => matchers.join(", "),
    members: matchers,
  };
}

/** Reports whether a matcher selects a group. A group that this machine itself uses is selected by its name or a pattern only. */
export function isSelected({ name, hostUse }: Pick<VolumeGroup, "name" | "hostUse">, matcher: GroupMatcher): boolean {
  return matcher.matches(name) && (hostUse === undefined || matcher !== ANY_GROUP);
}

/** Returns the groups that a driver may use. Where a flag names them, it does not matter whether this machine uses them. */
export function groupsAllowedBy<Group extends Pick<VolumeGroup, "name" | "hostUse">>(
  groups: readonly Group[],
  flag: GroupMatcher,
): Group[] {
  const allowed = groups.filter(({ name }) => flag.matches(name));
  return flag === ANY_GROUP ? allowed : allowed.map(({ hostUse: _, ...group }) => group as Group);
}

/**
 * Reports whether LVM would create an LV in the group now: no physical volume is missing or unresponsive, and the group
 * is writeable, not exported (vgcreate(8)), the only one of its name, and has space for the metadata of an LV.
 */
export function isUsable(group: GroupSpace): boolean {
  return group.responsive && group.writeable && group.ambiguous !== true && group.missingPvs === 0 &&
    group.refusal === undefined;
}

/**
 * Returns the groups that can take a volume of the size range, best first.
 *
 * @throws {StorageError} `OutOfRange` when the range contains no whole extents of any usable group; `NoSpace` when no
 * group matches or none has enough free space, with the free space of each
 */
export function selectCandidates<G extends GroupSpace>(
  groups: readonly G[],
  matcher: GroupMatcher,
  range: SizeRange,
  preference: GroupPreference,
  layout: Layout = LINEAR,
): Candidate<G>[] {
  const candidates = findCandidates(groups, matcher, range, preference, layout);
  if (candidates.length > 0) return candidates;
  const matching = groups.filter((group) => matcher.matches(group.name));
  if (matching.length === 0) {
    throw new StorageError(
      "NoSpace",
      `choosing a volume group: none matches ${matcher}; there are ${
        groups.map((group) => group.name).join(", ") || "none"
      }`,
      { reason: "NoSuchVolumeGroup" },
    );
  }
  const refusals = matching.map((group) =>
    isSelected(group, matcher) ? refusalOf(group, range, layout) : hostUseRefusal(group)
  );
  const descriptions = refusals.map(([, text], index) => `${matching[index]!.name} (${text})`).join(", ");
  throw new StorageError(
    "NoSpace",
    `choosing a volume group for ${formatBytes(range.required)}: not enough free space in ${descriptions}`,
    { reason: firstReason(refusals.map(([reason]) => reason)) },
  );
}

/**
 * Returns the groups that can take a volume of the size range, best first; none when no group matches or has enough free
 * space. It is cheaper than an error of {@linkcode selectCandidates}, for callers that look at many nodes.
 *
 * @throws {StorageError} `OutOfRange` when the range contains no whole extents of any usable group
 */
export function findCandidates<G extends GroupSpace>(
  groups: readonly G[],
  matcher: GroupMatcher,
  range: SizeRange,
  preference: GroupPreference,
  layout: Layout = LINEAR,
): Candidate<G>[] {
  const usable = groups.filter((group) => isSelected(group, matcher) && isUsable(group));
  const inRange = usable.flatMap((group) => {
    const size = fitToExtents(range, sizeStep(layout, group.extentSize));
    return size === undefined ? [] : [{ group, size }];
  });
  // Throws for the first group, as it would for each.
  if (inRange.length === 0 && usable.length > 0) roundToExtents(range, sizeStep(layout, usable[0]!.extentSize));
  const fitting = inRange.filter(({ group, size }) => canHoldVolume(layout, size, group));
  const sign = preference === "leastFree" ? 1 : -1;
  return fitting.sort((a, b) => sign * compare(a.group.free, b.group.free) || compare(a.group.name, b.group.name));
}

/** Returns the capacity of the matching groups for a layout, in bytes. */
export function groupCapacity(
  groups: readonly GroupSpace[],
  matcher: GroupMatcher,
  layout: Layout = LINEAR,
): GroupCapacity {
  const spaces = groups.filter((group) => isSelected(group, matcher) && isUsable(group))
    .map((group) => spaceIn(layout, group));
  const [smallest = 0n, ...others] = spaces.map(({ minimumVolumeSize }) => minimumVolumeSize);
  return {
    available: sum(spaces.map(({ available }) => available)),
    maximumVolumeSize: max(0n, ...spaces.map(({ maximumVolumeSize }) => maximumVolumeSize)),
    minimumVolumeSize: min(smallest, ...others),
  };
}

/** Reports whether a volume fits into a group. A linear volume can be on several physical volumes. */
function canHoldVolume(layout: Layout, size: bigint, group: GroupSpace): boolean {
  const { free, extentSize } = group;
  if (isLinear(layout)) return size <= free && (!isCached(layout) || chooseCachePv(layout, group) !== undefined);
  // the copy snapshot of a copied volume takes space on any physical volume, so the group's free space decides, too
  return isStripeSizeSupported(layout, extentSize) && choosePvs(layout, size, group) !== undefined &&
    allocatedBytes(layout, size, extentSize) <= free;
}

function spaceIn(layout: Layout, { free, pvs, extentSize }: GroupSpace): LayoutSpace {
  if (isLinear(layout)) {
    const hasSpace = !isCached(layout) || chooseCachePv(layout, { pvs, extentSize }) !== undefined;
    const space = hasSpace ? free : 0n;
    return { available: space, maximumVolumeSize: space, minimumVolumeSize: extentSize };
  }
  return layoutSpace(layout, { pvs, extentSize, free });
}

/** Why a group cannot take a volume, as a code and in words. */
type Refusal = readonly [reason: Reason, text: string];

function refusalOf(group: GroupSpace, range: SizeRange, layout: Layout): Refusal {
  if (group.readError !== undefined) return ["VolumeGroupUnreadable", `it cannot be read: ${group.readError}`];
  if (!group.responsive) return ["VolumeGroupUnresponsive", "it does not respond"];
  if (group.missingPvs > 0) {
    return ["PhysicalVolumesMissing", `${group.missingPvs} of its physical volumes are missing`];
  }
  if (group.refusal !== undefined) return [group.refusalReason ?? "VolumeGroupRefusesChanges", group.refusal];
  if (!group.writeable) return ["VolumeGroupReadOnly", "read-only or exported"];
  if (group.ambiguous) return ["VolumeGroupAmbiguous", "several volume groups have this name"];
  if (fitToExtents(range, sizeStep(layout, group.extentSize)) === undefined) {
    const extents = `no number of its extents of ${formatBytes(group.extentSize)}`;
    return ["SizeUnsuitable", `${extents} is in the requested range`];
  }
  const pending = group.pending ? `, ${formatBytes(group.pending)} more for pending volumes` : "";
  return ["NoSpace", describeSpace(group, range, layout) + pending];
}

function describeSpace(group: GroupSpace, range: SizeRange, layout: Layout): string {
  if (!isLinear(layout)) return describePvs(group, range, layout);
  if (isCached(layout) && chooseCachePv(layout, group) === undefined) return describeCachePvs(layout, group);
  const { freeDescription } = group;
  return freeDescription === undefined ? describeFree(group) : `${formatBytes(group.free)} ${freeDescription}`;
}

function hostUseRefusal({ hostUse }: GroupSpace): Refusal {
  const text = `the host uses ${hostUse} of it, so it must be named, in the class or by --volume-groups`;
  return ["VolumeGroupOfHost", text];
}

function describeCachePvs(layout: CachedLayout, { pvs, extentSize }: GroupSpace): string {
  const cachePvs = pvs.filter(isCachePv);
  const most = max(0n, ...cachePvs.map(({ cacheFree }) => cacheFree));
  const found = cachePvs.length === 0
    ? `no physical volume has the tag ${CACHE_PV}`
    : `no physical volume with the tag ${CACHE_PV} has more than ${formatBytes(most)} free`;
  return `its cache takes ${formatBytes(cacheBytes(layout, extentSize))}, but ${found}`;
}

function describePvs(group: GroupSpace, { required }: SizeRange, layout: Layout): string {
  const { pvs, extentSize } = group;
  if (!isStripeSizeSupported(layout, extentSize)) {
    return `${describeLayout(layout)} does not fit its extents of ${formatBytes(extentSize)}`;
  }
  const bytes = bytesPerPv(layout, required, extentSize);
  if (choosePvs(layout, required, group) === undefined) return describePvSpace(layout, bytes, pvs);
  return `${describeLayout(layout)} takes ${formatBytes(allocatedBytes(layout, required, extentSize))}, but ` +
    `${describeFree(group)} together`;
}

/** Compares two values, for sorting. */
export function compare<T>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
