/**
 * The command that creates the LV of a new volume, thick or thin, and the name of that LV.
 *
 * @module
 */

import { uniqueLvName, type VolumeId, volumeLvName } from "../../base/ids.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { VolumeRequest } from "../inventory/volume.ts";
import { lvcreate, type LvcreateOptions, WIPE_SIGNATURES } from "../model/command_lines.ts";
import { hasIntegrity, isCached, type Layout } from "../model/layout.ts";
import type { PhysicalVolume, VolumeGroup } from "../model/report.ts";
import { CACHED, copyBaseTags, INTEGRITY, sourceNodeTags, volumeTags } from "../model/tags.ts";

/** Returns the name of the LV of a new volume in a group: no deleted LV has it. */
export function newVolumeLvName(driver: string, group: VolumeGroup, id: VolumeId): string {
  return uniqueLvName(volumeLvName(id), deletedLvs(driver, [group]).map(({ lv }) => lv.name));
}

/**
 * Returns the command that creates the LV of a volume, with as much space as the options say, on these PVs, or on those
 * that LVM chooses.
 */
export function volumeCommand(
  driver: string,
  group: VolumeGroup,
  request: VolumeRequest,
  { options, pvs = [] }: { readonly options: LvcreateOptions; readonly pvs?: readonly PhysicalVolume[] },
): string[] {
  const { id, layout, goal, sourceNode } = request;
  const lvcreateOptions: LvcreateOptions = {
    ...WIPE_SIGNATURES,
    name: newVolumeLvName(driver, group, id),
    ...options,
    addtag: [
      ...volumeTags(driver, request),
      ...sourceNodeTags(sourceNode),
      ...pendingTags(layout),
      ...copyBaseTags(goal && { id: goal.snapshot }),
    ],
  };
  return lvcreate(lvcreateOptions, group.name, pvs.map(({ path }) => path));
}

/** Returns the tag of a new volume as long as LVM has not added what its layout needs; none for layouts made in one step. */
export function pendingTags(layout: Layout): string[] {
  return hasIntegrity(layout) ? [INTEGRITY] : isCached(layout) ? [CACHED] : [];
}
