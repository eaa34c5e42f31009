/**
 * How a volume is laid out on the disks of its group, what that costs on each of them, and which disks take it.
 *
 * A volume that is not linear is a row of images side by side, each on a disk of its own. The driver names the disks to LVM,
 * when it makes such a volume and when it grows it. Left alone, lvextend puts what one image grows by onto the disk of another
 * one when its own is full (seen with 2.03.16): then the loss of one disk is the loss of both images, and of a RAID volume's
 * data. And a disk that is named counts with all its free extents, however scattered they are, so that what a group has room
 * for can be told beforehand (docs/adr/0017).
 *
 * @module
 */

import type { LogicalVolume, PhysicalVolume } from "./report.ts";
import { formatBytes, formatQuantity, roundUp } from "../size.ts";

/** The names of the layouts, the default first. */
export const LAYOUT_NAMES = ["linear", "striped", "raid1", "raid10", "raid5", "raid6"] as const;

/** The name of a layout: what lvcreate(8) calls its `--type`. */
export type LayoutName = typeof LAYOUT_NAMES[number];

/** How a volume is laid out; sizes in bytes. */
export type Layout =
  | { readonly type: "linear" }
  /** `stripes` are those with data, without what is there for redundancy. */
  | { readonly type: "striped" | "raid10" | "raid5" | "raid6"; readonly stripes: number; readonly stripeSize: bigint }
  /** `mirrors` are the copies beyond the first. */
  | { readonly type: "raid1"; readonly mirrors: number };

/** What there is of a disk for whoever makes a volume. */
export type PvSpace = Pick<PhysicalVolume, "free">;

/** What the disks of a group could still take of a layout, in bytes. */
export interface LayoutSpace {
  /** All volumes together, at most. */
  readonly available: bigint;
  /** The largest single volume. */
  readonly maximumVolumeSize: bigint;
  /** What sizes are multiples of, and so the smallest volume. */
  readonly minimumVolumeSize: bigint;
}

/** What every volume was before there were others. */
export const LINEAR: Layout = { type: "linear" };

/** How many disks beyond those with data each layout has; for `raid10`, for each of those. */
const PARITY = { striped: 0, raid5: 1, raid6: 2 } as const;

/** What a stripe has on one disk, where nobody says otherwise: LVM's own default (lvcreate(8), `--stripesize`). */
export const DEFAULT_STRIPE_SIZE = 64n << 10n;

/** The bytes of a RAID volume that one bit of its metadata stands for (lvm.conf(5), raid_region_size). */
const REGION_BYTES = 2n << 20n;

/** How many disks have different data: among so many a volume's size is divided. */
export function dataStripeCount(layout: Layout): number {
  return layout.type === "linear" || layout.type === "raid1" ? 1 : layout.stripes;
}

/** How many disks a volume needs at least, all of them different. */
export function requiredPvCount(layout: Layout): number {
  switch (layout.type) {
    case "linear":
      return 1;
    case "raid1":
      return layout.mirrors + 1;
    case "raid10":
      return 2 * layout.stripes;
    default:
      return layout.stripes + PARITY[layout.type];
  }
}

/** Whether a volume survives the loss of a disk. */
export function isRedundant(layout: Layout): boolean {
  return layout.type !== "linear" && layout.type !== "striped";
}

/** What sizes of volumes are multiples of, in bytes: an extent on each disk with data. */
export function sizeStep(layout: Layout, extentSize: bigint): bigint {
  return extentSize * BigInt(dataStripeCount(layout));
}

/** What a volume takes of each of its disks, in bytes; of a linear one, of all together. */
export function bytesPerPv(layout: Layout, size: bigint, extentSize: bigint): bigint {
  const image = roundUp(size, sizeStep(layout, extentSize)) / BigInt(dataStripeCount(layout));
  return isRedundant(layout) ? image + rmetaBytes(image, extentSize) : image;
}

