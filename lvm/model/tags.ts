/**
 * The tags that the driver writes to LVM: the owner of an LV, and its contents.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { type FilesystemType, parseFilesystemType } from "../spec/filesystem.ts";
import { formatIoLimitTag, hasLimits, type IoLimits, parseIoLimitTag } from "../spec/io_limits.ts";
import { type KindAndId, parseSnapshotId, parseVolumeId, type SnapshotId, type VolumeId } from "../ids.ts";
import {
  COPIED,
  COPY_SNAPSHOT,
  decode,
  DELETED,
  encode,
  ERASE,
  ERASED,
  FORMAT,
  isByteCount,
  LIMITS,
  MKFS,
  OVERCOMMIT,
  OWNER,
  POOL,
  SNAPSHOT,
  SOURCE,
  tagValue,
  TRIM,
  UNSHARED,
  USED,
  VOLUME,
} from "./tag_text.ts";
import { formatTrim, parseTrim, type TrimPolicy } from "../spec/trim.ts";
import { defined } from "../defined.ts";

/** What is on a volume's device. It only ever goes forward, and each step is written before the deed that it names. */
export type FormatState =
  /** Used as a block device: never formatted. */
  | { readonly state: "raw" }
  /** To be formatted when it is first staged; nothing of ours is on it yet. */
  | { readonly state: "unformatted"; readonly type: FilesystemType }
  /** A mkfs with this UUID may have begun; nobody has ever mounted it. */
  | { readonly state: "formatting"; readonly type: FilesystemType; readonly uuid: string }
  /** The filesystem is whole and may hold data. */
  | { readonly state: "formatted"; readonly type: FilesystemType; readonly uuid: string };

/** What becomes of the data of a deleted volume, the default first. */
export const ERASURES = ["zero", "discard", "none"] as const;

/** What becomes of the data of a deleted volume: overwritten with zeros, discarded as the disks see fit, or left. */
export type Erasure = typeof ERASURES[number];

/** What a volume is filled with when it is made. */
export type ContentSource = KindAndId;

/** What the tags of a volume's LV say. */
export interface VolumeTags {
  /** The volume that the LV is. */
  readonly id: VolumeId;
  /** What is on it. */
  readonly format: FormatState;
  /** Arguments for mkfs, as the request gave them; checked again before use, since anybody can change tags. */
  readonly mkfsOptions: readonly string[];
  /** Whether more than one target may have the volume at a time. */
  readonly shared: boolean;
  /** What becomes of its data when it is deleted. */
  readonly erase: Erasure;
  /** What is said of the limits of its IO, where that is recorded in tags; nothing by default. */
  readonly limits?: IoLimits;
  /** What it was filled with; nothing, for a volume that was made empty. */
  readonly source?: ContentSource;
  /**
   * How many bytes of its source are on it for certain, while it is being filled: until then it is not given out. All, from the
   * beginning, where it was made as a thin snapshot of its source.
   */
  readonly copied?: bigint | "all";
  /** How the disks are told of what its filesystem has freed; not at all by default. */
  readonly trim?: TrimPolicy;
}

/** What the tags say of an LV that keeps a volume as it was while it is copied. */
export interface CopySnapshotTags {
  /** The volume that is being filled from it. */
  readonly copy: VolumeId;
  /** What becomes of its data, which is that of the volume that it was taken of. */
  readonly erase: Erasure;
}

/** What the tags of a snapshot's LV say. */
export interface SnapshotTags {
  /** The snapshot that the LV is. */
  readonly id: SnapshotId;
  /** The volume that it was taken of. */
  readonly source: VolumeId;
  /** What becomes of its data, which is the volume's, when it is deleted. */
  readonly erase: Erasure;
}

/** What the tags of an LV say whose volume or snapshot is deleted: nobody has it any more, it is only to be removed. */
export interface DeletedTags {
  /** The volume or snapshot that it was. */
  readonly id: VolumeId | SnapshotId;
  /** What is to become of its data first. */
  readonly erase: Erasure;
  /** How many bytes from its start are overwritten already. */
  readonly erased: bigint;
}

