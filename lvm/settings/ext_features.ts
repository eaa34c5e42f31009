/**
 * The type that a filesystem of mke2fs(8) shows. It depends on features alone, not on the type that mke2fs was given.
 *
 * @module
 */

/** A filesystem that mke2fs creates. */
export type ExtType = "ext4" | "ext3" | "ext2";

/**
 * Features that only ext4 has: libblkid reports `ext4` for a filesystem with any of them (util-linux,
 * libblkid/src/superblocks/ext.c). They are those of the masks `incompat` and `ro_compat` that ext3 does not support.
 */
const EXT4_ONLY = [
  "64bit",
  "bigalloc",
  "casefold",
  "dir_nlink",
  "ea_inode",
  "encrypt",
  "extent",
  "extra_isize",
  "flex_bg",
  "huge_file",
  "inline_data",
  "large_dir",
  "metadata_csum",
  "metadata_csum_seed",
  "project",
  "quota",
  "uninit_bg",
  "verity",
];

/** The features that mke2fs adds for a type, or for a usage type of that name (mke2fs.conf(5) of e2fsprogs 1.47). */
const DEFAULT_FEATURES: Readonly<Record<ExtType, readonly string[]>> = {
  ext2: [],
  ext3: ["has_journal"],
  ext4: [
    "has_journal",
    "extent",
    "huge_file",
    "flex_bg",
    "metadata_csum",
    "64bit",
    "dir_nlink",
    "extra_isize",
  ],
};

/**
 * Returns the type that libblkid reports of a filesystem that mke2fs creates.
 *
 * A host's mke2fs.conf(5) can add features that are not known here.
 *
 * @param type the type that mke2fs is given (`-t`)
 * @param options its other options: flags, each with its value if it has one
 */
export function createdExtType(type: ExtType, options: readonly string[]): ExtType {
  const features = new Set(DEFAULT_FEATURES[type]);
  const valuesOf = (flag: string) =>
    options.flatMap((option, index) => option === flag ? options[index + 1]!.split(",") : []);
  for (const usage of valuesOf("-T")) {
    for (const feature of Object.hasOwn(DEFAULT_FEATURES, usage) ? DEFAULT_FEATURES[usage as ExtType] : []) {
      features.add(feature);
    }
  }
  for (const value of valuesOf("-O")) { // mke2fs applies all of them in order, and the usage types before
    if (value.startsWith("^")) features.delete(value.slice(1));
    else features.add(value);
  }
  if (options.includes("-j") || options.includes("-J")) features.add("has_journal");
  if (EXT4_ONLY.some((feature) => features.has(feature))) return "ext4";
  return features.has("has_journal") ? "ext3" : "ext2";
}
