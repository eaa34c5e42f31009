/**
 * Layouts of volumes on the physical volumes of a group: their space on each, and the choice of physical volumes.
 *
 * A volume that is not linear consists of images, each on a physical volume of its own. The driver names the physical
 * volumes to LVM when it creates or extends such a volume. Otherwise lvextend extends an image on the physical volume
 * of another image when its own is full (observed with 2.03.16). Then the loss of one disk loses both images, and the
 * data of a RAID volume. Also, all free extents of a named physical volume count, however scattered they are, so that
 * the capacity of a group can be computed (docs/adr/0017).
 *
 * @module
 */

import { formatBytes, formatQuantity, max, min, roundUp, sum } from "../../base/size.ts";
import type { LogicalVolume, PhysicalVolume, Segment, VolumeGroup } from "./report.ts";
import { type LvcreateOptions, pvArgument } from "./command_lines.ts";
import { type CachedLayoutName, isCachedLayoutName, LAYOUTS } from "../settings/layouts.ts";

/** A layout of a volume; sizes in bytes. */
export type Layout =
  | { readonly type: "linear" }
  /** `stripes` are those with data, without those for redundancy. */
  | { readonly type: "striped"; readonly stripes: number; readonly stripeSize: bigint }
  | ({ readonly type: "raid10" | "raid5" | "raid6"; readonly stripes: number; readonly stripeSize: bigint } & Integrity)
  /** `mirrors` are the RAID images beyond the first. */
  | ({ readonly type: "raid1"; readonly mirrors: number } & Integrity)
  | CachedLayout;

/** A linear volume with a cache on a physical volume for caches (lvmcache(7)). */
export interface CachedLayout {
  readonly type: CachedLayoutName;
  /** The size of the cache, in bytes, before it is rounded up to extents. */
  readonly cacheSize: bigint;
}

/** The checksums of RAID images. */
export interface Integrity {
  /** True if each image has checksums of its data, so that what a disk has changed is read from another image. */
  readonly integrity?: true;
}

/** The free space of a physical volume. */
export type PvSpace = Pick<PhysicalVolume, "free" | "cacheFree">;

/** The capacity of a group for a layout, in bytes. */
export interface LayoutSpace {
  /** The maximum for all volumes together. */
  readonly available: bigint;
  /** The largest single volume. */
  readonly maximumVolumeSize: bigint;
  /** The smallest volume. The sizes of volumes are multiples of it. */
  readonly minimumVolumeSize: bigint;
}

/** The default layout. */
export const LINEAR: Layout = { type: "linear" };

/** The bytes of a RAID volume for each bit of its metadata (lvm.conf(5), raid_region_size). */
const REGION_BYTES = 2n << 20n;

/** Returns the number of stripes with data, by which the size of a volume is divided. */
function dataStripeCount(layout: Layout): number {
  return "stripes" in layout ? layout.stripes : 1;
}

/** Reports whether the data of a volume is linear, with or without a cache. */
export function isLinear(layout: Layout): layout is { readonly type: "linear" } | CachedLayout {
  return layout.type === "linear" || isCached(layout);
}

/** Reports whether a volume has a cache. */
export function isCached(layout: Layout): layout is CachedLayout {
  return "cacheSize" in layout;
}

/** Returns a layout as it is in a group with extents of a size in bytes. */
export function roundLayout(layout: Layout, extentSize: bigint): Layout {
  return isCached(layout) ? { ...layout, cacheSize: cacheBytes(layout, extentSize) } : layout;
}

/** Returns the bytes that a cache takes on its physical volume: whole extents, and two at least, which LVM needs. */
export function cacheBytes({ cacheSize }: CachedLayout, extentSize: bigint): bigint {
  const bytes = roundUp(cacheSize, extentSize);
  return max(bytes, 2n * extentSize);
}

/**
 * Chooses the physical volume for caches with the most free space.
 *
 * @returns `undefined` when the cache does not fit on any
 */
export function chooseCachePv<D extends PvSpace>(
  layout: CachedLayout,
  { pvs, extentSize }: { readonly pvs: readonly D[]; readonly extentSize: bigint },
): D | undefined {
  const [freest] = pvs.filter(isCachePv).sort((a, b) => compareDescending(a.cacheFree, b.cacheFree));
  return freest !== undefined && freest.cacheFree >= cacheBytes(layout, extentSize) ? freest : undefined;
}

