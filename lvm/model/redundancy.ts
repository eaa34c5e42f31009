/**
 * Whether the copies of a RAID volume's data are all there: decided from a report.
 *
 * Nothing here, and nothing in the driver, mends anything. LVM shows a disk that was away for a moment and one that fails by
 * and by in the same way, and a refresh takes either back: only somebody who looks at the disk knows which one it is.
 *
 * @module
 */

import { imagePvs, pvsWithSeveralImages } from "./layout.ts";
import type { LogicalVolume, VolumeGroup } from "./report.ts";
import { defined } from "../defined.ts";

/**
 * How the redundancy of a volume is. `InSync`: it is there. `Mismatches`: so it is, but the last check found differences.
 * `Rebuilding`: copies are being made. `SharedPhysicalVolume`: copies are on the same disk. `RefreshNeeded`: the kernel goes on without a
 * disk that is there. `Degraded`: it goes on without a disk that is missing. `RaidFailed`: too many are missing, and it cannot go on.
 */
export type RedundancyState =
  | "InSync"
  | "Mismatches"
  | "Rebuilding"
  | "SharedPhysicalVolume"
  | "RefreshNeeded"
  | "Degraded"
  | "RaidFailed";

/** How the redundancy of a volume is, and why. */
export interface Redundancy {
  /** How it is. */
  readonly state: RedundancyState;
  /** Whether the volume would survive the loss of a disk now. */
  readonly redundant: boolean;
  /** What is wrong, on what, and what to do; the same as long as the state is. */
  readonly message: string;
  /** The command that somebody who has looked may give; absent where waiting helps, or nothing has to be done. */
  readonly remedy?: string;
}

/** The redundancy of an LV in its group; `undefined` for one that has none. */
export function redundancyOf(
  lv: LogicalVolume,
  group: Pick<VolumeGroup, "name" | "pvs">,
): Redundancy | undefined {
  if (!isRaid(lv)) return undefined;
  const path = `${group.name}/${lv.name}`;
  const missing = new Set(group.pvs.filter((pv) => pv.missing).map(({ uuid }) => uuid));
  const lostImages = imagePvs(lv).map((disks) => [...disks].some((disk) => missing.has(disk)));
  const lostCount = lostImages.filter((each) => each).length;
  const lostSummary = `${lostCount} of its ${lostImages.length} images are on missing disks`;
  if (!hasAllData(lv, lostImages)) {
    const message = `${lostSummary}, too many for ${lv.segment.type}: it cannot be used until they are back`;
    return redundancyProblem(
      "RaidFailed",
      message,
      `vgextend --restoremissing ${group.name} /dev/sdX   (with the disk back)`,
    );
  }
  if (lostCount > 0) {
    return redundancyProblem(
      "Degraded",
      `${lostSummary}: it goes on without them`,
      `lvconvert --repair ${path}   (onto another disk)`,
    );
  }
  if (lv.health === "refresh needed") {
    const message = "the kernel has dropped a disk of it that LVM finds: it failed, or was away for a while";
    return redundancyProblem("RefreshNeeded", message, `lvchange --refresh ${path}   (if the disk is sound)`);
  }
  const sharedPvUuids = pvsWithSeveralImages(lv);
  if (sharedPvUuids.length > 0) {
    const names = group.pvs.filter(({ uuid }) => sharedPvUuids.includes(uuid)).map(({ path }) => path).join(", ");
    return redundancyProblem(
      "SharedPhysicalVolume",
      `more than one of its images is on ${names}: losing that disk loses data`,
    );
  }
  if (lv.raid !== undefined && lv.raid.syncPercent < 100) {
    return redundancyProblem(
      "Rebuilding",
      "its images are being made the same: until then a disk that is lost may have the only copy",
    );
  }
  if (lv.health === "mismatches exist") {
    const message = "its last check found images that differ";
    return { state: "Mismatches", redundant: true, message, remedy: `lvchange --syncaction repair ${path}` };
  }
  return { state: "InSync", redundant: true, message: "its disks are there, and in sync as far as the kernel says" };
}

/** Whether an LV has copies of its data. */
export function isRaid({ segment }: Pick<LogicalVolume, "segment">): boolean {
  return /^raid(?!0)/.test(segment.type);
}

/** Whether the data is all there without the images that are lost (lvmraid(7), "DEVICE FAILURE"). */
function hasAllData({ segment: { type } }: LogicalVolume, lostImages: readonly boolean[]): boolean {
  const count = lostImages.filter((each) => each).length;
  if (type === "raid1") return count < lostImages.length;
  // its images are pairs of copies, one after the other
  if (type.startsWith("raid10")) {
    return !lostImages.some((each, index) => index % 2 === 0 && each && lostImages[index + 1]);
  }
  return count <= (type.startsWith("raid6") ? 2 : 1);
}

function redundancyProblem(state: RedundancyState, message: string, remedy?: string): Redundancy {
  return { state, redundant: false, message, ...defined({ remedy }) };
}
