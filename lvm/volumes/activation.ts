/**
 * How LVs are activated: whatever else LVM has to be told for that depends on the kind of the LV, and on what it is made of.
 *
 * @module
 */

import { monitoringOptions } from "../pools/pool_commands.ts";
import { isRaid } from "../model/redundancy.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";

/** The arguments of lvm that activate an LV of a group. A copy-on-write snapshot and its origin are activated together. */
export function activationArguments(driver: string, group: VolumeGroup, lv: LogicalVolume): string[] {
  const origin = group.lvs.find(({ name }) => name === lv.origin);
  // to be used without a disk, whatever lvm.conf says (activation_mode); without redundancy, content would have holes
  const degraded = [lv, origin].some((each) => each !== undefined && isRaid(each));
  return [
    "lvchange",
    "--activate",
    "y",
    ...(degraded ? ["--activationmode", "degraded"] : []),
    ...monitoringOptions(driver, group, lv),
    `${group.name}/${lv.name}`,
  ];
}
