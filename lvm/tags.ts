/**
 * What the driver writes into LVM's tags: whose an LV is, and what is on it.
 *
 * Tags live in the volume group's metadata, which is finite, so they are few and short. LVM allows `[A-Za-z0-9_+.\-/=!:&#]`
 * in them (lvm(8)); other characters of a value are written as `!` and two hexadecimal digits per byte.
 *
 * @module
 */

import { StorageError } from "./error.ts";
import { type FilesystemType, parseFilesystemType } from "./filesystem.ts";
import { parseSnapshotId, parseVolumeId, type SnapshotId, type VolumeId } from "./ids.ts";

/** What is on a volume's device. It only ever goes forward, and each step is written before the deed that it names. */
export type ContentRecord =
  /** Used as a block device: never formatted. */
  | { readonly state: "raw" }
  /** To be formatted when it is first staged; nothing of ours is on it yet. */
  | { readonly state: "wanted"; readonly type: FilesystemType }
  /** A mkfs with this UUID may have begun; nobody has ever mounted it. */
  | { readonly state: "formatting"; readonly type: FilesystemType; readonly uuid: string }
  /** The filesystem is whole and may hold data. */
  | { readonly state: "formatted"; readonly type: FilesystemType; readonly uuid: string };

/** What the tags of a volume's LV say. */
export interface VolumeTags {
  /** The volume that the LV is. */
  readonly id: VolumeId;
  /** What is on it. */
  readonly content: ContentRecord;
  /** Arguments for mkfs, as the request gave them; checked again before use, since anybody can change tags. */
  readonly mkfsOptions: readonly string[];
  /** Whether more than one target may have the volume at a time. */
  readonly shared: boolean;
}

/** What the tags of a snapshot's LV say. */
export interface SnapshotTags {
  /** The snapshot that the LV is. */
  readonly id: SnapshotId;
  /** The volume that it was taken of. */
  readonly source: VolumeId;
}

const OWNER = "denolith=";
const VOLUME = "denolith.volume=";
const CONTENT = "denolith.fs=";
const MKFS = "denolith.mkfs=";
const UNSHARED = "denolith.shared=no";
const SNAPSHOT = "denolith.snapshot=";
const SOURCE = "denolith.source=";
const USED = "denolith.used=";

/** The tags for a new volume of the driver. */
export function volumeTags(driver: string, tags: VolumeTags): string[] {
  return [
    OWNER + driver,
    VOLUME + tags.id,
    contentTag(tags.content),
    ...(tags.mkfsOptions.length === 0 ? [] : [MKFS + encode(tags.mkfsOptions.join(" "))]),
    ...(tags.shared ? [] : [UNSHARED]),
  ];
}

/** The id of the driver's volume that the tags claim to be, if they do. */
export function ownedVolumeId(driver: string, tags: readonly string[]): VolumeId | undefined {
  return parseVolumeId(ownedValue(driver, tags, VOLUME) ?? "");
}

/**
 * Reads the tags of an LV that may be a volume of the driver; `undefined` when it is not.
 *
 * @throws {StorageError} `ForeignData` when it claims to be one, but a tag cannot be read.
 */
export function parseVolumeTags(driver: string, tags: readonly string[]): VolumeTags | undefined {
  const id = ownedValue(driver, tags, VOLUME);
  if (id === undefined) return undefined;
  const parsed = parseVolumeId(id);
  const content = parseContent(valueOf(tags, CONTENT));
  if (parsed === undefined || content === undefined) throw unreadable(tags);
  return {
    id: parsed,
    content,
    mkfsOptions: decode(valueOf(tags, MKFS) ?? "").split(" ").filter((option) => option !== ""),
    shared: !tags.includes(UNSHARED),
  };
}

/** The tag that records what is on a volume. */
export function contentTag(content: ContentRecord): string {
  switch (content.state) {
    case "raw":
      return CONTENT + "raw";
    case "wanted":
      return `${CONTENT}wanted:${content.type}`;
    case "formatting":
    case "formatted":
      return `${CONTENT}${content.state}:${content.type}:${content.uuid}`;
  }
}

/** The tags for a new snapshot of the driver. */
export function snapshotTags(driver: string, tags: SnapshotTags): string[] {
  return [OWNER + driver, SNAPSHOT + tags.id, SOURCE + tags.source];
}

/** The id of the driver's snapshot that the tags claim to be, if they do. */
export function ownedSnapshotId(driver: string, tags: readonly string[]): SnapshotId | undefined {
  return parseSnapshotId(ownedValue(driver, tags, SNAPSHOT) ?? "");
}

/**
 * Reads the tags of an LV that may be a snapshot of the driver; `undefined` when it is not.
 *
 * @throws {StorageError} `ForeignData` when it claims to be one, but a tag cannot be read.
 */
export function parseSnapshotTags(driver: string, tags: readonly string[]): SnapshotTags | undefined {
  const id = ownedValue(driver, tags, SNAPSHOT);
  if (id === undefined) return undefined;
  const parsed = parseSnapshotId(id);
  const source = parseVolumeId(valueOf(tags, SOURCE) ?? "");
  if (parsed === undefined || source === undefined) throw unreadable(tags);
  return { id: parsed, source };
}

/** The tag of a volume group which records that a volume of the driver was handed out, and which LV it was. */
export function usedTag(driver: string, id: VolumeId, lvUuid: string): string {
  return `${USED}${driver}:${id}:${lvUuid}`;
}

/** The UUIDs of the LVs that a volume was when it was handed out, by the group's tags: none, or one. */
export function usedLvUuids(driver: string, id: VolumeId, groupTags: readonly string[]): string[] {
  const prefix = `${USED}${driver}:${id}:`;
  return groupTags.filter((tag) => tag.startsWith(prefix)).map((tag) => tag.slice(prefix.length));
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
export function usedTags(driver: string, groupTags: readonly string[]): UsedTag[] {
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

function ownedValue(driver: string, tags: readonly string[], prefix: string): string | undefined {
  return ownersOf(tags).includes(driver) ? valueOf(tags, prefix) : undefined;
}

function valueOf(tags: readonly string[], prefix: string): string | undefined {
  return tags.find((tag) => tag.startsWith(prefix))?.slice(prefix.length);
}

function parseContent(value: string | undefined): ContentRecord | undefined {
  if (value === "raw") return { state: "raw" };
  const [state, name = "", uuid] = value?.split(":") ?? [];
  const type = parseFilesystemType(name);
  if (type === undefined) return undefined;
  if (state === "wanted") return { state, type };
  if ((state === "formatting" || state === "formatted") && uuid !== undefined) return { state, type, uuid };
  return undefined;
}

function encode(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => {
    const character = String.fromCharCode(byte);
    return /[A-Za-z0-9_+.\-/=]/.test(character) ? character : "!" + byte.toString(16).padStart(2, "0");
  }).join("");
}

function decode(text: string): string {
  const bytes = [...text.matchAll(/!([0-9a-f]{2})|([^])/g)]
    .map(([, hex, character]) => hex === undefined ? character!.charCodeAt(0) : parseInt(hex, 16));
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

function unreadable(tags: readonly string[]): StorageError {
  return new StorageError(
    "ForeignData",
    `reading the tags of a logical volume: it claims to be one of ours, but they cannot be read: ${tags.join(",")}`,
  );
}
