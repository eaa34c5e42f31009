/**
 * Volumes on this machine, requests for volumes, and the comparison of the two; the states of a volume by a report and the
 * records: present, absent, or Lost.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { type SnapshotId, type VolumeId, volumeLvName } from "../../base/ids.ts";
import type { LocatedLv, LogicalVolume, VolumeGroup } from "../model/report.ts";
import type { GroupMatcher, GroupPreference } from "../model/groups.ts";
import type { IoLimits } from "../settings/io_limits.ts";
import { describeLayout, describeLayoutOf, type Layout, roundLayout } from "../model/layout.ts";
import {
  type ContentSource,
  type CopyGoal,
  describeSource,
  type Erasure,
  unmountedTag,
  type VolumeTags,
} from "../model/tags.ts";
import { formatBytes, type SizeRange } from "../../base/size.ts";
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

/**
 * Reports whether a volume never had data: nobody has mounted its filesystem, if there is one. An LV with a name that the driver
 * did not give to it may have data: it is being imported, or an administrator gave it to the driver.
 */
export function isEmpty({ id, group, lv, used, tags: { format, source } }: Volume): boolean {
  const isUnmounted = lv.tags.includes(unmountedTag({ group, lv })) || format.state === "unformatted" ||
    format.state === "formatting";
  return !used && isUnmounted && source === undefined && lv.name.startsWith(volumeLvName(id));
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

/** The state of a volume id, according to a report and the records. */
export type VolumeState =
  | { readonly state: "present"; readonly volume: Volume }
  /** The volume was in use or is recorded, but its LV does not exist any more, or another LV has taken its place. */
  | {
    readonly state: "lost";
    /** The name that its group had. */
    readonly groupName: string;
    /** The group that it was in, if that exists. */
    readonly group?: VolumeGroup;
    /** The tag of the group that records the volume; absent when it is recorded only outside LVM. */
    readonly usedTag?: string;
    /** The error that describes the loss. */
    readonly error: StorageError;
    /** True if another LV has taken its place. */
    readonly replaced: boolean;
  }
  | { readonly state: "absent" };

/** The recorded LV of a volume or a snapshot. */
export interface RecordedLv {
  /** The UUID of its LV. */
  readonly lvUuid: string;
  /** The name that the LV's group had. */
  readonly groupName: string;
  /** The UUID of the LV's group, if it is recorded. */
  readonly groupUuid?: string;
}

/**
 * Returns those LVs that may be the one that is recorded. A clone of the disks of a group has the same LVs, UUIDs and tags in
 * another group (vgimportclone(8)): of several, the recorded group decides.
 */
export function withoutClones(found: readonly LocatedLv[], recorded: RecordedLv | undefined): readonly LocatedLv[] {
  const own = found.filter(({ group }) => group.uuid === recorded?.groupUuid);
  return own.length > 0 ? own : found;
}

/** A record of a volume, in a group's tags or outside LVM. */
export interface VolumeRecord extends RecordedLv {
  /** The group, if it exists. */
  readonly group?: VolumeGroup;
  /** The tag of the group that is the record; absent for a record outside LVM. */
  readonly usedTag?: string;
}

/**
 * Returns the state of a volume whose record names another LV than the one that was found.
 *
 * @param recorded the record
 * @param found the LV that carries the volume's tags; `undefined` when there is none
 */
export function lostVolumeState(id: VolumeId, recorded: VolumeRecord, found: LogicalVolume | undefined): VolumeState {
  const { group, groupName, usedTag } = recorded;
  return {
    state: "lost",
    groupName,
    error: lostError("volume", id, recorded, found),
    replaced: found !== undefined,
    ...defined({ group, usedTag }),
  };
}

/**
 * Returns the error for a volume or a snapshot whose record names another LV than the one that was found.
 *
 * @param recorded the record
 * @param found the LV that carries the tags; `undefined` when there is none
 * @returns an error of the kind `Lost` that names the remedy
 */
export function lostError(
  kind: "volume" | "snapshot",
  id: VolumeId | SnapshotId,
  { lvUuid, groupName, group }: Omit<VolumeRecord, "usedTag">,
  found: LogicalVolume | undefined,
): StorageError {
  const was = `Lost: ${kind} ${id} was the logical volume ${lvUuid} in volume group ${groupName}, and`;
  const nothing = "Nothing is created or formatted in its place.";
  const message = found === undefined && group === undefined
    ? `${was} this node has no volume group of that name. ${nothing} Bring its disks back: they may be detached, or a filter or ` +
      `devices file of LVM may hide them (denolith doctor)`
    : found === undefined
    ? `${was} no logical volume carries its tag. ${nothing} Bring the logical volume back (vgcfgrestore), or delete the ${kind}`
    : `${was} ${found.name} with the UUID ${found.uuid} has taken its place. ${nothing} Examine ${found.name}, and remove it ` +
      `or its denolith tags; then bring the first one back (vgcfgrestore), or delete the ${kind}`;
  return new StorageError("Lost", message, { reason: found === undefined ? "Lost" : "Replaced" });
}
