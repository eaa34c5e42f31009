/**
 * The tags that the driver writes to LVM: the owner of an LV, and its contents.
 *
 * Tags live in the volume group's metadata, which is finite, so they are few and short. LVM allows `[A-Za-z0-9_+.\-/=!:&#]`
 * in them (lvm(8)); other characters of a value are written as `!` and two hexadecimal digits per byte.
 *
 * A volume that is filled from a snapshot of another node has, as long as it is filled, the name of that node in its tags,
 * and if it is filled from several snapshots, one after the other, the one whose data it has. LVM hides an LV while it is a
 * cache (lvmcache(7)), and its tags stay.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import {
  type GroupSnapshotId,
  type KindAndId,
  parseGroupSnapshotId,
  parseSnapshotId,
  parseVolumeId,
  type SnapshotId,
  type VolumeId,
} from "../../base/ids.ts";
import { formatFormat, type FormatState, isFormatBegun, parseFormat } from "../settings/format.ts";
import { StorageError, truncate } from "../../base/error.ts";
import { formatIoLimitTag, hasLimits, type IoLimits, parseIoLimitTag } from "../settings/io_limits.ts";
import { SETTINGS, type SettingTag } from "../settings/settings.ts";
import { formatTrim, parseTrim, type TrimPolicy } from "../settings/trim.ts";

/** The driver whose an LV is. */
export const OWNER = "denolith=";
/** The volume that an LV is. */
export const VOLUME = "denolith.volume=";
/** The state of the filesystem on a volume. */
export const FORMAT = "denolith.fs=";
/** Arguments for mkfs. */
const MKFS = "denolith.mkfs=";
/** One target at a time may have the volume. The whole tag. */
const UNSHARED = "denolith.shared=no";
/** No pod may begin to use the volume. The whole tag. */
export const HELD = "denolith.held";
/** The beginnings of the UUIDs of an LV whose filesystem was created before anybody mounted it, and of its group. */
const UNMOUNTED = "denolith.unmounted=";
/** Its RAID images are to have checksums: without them, its lvcreate was interrupted. The whole tag. */
export const INTEGRITY = "denolith.integrity";
/** It is to have a cache: without one, its lvcreate was interrupted. The whole tag. */
export const CACHED = "denolith.cached";
/** The volume that an LV was made for as a cache. */
export const CACHE = "denolith.cache=";
/** A physical volume for caches alone, set by an administrator. The whole tag. */
export const CACHE_PV = "denolith.cache";
/** The IO limits of a volume. */
export const LIMITS = "denolith.io=";
/** The snapshot that an LV is. */
export const SNAPSHOT = "denolith.snapshot=";
/** The volume of a snapshot, or the content source of a volume. */
export const SOURCE = "denolith.source=";
/** The way in which the data is erased on deletion. */
export const ERASE = "denolith.erase=";
/** The trim policy of the filesystem. */
const TRIM = "denolith.trim=";
/** A snapshot, or a deleted LV, has a LUKS header. The whole tag; a volume has the state of its header in its format. */
export const ENCRYPTED = "denolith.luks";
/** The volume or snapshot that a deleted LV was. */
export const DELETED = "denolith.deleted=";
/** The number of bytes of a deleted LV that are overwritten. */
const ERASED = "denolith.erased=";
/** The number of bytes that are copied from the content source. */
export const COPIED = "denolith.copied=";
/** The volume that is copied from this temporary snapshot. */
export const COPY_SNAPSHOT = "denolith.cut=";
/** The volume whose LUKS header an LV is a backup of, and its keys. */
export const HEADER_BACKUP = "denolith.header=";
/**
 * The group snapshot that a snapshot belongs to, and the number of its snapshots; with `:new` until all of them were
 * created at one point in time.
 */
export const GROUP_SNAPSHOT = "denolith.group=";
/** The driver that has reserved the metadata snapshot of a thin pool. */
export const RESERVED = "denolith.reserved=";
/** A volume that was published; a tag of the group. */
export const USED = "denolith.used=";
/** A thin pool of the driver. */
export const POOL = "denolith.pool=";
/** The overcommit limit of a thin pool, set by an administrator. */
export const OVERCOMMIT = "denolith.overcommit=";

