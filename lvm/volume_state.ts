/**
 * What a report and the records say of a volume: that it is there, that it never was, or that it is Lost.
 *
 * @module
 */

import { StorageError } from "./error.ts";
import type { VolumeId } from "./ids.ts";
import type { LogicalVolume, VolumeGroup } from "./report.ts";
import type { Volume } from "./volumes.ts";

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
    readonly record?: string;
    readonly error: StorageError;
    readonly replaced: boolean;
  }
  | { readonly state: "absent" };

/** What is recorded of a volume that was made. */
export interface RecordedVolume {
  /** The UUID of its LV. */
  readonly lvUuid: string;
  /** The name that the LV's group had. */
  readonly groupName: string;
}

/** A record of a volume: in a group's tags, or elsewhere. */
export interface UsedRecord extends RecordedVolume {
  readonly group?: VolumeGroup;
  readonly record?: string;
}

/** A volume whose records name another LV than the one that was found, if one was. */
export function lost(id: VolumeId, recorded: UsedRecord, found: LogicalVolume | undefined): VolumeState {
  const { group, groupName, lvUuid, record } = recorded;
  const was = `Lost: volume ${id} was the logical volume ${lvUuid} in volume group ${groupName}, and`;
  const nothing = "Nothing is made or formatted in its place.";
  const message = found === undefined
    ? `${was} no logical volume carries its tag. ${nothing} Bring the logical volume back (vgcfgrestore), or delete the volume`
    : `${was} ${found.name} with the UUID ${found.uuid} has taken its place. ${nothing} Look at ${found.name}: remove it, or ` +
      `take its denolith tags off; then bring the first one back (vgcfgrestore), or delete the volume`;
  const error = new StorageError("Lost", message);
  return {
    state: "lost",
    groupName,
    error,
    replaced: found !== undefined,
    ...(group && { group }),
    ...(record && { record }),
  };
}
