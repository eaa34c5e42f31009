/**
 * Thin LVs that their pool lacks. LVM writes a new thin LV to the metadata of the group first, and lets the pool make the
 * device after that. When the power fails in between, it does not make up for it when the LV is activated, but with the
 * next change of the pool: of a snapshot with what its origin has by then.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Lvm } from "../model/client.ts";
import { lvremove } from "../model/commands.ts";
import { type LocatedLv, lvPath } from "../model/report.ts";
import { hasRecordedFilesystem } from "../model/tag_text.ts";
import { hasSourceData } from "../model/tags.ts";
import type { Volume } from "../inventory/volume.ts";
import { isThin } from "../pools/pool.ts";
import { activationArguments } from "./activation.ts";

/** What the kernel answers when the pool has no such device (ENODATA). */
const NOT_IN_POOL = /device-mapper: reload ioctl on .* failed: No data available/;

/**
 * Removes a thin LV that its pool lacks, so that it can be created again. To find that out, it activates an inactive LV:
 * after its creation an LV is active, so that costs nothing but after a restart of the machine.
 *
 * @param located an LV in a new report, whose creation was not acknowledged
 * @returns whether the LV was removed
 */
export async function removeMissingThin(lvm: Lvm, driver: string, located: LocatedLv): Promise<boolean> {
  const { lv, group } = located;
  if (!isThin(lv) || lv.active) return false;
  try {
    await lvm.change(group, activationArguments(driver, group, lv));
    return false;
  } catch (error) {
    if (!(error instanceof StorageError && NOT_IN_POOL.test(error.message))) throw error;
  }
  await lvm.change(group, lvremove({ yes: true, uuid: lv.uuid }, lvPath(located)));
  return true;
}

/**
 * Removes the LV of a volume that was never used, if its pool lacks it ({@linkcode removeMissingThin}). Requires the volume's
 * lock. A volume that may have been used keeps its LV: what its pool lacks may be recovered.
 */
export async function removeMissingVolume(lvm: Lvm, driver: string, volume: Volume): Promise<boolean> {
  const { tags } = volume.lv;
  if (volume.used || hasSourceData(tags) || hasRecordedFilesystem(tags)) return false;
  return await removeMissingThin(lvm, driver, volume);
}
