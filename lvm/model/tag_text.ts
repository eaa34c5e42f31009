/**
 * The texts of LVM's tags: their prefixes, and the values that follow these.
 *
 * Tags live in the volume group's metadata, which is finite, so they are few and short. LVM allows `[A-Za-z0-9_+.\-/=!:&#]`
 * in them (lvm(8)); other characters of a value are written as `!` and two hexadecimal digits per byte.
 *
 * @module
 */

import { isFormatBegun } from "../settings/format.ts";

/** The driver whose an LV is. */
export const OWNER = "denolith=";
/** The volume that an LV is. */
export const VOLUME = "denolith.volume=";
/** The state of the filesystem on a volume. */
export const FORMAT = "denolith.fs=";
/** Arguments for mkfs. */
export const MKFS = "denolith.mkfs=";
/** One target at a time may have the volume. The whole tag. */
export const UNSHARED = "denolith.shared=no";
/** No pod may begin to use the volume. The whole tag. */
export const HELD = "denolith.held";
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
export const TRIM = "denolith.trim=";
/** A snapshot, or a deleted LV, has a LUKS header. The whole tag; a volume has the state of its header in its format. */
export const ENCRYPTED = "denolith.luks";
/** The volume or snapshot that a deleted LV was. */
export const DELETED = "denolith.deleted=";
/** The number of bytes of a deleted LV that are overwritten. */
export const ERASED = "denolith.erased=";
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

/** Reports whether the tags record a filesystem, or a LUKS header, whose creation may have begun. */
export function hasRecordedFilesystem(tags: readonly string[]): boolean {
  return isFormatBegun(tagValue(tags, FORMAT) ?? "");
}

/** Reports whether a value is a number of bytes. */
export function isByteCount(value: string): boolean {
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