/** Reports whether a physical volume is for caches alone. */
export function isCachePv<D extends PvSpace>(pv: D): pv is D & { readonly cacheFree: bigint } {
  return pv.cacheFree !== undefined;
}

/** Returns the number of different physical volumes that a volume needs. */
export function requiredPvCount(layout: Layout): number {
  switch (layout.type) {
    case "linear":
    case "cache":
    case "writecache":
      return 1;
    case "raid1":
      return layout.mirrors + 1;
    case "raid10":
      return 2 * layout.stripes;
    default:
      return layout.stripes + LAYOUTS[layout.type].parity;
  }
}

/** Reports whether a volume survives the loss of any disk. */
export function isRedundant(layout: Layout): boolean {
  return !isLinear(layout) && layout.type !== "striped";
}

/** Returns the number of bytes of which the sizes of volumes are multiples: an extent for each stripe with data. */
export function sizeStep(layout: Layout, extentSize: bigint): bigint {
  return extentSize * BigInt(dataStripeCount(layout));
}

/**
 * Returns the bytes that a volume takes on each of its physical volumes; for a linear volume, on all of them together, without
 * its cache.
 */
export function bytesPerPv(layout: Layout, size: bigint, extentSize: bigint): bigint {
  const image = roundUp(size, sizeStep(layout, extentSize)) / BigInt(dataStripeCount(layout));
  return image + overheadBytes(layout, image, extentSize);
}

/** Returns the bytes of the metadata of an image, and of its checksums. */
function overheadBytes(layout: Layout, image: bigint, extentSize: bigint): bigint {
  if (!isRedundant(layout)) return 0n;
  return rmetaBytes(image, extentSize) + (hasIntegrity(layout) ? imetaBytes(image, extentSize) : 0n);
}

/** Reports whether the images of a layout have checksums. */
export function hasIntegrity(layout: Layout): boolean {
  return "integrity" in layout && layout.integrity === true;
}

/**
 * Returns why there are no snapshots of volumes with a layout: LVM takes none of a RAID volume with integrity, and may fail
 * halfway for one with a cache (seen with 2.03.16). `undefined` for other layouts.
 */
export function snapshotRefusal(layout: Layout): string | undefined {
  const whose = hasIntegrity(layout) ? "LVM" : isCached(layout) ? "the driver" : undefined;
  return whose && `is ${describeLayout(layout)}, and ${whose} takes no snapshots of such a volume`;
}

/** Returns the bytes that a volume takes in its group, without its cache. */
export function allocatedBytes(layout: Layout, size: bigint, extentSize: bigint): bigint {
  return bytesPerPv(layout, size, extentSize) * BigInt(requiredPvCount(layout));
}

/**
 * Returns the bytes of the metadata LV of an image: two superblocks of 4 KiB and a bit for each region, in whole
 * extents (LVM's `_raid_rmeta_extents`).
 */
function rmetaBytes(image: bigint, extentSize: bigint): bigint {
  return roundUp(8192n + (image / REGION_BYTES + 7n) / 8n, extentSize);
}

/**
 * Returns the bytes of the LV with the checksums of an image, in whole extents: 4 MiB for each 500 MiB, and a journal that
 * grows with the image in steps (observed with LVM 2.03.16 and 2.03.31). It depends on the size at the creation, and is
 * extended with the image where it would be too small.
 */
function imetaBytes(image: bigint, extentSize: bigint): bigint {
  const MiB = 1n << 20n;
  const journal = image <= 512n * MiB ? 4n : image <= 1024n * MiB ? 8n : image <= 4096n * MiB ? 32n : 64n;
  return roundUp(((image / (500n * MiB) + 1n) * 4n + journal) * MiB, extentSize);
}

/** Returns the options of lvcreate for a layout; none for a linear one, which is its default, with or without a cache. */
export function layoutOptions(
  layout: Layout,
): Pick<LvcreateOptions, "type" | "mirrors" | "stripes" | "stripesize" | "raidintegrity"> {
  if (isLinear(layout)) return {};
  const { type } = layout;
  const integrity = hasIntegrity(layout) ? { raidintegrity: "y" as const } : {};
  if (layout.type === "raid1") return { type, mirrors: layout.mirrors, ...integrity };
  const stripes = { stripes: layout.stripes, stripesize: layout.stripeSize };
  return { type, ...(type === "raid10" && { mirrors: 1 }), ...stripes, ...integrity };
}

