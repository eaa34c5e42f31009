/**
 * Where a volume can grow: decided from a report.
 *
 * @module
 */

import {
  bytesPerPv,
  choosePvs,
  describeLayout,
  isRedundant,
  layoutOf,
  LINEAR,
  pvsToExtend,
  requiredPvCount,
} from "./layout.ts";
import type { LogicalVolume, PhysicalVolume, VolumeGroup } from "./report.ts";
import { formatBytes } from "../size.ts";

/** Where an LV can grow. */
export interface ExtensionPlan {
  /** The disks to name to LVM, none for whichever it takes; `undefined` when there is too little room. */
  readonly chosenPvs?: readonly PhysicalVolume[];
  /** What it needs and what there is, in words. */
  readonly shortfall: string;
}

/** Where an LV can grow to a size. Of one that somebody converted to something else, LVM is left to decide. */
export function planExtension(lv: LogicalVolume, group: VolumeGroup, size: bigint): ExtensionPlan {
  const layout = layoutOf(lv) ?? LINEAR;
  const { pvs, extentSize } = group;
  if (layout.type === "linear") {
    const addedBytes = size - lv.size;
    const shortfall = `needs ${formatBytes(addedBytes)} more, volume group ${group.name} has ${
      formatBytes(group.free)
    } free`;
    return addedBytes > group.free ? { shortfall } : { chosenPvs: [], shortfall };
  }
  const bytes = bytesPerPv(layout, size, extentSize) - bytesPerPv(layout, lv.size, extentSize);
  // stripes may change their disks
  const chosenPvs = isRedundant(layout) ? pvsToExtend(lv, bytes, pvs) : choosePvs(layout, size - lv.size, group);
  const shortfall =
    `${describeLayout(layout)} needs ${formatBytes(bytes)} more on each of its ${requiredPvCount(layout)} disks, or ` +
    `on as many others; free are, in volume group ${group.name}, ${
      pvs.map(({ path, free }) => `${formatBytes(free)} of ${path}`).join(", ")
    }`;
  return chosenPvs === undefined ? { shortfall } : { chosenPvs, shortfall };
}
