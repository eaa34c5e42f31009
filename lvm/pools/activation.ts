/**
 * Builds the commands that activate LVs, with the options that their type needs.
 *
 * @module
 */

import { isCowSnapshot } from "./pool.ts";
import { monitoringOptions } from "./pool_commands.ts";
import { isRaid } from "../model/redundancy.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { lvchange } from "../model/commands.ts";

/**
 * Returns the arguments of lvm that activate an LV of a group. LVM activates a COW snapshot and its origin together.
 *
 * @param driver the driver's name
 */
export function activationArguments(driver: string, group: VolumeGroup, lv: LogicalVolume): string[] {
  const origin = group.lvs.find(({ name }) => name === lv.origin);
  // A RAID LV is usable without a physical volume, whatever activation_mode lvm.conf sets. Other LVs would lack data.
  const degraded = [lv, origin].some((each) => each !== undefined && isRaid(each));
  // LVM asks before it activates the origin with a COW snapshot.
  const asks = isCowSnapshot(lv);
  return lvchange(
    {
      activate: "y",
      ...(asks && { yes: true }),
      ...(degraded && { activationmode: "degraded" }),
      ...monitoringOptions(driver, group, lv),
    },
    lvPath({ group, lv }),
  );
}
