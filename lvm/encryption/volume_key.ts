/**
 * The name of a volume key, which the LUKS header has, and so a copy or a moved volume as well.
 *
 * The header has it as its subsystem (cryptsetup-config(8)): no program of the host acts on that, as udev does on a label.
 * While the data is encrypted by another key, the name of that key is there with the start of the salt of the digest of the
 * former key. So it is known afterwards whether the former key is still that of the volume.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";

/** The key under which a secret has the name that the volume key is to have. */
export const VOLUME_KEY_KEY = "volumeKey";

/** What a LUKS header says of its volume key. */
export interface HeaderKeys {
  /** The name of the volume key; absent if it has none. */
  readonly name?: string;
  /** The key that is to take its place; absent if none is. */
  readonly next?: {
    /** Its name. */
    readonly name: string;
    /** The salt of the digest of the key that it replaces, as {@linkcode HeaderKeys.salt} was then. */
    readonly replaces: string;
  };
  /** The start of the salt of the digest of the volume key; absent while data is encrypted by another key. */
  readonly salt?: string;
  /** True while a part of the data is encrypted by the former key, and the rest by the next one. */
  readonly isReencrypting: boolean;
  /** The key slots that open the data, by their numbers, each with the start of its salt, which no other one has. */
  readonly slots: ReadonlyMap<number, string>;
}

/** A name, and after a `+` what it replaces; both are in one field of 47 bytes. */
const SUBSYSTEM = /^([A-Za-z0-9._-]{1,32})(?:\+([0-9a-f]{8}))?$/;

/**
 * Returns the name that a secret has for the volume key; `undefined` if it has none.
 *
 * @throws {StorageError} `InvalidArgument` for one that cannot be recorded
 */
export function volumeKeyNameOf(id: VolumeId, text: string | undefined): string | undefined {
  const [, name, replaces] = SUBSYSTEM.exec(text ?? "") ?? [];
  if (text === undefined || (name !== undefined && replaces === undefined)) return name;
  throw new StorageError(
    "InvalidArgument",
    // what is in a secret stays there
    `staging volume ${id}: the ${VOLUME_KEY_KEY} in its secret is no name: 1 to 32 letters, digits, dots, hyphens and underscores`,
  );
}

/** Formats the names for a header. @param replaces the salt of the digest of the key that is to be replaced */
export function formatKeyName(name: string, replaces?: string): string {
  return replaces === undefined ? name : `${name}+${replaces}`;
}

/** Reads what `cryptsetup luksDump` prints. A subsystem that is not the driver's is no name. */
export function parseHeaderKeys(dump: string): HeaderKeys {
  const [, name, replaces] = SUBSYSTEM.exec(/^Subsystem:\s+(\S+)$/m.exec(dump)?.[1] ?? "") ?? [];
  const isReencrypting = /^Requirements:.*reencrypt/m.test(dump);
  // a slot that is unbound has another key
  const slots = entriesOf(dump, "Keyslots").filter(({ type }) => type === "luks2");
  const digests = entriesOf(dump, "Digests");
  const ids = new Set(slots.map(({ text }) => /^\tDigest ID: +(\d+)$/m.exec(text)?.[1]));
  const ofVolume = digests.filter(({ number }) => ids.size === 0 || ids.has(`${number}`));
  const salt = ofVolume.length === 1 ? ofVolume[0]!.salt : undefined;
  return {
    isReencrypting,
    slots: new Map(slots.flatMap(({ number, salt }) => salt === undefined ? [] : [[number, salt]])),
    ...(name !== undefined && (replaces === undefined ? { name } : { next: { name, replaces } })),
    ...(salt !== undefined && !isReencrypting && { salt }),
  };
}

/** A key slot, or a digest. */
interface DumpEntry {
  readonly number: number;
  readonly type: string;
  /** The lines about it. */
  readonly text: string;
  /** The start of its salt. */
  readonly salt: string | undefined;
}

/** Returns the entries below a heading. */
function entriesOf(dump: string, heading: string): DumpEntry[] {
  const section = new RegExp(`^${heading}:\\n((?:\\s.*\\n)*)`, "m").exec(dump)?.[1] ?? "";
  return Array.from(section.matchAll(/^ {2}(\d+): (.*)\n((?:\t.*\n)*)/gm), ([, number, type = "", text = ""]) => ({
    number: Number(number),
    type,
    text,
    salt: /^\tSalt: +((?:[0-9a-f]{2} ){4})/m.exec(text)?.[1]?.replaceAll(" ", ""),
  }));
}