/** What a volume takes of its group, in bytes. */
export function allocatedBytes(layout: Layout, size: bigint, extentSize: bigint): bigint {
  return bytesPerPv(layout, size, extentSize) * BigInt(requiredPvCount(layout));
}

/**
 * The size of the metadata LV beside an image: two superblocks of 4 KiB and a bit for each region, in whole extents (LVM's
 * `_raid_rmeta_extents`).
 */
function rmetaBytes(image: bigint, extentSize: bigint): bigint {
  return roundUp(8192n + (image / REGION_BYTES + 7n) / 8n, extentSize);
}

/** The arguments of lvcreate for the layout; none for a linear one, which is its default. */
export function layoutArguments(layout: Layout): string[] {
  if (layout.type === "linear") return [];
  const type = ["--type", layout.type];
  if (layout.type === "raid1") return [...type, "--mirrors", `${layout.mirrors}`];
  const stripes = ["--stripes", `${layout.stripes}`, "--stripesize", `${layout.stripeSize}b`];
  return [...type, ...(layout.type === "raid10" ? ["--mirrors", "1"] : []), ...stripes];
}

/**
 * What the disks of a group have room for. A single volume takes the same of as many disks as its layout needs, so the
 * scarcest of those counts. Many small ones can be spread: the most that all of them get is what is left for the scarcest disk
 * of a row, whichever disks are filled before.
 */
export function layoutSpace(layout: Layout, pvs: readonly PvSpace[], extentSize: bigint): LayoutSpace {
  const minimumVolumeSize = sizeStep(layout, extentSize);
  const pvCount = requiredPvCount(layout);
  const free = pvs.map((disk) => disk.free).sort(compareDescending);
  if (free.length < pvCount || !isStripeSizeSupported(layout, extentSize)) {
    return { available: 0n, maximumVolumeSize: 0n, minimumVolumeSize };
  }
  const rows = free.slice(0, pvCount).map((_, full) => sum(free.slice(full)) / BigInt(pvCount - full));
  const volume = (bytes: bigint) => maxImageBytes(layout, bytes, extentSize) * BigInt(dataStripeCount(layout));
  return {
    available: volume(rows.reduce((min, row) => row < min ? row : min)),
    maximumVolumeSize: volume(free[pvCount - 1]!),
    minimumVolumeSize,
  };
}

/** The largest image, in whole extents, that fits together with its metadata into the bytes of one disk. */
function maxImageBytes(layout: Layout, bytes: bigint, extentSize: bigint): bigint {
  const whole = bytes / extentSize * extentSize;
  const image = isRedundant(layout) ? whole - rmetaBytes(whole, extentSize) : whole;
  return image > 0n ? image : 0n;
}

/** LVM makes stripes smaller, without a refusal, where they would be larger than an extent (lvcreate(8), `--stripesize`). */
export function isStripeSizeSupported(layout: Layout, extentSize: bigint): boolean {
  return !("stripeSize" in layout) || layout.stripeSize <= extentSize;
}

/** Of the disks those with the most room, as many as the layout needs; `undefined` when the volume does not fit on them. */
export function choosePvs<D extends PvSpace>(
  layout: Layout,
  size: bigint,
  { pvs, extentSize }: { readonly pvs: readonly D[]; readonly extentSize: bigint },
): D[] | undefined {
  return selectFreestPvs(pvs, requiredPvCount(layout), bytesPerPv(layout, size, extentSize));
}

/** Of the disks those with the most room, so many; `undefined` when one of them has less than the bytes. */
function selectFreestPvs<D extends PvSpace>(pvs: readonly D[], count: number, bytes: bigint): D[] | undefined {
  const chosen = [...pvs].sort((a, b) => compareDescending(a.free, b.free)).slice(0, count);
  return chosen.length === count && chosen.every(({ free }) => free >= bytes) ? chosen : undefined;
}

