/**
 * Builds the commands that activate LVs, with the options that their type needs, and reads their failures.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { isCowSnapshot } from "./pool.ts";
import { monitoringOptions } from "./pool_commands.ts";
import { isRaid } from "../model/redundancy.ts";
import { type LocatedLv, type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { lvchange } from "../model/command_lines.ts";

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
      ignoreactivationskip: true, // an imported snapshot may have the flag
      ...(asks && { yes: true }),
      ...(degraded && { activationmode: "degraded" }),
      ...monitoringOptions(driver, group, lv),
    },
    lvPath({ group, lv }),
  );
}

/** What the kernel answers when the pool has no such device (ENODATA). */
const NOT_IN_POOL = /device-mapper: reload ioctl on .* failed: No data available/;

/** Reports whether an error is that of the activation of a thin LV which its pool lacks. */
export function isMissingInPool(error: unknown): error is StorageError {
  return error instanceof StorageError && NOT_IN_POOL.test(error.message);
}

/** Returns the error of a caller that cannot go on without a thin LV which its pool lacks. */
export function missingInPoolError(operation: string, { lv, group }: LocatedLv, cause: StorageError): StorageError {
  return new StorageError(
    "FailedPrecondition",
    `${operation}: thin pool ${group.name}/${lv.pool} does not contain it; if it was in use, repair the pool`,
    { cause },
  );
}
