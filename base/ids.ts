/**
 * Volume and snapshot ids, and the names of their LVs.
 *
 * An id is `v1-` and 32 hexadecimal digits: the first 128 bits of the SHA-256 of the request name. An id contains no
 * node, group or layout, since those may change; the id itself never changes. Only the functions of this file create
 * ids. So a value of one of these types is safe in a command line, a tag and a path.
 *
 * @module
 */

import { sha256Hex } from "./sha256.ts";

declare const brand: unique symbol;

/** An id of a volume (CSI `volume_id`). */
export type VolumeId = string & { readonly [brand]: "VolumeId" };

/** An id of a snapshot (CSI `snapshot_id`). */
export type SnapshotId = string & { readonly [brand]: "SnapshotId" };

/** An id of a group snapshot (CSI `group_snapshot_id`). */
export type GroupSnapshotId = string & { readonly [brand]: "GroupSnapshotId" };

/** The id of a volume or a snapshot, with its kind: a volume and a snapshot can have the same id. */
export type KindAndId =
  | { readonly kind: "snapshot"; readonly id: SnapshotId }
  | { readonly kind: "volume"; readonly id: VolumeId };

const ID = /^v1-[0-9a-f]{32}$/;

/** Returns the id of the volume that is requested under a name. */
export function volumeIdOf(requestName: string): VolumeId {
  return idOf(requestName) as VolumeId;
}

/** Returns the id of the snapshot that is requested under a name. */
export function snapshotIdOf(requestName: string): SnapshotId {
  return idOf(requestName) as SnapshotId;
}

/** Returns the id of the group snapshot that is requested under a name. */
export function groupSnapshotIdOf(requestName: string): GroupSnapshotId {
  return idOf(requestName) as GroupSnapshotId;
}

/** Returns the id of the snapshot of a volume in a group snapshot. No request name has the NUL that its name has. */
export function memberSnapshotIdOf(group: GroupSnapshotId, volume: VolumeId): SnapshotId {
  return idOf(`${group}\0${volume}`) as SnapshotId;
}

/** Returns the id of the temporary snapshot of a volume, from which another one on another node is filled. */
export function transferSnapshotIdOf(copy: VolumeId): SnapshotId {
  return snapshotIdOf(transferSnapshotName(copy));
}

/**
 * Returns the name under which that snapshot is requested.
 *
 * @param parts the numbers of one of several snapshots, from which it is filled one after the other
 */
export function transferSnapshotName(copy: VolumeId, ...parts: readonly number[]): string {
  return ["denolith-transfer", copy, ...parts].join("-");
}

/**
 * Parses a volume id.
 *
 * @returns the id, or `undefined` when the text is not an id of the driver
 */
export function parseVolumeId(text: string): VolumeId | undefined {
  return ID.test(text) ? text as VolumeId : undefined;
}

/**
 * Parses a snapshot id.
 *
 * @returns the id, or `undefined` when the text is not an id of the driver
 */
export function parseSnapshotId(text: string): SnapshotId | undefined {
  return ID.test(text) ? text as SnapshotId : undefined;
}

/**
 * Parses the id of a group snapshot.
 *
 * @returns the id, or `undefined` when the text is not an id of the driver
 */
export function parseGroupSnapshotId(text: string): GroupSnapshotId | undefined {
  return ID.test(text) ? text as GroupSnapshotId : undefined;
}

/**
 * Returns the name of a volume's LV. LVM allows `[A-Za-z0-9+_.-]`, less than 128 bytes, and no reserved prefix
 * (lvm(8)).
 */
export function volumeLvName(id: VolumeId): string {
  return "vol-" + id.slice("v1-".length);
}

/** Returns the name of the LV that becomes the cache of a volume. */
export function cacheLvName(id: VolumeId): string {
  return "cache-" + id.slice("v1-".length);
}

/** Returns the name of a snapshot's LV. LVM reserves the prefix `snapshot`, but not `snap-`. */
export function snapshotLvName(id: SnapshotId): string {
  return "snap-" + id.slice("v1-".length);
}

/**
 * Returns the name of the LV of a copy snapshot.
 *
 * @param copy the volume that is filled from the snapshot
 */
export function copySnapshotLvName(copy: VolumeId): string {
  return "cut-" + copy.slice("v1-".length);
}

/**
 * Returns the name of the LV whose creation sends the messages of a thin pool. It is a name of its own, so that no creation
 * of a volume or a snapshot outside the pool takes it at the same time.
 *
 * @param deleted the volume or snapshot that is removed after that
 */
export function messageLvName(deleted: VolumeId | SnapshotId): string {
  return "msg-" + deleted.slice("v1-".length);
}

/** Returns the name of the LV with the backup of a volume's LUKS header. */
export function headerBackupLvName(volume: VolumeId): string {
  return "hdr-" + volume.slice("v1-".length);
}

/** Reports whether a name has the form of {@linkcode messageLvName}. */
export function isMessageLvName(name: string): boolean {
  return name.startsWith("msg-") && isDriverLvName(name);
}

/**
 * Returns a name for a new LV: the name itself, or the name with a number while deleted LVs still have it. Other LVs
 * with the name are not considered: LVM refuses to create a second one.
 *
 * @param deleted names of the LVs that are to be removed
 */
export function uniqueLvName(name: string, deleted: readonly string[]): string {
  if (!deleted.includes(name)) return name;
  for (let number = 2;; number++) {
    if (!deleted.includes(`${name}.${number}`)) return `${name}.${number}`;
  }
}

/** What takes the place of the group's name in the names of the mappings of encrypted volumes. */
export const MAPPING_GROUP = "denolith.luks2";

/** Reports whether a name has the form of the driver's LV names. */
export function isDriverLvName(name: string): boolean {
  return /^(?:vol|snap|cut|msg|hdr|cache)-[0-9a-f]{32}(?:\.\d+)?$/.test(name);
}

/** Returns a name as it is in that of a device: device-mapper doubles its hyphens, since a single one joins two names. */
export function inDeviceName(name: string): string {
  return name.replaceAll("-", "--");
}

/**
 * Reports whether a device-mapper name has the form of a name of one of the driver's LVs or of their hidden layers.
 * LVM appends `-real` to the device of an origin and `-cow` to that of a COW space (lvm's lv_layer), and `_cvol` and so on to that
 * of the parts of a cached LV.
 */
export function isDriverDeviceName(name: string): boolean {
  return /[^-]-(?:--)*(?:vol|snap|cut|msg|hdr|cache)--[0-9a-f]{32}(?:\.\d+)?(?:-real|-cow|_w?corig|_cvol(?:-c(?:data|meta))?)?$/
    .test(name);
}

function idOf(requestName: string): string {
  return "v1-" + sha256Hex(requestName).slice(0, 32);
}