/** The layout of an LV; `undefined` for one that the driver does not make: somebody converted it. */
export function layoutOf(
  { segment: { type, stripes, stripeSize } }: Pick<LogicalVolume, "segment">,
): Layout | undefined {
  switch (type) {
    case "linear":
      return LINEAR;
    case "raid1":
      return { type, mirrors: stripes - 1 };
    case "raid10":
      return { type, stripes: stripes / 2, stripeSize };
    case "striped":
    case "raid5":
    case "raid6":
      return { type, stripes: stripes - PARITY[type], stripeSize };
    default:
      return undefined;
  }
}

/** The disks of each image of an LV and of its metadata, by their UUIDs, in the order of the images. */
export function imagePvs({ pvSegments }: Pick<LogicalVolume, "pvSegments">): ReadonlySet<string>[] {
  const imageNumber = (part: string) => Number(/^r(?:image|meta)_(\d+)$/.exec(part)?.[1] ?? NaN);
  const images = Map.groupBy(pvSegments.filter(({ subLv }) => subLv !== ""), ({ subLv }) => imageNumber(subLv));
  return [...images].sort(([a], [b]) => a - b).map(([, pieces]) => new Set(pieces.map(({ pvUuid }) => pvUuid)));
}

/** The disks that hold more than one image of an LV, by their UUIDs. */
export function pvsWithSeveralImages(lv: Pick<LogicalVolume, "pvSegments">): string[] {
  const all = imagePvs(lv).flatMap((disks) => [...disks]);
  return [...new Set(all.filter((disk, index) => all.indexOf(disk) !== index))];
}

/**
 * The disks onto which a RAID volume can grow, of the group that it is in: for each image the roomiest of those that it has, or
 * else disks that none of them has. `undefined` when there is too little room on either.
 */
export function pvsToExtend(
  lv: Pick<LogicalVolume, "pvSegments">,
  bytes: bigint,
  pvs: readonly PhysicalVolume[],
): PhysicalVolume[] | undefined {
  const images = imagePvs(lv);
  const shared = pvsWithSeveralImages(lv);
  const isUsableImagePv = (disks: ReadonlySet<string>) => ({ uuid }: PhysicalVolume) =>
    disks.has(uuid) && !shared.includes(uuid);
  const own = images.flatMap((disks) => selectFreestPvs(pvs.filter(isUsableImagePv(disks)), 1, bytes) ?? []);
  if (own.length === images.length) return own;
  return selectFreestPvs(pvs.filter(({ uuid }) => !images.some((disks) => disks.has(uuid))), images.length, bytes);
}

/** The layout in words: `raid5 with 2 stripes of 64Ki`. */
export function describeLayout(layout: Layout): string {
  if (layout.type === "linear") return "linear";
  if (layout.type === "raid1") return `raid1 with ${pluralize(layout.mirrors, "mirror")}`;
  return `${layout.type} with ${pluralize(layout.stripes, "stripe")} of ${formatQuantity(layout.stripeSize)}`;
}

/** The layout of an LV in words; of one that somebody converted, LVM's name for it. */
export function describeLayoutOf(lv: Pick<LogicalVolume, "segment">): string {
  const layout = layoutOf(lv);
  return layout === undefined ? lv.segment.type : describeLayout(layout);
}

/** What a group lacks for a volume of the layout that takes so many bytes of each disk, and what it has. */
export function describePvSpace(layout: Layout, bytes: bigint, pvs: readonly PvSpace[]): string {
  const fitting = pvs.filter(({ free }) => free >= bytes).length;
  return `${describeLayout(layout)} takes ${formatBytes(bytes)} of each of ${
    requiredPvCount(layout)
  } disks, and ${fitting} of ` +
    `its ${pvs.length} have that free`;
}

function pluralize(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function sum(values: readonly bigint[]): bigint {
  return values.reduce((all, value) => all + value, 0n);
}

function compareDescending(a: bigint, b: bigint): number {
  return a > b ? -1 : a < b ? 1 : 0;
}
