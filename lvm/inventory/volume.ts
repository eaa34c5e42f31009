/**
 * Volumes on this machine, requests for volumes, and the comparison of the two.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { GroupMatcher, GroupPreference } from "../model/groups.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { IoLimits } from "../settings/io_limits.ts";
import { describeLayout, describeLayoutOf, type Layout, roundLayout } from "../model/layout.ts";
import type { CopyGoal } from "../model/remote_source.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes, type SizeRange } from "../../base/size.ts";
import { type ContentSource, describeSource, type Erasure, type VolumeTags } from "../model/tags.ts";
import type { FormatState } from "../settings/format.ts";
import { poolNameIn, type ThinSpec } from "../pools/pool.ts";
import type { KindProperty } from "../settings/settings.ts";
import type { TrimPolicy } from "../settings/trim.ts";

/** An existing volume. */
export interface Volume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its size in bytes. */
  readonly size: bigint;
  /** The contents of its tags. */
  readonly tags: VolumeTags;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** True if a tag of the group records that the volume was in use. */
  readonly used: boolean;
}

/** A request for a volume. */
export interface VolumeRequest {
  /** Its id. */
  readonly id: VolumeId;
  /** The requested size in bytes. */
  readonly range: SizeRange;
  /** The groups in which it may be created. */
  readonly groups: GroupMatcher;
  /** The order in which those groups are tried. */
  readonly preference: GroupPreference;
  /** Its format: a filesystem, or raw data. */
  readonly format: Extract<FormatState, { state: "raw" | "unformatted" }>;
  /** Arguments of mkfs, which the caller has validated. */
  readonly mkfsOptions: readonly string[];
  /** True if it may be published at several targets at a time. */
  readonly shared: boolean;
  /** The way in which its data is erased when it is deleted. */
  readonly erase: Erasure;
  /**
   * Its layout on the physical volumes of its group. For a thin volume it is linear, because the pool has the layout.
   */
  readonly layout: Layout;
  /** The IO limits to record in its tags; none by default. */
  readonly limits?: IoLimits;
  /** The thin pool of a thin volume; without it, the volume is thick. */
  readonly thin?: ThinSpec;
  /** Its content source; by default the volume is created empty. */
  readonly source?: ContentSource;
  /** The node of a snapshot from which it is filled; absent if its source is on this machine. */
  readonly sourceNode?: string;
  /** What it should have first, if it is filled from several snapshots of that node; absent if it is filled from one. */
  readonly goal?: CopyGoal;
  /** The policy for discarding unused blocks of its filesystem; absent if they are not discarded. */
  readonly trim?: TrimPolicy;
}

/** Options of the creation of a volume. */
export interface CreateOptions {
  /**
   * Called, possibly several times, when the content source may be used again while the volume is filled: what is copied
   * does not change any more, and the new volume keeps its source from deletion.
   */
  readonly onSourceUsable?: () => void;
}

/** A request for the capacity for volumes with these parameters. */
export type CapacityRequest = Pick<VolumeRequest, "groups" | "layout" | "thin">;

/** The properties of an existing volume that a request for one of its name must match. */
export interface VolumeShape {
  /** Its size in bytes; `undefined` while it is not final. */
  readonly size: bigint | undefined;
  /** Its filesystem, or raw data. */
  readonly format: FormatState;
  /** The name of its volume group; `undefined` while no group was chosen. */
  readonly group: string | undefined;
  /** For a thin volume, its thin pool; without a name it is the group's own. */
  readonly thin?: Pick<ThinSpec, "pool"> | undefined;
  /** Its layout, as {@linkcode describeLayout} writes it. */
  readonly layout: string;
  /** Its content source; absent for a volume that was created empty. */
  readonly source?: ContentSource | undefined;
}

/** The properties of a requested volume. */
export type WantedShape = Pick<VolumeRequest, KindProperty | "range" | "source">;

/**
 * Compares the properties of an existing volume with a request. The request that created the volume does not matter.
 *
 * @returns each difference as a clause; none when the volume satisfies the request
 */
export function differences(actual: VolumeShape, wanted: WantedShape): string[] {
  const { size, group } = actual;
  const { required, limit } = wanted.range;
  const isSizeOk = size === undefined || (size >= required && (limit === undefined || size <= limit));
  const isGroupOk = group === undefined || wanted.groups.matches(group);
  const isThick = wanted.thin === undefined && actual.thin === undefined;
  const byProperty = {
    range: isSizeOk ? undefined : describeDifference("it has", formatBytes(size), describeRange(wanted.range)),
    format: describeDifference("it is", describeFormat(actual.format), describeFormat(wanted.format)),
    groups: isGroupOk ? undefined : describeDifference("it is in volume group", group, String(wanted.groups)),
    thin: describeDifference(
      "it is",
      describeProvisioning(actual.thin, group),
      describeProvisioning(wanted.thin, group),
    ),
    layout: isThick ? describeDifference("it is", actual.layout, describeLayout(wanted.layout)) : undefined,
    source: describeDifference("it is created from", describeSource(actual.source), describeSource(wanted.source)),
  } satisfies Record<keyof WantedShape, string | undefined>;
  return Object.values(byProperty).filter((clause) => clause !== undefined);
}

/** Returns a clause with a difference, or `undefined` if there is none. */
function describeDifference(prefix: string, actual: string, wanted: string): string | undefined {
  return actual === wanted ? undefined : `${prefix} ${actual} (requested: ${wanted})`;
}

/**
 * Makes sure that an existing volume satisfies a request.
 *
 * @throws {StorageError} `AlreadyExists` with the differences.
 */
export function requireCompatible(volume: Volume, request: VolumeRequest): void {
  const { id, size, group, tags, lv } = volume;
  requireNoDifferences(
    id,
    differences({
      size: tags.copied === "all" ? undefined : size, // An incomplete clone has its source's size.
      format: tags.format,
      group: group.name,
      thin: lv.pool === undefined ? undefined : { pool: lv.pool },
      layout: describeLayoutOf(lv),
      source: tags.source,
    }, { ...request, layout: roundLayout(request.layout, group.extentSize) }),
  );
}

/**
 * Makes sure that a list of differences is empty.
 *
 * @param id the existing volume
 * @param found the result of {@linkcode differences}
 * @throws {StorageError} `AlreadyExists` with the differences.
 */
export function requireNoDifferences(id: VolumeId, found: readonly string[]): void {
  if (found.length === 0) return;
  throw new StorageError(
    "AlreadyExists",
    `creating volume ${id}: a volume of that name exists, but ${found.join("; ")}`,
  );
}

function describeRange({ required, limit }: SizeRange): string {
  return `at least ${formatBytes(required)}` + (limit === undefined ? "" : ` and at most ${formatBytes(limit)}`);
}

function describeFormat(format: FormatState): string {
  const encrypted = format.luks === undefined ? "" : ", encrypted";
  return (format.state === "raw" ? "a block volume" : `a volume for ${format.type}`) + encrypted;
}

function describeProvisioning(thin: Pick<ThinSpec, "pool"> | undefined, group: string | undefined): string {
  if (thin === undefined) return "thick";
  const pool = thin.pool ?? (group === undefined ? undefined : poolNameIn(group, {}));
  return `thin, in ${pool === undefined ? "the group's own pool" : `the pool ${pool}`}`;
}