/** The tags for a new volume of the driver. One with a source begins as a copy of which nothing is there, unless they say all. */
export function volumeTags(driver: string, tags: VolumeTags): string[] {
  return [
    OWNER + driver,
    VOLUME + tags.id,
    formatStateTag(tags.format),
    ...(tags.mkfsOptions.length === 0 ? [] : [MKFS + encode(tags.mkfsOptions.join(" "))]),
    ...(tags.shared ? [] : [UNSHARED]),
    ...eraseTags(tags.erase),
    ...limitsTags(tags.limits),
    ...(tags.source === undefined
      ? []
      : [`${SOURCE}${describeSource(tags.source, ":")}`, `${COPIED}${tags.copied ?? 0n}`]),
    ...trimTags(tags.trim),
  ];
}

/** A source in words; `nothing` where there is none. */
export function describeSource(source: ContentSource | undefined, separator = " "): string {
  return source === undefined ? "nothing" : `${source.kind}${separator}${source.id}`;
}

/** Whether the tags say that an LV is the driver's. */
export function isOwned(driver: string, tags: readonly string[]): boolean {
  return ownersOf(tags).includes(driver);
}

/** The id of the driver's volume that the tags claim to be, if they do. */
export function ownedVolumeId(driver: string, tags: readonly string[]): VolumeId | undefined {
  return parseVolumeId(ownedTagValue(driver, tags, VOLUME) ?? "");
}

/**
 * Reads the tags of an LV that may be a volume of the driver; `undefined` when it is not.
 *
 * @throws {StorageError} `ForeignData` when it claims to be one, but a tag cannot be read.
 */
export function parseVolumeTags(driver: string, tags: readonly string[]): VolumeTags | undefined {
  const id = ownedTagValue(driver, tags, VOLUME);
  if (id === undefined) return undefined;
  const parsed = parseVolumeId(id);
  const format = parseFormatState(tagValue(tags, FORMAT));
  const erase = parseErasure(tags);
  const limits = parseIoLimitTag(tagValue(tags, LIMITS) ?? "");
  const [sourceTag, copied] = [tagValue(tags, SOURCE), tagValue(tags, COPIED)];
  const source = parseSource(sourceTag ?? "");
  if (parsed === undefined || format === undefined || erase === undefined || limits === undefined) {
    throw unreadableTagsError(tags);
  }
  if (
    (sourceTag !== undefined && source === undefined) ||
    (copied !== undefined && copied !== "all" && !isByteCount(copied))
  ) {
    throw unreadableTagsError(tags);
  }
  const trimTag = tagValue(tags, TRIM);
  const trim = trimTag === undefined ? undefined : parseTrim(trimTag);
  if (trimTag !== undefined && trim === undefined) throw unreadableTagsError(tags);
  return {
    id: parsed,
    format,
    mkfsOptions: decode(tagValue(tags, MKFS) ?? "").split(" ").filter((option) => option !== ""),
    shared: !tags.includes(UNSHARED),
    erase,
    ...(hasLimits(limits) ? { limits } : {}),
    ...defined({ source }),
    ...(copied === undefined ? {} : { copied: copied === "all" ? copied : BigInt(copied) }),
    ...defined({ trim }),
  };
}

/** The change of tags, as lvchange's arguments, which records other limits of a volume's IO. */
export function markLimits(from: IoLimits | undefined, to: IoLimits): string[] {
  return [
    ...limitsTags(from).flatMap((tag) => ["--deltag", tag]),
    ...limitsTags(to).flatMap((tag) => ["--addtag", tag]),
  ];
}

/** The change of tags, as lvchange's arguments, which records how much of a volume's source is on it. */
export function markCopied(from: bigint, to: bigint): string[] {
  return from === to ? [] : ["--deltag", `${COPIED}${from}`, "--addtag", `${COPIED}${to}`];
}

/** Whether the tags say that an LV has at least a part of what it is made from: so it was whole once. */
export function hasSourceData(tags: readonly string[]): boolean {
  return tagValue(tags, SOURCE) !== undefined && tagValue(tags, COPIED) !== "0";
}

/** The change of tags, as lvchange's arguments, by which a volume that was being filled becomes one as any other. */
export function markCopyComplete(copied: bigint | "all"): string[] {
  return ["--deltag", `${COPIED}${copied}`];
}

/** The change of tags, as lvchange's arguments, by which another thing is recorded to be on a volume. */
export function markFormatState(from: FormatState, to: FormatState): string[] {
  return ["--deltag", formatStateTag(from), "--addtag", formatStateTag(to)];
}

