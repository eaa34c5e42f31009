/**
 * Volume and snapshot ids, and the LV names that belong to them.
 *
 * An id is `v1-` and 32 hexadecimal digits: the first 128 bits of the SHA-256 of the request name. It says nothing about
 * node, group or layout, since those may change, and it never changes itself. Only the functions here make ids, so
 * whatever carries one of these types is safe in a command line, a tag and a path.
 *
 * @module
 */

import { createHash } from "node:crypto";

declare const brand: unique symbol;

/** The id of a volume (CSI `volume_id`). */
export type VolumeId = string & { readonly [brand]: "VolumeId" };

/** The id of a snapshot (CSI `snapshot_id`). */
export type SnapshotId = string & { readonly [brand]: "SnapshotId" };

/** The id of a volume or a snapshot, with its kind: a volume and a snapshot can have the same id. */
export type KindAndId =
  | { readonly kind: "snapshot"; readonly id: SnapshotId }
  | { readonly kind: "volume"; readonly id: VolumeId };

const ID = /^v1-[0-9a-f]{32}$/;

/** The id of the volume that a request name stands for. */
export function volumeIdOf(requestName: string): VolumeId {
  return idOf(requestName) as VolumeId;
}

/** The id of the snapshot that a request name stands for. */
export function snapshotIdOf(requestName: string): SnapshotId {
  return idOf(requestName) as SnapshotId;
}

/** The volume id that the text is, or `undefined` when it is not one of ours. */
export function parseVolumeId(text: string): VolumeId | undefined {
  return ID.test(text) ? text as VolumeId : undefined;
}

/** The snapshot id that the text is, or `undefined` when it is not one of ours. */
export function parseSnapshotId(text: string): SnapshotId | undefined {
  return ID.test(text) ? text as SnapshotId : undefined;
}

/** The name that a volume's LV gets. LVM allows `[A-Za-z0-9+_.-]`, under 128 bytes, no reserved prefix (lvm(8)). */
export function volumeLvName(id: VolumeId): string {
  return "vol-" + id.slice("v1-".length);
}

/** The name that a snapshot's LV gets. LVM reserves the prefix `snapshot`, not this one. */
export function snapshotLvName(id: SnapshotId): string {
  return "snap-" + id.slice("v1-".length);
}

/** The name of the LV that keeps a volume as it was while the copy is made of it. */
export function copySnapshotLvName(copy: VolumeId): string {
  return "cut-" + copy.slice("v1-".length);
}

/**
 * The name, or if LVs that are about to be removed still have it, the name with a number. Other LVs of the name are none of
 * our business: LVM refuses to make a second one.
 */
export function uniqueLvName(name: string, deleted: readonly string[]): string {
  if (!deleted.includes(name)) return name;
  for (let number = 2;; number++) {
    if (!deleted.includes(`${name}.${number}`)) return `${name}.${number}`;
  }
}

/** Whether an LV of the name was made by the driver, as far as a name can tell. */
export function isDriverLvName(name: string): boolean {
  return /^(?:vol|snap|cut)-[0-9a-f]{32}(?:\.\d+)?$/.test(name);
}

/**
 * Whether a device-mapper device of the name belongs to an LV of such a name, its hidden layers included: device-mapper
 * doubles the hyphens within names, and LVM appends `-real` and `-cow` for an origin and a store (lvm's lv_layer).
 */
export function isDriverDeviceName(name: string): boolean {
  return /[^-]-(?:--)*(?:vol|snap|cut)--[0-9a-f]{32}(?:\.\d+)?(?:-real|-cow)?$/.test(name);
}

function idOf(requestName: string): string {
  return "v1-" + createHash("sha256").update(requestName).digest("hex").slice(0, 32);
}
