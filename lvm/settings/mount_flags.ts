/**
 * The flags of mounts that a request may set.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";
import { FILESYSTEM_TYPES, type FilesystemType } from "./filesystem.ts";
import { CONTEXT_FLAG } from "./selinux.ts";

const EXT_MOUNT_FLAGS = [
  /^(?:acl|noacl|user_xattr|nouser_xattr|bsddf|minixdf|barrier|nobarrier|delalloc|nodelalloc|discard|nodiscard)$/,
  /^(?:auto_da_alloc|noauto_da_alloc|block_validity|noblock_validity|dioread_lock|dioread_nolock|i_version)$/,
  /^(?:journal_checksum|journal_async_commit|init_itable|noinit_itable|noload|norecovery|prjquota|usrquota|grpquota)$/,
  /^barrier=[01]$/,
  /^(?:commit|stripe|inode_readahead_blks|max_batch_time|min_batch_time|init_itable|journal_ioprio|resuid|resgid)=\d{1,9}$/,
  /^data=(?:journal|ordered|writeback)$/,
  /^errors=(?:continue|remount-ro)$/,
];

const XFS_MOUNT_FLAGS = [
  /^(?:attr2|noattr2|discard|nodiscard|filestreams|grpid|bsdgroups|nogrpid|sysvgroups|ikeep|noikeep|inode32|inode64)$/,
  /^(?:largeio|nolargeio|noalign|norecovery|nouuid|swalloc|wsync)$/,
  /^(?:quota|noquota|uquota|usrquota|uqnoenforce|gquota|grpquota|gqnoenforce|pquota|prjquota|pqnoenforce)$/,
  /^(?:allocsize|logbsize)=\d{1,9}[kKmM]?$/,
  /^(?:logbufs|sunit|swidth)=\d{1,9}$/,
];

const BTRFS_MOUNT_FLAGS = [
  /^(?:acl|noacl|autodefrag|noautodefrag|barrier|nobarrier|datacow|nodatacow|datasum|nodatasum|discard|nodiscard)$/,
  /^(?:flushoncommit|noflushoncommit|ssd|nossd|ssd_spread|nossd_spread|treelog|notreelog|norecovery|nologreplay)$/,
  /^discard=(?:sync|async)$/,
  /^(?:compress|compress-force)(?:=(?:no|none|lzo|zlib(?::[1-9])?|zstd(?::1?[0-9])?))?$/,
  /^(?:commit|max_inline|metadata_ratio|thread_pool)=\d{1,9}[kKmM]?$/,
  /^space_cache(?:=v[12])?$/,
  /^(?:fatal_errors=bug|rescue=(?:usebackuproot|nologreplay|ibadroots|ignorebadroots))$/,
];

/** Options of every filesystem (mount(8), "filesystem-independent mount options"), except those that reduce safety. */
const COMMON_MOUNT_FLAGS = [
  /^(?:ro|rw|defaults|sync|async|dirsync|lazytime|nolazytime|iversion|noiversion|silent|loud)$/,
  /^(?:atime|noatime|diratime|nodiratime|relatime|norelatime|strictatime|nostrictatime)$/,
  /^(?:dev|nodev|exec|noexec|suid|nosuid|nosymfollow)$/,
  CONTEXT_FLAG,
];

/** The common options of a mount, not of its filesystem: each bind mount can have its own. */
const PER_MOUNT_FLAG = /^(?:ro|noatime|nodiratime|relatime|strictatime|nodev|noexec|nosuid|nosymfollow)$/;

/** Patterns of the flags of each filesystem beyond the common ones. */
const MOUNT_FLAGS: Readonly<Record<FilesystemType, readonly RegExp[]>> = {
  ext4: EXT_MOUNT_FLAGS,
  ext3: EXT_MOUNT_FLAGS,
  ext2: EXT_MOUNT_FLAGS,
  xfs: XFS_MOUNT_FLAGS,
  btrfs: BTRFS_MOUNT_FLAGS,
};

