/**
 * The redundancy of RAID volumes, from a report.
 *
 * The driver repairs nothing. LVM shows a disk that was away for a moment and a disk that fails gradually in the same
 * way, and a refresh accepts both: only an inspection of the disk shows which it is.
 *
 * @module
 */

import { hasChecksums, imagePvs, pvsWithSeveralImages } from "./layout.ts";
import type { LogicalVolume, VolumeGroup } from "./report.ts";
import { defined } from "../../base/defined.ts";

/**
 * The state of the redundancy of a volume. `InSync`: it is redundant. `Mismatches`: it is redundant, but the last check
 * found differences. `Rebuilding`: images are being synchronized. `SharedPhysicalVolume`: several images are on one
 * physical volume. `RefreshNeeded`: the kernel works without a disk that exists. `Degraded`: it works without a
 * physical volume that is missing. `RaidFailed`: too many are missing, so that the volume cannot work.
 */
export type RedundancyState =
  | "InSync"
  | "Mismatches"
  | "Rebuilding"
  | "SharedPhysicalVolume"
  | "RefreshNeeded"
  | "Degraded"
  | "RaidFailed";

/** The redundancy of a volume, and its cause. */
export interface Redundancy {
  /** The state. */
  readonly state: RedundancyState;
  /** True if the volume would now survive the loss of a physical volume. */
  readonly redundant: boolean;
  /** The problem, its object, and the remedy. The text is the same as long as the state is the same. */
  readonly message: string;
  /** The command that repairs it after an inspection; absent where waiting helps, or nothing has to be done. */
  readonly remedy?: string;
}

/** Returns the redundancy of an LV in its group; `undefined` for an LV without redundancy. */
export function redundancyOf(
  lv: LogicalVolume,
  group: Pick<VolumeGroup, "name" | "pvs">,
): Redundancy | undefined {
  if (!isRaid(lv)) return undefined;
  const path = `${group.name}/${lv.name}`;
  const missing = new Set(group.pvs.filter((pv) => pv.missing).map(({ uuid }) => uuid));
  const lostImages = imagePvs(lv).map((disks) => [...disks].some((disk) => missing.has(disk)));
  const lostCount = lostImages.filter((each) => each).length;
  const lostSummary = `${lostCount} of its ${lostImages.length} images are on missing physical volumes`;
  if (!hasAllData(lv, lostImages)) {
    const message = `${lostSummary}, too many for ${lv.segment.type}: it cannot be used until they are attached again`;
    return redundancyProblem(
      "RaidFailed",
      message,
      `vgextend --restoremissing ${group.name} /dev/sdX   (after the disk is attached)`,
    );
  }
  if (lostCount > 0) {
    const repair = `lvconvert --repair ${path}   (onto another disk)`;
    if (lv.active || !hasChecksums(lv)) {
      return redundancyProblem("Degraded", `${lostSummary}: it works without them`, repair);
    }
    const message = `${lostSummary}: LVM does not activate it without them as long as it has integrity`;
    return redundancyProblem("Degraded", message, `lvconvert --raidintegrity n ${path}; ${repair}`);
  }
  if (lv.health === "refresh needed") {
    const message =
      "the kernel stopped using one of its disks, which LVM finds: the disk failed, or was away for a while";
    return redundancyProblem("RefreshNeeded", message, `lvchange --refresh ${path}   (if the disk works)`);
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
      "its images are being synchronized: until then, a disk that is lost may have the only copy of some data",
    );
  }
  if (lv.health === "mismatches exist") {
    const message = "its last check found differences between images";
    return { state: "Mismatches", redundant: true, message, remedy: `lvchange --syncaction repair ${path}` };
  }
  return {
    state: "InSync",
    redundant: true,
    message: "none of its physical volumes is missing, and the kernel reports it in sync",
  };
}

/** Reports whether an LV has redundant data. */
export function isRaid({ segment }: Pick<LogicalVolume, "segment">): boolean {
  return /^raid(?!0)/.test(segment.type);
}

/** Reports whether all data is available without the lost images (lvmraid(7), "DEVICE FAILURE"). */
function hasAllData({ segment: { type } }: LogicalVolume, lostImages: readonly boolean[]): boolean {
  const count = lostImages.filter((each) => each).length;
  if (type === "raid1") return count < lostImages.length;
  // its images are pairs with the same data, one after the other
  if (type.startsWith("raid10")) {
    return !lostImages.some((each, index) => index % 2 === 0 && each && lostImages[index + 1]);
  }
  return count <= (type.startsWith("raid6") ? 2 : 1);
}

function redundancyProblem(state: RedundancyState, message: string, remedy?: string): Redundancy {
  return { state, redundant: false, message, ...defined({ remedy }) };
}