/**
 * Returns the capacity of physical volumes for a layout. A single volume takes the same bytes of as many physical
 * volumes as its layout needs, so that with the least free space decides. Many small volumes can be spread: together
 * they get at most what is left for the physical volume with the least free space of those that one volume takes,
 * whichever are filled before. Neither takes more than what is free in the group, which has spare space on any of them.
 */
export function layoutSpace(
  layout: Layout,
  { pvs, extentSize, free: groupFree }: {
    readonly pvs: readonly PvSpace[];
    readonly extentSize: bigint;
    readonly free: bigint;
  },
): LayoutSpace {
  const minimumVolumeSize = sizeStep(layout, extentSize);
  const pvCount = requiredPvCount(layout);
  const free = pvs.map((disk) => disk.free).sort(compareDescending);
  if (free.length < pvCount || !isStripeSizeSupported(layout, extentSize)) {
    return { available: 0n, maximumVolumeSize: 0n, minimumVolumeSize };
  }
  const row = groupFree / BigInt(pvCount);
  const rows = free.slice(0, pvCount).map((_, full) => sum(free.slice(full)) / BigInt(pvCount - full));
  const volume = (bytes: bigint) => maxImageBytes(layout, bytes, extentSize) * BigInt(dataStripeCount(layout));
  return {
    available: volume(min(row, ...rows)),
    maximumVolumeSize: volume(min(row, free[pvCount - 1]!)),
    minimumVolumeSize,
  };
}

/**
 * Returns the size of the largest image, in whole extents, that fits with its metadata into the bytes of one physical
 * volume.
 */
function maxImageBytes(layout: Layout, bytes: bigint, extentSize: bigint): bigint {
  const whole = bytes / extentSize;
  // the least of the extents that is sure to fit, and the most that might
  let [fits, limit] = [whole - overheadBytes(layout, whole * extentSize, extentSize) / extentSize, whole];
  if (fits < 0n) fits = 0n;
  while (fits < limit) {
    const middle = (fits + limit + 1n) / 2n;
    const image = middle * extentSize;
    if (image + overheadBytes(layout, image, extentSize) <= whole * extentSize) fits = middle;
    else limit = middle - 1n;
  }
  return fits * extentSize;
}

/**
 * Reports whether LVM keeps the stripe size. It silently reduces stripes that are larger than an extent (lvcreate(8),
 * `--stripesize`).
 */
export function isStripeSizeSupported(layout: Layout, extentSize: bigint): boolean {
  return !("stripeSize" in layout) || layout.stripeSize <= extentSize;
}

/**
 * Chooses the physical volumes with the most free space, as many as the layout needs.
 *
 * @param size bytes
 * @returns `undefined` when the volume does not fit on them
 */
export function choosePvs<D extends PvSpace>(
  layout: Layout,
  size: bigint,
  { pvs, extentSize }: { readonly pvs: readonly D[]; readonly extentSize: bigint },
): D[] | undefined {
  return selectFreestPvs(pvs, requiredPvCount(layout), bytesPerPv(layout, size, extentSize));
}

/**
 * Selects a number of physical volumes with the most free space.
 *
 * @returns `undefined` when one of them has less than the bytes
 */
function selectFreestPvs<D extends PvSpace>(pvs: readonly D[], count: number, bytes: bigint): D[] | undefined {
  const chosen = [...pvs].sort((a, b) => compareDescending(a.free, b.free)).slice(0, count);
  return chosen.length === count && chosen.every(({ free }) => free >= bytes) ? chosen : undefined;
}

/**
 * Returns the layout of an LV; `undefined` for a layout that the driver does not create: an administrator converted the
 * LV.
 */
export function layoutOf(
  { segment, pvSegments, cache }: Pick<LogicalVolume, "segment" | "pvSegments" | "cache">,
): Layout | undefined {
  const { type } = segment;
  if (cache !== undefined && isCachedLayoutName(type)) return { type, cacheSize: cache.size };
  const plain = layoutOfType(segment);
  const layout = plain !== undefined && !isLinear(plain) && plain.type !== "striped" && hasChecksums({ pvSegments })
    ? { ...plain, integrity: true as const }
    : plain;
  // A raid10 of three images each may have an odd number of them.
  const count = layout === undefined
    ? 0
    : "stripes" in layout
    ? layout.stripes
    : "mirrors" in layout
    ? layout.mirrors
    : 1;
  return Number.isInteger(count) && count > 0 ? layout : undefined;
}