/** The tags for the LV that keeps a volume as it is while the copy is made. */
export function copySnapshotTags(driver: string, { copy, erase }: CopySnapshotTags): string[] {
  return [OWNER + driver, COPY_SNAPSHOT + copy, ...eraseTags(erase)];
}

/** The volume that is being filled from an LV of the driver, if it is one that keeps another volume as it was. */
export function copySnapshotOf(driver: string, tags: readonly string[]): VolumeId | undefined {
  return parseVolumeId(ownedTagValue(driver, tags, COPY_SNAPSHOT) ?? "");
}

/** The change of tags, as lvchange's arguments, by which the LV that was copied from is nobody's any more. */
export function markCopySnapshotDeleted(copy: VolumeId): string[] {
  return ["--deltag", COPY_SNAPSHOT + copy, "--addtag", DELETED + copy];
}

/** The tag that records what is on a volume. */
export function formatStateTag(format: FormatState): string {
  switch (format.state) {
    case "raw":
      return FORMAT + "raw";
    case "unformatted":
      return `${FORMAT}wanted:${format.type}`;
    case "formatting":
    case "formatted":
      return `${FORMAT}${format.state}:${format.type}:${format.uuid}`;
  }
}

/** The tags for a new snapshot of the driver. */
export function snapshotTags(driver: string, tags: SnapshotTags): string[] {
  return [OWNER + driver, SNAPSHOT + tags.id, SOURCE + tags.source, ...eraseTags(tags.erase)];
}

/** The id of the driver's snapshot that the tags claim to be, if they do. */
export function ownedSnapshotId(driver: string, tags: readonly string[]): SnapshotId | undefined {
  return parseSnapshotId(ownedTagValue(driver, tags, SNAPSHOT) ?? "");
}

/**
 * Reads the tags of an LV that may be a snapshot of the driver; `undefined` when it is not.
 *
 * @throws {StorageError} `ForeignData` when it claims to be one, but a tag cannot be read.
 */
export function parseSnapshotTags(driver: string, tags: readonly string[]): SnapshotTags | undefined {
  const id = ownedTagValue(driver, tags, SNAPSHOT);
  if (id === undefined) return undefined;
  const parsed = parseSnapshotId(id);
  const source = parseVolumeId(tagValue(tags, SOURCE) ?? "");
  const erase = parseErasure(tags);
  if (parsed === undefined || source === undefined || erase === undefined) throw unreadableTagsError(tags);
  return { id: parsed, source, erase };
}

/** The change of tags, as lvchange's arguments, by which the LV of a volume stops being one. */
export function markVolumeDeleted(id: VolumeId): string[] {
  return ["--deltag", VOLUME + id, "--addtag", DELETED + id];
}

/** The change of tags, as lvchange's arguments, by which the LV of a snapshot stops being one. */
export function markSnapshotDeleted(id: SnapshotId): string[] {
  return ["--deltag", SNAPSHOT + id, "--addtag", DELETED + id];
}

/** The change of tags, as lvchange's arguments, which records how much of a deleted LV is overwritten. */
export function markErased(from: bigint, to: bigint): string[] {
  return [...(from === 0n ? [] : ["--deltag", `${ERASED}${from}`]), "--addtag", `${ERASED}${to}`];
}

/**
 * Reads the tags of an LV that may be what is left of a deleted volume or snapshot of the driver; `undefined` when it is
 * not, or when that is not certain: such an LV is left alone.
 */
export function parseDeletedTags(driver: string, tags: readonly string[]): DeletedTags | undefined {
  const value = ownedTagValue(driver, tags, DELETED) ?? "";
  const id = parseVolumeId(value) ?? parseSnapshotId(value);
  const erase = parseErasure(tags);
  const erased = tagValue(tags, ERASED) ?? "0";
  const inUse = [VOLUME, SNAPSHOT, COPY_SNAPSHOT].some((prefix) => tagValue(tags, prefix) !== undefined);
  if (id === undefined || erase === undefined || inUse || !isByteCount(erased)) return undefined;
  return { id, erase, erased: BigInt(erased) };
}

/** The tags for a new thin pool of the driver. */
export function poolTags(driver: string): string[] {
  return [OWNER + driver, `${POOL}made`];
}

