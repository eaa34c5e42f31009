/**
 * States of a volume by a report and the records: present, absent, or Lost.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import type { LocatedLv, LogicalVolume, VolumeGroup } from "../model/report.ts";
import type { Volume } from "./volume.ts";

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
    ...(group && { group }),
    ...(usedTag && { usedTag }),
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
