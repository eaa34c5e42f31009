/**
 * Planning the extension of a volume, from a report.
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

/** A plan for the extension of an LV. */
export interface ExtensionPlan {
  /** The physical volumes to name to LVM, none to let LVM choose; `undefined` when there is too little free space. */
  readonly chosenPvs?: readonly PhysicalVolume[];
  /** The needed and the free space, for messages. */
  readonly shortfall: string;
}

/**
 * Plans the extension of an LV to a size in bytes. LVM decides for an LV that was converted to a layout of another
 * kind.
 */
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
  // stripes may continue on other physical volumes
  const chosenPvs = isRedundant(layout) ? pvsToExtend(lv, bytes, pvs) : choosePvs(layout, size - lv.size, group);
  const shortfall =
    `${describeLayout(layout)} needs ${formatBytes(bytes)} more on each of its ${
      requiredPvCount(layout)
    } physical volumes, or ` +
    `on as many others; free in volume group ${group.name}, ${
      pvs.map(({ path, free }) => `${formatBytes(free)} of ${path}`).join(", ")
    }`;
  return chosenPvs === undefined ? { shortfall } : { chosenPvs, shortfall };
}