/** Whether the tags say that an LV is a thin pool that the driver made. */
export function hasPoolTag(driver: string, tags: readonly string[]): boolean {
  return ownedTagValue(driver, tags, POOL) !== undefined;
}

/** The text of the tag by which an administrator says how much a thin pool may promise, if there is one. */
export function overcommitTagValue(tags: readonly string[]): string | undefined {
  return tagValue(tags, OVERCOMMIT);
}

/** Whether the tags say that an LV was deleted, whosever it was. */
export function isDeleted(tags: readonly string[]): boolean {
  return tagValue(tags, DELETED) !== undefined;
}

/** The tag of a volume group which records that a volume of the driver was handed out, and which LV it was. */
export function usedTag(driver: string, id: VolumeId | SnapshotId, lvUuid: string): string {
  return `${USED}${driver}:${id}:${lvUuid}`;
}

/** The UUIDs of the LVs that a volume was when it was handed out, by the group's tags: none, or one. */
export function usedLvUuids(driver: string, id: VolumeId, groupTags: readonly string[]): string[] {
  const prefix = `${USED}${driver}:${id}:`;
  return groupTags.filter((tag) => tag.startsWith(prefix)).map((tag) => tag.slice(prefix.length));
}

/** The default takes no tag. */
function eraseTags(erase: Erasure): string[] {
  return erase === ERASURES[0] ? [] : [ERASE + erase];
}

/** Where nothing is said, there is no tag. */
function limitsTags(limits: IoLimits = {}): string[] {
  return hasLimits(limits) ? [LIMITS + formatIoLimitTag(limits)] : [];
}

function parseSource(value: string): ContentSource | undefined {
  const [, kind, id = ""] = /^(snapshot|volume):(.*)$/.exec(value) ?? [];
  const [snapshot, volume] = [parseSnapshotId(id), parseVolumeId(id)];
  if (kind === "snapshot" && snapshot !== undefined) return { kind, id: snapshot };
  return kind === "volume" && volume !== undefined ? { kind, id: volume } : undefined;
}

/** Nothing takes no tag. */
function trimTags(trim: TrimPolicy | undefined): string[] {
  const text = trim && formatTrim(trim);
  return text === undefined ? [] : [TRIM + text];
}

function parseErasure(tags: readonly string[]): Erasure | undefined {
  const value = tagValue(tags, ERASE) ?? ERASURES[0];
  return ERASURES.find((known) => known === value);
}

/** A tag of a volume group which records that a volume was handed out. */
export interface UsedTag {
  /** The tag itself. */
  readonly tag: string;
  /** The volume; `undefined` when what stands there is no volume's id. */
  readonly id: VolumeId | undefined;
  /** The UUID of the LV that it was. */
  readonly lvUuid: string;
}

/** The driver's records among a group's tags, also those that cannot be read. */
export function parseUsedTags(driver: string, groupTags: readonly string[]): UsedTag[] {
  const prefix = `${USED}${driver}:`;
  return groupTags.filter((tag) => tag.startsWith(prefix)).map((tag) => {
    const [id = "", ...uuid] = tag.slice(prefix.length).split(":");
    return { tag, id: parseVolumeId(id), lvUuid: uuid.join(":") };
  });
}

/** The drivers whose an LV is according to its tags, whatever else they say: none, or one. */
export function ownersOf(tags: readonly string[]): string[] {
  return tags.filter((tag) => tag.startsWith(OWNER)).map((tag) => tag.slice(OWNER.length));
}

function ownedTagValue(driver: string, tags: readonly string[], prefix: string): string | undefined {
  return isOwned(driver, tags) ? tagValue(tags, prefix) : undefined;
}

function parseFormatState(value: string | undefined): FormatState | undefined {
  if (value === "raw") return { state: "raw" };
  const [state, name = "", uuid] = value?.split(":") ?? [];
  const type = parseFilesystemType(name);
  if (type === undefined) return undefined;
  if (state === "wanted") return { state: "unformatted", type };
  if ((state === "formatting" || state === "formatted") && uuid !== undefined) return { state, type, uuid };
  return undefined;
}

function unreadableTagsError(tags: readonly string[]): StorageError {
  return new StorageError(
    "ForeignData",
    `reading the tags of a logical volume: it claims to be one of ours, but they cannot be read: ${tags.join(",")}`,
  );
}
