/**
 * The tags of the backup of a LUKS header, which exists while the passphrase of a volume is changed.
 *
 * @module
 */

import { parseVolumeId, type VolumeId } from "../../base/ids.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import { DELETED, ENCRYPTED, HEADER_BACKUP, isOwned, OWNER, ownersOf, replaceTags, tagValue } from "../model/tags.ts";
import type { EncryptedVolume } from "./mapping.ts";

/** What the tags of the backup of a LUKS header say of its keys. A backup may be incomplete or damaged; its tags are not. */
export interface BackedUpKeys {
  /** The key slots of the previous passphrase. */
  readonly previous: readonly number[];
  /** All key slots that the header had, each with the start of its salt. */
  readonly all: ReadonlyMap<number, string>;
  /** The start of the salt of the digest of its volume key. With another one, all key slots are others. */
  readonly salt: string;
  /** The key slot of the new passphrase, with the start of its salt; absent until it was added. */
  readonly added?: readonly [slot: number, salt: string];
}

/** What the tags of the backup of a LUKS header say. */
export interface HeaderBackupTags {
  /** The volume that the header is of. */
  readonly id: VolumeId;
  /** Its keys when the backup was made. */
  readonly keys: BackedUpKeys;
}

/** The backup of a volume's header. */
export interface HeaderBackup extends LocatedLv {
  /** The contents of its tags. */
  readonly tags: HeaderBackupTags;
}

/** Returns the backups of headers in a group. */
export function headerBackups(driver: string, group: VolumeGroup): HeaderBackup[] {
  return group.lvs.flatMap((lv) => {
    const tags = headerBackupOf(driver, lv.tags);
    return tags === undefined ? [] : [{ lv, group, tags }];
  });
}

/** Returns the backup of a volume's header in a report; `undefined` while there is none. */
export function findHeaderBackup(
  { id, lv, group: own }: Pick<EncryptedVolume, "id" | "lv" | "group">,
  group: VolumeGroup = own,
): HeaderBackup | undefined {
  const [driver = ""] = ownersOf(lv.tags);
  return headerBackups(driver, group).find(({ tags }) => tags.id === id);
}

/** Returns the tags of a new backup. */
export function headerBackupTags(driver: string, tags: HeaderBackupTags): string[] {
  return [OWNER + driver, headerBackupTag(tags), ENCRYPTED];
}

/** Returns the tag that says what a backup is of. */
export function headerBackupTag({ id, keys: { previous, all, salt, added } }: HeaderBackupTags): string {
  const slots = [...all].map(formatSlot).join(".");
  return HEADER_BACKUP + [id, previous.join("."), slots, salt, ...(added ? [formatSlot(added)] : [])].join(":");
}

function formatSlot([slot, salt]: readonly [number, string]): string {
  return `${slot}=${salt}`;
}

/** The text of a number is that which it is written as, so that the tag is found. */
const NUMBER = "(?:0|[1-9]\\d?)";
const SLOT = `${NUMBER}=[0-9a-f]{8}`;

/** The id of a volume, a list of numbers, one of key slots with their salts, a salt, and a key slot. */
const BACKUP = new RegExp(
  `^([^:]*):(${NUMBER}(?:\\.${NUMBER})*):(${SLOT}(?:\\.${SLOT})*):([0-9a-f]{8})(?::(${SLOT}))?$`,
);

/** Returns what the tags of the driver's LV say of a backup, or `undefined` when it is none. */
export function headerBackupOf(driver: string, tags: readonly string[]): HeaderBackupTags | undefined {
  const [, text = "", previous = "", all = "", salt = "", added] = BACKUP.exec(tagValue(tags, HEADER_BACKUP) ?? "") ??
    [];
  const id = parseVolumeId(text);
  if (id === undefined || !isOwned(driver, tags)) return undefined;
  const keys = { previous: previous.split(".").map(Number), all: new Map(slotsOf(all)), salt };
  return { id, keys: { ...keys, ...(added !== undefined && { added: slotsOf(added)[0]! }) } };
}

/** Returns arguments of lvchange that record the key slot of the new passphrase. */
export function markSlotAdded(from: HeaderBackupTags, added: readonly [slot: number, salt: string]): string[] {
  return replaceTags([headerBackupTag(from)], [headerBackupTag({ ...from, keys: { ...from.keys, added } })]);
}

/** Returns arguments of lvchange that mark a backup as deleted. */
export function markHeaderBackupDeleted(tags: HeaderBackupTags): string[] {
  return replaceTags([headerBackupTag(tags)], [DELETED + tags.id]);
}

function slotsOf(text: string): [slot: number, salt: string][] {
  return text.split(".").map((slot) => [parseInt(slot, 10), slot.split("=")[1]!]);
}
