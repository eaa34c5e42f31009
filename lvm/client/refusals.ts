/**
 * What LVM prints when it refuses a command.
 *
 * @module
 */

import type { ErrorKind } from "../error.ts";
import type { Output } from "../exec.ts";

/**
 * LVM's messages in English (LC_ALL=C) when it refuses a command, and the kind of error of each. Its exit status is 5
 * for all of them (lvm(8)). Captured from LVM 2.03; any other message is `CommandFailed`.
 */
const REFUSALS: readonly [RegExp, ErrorKind][] = [
  [/insufficient free space/i, "NoSpace"],
  [/insufficient suitable .*allocatable extents/i, "NoSpace"],
  [/no specified PVs have space available|couldn't allocate areas array/i, "NoSpace"],
  [/number of stripes .* must not exceed number of physical volumes/i, "NoSpace"],
  [/too large for circular buffer|metadata .*(?:is too large|exceeds maximum metadata size)/i, "NoSpace"],
  [/free space in thin pool .* reached threshold/i, "NoSpace"],
  [/maximum number of logical volumes .* reached/i, "NoSpace"],
  [/already exists in volume group/i, "AlreadyExists"],
  [/message ioctl on .*failed: File exists/i, "Busy"], // until the driver has completed the pool's transaction, at its start
  [/contains a filesystem in use/i, "InUse"],
  [/is used by another device|in use: not deactivating|is in use|logical volume \S+ in use\./i, "InUse"],
  [/only while inactive/i, "InUse"],
  [/does not accept LV type/i, "FailedPrecondition"],
  [/refusing (?:activation|refresh) of partial LV/i, "FailedPrecondition"],
  [/cannot change VG .* while PVs are missing/i, "FailedPrecondition"],
  [/volume group \S+ is (?:exported|read-only)/i, "FailedPrecondition"],
  [/multiple VGs found with the same name/i, "FailedPrecondition"],
  // an LV that pvmove, a merge or a conversion works on
  [
    /locked (?:logical volume|devices)|invalid on LV with properties|merging snapshot logical volume/i,
    "FailedPrecondition",
  ],
  [/can't resize (?:reshaping LV|logical volume \S+ while lvconvert in progress)/i, "FailedPrecondition"],
  [/required device-mapper target\(s\) not detected/i, "FailedPrecondition"],
  [/failed to find logical volume|volume group ".*" not found/i, "NotFound"],
  [/(?:logical volume|LV) \S+ not found in volume group/i, "NotFound"],
];

/** The highest exit status of a command that no signal has ended. Above it, the rest is the number of the signal. */
export const MAX_EXIT_STATUS = 128;

/** Returns the kind of error for the output of a failed command of LVM. One that a signal has ended has refused nothing. */
export function classifyRefusal(output: Output): ErrorKind {
  if (output.code > MAX_EXIT_STATUS) return "CommandFailed";
  return REFUSALS.find(([pattern]) => pattern.test(output.stderr))?.[1] ?? "CommandFailed";
}
