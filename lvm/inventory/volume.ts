/**
 * A volume on this machine, and what is asked of one.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { GroupMatcher, GroupPreference } from "../model/groups.ts";
import type { VolumeId } from "../ids.ts";
import type { IoLimits } from "../spec/io_limits.ts";
import { describeLayout, describeLayoutOf, isSameLayout, type Layout, layoutOf } from "../model/layout.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes, type SizeRange } from "../size.ts";
import { type ContentSource, describeSource, type Erasure, type FormatState, type VolumeTags } from "../model/tags.ts";
import { poolNameIn, type ThinSpec } from "../pools/pool.ts";
import type { TrimPolicy } from "../spec/trim.ts";

/** A volume that exists. */
export interface Volume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its size in bytes. */
  readonly size: bigint;
  /** What its tags say. */
  readonly tags: VolumeTags;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** Whether the group records that it was handed out. */
  readonly used: boolean;
}

/** A volume to make. */
export interface VolumeRequest {
  /** Its id. */
  readonly id: VolumeId;
  /** How large, in bytes. */
  readonly range: SizeRange;
  /** Which groups may take it. */
  readonly groups: GroupMatcher;
  /** Which of them to prefer. */
  readonly preference: GroupPreference;
  /** What will be on it: a filesystem, or raw data. */
  readonly format: Extract<FormatState, { state: "raw" | "unformatted" }>;
  /** Arguments for mkfs, already checked. */
  readonly mkfsOptions: readonly string[];
  /** Whether several targets may have it at a time. */
  readonly shared: boolean;
  /** What becomes of its data when it is deleted. */
  readonly erase: Erasure;
  /** How it is laid out on the disks of its group; linear for a thin volume, which is laid out as its pool is. */
  readonly layout: Layout;
  /** What is said of the limits of its IO, to be recorded in its tags; nothing by default. */
  readonly limits?: IoLimits;
  /** For a thin volume, in which pool it is to be; without it, the volume has all its space from the beginning. */
  readonly thin?: ThinSpec;
  /** What it is to be filled with; nothing by default. */
  readonly source?: ContentSource;
  /** How the disks are told of what its filesystem has freed; not at all by default. */
  readonly trim?: TrimPolicy;
}

/** The volumes of which somebody asks how many there could yet be. */
export type CapacityRequest = Pick<VolumeRequest, "groups" | "layout" | "thin">;

/**
 * Makes sure that a volume that exists satisfies a request: by what it is, not by how it was asked for then.
 *
 * @throws {StorageError} `AlreadyExists` saying how it differs.
 */
export function requireCompatible(volume: Volume, request: VolumeRequest): void {
  const { size, group, tags, lv } = volume;
  const { range, format, layout, thin } = request;
  const pool = thin && poolNameIn(group.name, thin);
  const isSizeFinal = tags.copied !== "all"; // until then it may be as large as its source
  const difference = isSizeFinal && (size < range.required || (range.limit !== undefined && size > range.limit))
    ? `it has ${formatBytes(size)}, asked for is ${describeRange(range)}`
    : describeFormat(tags.format) !== describeFormat(format)
    ? `it is ${describeFormat(tags.format)}, asked for is ${describeFormat(format)}`
    : !request.groups.matches(group.name)
    ? `it is in volume group ${group.name}, asked for is ${request.groups}`
    : lv.pool !== pool
    ? `it is ${describeProvisioning(lv.pool)}, asked for is ${describeProvisioning(pool)}`
    : pool === undefined && !isSameLayout(layoutOf(lv), layout)
    ? `it is ${describeLayoutOf(lv)}, asked for is ${describeLayout(layout)}`
    : describeSource(tags.source) !== describeSource(request.source)
    ? `it is made from ${describeSource(tags.source)}, asked for is one from ${describeSource(request.source)}`
    : undefined;
  if (difference === undefined) return;
  throw new StorageError(
    "AlreadyExists",
    `creating volume ${volume.id}: a volume of that name exists, but ${difference}`,
  );
}

function describeRange({ required, limit }: SizeRange): string {
  return `at least ${formatBytes(required)}` + (limit === undefined ? "" : ` and at most ${formatBytes(limit)}`);
}

function describeFormat(format: FormatState): string {
  return format.state === "raw" ? "a block volume" : `a volume for ${format.type}`;
}

function describeProvisioning(pool: string | undefined): string {
  return pool === undefined ? "thick" : `thin, in the pool ${pool}`;
}
