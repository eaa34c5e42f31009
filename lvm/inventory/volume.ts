/**
 * A volume on this machine, and what is asked of one.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { GroupMatcher, GroupPreference } from "../model/groups.ts";
import type { VolumeId } from "../ids.ts";
import type { IoLimits } from "../spec/io_limits.ts";
import { describeLayout, describeLayoutOf, type Layout } from "../model/layout.ts";
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
  /** What it was created from. */
  readonly source?: ContentSource | undefined;
}

/** The properties that a request asks for. */
export type WantedShape = Pick<VolumeRequest, "range" | "format" | "groups" | "layout" | "thin" | "source">;

/**
 * Compares an existing volume with a request, by what the volume is and not by how it was asked for then.
 *
 * @returns each difference as a clause; none when the volume satisfies the request
 */
export function differences(actual: VolumeShape, wanted: WantedShape): string[] {
  const { size, group } = actual;
  const { required, limit } = wanted.range;
  const isSizeOk = size === undefined || (size >= required && (limit === undefined || size <= limit));
  const found: string[] = isSizeOk ? [] : [`it has ${formatBytes(size)}, asked for is ${describeRange(wanted.range)}`];
  const compare = (prefix: string, is: string, requested: string) => {
    if (is !== requested) found.push(`${prefix} ${is}, asked for is ${requested}`);
  };
  compare("it is", describeFormat(actual.format), describeFormat(wanted.format));
  if (group !== undefined && !wanted.groups.matches(group)) {
    compare("it is in volume group", group, String(wanted.groups));
  }
  compare("it is", describeProvisioning(actual.thin, group), describeProvisioning(wanted.thin, group));
  if (wanted.thin === undefined && actual.thin === undefined) {
    compare("it is", actual.layout, describeLayout(wanted.layout));
  }
  compare("it is made from", describeSource(actual.source), describeSource(wanted.source));
  return found;
}

/**
 * Requires that an existing volume satisfies a request.
 *
 * @throws {StorageError} `AlreadyExists` with the differences
 */
export function requireCompatible(volume: Volume, request: VolumeRequest): void {
  const { id, size, group, tags, lv } = volume;
  requireNoDifferences(
    id,
    differences({
      size: tags.copied === "all" ? undefined : size, // until then it may be as large as its source
      format: tags.format,
      group: group.name,
      thin: lv.pool === undefined ? undefined : { pool: lv.pool },
      layout: describeLayoutOf(lv),
      source: tags.source,
    }, request),
  );
}

/** Requires that there are no differences. @throws {StorageError} `AlreadyExists` with the differences */
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
  return format.state === "raw" ? "a block volume" : `a volume for ${format.type}`;
}

function describeProvisioning(thin: Pick<ThinSpec, "pool"> | undefined, group: string | undefined): string {
  if (thin === undefined) return "thick";
  const pool = thin.pool ?? (group === undefined ? undefined : poolNameIn(group, {}));
  return `thin, in ${pool === undefined ? "the group's own pool" : `the pool ${pool}`}`;
}
