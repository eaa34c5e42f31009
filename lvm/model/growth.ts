/**
 * Where a volume can grow: decided from a report.
 *
 * @module
 */

import {
  bytesPerDisk,
  describeLayout,
  disksFor,
  disksToGrow,
  disksWanted,
  isRedundant,
  layoutOf,
  LINEAR,
} from "./layout.ts";
import type { LogicalVolume, PhysicalVolume, VolumeGroup } from "./report.ts";
import { formatBytes } from "../size.ts";

/** Where an LV can grow. */
export interface Growth {
  /** The disks to name to LVM, none for whichever it takes; `undefined` when there is too little room. */
  readonly disks?: readonly PhysicalVolume[];
  /** What it needs and what there is, in words. */
  readonly lack: string;
}

/** Where an LV can grow to a size. Of one that somebody converted to something else, LVM is left to decide. */
export function growthOf(lv: LogicalVolume, group: VolumeGroup, size: bigint): Growth {
  const layout = layoutOf(lv) ?? LINEAR;
  const { pvs, extentSize } = group;
  if (layout.type === "linear") {
    const more = size - lv.size;
    const lack = `needs ${formatBytes(more)} more, volume group ${group.name} has ${formatBytes(group.free)} free`;
    return more > group.free ? { lack } : { disks: [], lack };
  }
  const bytes = bytesPerDisk(layout, size, extentSize) - bytesPerDisk(layout, lv.size, extentSize);
  // stripes may change their disks
  const disks = isRedundant(layout) ? disksToGrow(lv, bytes, pvs) : disksFor(layout, size - lv.size, group);
  const lack =
    `${describeLayout(layout)} needs ${formatBytes(bytes)} more on each of its ${disksWanted(layout)} disks, or ` +
    `on as many others; free are, in volume group ${group.name}, ${
      pvs.map(({ path, free }) => `${formatBytes(free)} of ${path}`).join(", ")
    }`;
  return disks === undefined ? { lack } : { disks, lack };
}