/** Reports whether the RAID images of an LV have checksums. */
export function hasChecksums({ pvSegments }: Pick<LogicalVolume, "pvSegments">): boolean {
  return pvSegments.some(({ subLv }) => subLv.endsWith("_iorig"));
}

function layoutOfType({ type, stripes, stripeSize }: Segment): Layout | undefined {
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
      return { type, stripes: stripes - LAYOUTS[type].parity, stripeSize };
    default:
      return undefined;
  }
}

/** Returns the UUIDs of the physical volumes of each image of an LV and of its metadata, in the order of the images. */
export function imagePvs({ pvSegments }: Pick<LogicalVolume, "pvSegments">): ReadonlySet<string>[] {
  const imageNumber = (part: string) => Number(/^r(?:image|meta)_(\d+)(?:_i(?:orig|meta))?$/.exec(part)?.[1] ?? NaN);
  const images = Map.groupBy(pvSegments.filter(({ subLv }) => subLv !== ""), ({ subLv }) => imageNumber(subLv));
  return [...images].sort(([a], [b]) => a - b).map(([, segments]) => new Set(segments.map(({ pvUuid }) => pvUuid)));
}

/** Returns the UUIDs of the physical volumes with more than one image of an LV. */
export function pvsWithSeveralImages(lv: Pick<LogicalVolume, "pvSegments">): string[] {
  const all = imagePvs(lv).flatMap((disks) => [...disks]);
  return [...new Set(all.filter((disk, index) => all.indexOf(disk) !== index))];
}

/**
 * Chooses physical volumes of its group on which a RAID volume can be extended: for each image the one with the most
 * free space of those that it has, or else physical volumes without any image of the volume. The checksums of an image
 * are extended only on a physical volume that it has (lvmraid(7), "Integrity limits"), so an image with checksums stays.
 *
 * @param bytes bytes that each image needs
 * @returns `undefined` when there is too little free space on either
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
  if (hasChecksums(lv)) return undefined;
  return selectFreestPvs(pvs.filter(({ uuid }) => !images.some((disks) => disks.has(uuid))), images.length, bytes);
}

/** Formats a layout for users: `raid5 with 2 stripes of 64Ki`. */
export function describeLayout(layout: Layout): string {
  if (layout.type === "linear") return "linear";
  if (isCached(layout)) return `${layout.type} of ${formatQuantity(layout.cacheSize)}`;
  const integrity = hasIntegrity(layout) ? " and integrity" : "";
  if (layout.type === "raid1") return `raid1 with ${pluralize(layout.mirrors, "mirror")}${integrity}`;
  return `${layout.type} with ${pluralize(layout.stripes, "stripe")} of ${
    formatQuantity(layout.stripeSize)
  }${integrity}`;
}

/** Formats the layout of an LV for users; LVM's name for an LV that an administrator converted. */
export function describeLayoutOf(lv: Pick<LogicalVolume, "segment" | "pvSegments" | "cache">): string {
  const layout = layoutOf(lv);
  return layout === undefined ? lv.segment.type : describeLayout(layout);
}

/**
 * Formats the shortfall of a group for a volume.
 *
 * @param bytes bytes that the volume takes on each physical volume
 */
export function describePvSpace(layout: Layout, bytes: bigint, pvs: readonly PvSpace[]): string {
  const fitting = pvs.filter(({ free }) => free >= bytes).length;
  return `${describeLayout(layout)} takes ${formatBytes(bytes)} on each of ${
    requiredPvCount(layout)
  } physical volumes, but only ${fitting} of ` +
    `${pvs.length} have that free`;
}

function pluralize(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function compareDescending(a: bigint, b: bigint): number {
  return a > b ? -1 : a < b ? 1 : 0;
}

/**
 * Returns the paths of the physical volumes to name to LVM in a command that takes space and names none: those that are not
 * for caches. LVM allocates on any of a group otherwise.
 *
 * @param args the arguments of lvm
 * @returns none where the group has no physical volume for caches
 */
export function pvsToName({ pvs }: Pick<VolumeGroup, "pvs">, args: readonly string[]): string[] {
  const takesSpace = ["lvcreate", "lvextend"].includes(args[0]!) &&
    args.some((arg) => arg === "--size" || arg === "--poolmetadatasize");
  if (!takesSpace || !pvs.some(isCachePv) || pvs.some(({ path }) => args.includes(pvArgument(path)))) return [];
  return pvs.filter((pv) => !isCachePv(pv) && !pv.missing).map(({ path }) => pvArgument(path));
}
