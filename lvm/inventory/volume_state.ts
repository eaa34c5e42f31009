/**
 * What a report and the records say of a volume: that it is there, that it never was, or that it is Lost.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { SnapshotId, VolumeId } from "../ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import type { Volume } from "./volume.ts";

/** What a report says of a volume id. */
export type VolumeState =
  | { readonly state: "present"; readonly volume: Volume }
  /** Handed out once, but its LV is gone, or another LV has taken its place. */
  | {
    readonly state: "lost";
    /** The name that its group had. */
    readonly groupName: string;
    /** The group that it was in, and what records it there; nothing where only {@linkcode VolumesOptions.recorded} does. */
    readonly group?: VolumeGroup;
    readonly usedTag?: string;
    readonly error: StorageError;
    readonly replaced: boolean;
  }
  | { readonly state: "absent" };

/** What is recorded of the LV that a volume or a snapshot became when it was made. */
export interface RecordedLv {
  /** The UUID of its LV. */
  readonly lvUuid: string;
  /** The name that the LV's group had. */
  readonly groupName: string;
}

/** A record of a volume: in a group's tags, or elsewhere. */
export interface VolumeRecord extends RecordedLv {
  readonly group?: VolumeGroup;
  readonly usedTag?: string;
}

/** A volume whose records name another LV than the one that was found, if one was. */
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

/** What is told of a volume or a snapshot whose record names another LV than the one that was found, if one was. */
export function lostError(
  kind: "volume" | "snapshot",
  id: VolumeId | SnapshotId,
  { lvUuid, groupName }: RecordedLv,
  found: LogicalVolume | undefined,
): StorageError {
  const was = `Lost: ${kind} ${id} was the logical volume ${lvUuid} in volume group ${groupName}, and`;
  const nothing = "Nothing is made or formatted in its place.";
  const message = found === undefined
    ? `${was} no logical volume carries its tag. ${nothing} Bring the logical volume back (vgcfgrestore), or delete the ${kind}`
    : `${was} ${found.name} with the UUID ${found.uuid} has taken its place. ${nothing} Look at ${found.name}: remove it, or ` +
      `take its denolith tags off; then bring the first one back (vgcfgrestore), or delete the ${kind}`;
  return new StorageError("Lost", message);
}
