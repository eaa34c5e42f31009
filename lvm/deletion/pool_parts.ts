/**
 * The LVs of which a thin pool consists: those of its data and of its metadata.
 *
 * @module
 */

import type { Lvm } from "../client/client.ts";
import { lvchange } from "../model/commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isDriverPool } from "../pools/pool.ts";
import { changeIgnoring } from "./snapshot_split.ts";

/**
 * Deactivates the LVs of which the driver's pools consist in which nothing was created yet. An `lvcreate` of a pool that was
 * killed leaves them active, and LVM then never activates the pool. Where that fails, LVM says why when it activates the pool.
 */
export async function deactivateParts(lvm: Lvm, driver: string, group: VolumeGroup): Promise<void> {
  const isEmpty = ({ name }: LogicalVolume) => group.lvs.every(({ pool }) => pool !== name);
  const pools = group.lvs.filter((lv) => lv.thinPool && !lv.active && isDriverPool(driver, lv) && isEmpty(lv));
  for (const { name } of pools) {
    for (const part of ["tmeta", "tdata"]) {
      const command = lvchange({ activate: "n" }, `${group.name}/${name}_${part}`);
      await changeIgnoring(["InUse", "CommandFailed", "NotFound"], lvm, group, command);
    }
  }
}
