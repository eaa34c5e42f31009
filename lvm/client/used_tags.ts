/**
 * Records of volumes in use: a record is a tag of the volume group with the id and the UUID of the LV.
 *
 * The tags of an LV disappear with it, so what must survive the LV is a tag of the group. The record is added before
 * the first use: an LV that was never used has no data to lose. It is removed after the LV is tagged as deleted, and
 * before the LV itself is removed.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import type { Lvm } from "./client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { usedTag } from "../model/tags.ts";
import { vgchange } from "../model/command_lines.ts";

/**
 * Records that a volume is in use, and which LV it has.
 *
 * @param isKnown whether the volume is known from an earlier report: then LVM makes sure that the LV is in the group
 * @throws {StorageError} `NotFound` when it is not
 */
export async function addUsedTag(
  lvm: Lvm,
  driver: string,
  volume: { readonly id: VolumeId; readonly group: VolumeGroup; readonly lv: { readonly uuid: string } },
  isKnown = false,
): Promise<void> {
  const { id, group, lv: { uuid } } = volume;
  const addtag = [usedTag(driver, id, uuid)];
  if (isKnown) await lvm.changeKnown(group, vgchange({ addtag, select: { uuid } }, group.name));
  else await lvm.change(group, vgchange({ addtag }, group.name));
}

/** Removes records from a group. */
export async function removeUsedTags(lvm: Lvm, group: VolumeGroup, usedTags: readonly string[]): Promise<void> {
  await lvm.change(group, vgchange({ deltag: usedTags }, group.name));
}
