/**
 * The record that a volume was handed out: a tag of its volume group with the id and the UUID of its LV.
 *
 * An LV takes its own tags with it when it goes, so what must survive it stands on the group. The tag goes on before the
 * first use, since an LV that was never used has nothing to lose. It comes off once the LV is marked as deleted, before
 * the LV itself goes.
 *
 * @module
 */

import type { SnapshotId, VolumeId } from "../ids.ts";
import type { Lvm } from "./client.ts";
import type { VolumeGroup } from "./report.ts";
import { usedTag } from "./tags.ts";

/** Records that the volume is handed out, and which LV it is. */
export async function addUsedTag(
  lvm: Lvm,
  driver: string,
  volume: { readonly id: VolumeId; readonly group: VolumeGroup; readonly lv: { readonly uuid: string } },
): Promise<void> {
  const tag = usedTag(driver, volume.id, volume.lv.uuid);
  await lvm.change(volume.group, ["vgchange", "--addtag", tag, volume.group.name]);
}

/** The records that a group has of an LV. */
export function usedTagsOf(
  driver: string,
  group: VolumeGroup,
  id: VolumeId | SnapshotId,
  lvUuid: string,
): string[] {
  return group.tags.filter((tag) => tag === usedTag(driver, id, lvUuid));
}

/** Takes records off a group. */
export async function removeUsedTags(lvm: Lvm, group: VolumeGroup, usedTags: readonly string[]): Promise<void> {
  await lvm.change(group, ["vgchange", ...usedTags.flatMap((record) => ["--deltag", record]), group.name]);
}
