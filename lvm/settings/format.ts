/**
 * The format of a volume's device: its filesystem, and the LUKS header below it.
 *
 * Both are recorded in one value of one tag. So they change together, and an earlier version of the driver, which does not know
 * of encryption, cannot read the value: it refuses the volume, and never writes to it unencrypted.
 *
 * @module
 */

import { type FilesystemType, minimumBytes, parseFilesystemType } from "./filesystem.ts";

/** The kinds of encryption, the default first. */
export const ENCRYPTIONS = ["none", "luks2"] as const;

/** The kind of encryption of a volume. */
export type Encryption = typeof ENCRYPTIONS[number];

/**
 * The state of the LUKS header of an encrypted volume. The state only moves forward, and is recorded before the driver acts
 * on it.
 */
export type LuksState =
  /** The header is created when the volume is first staged. */
  | { readonly state: "wanted" }
  /** The creation of a header with this UUID may have begun. Nothing was ever written below it. */
  | { readonly state: "formatting"; readonly uuid: string }
  /** The header is complete: without it, the volume's data cannot be read. */
  | { readonly state: "formatted"; readonly uuid: string };

/** The state of what is on a volume. The state only moves forward, and is recorded before the driver acts on it. */
export type ContentState =
  /** A block volume, which is never formatted. */
  | { readonly state: "raw" }
  /** A volume that is formatted when it is first staged, and has no data yet. */
  | { readonly state: "unformatted"; readonly type: FilesystemType }
  /** A mkfs with this UUID may have started. The filesystem was never mounted. */
  | { readonly state: "formatting"; readonly type: FilesystemType; readonly uuid: string }
  /** The filesystem is complete and may have data. */
  | { readonly state: "formatted"; readonly type: FilesystemType; readonly uuid: string }
  /** A copy below a LUKS header: what its original had there, a filesystem of this type or nothing yet. */
  | { readonly state: "copied"; readonly type: FilesystemType }
  /** A copy below a LUKS header, whose filesystem is complete and is being given this UUID in place of its original's. */
  | { readonly state: "renewing"; readonly type: FilesystemType; readonly uuid: string };

/** The format of a volume's device. */
export type FormatState = ContentState & {
  /** Its LUKS header; absent for a volume that is not encrypted. */
  readonly luks?: LuksState;
};

/** What the LUKS header and its key slots take of a volume, in bytes (cryptsetup-luksFormat(8), LUKS2). */
export const LUKS_HEADER_BYTES: bigint = 16n << 20n;

/**
 * Returns the size of the smallest volume of a kind, in bytes.
 *
 * @param type its filesystem; `undefined` for a block volume
 */
export function smallestVolume(type: FilesystemType | undefined, encryption: Encryption): bigint {
  const content = type === undefined ? 0n : minimumBytes(type);
  if (encryption === "none") return content;
  return LUKS_HEADER_BYTES + (content === 0n ? 1n : content); // a mapping of no bytes cannot be opened
}

/** Formats the state of a device in a few characters, for a tag. */
export function formatFormat(format: FormatState): string {
  return (format.luks === undefined ? "" : `luks2:${formatLuks(format.luks)}:`) + formatContent(format);
}

/**
 * Parses the text of {@linkcode formatFormat}.
 *
 * @returns the state, or `undefined` for any other text
 */
export function parseFormat(text: string): FormatState | undefined {
  const [, luksText, contentText] = /^luks2:(wanted|format(?:ting|ted):[0-9a-f-]{36}):(.*)$/.exec(text) ?? [];
  const content = parseContent(contentText ?? text);
  // below a LUKS header alone: the UUID of any other copy is changed before it is complete
  if (luksText === undefined && (content?.state === "copied" || content?.state === "renewing")) return undefined;
  if (luksText === undefined || content === undefined) return content;
  const [state, uuid] = luksText.split(":") as ["formatting" | "formatted", string?];
  return { ...content, luks: uuid === undefined ? { state: "wanted" } : { state, uuid } };
}

/** Returns the kind of encryption of a volume. */
export function encryptionOf({ luks }: Pick<FormatState, "luks">): Encryption {
  return luks === undefined ? "none" : "luks2";
}

/** Reports whether a text of {@linkcode formatFormat} records that something was, or is being, created on the device. */
export function isFormatBegun(text: string): boolean {
  return /^(?:luks2:)?format(?:ting|ted):/.test(text);
}

function formatLuks(luks: LuksState): string {
  return luks.state === "wanted" ? luks.state : `${luks.state}:${luks.uuid}`;
}

function formatContent(content: ContentState): string {
  switch (content.state) {
    case "raw":
      return "raw";
    case "unformatted":
      return `wanted:${content.type}`;
    case "copied":
      return `copied:${content.type}`;
    case "formatting":
    case "formatted":
    case "renewing":
      return `${content.state}:${content.type}:${content.uuid}`;
  }
}

function parseContent(value: string): ContentState | undefined {
  if (value === "raw") return { state: "raw" };
  const [state, name = "", uuid] = value.split(":");
  const type = parseFilesystemType(name);
  if (type === undefined) return undefined;
  if (state === "wanted") return { state: "unformatted", type };
  if (state === "copied" && uuid === undefined) return { state, type };
  if ((state === "formatting" || state === "formatted" || state === "renewing") && uuid !== undefined) {
    return { state, type, uuid };
  }
  return undefined;
}
