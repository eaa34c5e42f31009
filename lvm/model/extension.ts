/**
 * Planning the extension of a volume, from a report.
 *
 * @module
 */

import {
  bytesPerPv,
  choosePvs,
  describeLayout,
  isLinear,
  isRedundant,
  layoutOf,
  LINEAR,
  pvsToExtend,
  requiredPvCount,
} from "./layout.ts";
import type { LogicalVolume, PhysicalVolume, VolumeGroup } from "./report.ts";
import { formatBytes } from "../../base/size.ts";
import { describeFree } from "../settings/spare_space.ts";

/** A plan for the extension of an LV. */
export interface ExtensionPlan {
  /** The physical volumes to name to LVM, none to let LVM choose; `undefined` when there is too little free space. */
  readonly chosenPvs?: readonly PhysicalVolume[];
  /** The space that the extension takes of its group, in bytes. */
  readonly bytes: bigint;
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
  if (isLinear(layout)) { // its cache stays as large as it is
    const addedBytes = size - lv.size;
    const shortfall = `needs ${formatBytes(addedBytes)} more, volume group ${group.name} has ${describeFree(group)}`;
    return { bytes: addedBytes, shortfall, ...(addedBytes <= group.free && { chosenPvs: [] }) };
  }
  const perPv = bytesPerPv(layout, size, extentSize) - bytesPerPv(layout, lv.size, extentSize);
  // stripes may continue on other physical volumes
  const chosenPvs = isRedundant(layout) ? pvsToExtend(lv, perPv, pvs) : choosePvs(layout, size - lv.size, group);
  const shortfall =
    `${describeLayout(layout)} needs ${formatBytes(perPv)} more on each of its ${
      requiredPvCount(layout)
    } physical volumes, or ` +
    `on as many others; free in volume group ${group.name}, ${
      pvs.map(({ path, free }) => `${formatBytes(free)} of ${path}`).join(", ")
    }`;
  const bytes = perPv * BigInt(requiredPvCount(layout));
  if (chosenPvs === undefined) return { bytes, shortfall };
  if (bytes <= group.free) return { bytes, chosenPvs, shortfall };
  return {
    bytes,
    shortfall: `${describeLayout(layout)} needs ${formatBytes(bytes)} more, volume group ${group.name} has ${
      describeFree(group)
    }`,
  };
}