/** Returns the rest of the first tag that begins with a prefix; `undefined` when there is no such tag. */
export function tagValue(tags: readonly string[], prefix: string): string | undefined {
  return tags.find((tag) => tag.startsWith(prefix))?.slice(prefix.length);
}

/** Returns arguments of lvchange that remove tags, and add others. */
export function replaceTags(removed: readonly string[], added: readonly string[] = []): string[] {
  return [...removed.flatMap((tag) => ["--deltag", tag]), ...added.flatMap((tag) => ["--addtag", tag])];
}

/** Reports whether the tags record a filesystem, or a LUKS header, whose creation may have begun. */
export function hasRecordedFilesystem(tags: readonly string[]): boolean {
  return isFormatBegun(tagValue(tags, FORMAT) ?? "");
}

/** Reports whether a value is a number of bytes. */
function isByteCount(value: string): boolean {
  return /^\d{1,20}$/.test(value);
}

/** Returns a text with the characters encoded that LVM does not allow in tags. */
export function encode(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => {
    const character = String.fromCharCode(byte);
    return /[A-Za-z0-9_+.\-/=]/.test(character) ? character : "!" + byte.toString(16).padStart(2, "0");
  }).join("");
}

/** Returns the text that {@linkcode encode} encoded. */
export function decode(text: string): string {
  const bytes = [...text.matchAll(/!([0-9a-f]{2})|([^])/g)]
    .map(([, hex, character]) => hex === undefined ? character!.charCodeAt(0) : parseInt(hex, 16));
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

/** The ways to erase the data of a deleted volume; the first one is the default. */
export const ERASURES = SETTINGS.erase.values;

/** The way to erase the data of a deleted volume: overwrite it with zeros, discard it (blkdiscard(8)), or keep it. */
export type Erasure = typeof ERASURES[number];

/** The volume or snapshot whose content a new volume gets. */
export type ContentSource = KindAndId;

/** The tags of a volume's LV. */
export interface VolumeTags {
  /** The volume's id. */
  readonly id: VolumeId;
  /** The state of its filesystem, and of its LUKS header. */
  readonly format: FormatState;
  /** Arguments of mkfs from the request. They are validated again before use, since anybody can change tags. */
  readonly mkfsOptions: readonly string[];
  /** True if it may be published at several targets at a time. */
  readonly shared: boolean;
  /** The way in which its data is erased when it is deleted. */
  readonly erase: Erasure;
  /** Its IO limits, if they are recorded in tags; none by default. */
  readonly limits?: IoLimits;
  /** Its content source; absent for a volume that was created empty. */
  readonly source?: ContentSource;
  /**
   * While the volume is copied from its source: the bytes that are certainly copied; `all` for a thin snapshot of it.
   * Absent for a complete volume; only such a volume can be used.
   */
  readonly copied?: bigint | "all";
  /** The policy for discarding unused blocks of its filesystem; absent if they are not discarded. */
  readonly trim?: TrimPolicy;
  /** True while nobody may begin to use it. */
  readonly held?: true;
}

/** The tags of a temporary snapshot, from which a volume is copied. */
export interface CopySnapshotTags {
  /** The volume that is the copy. */
  readonly copy: VolumeId;
  /** The way in which its data, which is that of the copied volume, is erased when it is deleted. */
  readonly erase: Erasure;
  /** True if the copied volume is encrypted. */
  readonly encrypted?: true;
}

/** The tags of a snapshot's LV. */
export interface SnapshotTags {
  /** The snapshot's id. */
  readonly id: SnapshotId;
  /** The volume that it is a snapshot of. */
  readonly source: VolumeId;
  /** The way in which its data, which is the volume's, is erased when it is deleted. */
  readonly erase: Erasure;
  /** True if the volume was encrypted. */
  readonly encrypted?: true;
}

/** The tags of the LV of a deleted volume or snapshot, which the reaper erases and removes. */
export interface DeletedTags {
  /** The id of the deleted volume or snapshot. */
  readonly id: VolumeId | SnapshotId;
  /** The way in which its data is erased before it is removed. */
  readonly erase: Erasure;
  /** The number of bytes, from its start, that are overwritten already. */
  readonly erased: bigint;
  /** True if it has a LUKS header, whose key slots are destroyed before anything else. */
  readonly encrypted?: true;
}

/** Returns the tags of a new volume. Of a volume with a source, 0 bytes are copied, unless `tags.copied` differs. */
export function volumeTags(driver: string, tags: VolumeTags): string[] {
  const { source, copied = 0n } = tags;
  const byName = {
    [FORMAT]: [formatStateTag(tags.format)],
    [MKFS]: tags.mkfsOptions.length === 0 ? [] : [MKFS + encode(tags.mkfsOptions.join(" "))],
    [UNSHARED]: tags.shared ? [] : [UNSHARED],
    [ERASE]: eraseTags(tags.erase),
    [LIMITS]: limitsTags(tags.limits),
    [SOURCE]: source === undefined ? [] : [`${SOURCE}${describeSource(source, ":")}`, `${COPIED}${copied}`],
    [TRIM]: trimTags(tags.trim),
  } satisfies Record<SettingTag | typeof SOURCE, string[]>;
  return [OWNER + driver, VOLUME + tags.id, ...Object.values(byName).flat()];
}

/** Formats a content source, such as `volume vol-1`; `nothing` without one. */
export function describeSource(source: ContentSource | undefined, separator = " "): string {
  return source === undefined ? "nothing" : `${source.kind}${separator}${source.id}`;
}

/** Reports whether an LV with these tags belongs to the driver. */
export function isOwned(driver: string, tags: readonly string[]): boolean {
  return ownersOf(tags).includes(driver);
}

/** Returns the volume id in the tags of the driver's LV, or `undefined` when it has none. */
export function ownedVolumeId(driver: string, tags: readonly string[]): VolumeId | undefined {
  return parseVolumeId(ownedTagValue(driver, tags, VOLUME) ?? "");
}

/**
 * Parses the tags of an LV that may be a volume.
 *
 * @returns `undefined` when it is not a volume of the driver
 * @throws {StorageError} `ForeignData` when the tags name a volume of the driver, but one of them cannot be parsed
 */
export function parseVolumeTags(driver: string, tags: readonly string[]): VolumeTags | undefined {
  const id = ownedTagValue(driver, tags, VOLUME);
  if (id === undefined) return undefined;
  const parsed = parseVolumeId(id);
  const format = parseFormat(tagValue(tags, FORMAT) ?? "");
  const erase = parseErasure(tags);
  const limits = parseIoLimitTag(tagValue(tags, LIMITS) ?? "");
  const sourceTag = tagValue(tags, SOURCE);
  const copied = tagValue(tags, COPIED);
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
  const trim = parseTrim(tagValue(tags, TRIM) ?? "");
  if (tagValue(tags, TRIM) !== undefined && trim === undefined) throw unreadableTagsError(tags);
  return {
    id: parsed,
    format,
    mkfsOptions: decode(tagValue(tags, MKFS) ?? "").split(" ").filter((option) => option !== ""),
    shared: !tags.includes(UNSHARED),
    erase,
    ...defined({
      limits: hasLimits(limits) ? limits : undefined,
      source,
      copied: copied === undefined ? undefined : copied === "all" ? "all" as const : BigInt(copied),
      trim,
      held: tags.includes(HELD) ? true as const : undefined,
    }),
  };
}

/** Returns arguments of lvchange that record other IO limits of a volume. */
export function markLimits(from: IoLimits | undefined, to: IoLimits): string[] {
  return replaceTags(limitsTags(from), limitsTags(to));
}

/** Returns arguments of lvchange that record how much of a volume's source is copied. @param to the copied bytes */
export function markCopied(from: bigint, to: bigint): string[] {
  return from === to ? [] : replaceTags([`${COPIED}${from}`], [`${COPIED}${to}`]);
}

/** Reports whether an LV has data of its content source. If so, lvcreate had completed it. */
export function hasSourceData(tags: readonly string[]): boolean {
  return tagValue(tags, SOURCE) !== undefined && tagValue(tags, COPIED) !== "0";
}

/** Returns arguments of lvchange that record that the copy of a volume's source is complete. */
export function markCopyComplete(copied: bigint | "all"): string[] {
  return replaceTags([`${COPIED}${copied}`]);
}

/** Returns arguments of lvchange that record another format state of a volume. */
export function markFormatState(from: FormatState, to: FormatState): string[] {
  return replaceTags([formatStateTag(from)], [formatStateTag(to)]);
}

/**
 * Returns the tag of an LV whose filesystem was created before anybody mounted it. Without a record of use, the LV has no data.
 * One to which an administrator copied the tags of another has another UUID. In another group, as after vgsplit(8), the record
 * of use may be missing, since it is a tag of the group.
 */
export function unmountedTag(
  { group, lv }: { readonly group: { readonly uuid: string }; readonly lv: { readonly uuid: string } },
): string {
  return `${UNMOUNTED}${lv.uuid.slice(0, 6)}-${group.uuid.slice(0, 6)}`;
}

/** Returns arguments of lvchange that record whether nobody may begin to use a volume. */
export function markHeld(held: boolean): string[] {
  return [held ? "--addtag" : "--deltag", HELD];
}

/**
 * Returns arguments of lvchange by which the LV of a volume becomes that of another one, which has no content source, and no
 * record of use yet.
 *
 * @param tags the tags of the LV
 */
export function markAdopted({ id, source }: VolumeTags, by: VolumeId, tags: readonly string[]): string[] {
  const sourceTags = source === undefined ? [] : [`${SOURCE}${describeSource(source, ":")}`];
  const outdated = tags.filter((tag) => tag.startsWith(UNMOUNTED));
  return replaceTags([VOLUME + id, ...sourceTags, ...outdated], [VOLUME + by]);
}

/** Returns the tags of a new temporary snapshot, from which a volume is copied. */
export function copySnapshotTags(driver: string, { copy, erase, encrypted }: CopySnapshotTags): string[] {
  return [OWNER + driver, COPY_SNAPSHOT + copy, ...eraseTags(erase), ...(encrypted ? [ENCRYPTED] : [])];
}

/** Returns the volume that is being copied from a temporary snapshot of the driver, or `undefined` for other LVs. */
export function copySnapshotOf(driver: string, tags: readonly string[]): VolumeId | undefined {
  return parseVolumeId(ownedTagValue(driver, tags, COPY_SNAPSHOT) ?? "");
}

/** Returns arguments of lvchange that mark a temporary snapshot as deleted. */
export function markCopySnapshotDeleted(copy: VolumeId): string[] {
  return replaceTags([COPY_SNAPSHOT + copy], [DELETED + copy]);
}

/** Returns the tag of a format state. */
export function formatStateTag(format: FormatState): string {
  return FORMAT + formatFormat(format);
}

/** Returns what the tags of a volume say of its snapshots: how they are erased, and whether they are encrypted. */
export function snapshotPolicyOf({ erase, format }: VolumeTags): Pick<SnapshotTags, "erase" | "encrypted"> {
  return { erase, ...(format.luks !== undefined && { encrypted: true }) };
}

/** Returns the tags of a new snapshot. */
export function snapshotTags(driver: string, tags: SnapshotTags): string[] {
  const { id, source, erase, encrypted } = tags;
  return [OWNER + driver, SNAPSHOT + id, SOURCE + source, ...eraseTags(erase), ...(encrypted ? [ENCRYPTED] : [])];
}

/** Returns the snapshot id in the tags of the driver's LV, or `undefined` when it has none. */
export function ownedSnapshotId(driver: string, tags: readonly string[]): SnapshotId | undefined {
  return parseSnapshotId(ownedTagValue(driver, tags, SNAPSHOT) ?? "");
}

/**
 * Parses the tags of an LV that may be a snapshot.
 *
 * @returns `undefined` when it is not a snapshot of the driver
 * @throws {StorageError} `ForeignData` when the tags name a snapshot of the driver, but one of them cannot be parsed
 */
export function parseSnapshotTags(driver: string, tags: readonly string[]): SnapshotTags | undefined {
  const id = ownedTagValue(driver, tags, SNAPSHOT);
  if (id === undefined) return undefined;
  const parsed = parseSnapshotId(id);
  const source = parseVolumeId(tagValue(tags, SOURCE) ?? "");
  const erase = parseErasure(tags);
  if (parsed === undefined || source === undefined || erase === undefined) throw unreadableTagsError(tags);
  return { id: parsed, source, erase, ...encryptedOf(tags) };
}

/**
 * Returns arguments of lvchange that mark the LV of a volume as deleted. In a full metadata area, tags must get shorter.
 *
 * @param tags the tags of the LV: one that an administrator rescues has data, whatever was erased of it before
 */
export function markVolumeDeleted(id: VolumeId, format: FormatState, tags: readonly string[] = []): string[] {
  const outdated = tags.filter((tag) => tag.startsWith(ERASED) || tag.startsWith(UNMOUNTED));
  const added = [DELETED + id, ...(format.luks === undefined ? [] : [ENCRYPTED])];
  return replaceTags([VOLUME + id, formatStateTag(format), ...outdated], added);
}

/** Returns arguments of lvchange that mark the LV of a snapshot as deleted. */
export function markSnapshotDeleted(id: SnapshotId): string[] {
  return replaceTags([SNAPSHOT + id], [DELETED + id]);
}

/** Returns arguments of lvchange that record how much of a deleted LV is overwritten, in bytes from its start. */
export function markErased(from: bigint, to: bigint): string[] {
  return replaceTags(from === 0n ? [] : [`${ERASED}${from}`], [`${ERASED}${to}`]);
}

/** Returns arguments of lvchange by which the data of a deleted LV is not erased. @param from how it would be erased */
export function eraseNoneArguments(from: Erasure): string[] {
  return replaceTags(eraseTags(from), [`${ERASE}none`]);
}

/**
 * Parses the tags of an LV of a deleted volume or snapshot of the driver.
 *
 * @returns `undefined` when it is not one, or when that is not certain: such an LV must not be removed
 */
export function parseDeletedTags(driver: string, tags: readonly string[]): DeletedTags | undefined {
  const value = ownedTagValue(driver, tags, DELETED) ?? "";
  const id = parseVolumeId(value) ?? parseSnapshotId(value);
  const erase = parseErasure(tags);
  const erased = tagValue(tags, ERASED) ?? "0";
  const inUse = [VOLUME, SNAPSHOT, COPY_SNAPSHOT].some((prefix) => tagValue(tags, prefix) !== undefined);
  if (id === undefined || erase === undefined || inUse || !isByteCount(erased)) return undefined;
  return { id, erase, erased: BigInt(erased), ...encryptedOf(tags) };
}

/** Returns the tags of a new thin pool. */
export function poolTags(driver: string): string[] {
  return [OWNER + driver, `${POOL}made`];
}

/** Reports whether an LV with these tags is a thin pool that the driver created. */
export function hasPoolTag(driver: string, tags: readonly string[]): boolean {
  return ownedTagValue(driver, tags, POOL) !== undefined;
}

/** Returns the overcommit of a thin pool as an administrator's tag has it, or `undefined` without such a tag. */
export function overcommitTagValue(tags: readonly string[]): string | undefined {
  return tagValue(tags, OVERCOMMIT);
}

/** Reports whether an LV with these tags is marked as deleted, by any driver. */
export function isDeleted(tags: readonly string[]): boolean {
  return tagValue(tags, DELETED) !== undefined;
}

/** Returns the tag of a volume group which records that a volume is in use, and the UUID of its LV. */
export function usedTag(driver: string, id: VolumeId | SnapshotId, lvUuid: string): string {
  return `${USED}${driver}:${id}:${lvUuid}`;
}

/** Returns the LV UUIDs that the tags of a group record for a volume in use: none, or one. */
export function usedLvUuids(driver: string, id: VolumeId, groupTags: readonly string[]): string[] {
  const prefix = `${USED}${driver}:${id}:`;
  return groupTags.filter((tag) => tag.startsWith(prefix)).map((tag) => tag.slice(prefix.length));
}

/** Returns the tag of how data is erased; none for the default. */
function eraseTags(erase: Erasure): string[] {
  return erase === ERASURES[0] ? [] : [ERASE + erase];
}

/** Returns the tag of IO limits; none without limits. */
function limitsTags(limits: IoLimits = {}): string[] {
  return hasLimits(limits) ? [LIMITS + formatIoLimitTag(limits)] : [];
}

function parseSource(value: string): ContentSource | undefined {
  const [, kind, id = ""] = /^(snapshot|volume):(.*)$/.exec(value) ?? [];
  const snapshot = parseSnapshotId(id);
  const volume = parseVolumeId(id);
  if (kind === "snapshot" && snapshot !== undefined) return { kind, id: snapshot };
  return kind === "volume" && volume !== undefined ? { kind, id: volume } : undefined;
}

/** Returns the tag of a trim policy; none without one. */
function trimTags(trim: TrimPolicy | undefined): string[] {
  const text = trim && formatTrim(trim);
  return text === undefined ? [] : [TRIM + text];
}

function encryptedOf(tags: readonly string[]): { readonly encrypted?: true } {
  return tags.includes(ENCRYPTED) ? { encrypted: true } : {};
}

function parseErasure(tags: readonly string[]): Erasure | undefined {
  const value = tagValue(tags, ERASE) ?? ERASURES[0];
  return ERASURES.find((known) => known === value);
}

/** A tag of a volume group which records that a volume is in use. */
export interface UsedTag {
  /** The tag itself. */
  readonly tag: string;
  /** The volume's id; `undefined` when it cannot be parsed. */
  readonly id: VolumeId | undefined;
  /** The UUID of its LV. */
  readonly lvUuid: string;
}

/** Returns the driver's records of volumes in use among the tags of a group, also those that cannot be parsed. */
export function parseUsedTags(driver: string, groupTags: readonly string[]): UsedTag[] {
  const prefix = `${USED}${driver}:`;
  return groupTags.filter((tag) => tag.startsWith(prefix)).map((tag) => {
    const [id = "", ...uuid] = tag.slice(prefix.length).split(":");
    return { tag, id: parseVolumeId(id), lvUuid: uuid.join(":") };
  });
}

/** Returns the names of the drivers in the owner tags of an LV: none, or one. */
export function ownersOf(tags: readonly string[]): string[] {
  return tags.filter((tag) => tag.startsWith(OWNER)).map((tag) => tag.slice(OWNER.length));
}

function ownedTagValue(driver: string, tags: readonly string[], prefix: string): string | undefined {
  return isOwned(driver, tags) ? tagValue(tags, prefix) : undefined;
}

function unreadableTagsError(tags: readonly string[]): StorageError {
  const reason = `it claims to be one of ours, but they cannot be read: ${truncate(tags.join(","), 1_000)}`;
  return new StorageError("ForeignData", `reading the tags of a logical volume: ${reason}`);
}

/**
 * The membership of a snapshot in a group snapshot. Its tag is in the command that creates the snapshot's LV, and says `new` until
 * all snapshots of the group are there and were created at one point in time. So what a crash left of a group is known by any
 * of its snapshots, also while others cannot be read.
 */
export interface Membership {
  /** The group snapshot. */
  readonly id: GroupSnapshotId;
  /** The number of its snapshots. */
  readonly count: number;
  /** True if all of them were created at one point in time. */
  readonly confirmed: boolean;
}

/** Returns the tag of a snapshot of a group. */
export function membershipTag({ id, count, confirmed }: Membership): string {
  return `${GROUP_SNAPSHOT}${id}:${count}${confirmed ? "" : ":new"}`;
}

/** Returns the membership of a snapshot; `undefined` for one that was created alone. */
export function parseMembership(tags: readonly string[]): Membership | undefined {
  const [, group = "", count, state] = /^([^:]*):([1-9]\d{0,3})(:new)?$/.exec(tagValue(tags, GROUP_SNAPSHOT) ?? "") ??
    [];
  const id = parseGroupSnapshotId(group);
  return id === undefined ? undefined : { id, count: Number(count), confirmed: state === undefined };
}

/** Returns arguments of lvchange that record that a new snapshot is part of a complete group. */
export function markConfirmed(membership: Membership): string[] {
  const tag = (confirmed: boolean) => membershipTag({ ...membership, confirmed });
  return replaceTags([tag(false)], [tag(true)]);
}

/**
 * Returns the tags of a new LV that becomes the cache of a volume. The LUKS header of an encrypted volume may get there, so
 * such a cache is overwritten whatever the volume's policy is.
 */
export function cacheTags(
  driver: string,
  { id, erase, format }: Pick<VolumeTags, "id" | "erase" | "format">,
): string[] {
  return [OWNER + driver, CACHE + id, ...eraseTags(format.luks === undefined ? erase : "zero")];
}

/** Returns the id of the volume for which an LV was made as a cache, unless it is to be removed; `undefined` for another LV. */
export function ownedCacheId(driver: string, tags: readonly string[]): VolumeId | undefined {
  return isOwned(driver, tags) ? parseVolumeId(tagValue(tags, CACHE) ?? "") : undefined;
}

/** Returns arguments of lvchange that mark an LV that was made as a cache as deleted. */
export function markCacheDeleted(id: VolumeId | SnapshotId): string[] {
  return replaceTags([CACHE + id], [DELETED + id]);
}

const NODE = "denolith.from=";
const BASE = "denolith.base=";

/** The snapshot from which a volume is filled, and whose data it then has: the base of the next difference. */
export interface CopyBase {
  /** Its id. */
  readonly id: SnapshotId;
  /** The UUID of its LV; absent before anything was read from it. */
  readonly uuid?: string;
}

/** What a volume that is filled from several snapshots should have next. */
export interface CopyGoal {
  /** The number of the snapshot, which grows. */
  readonly round: number;
  /** The snapshot. */
  readonly snapshot: SnapshotId;
  /** The snapshot before, which the volume has; absent to read all of the snapshot. */
  readonly base?: SnapshotId;
  /** Whether it is the last one, after which the volume is complete. */
  readonly last: boolean;
}

/** Returns the tags of a new volume for its first snapshot; none for one that is filled from one snapshot alone. */
export function copyBaseTags(base: CopyBase | undefined): string[] {
  return base === undefined ? [] : [`${BASE}${base.id}${base.uuid === undefined ? "" : `:${base.uuid}`}`];
}

/** Returns the snapshot from which a volume is filled, or that it has; `undefined` for one that has no such tag. */
export function copyBaseOf(tags: readonly string[]): CopyBase | undefined {
  const [id, uuid] = tagValue(tags, BASE)?.split(":") ?? [];
  const parsed = parseSnapshotId(id ?? "");
  return parsed && { id: parsed, ...defined({ uuid }) };
}

/** Returns arguments of lvchange that record another snapshot, or none when the volume is complete. */
export function markCopyBase(from: CopyBase | undefined, to: CopyBase | undefined): string[] {
  return replaceTags(copyBaseTags(from), copyBaseTags(to));
}

/** Returns the tags of a new volume for the node of its source; none for a source on this machine. */
export function sourceNodeTags(node: string | undefined): string[] {
  return node === undefined ? [] : [NODE + node];
}

/** Returns the node of the source of a volume that is filled; `undefined` for a source on this machine. */
export function sourceNodeOf(tags: readonly string[]): string | undefined {
  const node = tagValue(tags, NODE);
  return node !== undefined && tagValue(tags, COPIED) !== undefined ? node : undefined;
}

/** Returns arguments of lvchange that forget the node of the source, when the volume is complete. */
export function forgetSourceNode(node: string | undefined): string[] {
  return replaceTags(sourceNodeTags(node));
}
