/**
 * The layouts: the one table of their bounds, and of what they need and survive.
 *
 * csi/layout_parameters.ts parses the parameters by it, lvm/model/layout.ts computes with it, and the reference is
 * generated from it.
 *
 * @module
 */

/** A layout of volumes over physical volumes. */
export interface LayoutSpec {
  /** Bounds of the number of data stripes: the minimum is that of LVM, and the default. Absent without stripes. */
  readonly stripes?: Bounds;
  /** True if the volume has a cache on a physical volume for caches. */
  readonly cached?: true;
  /** Bounds of the number of additional mirrors: the minimum is the default. Absent without mirrors. */
  readonly mirrors?: Bounds;
  /** The number of its physical volumes, in Markdown. */
  readonly pvs: string;
  /** The space that 1 GiB takes, in Markdown. */
  readonly space: string;
  /** The loss that a volume survives, as a clause. */
  readonly survives: string;
}

/** A range of numbers, both ends included. */
export interface Bounds {
  readonly min: number;
  readonly max: number;
}

/** The physical volumes and the space of a layout with a cache. */
const LINEAR_AND_CACHE = { pvs: "1 or more, 1 for caches", space: "1 GiB, and `cacheSize`" };

/** The layouts by name, the default first. */
export const LAYOUTS = {
  linear: { pvs: "1 or more", space: "1 GiB", survives: "nothing" },
  striped: { stripes: { min: 2, max: 32 }, ...stripesAndParity(0), survives: "nothing" },
  raid1: {
    mirrors: { min: 1, max: 9 }, // LVM allows 10 copies in all
    pvs: "`mirrors` + 1",
    space: "1 GiB on each",
    survives: "the loss of all disks but one",
  },
  raid10: {
    stripes: { min: 2, max: 16 },
    mirrors: { min: 1, max: 1 }, // lvmraid(7): raid10 has two copies
    pvs: "2 × `stripes`",
    space: "2 GiB",
    survives: "the loss of one disk of each pair",
  },
  raid5: { stripes: { min: 2, max: 32 }, ...stripesAndParity(1), survives: "the loss of one disk" },
  raid6: { stripes: { min: 3, max: 32 }, ...stripesAndParity(2), survives: "the loss of two disks" },
  cache: { cached: true, ...LINEAR_AND_CACHE, survives: "the loss of the cache" },
  writecache: { cached: true, ...LINEAR_AND_CACHE, survives: "nothing" },
} as const satisfies Readonly<Record<string, LayoutSpec>>;

/** The name of a layout. */
export type LayoutName = keyof typeof LAYOUTS;

/** The name of a layout with a cache. */
export type CachedLayoutName = {
  [Name in LayoutName]: typeof LAYOUTS[Name] extends { readonly cached: true } ? Name : never;
}[LayoutName];

/** Reports whether a name is that of a layout with a cache. */
export function isCachedLayoutName(name: string): name is CachedLayoutName {
  return Object.entries<LayoutSpec>(LAYOUTS).some(([known, { cached }]) => known === name && cached);
}

/** The names of the layouts, the default first. */
export const LAYOUT_NAMES = Object.keys(LAYOUTS) as readonly LayoutName[];

/** Bounds of the stripe size in bytes: a power of two of at least a page (lvcreate(8), `--stripesize`). */
export const STRIPE_SIZE = { min: 4n << 10n, max: 4n << 20n } as const;

/** The default stripe size, in bytes, which is that of LVM (lvcreate(8), `--stripesize`). */
export const DEFAULT_STRIPE_SIZE = 64n << 10n;

/** The smallest cache, in bytes: LVM takes two extents at least, and some of them for its own (lvmcache(7)). */
export const MIN_CACHE_SIZE = 32n << 20n;

/** The default size of a cache, in bytes. */
export const DEFAULT_CACHE_SIZE = 1n << 30n;

/** Returns the physical volumes and the space of a layout with stripes of data, and the number of those for parity. */
function stripesAndParity(parity: number) {
  const pvs = parity === 0 ? "`stripes`" : `\`stripes\` + ${parity}`;
  return { parity, pvs, space: parity === 0 ? "1 GiB" : `1 GiB × (${pvs}) / \`stripes\`` };
}