/**
 * Checks mount flags against those that the filesystem allows.
 *
 * @param type the filesystem; `undefined` when it is not known yet: then the flags of all filesystems are allowed
 * @throws {StorageError} `InvalidArgument` for a flag that is not allowed
 */
export function checkMountFlags(type: FilesystemType | undefined, flags: readonly string[]): void {
  const types = type === undefined ? FILESYSTEM_TYPES : [type];
  const allowed = [...COMMON_MOUNT_FLAGS, ...types.flatMap((type) => MOUNT_FLAGS[type])];
  for (const flag of flags) {
    if (allowed.some((form) => form.test(flag))) continue;
    const isList = flag.split(",").every((one) => allowed.some((form) => form.test(one)));
    throw new StorageError(
      "InvalidArgument",
      isList
        ? `mount flag ${quote(flag)}: each flag is an entry of its own`
        : `mount flag ${quote(flag)}: not allowed for ${type ?? "any filesystem"}`,
    );
  }
}

/** Flags with which the kernel mounts no new filesystem alone, and what they need: other flags, or a feature of mke2fs. */
const NEEDS: readonly {
  readonly types: readonly FilesystemType[];
  readonly flag: string;
  readonly flags?: readonly string[];
  readonly feature?: string;
}[] = [
  { types: ["ext4", "ext3", "ext2"], flag: "prjquota", feature: "project" },
  { types: ["ext4", "ext3", "ext2"], flag: "journal_async_commit", flags: ["data=writeback", "data=journal"] },
  { types: ["xfs", "btrfs"], flag: "norecovery", flags: ["ro"] },
  { types: ["btrfs"], flag: "nologreplay", flags: ["ro"] },
];

/**
 * Requires that the kernel can mount a new filesystem with the flags.
 *
 * @param mkfsOptions the options of mkfs with which it is created
 * @throws {StorageError} `InvalidArgument` for a flag that needs another one, or a feature
 */
export function requireMountable(
  type: FilesystemType,
  flags: readonly string[],
  mkfsOptions: readonly string[],
): void {
  const features = mkfsOptions.flatMap((option, index) => mkfsOptions[index - 1] === "-O" ? option.split(",") : []);
  for (const { types, flag, flags: others = [], feature } of NEEDS) {
    if (!types.includes(type) || !flags.includes(flag)) continue;
    if (feature === undefined ? others.some((other) => flags.includes(other)) : features.includes(feature)) continue;
    const needed = feature === undefined ? others.join(" or ") : `mkfsOptions with -O ${feature}`;
    throw new StorageError(
      "InvalidArgument",
      `mount flag ${quote(flag)}: ${type} is mounted with it only with ${needed}`,
    );
  }
}

/**
 * Returns mount flags without those that a later one revokes: of `ro` and `rw`, and of `exec` and `noexec`, the last one
 * applies (mount(8)).
 */
export function effectiveMountFlags(flags: readonly string[]): string[] {
  const lastIndex = new Map(flags.map((flag, index) => [flag, index]));
  return flags.filter((flag, index) => index > (lastIndex.get(oppositeMountFlag(flag)) ?? -1));
}

function oppositeMountFlag(flag: string): string {
  if (flag === "ro" || flag === "rw") return flag === "ro" ? "rw" : "ro";
  return flag.startsWith("no") ? flag.slice("no".length) : `no${flag}`;
}

/** Returns those of the flags that apply to a bind mount. */
export function bindMountFlags(flags: readonly string[]): string[] {
  return flags.filter((flag) => PER_MOUNT_FLAG.test(flag));
}

/**
 * Returns those flags of a bind mount that the mount does not have. How access times are updated does not count: the
 * mount table does not show each of these flags, and of several the last one applies.
 *
 * @param requested the flags that it should have
 * @param actual the flags in the mount table
 */
export function missingMountFlags(requested: readonly string[], actual: readonly string[]): string[] {
  return requested.filter((flag) => !/atime$/.test(flag) && !actual.includes(flag));
}
