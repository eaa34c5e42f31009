/**
 * What the driver knows of each filesystem: how it is made, checked and grown, and which options a request may set.
 *
 * A new filesystem is one more entry of the table. Programs are used themselves, never scripts such as fsadm or xfs_admin.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Command } from "../exec.ts";

/** The filesystems that a volume can have. */
export const FILESYSTEM_TYPES = ["ext4", "ext3", "ext2", "xfs", "btrfs"] as const;

/** A filesystem that a volume can have. */
export type FilesystemType = typeof FILESYSTEM_TYPES[number];

/** Where a mounted filesystem is. */
export interface MountedDevice {
  /** The block device. */
  readonly device: string;
  /** A writeable mount of it. */
  readonly path: string;
}

interface Filesystem {
  /** The smallest device that its mkfs takes, in bytes. */
  readonly minimumBytes: bigint;
  /** Arguments that a request may give to mkfs: each flag with the form of its value, or `null` for none. */
  readonly mkfsFlags: Readonly<Record<string, RegExp | null>>;
  /** Mount options beyond the common ones. */
  readonly mountFlags: readonly RegExp[];
  /** Whether it can tell the disk of what it has freed, at once (mount option `discard`) and by fstrim(8). */
  readonly supportsDiscard: boolean;
  /** Makes the filesystem with the UUID. */
  mkfs(device: string, uuid: string, options: readonly string[]): Command;
  /** Checks and repairs what is safe to repair, before a mount; `undefined` where the mount itself does it. */
  fsck?(device: string): Command;
  /** Whether the answer of the check allows a mount. */
  isFsckSuccess?(exitCode: number): boolean;
  /**
   * Brings a copy to rest that was taken while its original was in use, so that its UUID can be changed: by a command, whose
   * exit status {@linkcode Filesystem.isFsckSuccess} judges, or by a mount with flags; `undefined` where a copy is at rest.
   */
  journalReplay?: ((device: string) => Command) | { readonly mountFlags: readonly string[] };
  /** Gives the filesystem, which is at rest, another UUID. */
  changeUuid(device: string, uuid: string): Command;
  /** Grows the mounted filesystem to the size of its device; changes nothing when it has that size. */
  resize(mounted: MountedDevice): Command;
}

const NUMBER = /^\d{1,12}$/;
const SIZE = /^\d{1,12}[kKmMgG]?$/;
const LABEL = /^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,11}$/;

/** A comma-separated list of `item`s. */
function listOf(item: RegExp): RegExp {
  return new RegExp(`^(?:${item.source})(?:,(?:${item.source}))*$`);
}

const EXT_FEATURES =
  /\^?(?:64bit|bigalloc|casefold|dir_index|dir_nlink|ea_inode|encrypt|ext_attr|extent|extra_isize|fast_commit|filetype|flex_bg|has_journal|huge_file|inline_data|large_dir|large_file|metadata_csum|metadata_csum_seed|orphan_file|project|quota|resize_inode|sparse_super|sparse_super2|uninit_bg|verity)/;

/** mke2fs(8). Left out on purpose: whatever names another device or file, an offset, or only pretends to act. */
const EXT_MKFS_FLAGS = {
  "-b": /^(?:1024|2048|4096)$/,
  "-C": NUMBER,
  "-E": listOf(
    /(?:stride|stripe_width|stripe-width|lazy_itable_init|lazy_journal_init|packed_meta_blocks|num_backup_sb)=\d{1,9}|discard|nodiscard/,
  ),
  "-g": NUMBER,
  "-G": NUMBER,
  "-i": NUMBER,
  "-I": NUMBER,
  "-j": null,
  "-J": /^size=\d{1,9}$/,
  "-L": /^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,15}$/,
  "-m": /^\d{1,2}(?:\.\d{1,3})?$/,
  "-N": NUMBER,
  "-O": listOf(EXT_FEATURES),
  "-T": listOf(/[a-z0-9]{1,16}/),
};

/** mkfs.xfs(8), under the same rule. */
const XFS_MKFS_FLAGS = {
  "-b": /^size=\d{1,6}k?$/,
  "-d": listOf(/(?:agcount|agsize|su|sw|sunit|swidth)=\d{1,12}[kmg]?/),
  "-i": listOf(/(?:size|perblock|maxpct|align|attr|sparse|nrext64|projid32bit)=\d{1,6}/),
  "-K": null,
  "-l": listOf(/(?:size|su|sunit|version|lazy-count)=\d{1,12}[kmg]?/),
  "-L": LABEL,
  "-m": listOf(/(?:bigtime|crc|finobt|inobtcount|reflink|rmapbt)=[01]/),
  "-n": listOf(/(?:size=\d{1,6}k?|ftype=[01]|version=(?:2|ci))/),
  "-s": /^size=\d{1,6}$/,
};

/** mkfs.btrfs(8), under the same rule; profiles for one device only. */
const BTRFS_MKFS_FLAGS = {
  "-d": /^(?:single|dup)$/,
  "--data": /^(?:single|dup)$/,
  "-m": /^(?:single|dup)$/,
  "--metadata": /^(?:single|dup)$/,
  "-M": null,
  "--mixed": null,
  "-K": null,
  "--nodiscard": null,
  "-L": LABEL,
  "--label": LABEL,
  "-n": SIZE,
  "--nodesize": SIZE,
  "-s": SIZE,
  "--sectorsize": SIZE,
  "-O": listOf(/\^?[a-z][a-z0-9-]{1,30}/),
  "--features": listOf(/\^?[a-z][a-z0-9-]{1,30}/),
  "--csum": /^(?:crc32c|xxhash|sha256|blake2)$/,
  "--checksum": /^(?:crc32c|xxhash|sha256|blake2)$/,
};

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

/** Options that every filesystem knows (mount(8), "filesystem-independent mount options"), but none that loosen safety. */
const COMMON_MOUNT_FLAGS = [
  /^(?:ro|rw|defaults|sync|async|dirsync|lazytime|nolazytime|iversion|noiversion|silent|loud)$/,
  /^(?:atime|noatime|diratime|nodiratime|relatime|norelatime|strictatime|nostrictatime)$/,
  /^(?:dev|nodev|exec|noexec|suid|nosuid|nosymfollow)$/,
];

/** Those of the common options that belong to a mount rather than to the filesystem: a bind mount can have its own. */
const PER_MOUNT_FLAG = /^(?:ro|noatime|nodiratime|relatime|strictatime|nodev|noexec|nosuid|nosymfollow)$/;

function ext(type: "ext4" | "ext3" | "ext2"): Filesystem {
  return {
    minimumBytes: 8n << 20n,
    mkfsFlags: EXT_MKFS_FLAGS,
    mountFlags: EXT_MOUNT_FLAGS,
    supportsDiscard: type !== "ext2", // where the kernel's own driver of ext2 mounts it, it knows neither
    mkfs: (device, uuid, options) => ({
      program: "mke2fs",
      args: ["-q", "-t", type, "-U", uuid, ...options, device],
      mutates: true,
    }),
    // preen: journal replay and whatever is safe to mend without asking (e2fsck(8))
    fsck: (device) => ({ program: "e2fsck", args: ["-p", device], mutates: true }),
    isFsckSuccess: (exitCode) => exitCode <= 1,
    // tune2fs wants one that was checked since it was last changed: where its metadata has checksums, the UUID is in them
    journalReplay: (device) => ({ program: "e2fsck", args: ["-f", "-p", device], mutates: true }),
    changeUuid: (device, uuid) => ({ program: "tune2fs", args: ["-U", uuid, device], mutates: true }),
    resize: ({ device }) => ({ program: "resize2fs", args: [device], mutates: true }),
  };
}

const FILESYSTEMS: Readonly<Record<FilesystemType, Filesystem>> = {
  ext4: ext("ext4"),
  ext3: ext("ext3"),
  ext2: ext("ext2"),
  xfs: {
    minimumBytes: 300n << 20n,
    mkfsFlags: XFS_MKFS_FLAGS,
    mountFlags: XFS_MOUNT_FLAGS,
    supportsDiscard: true,
    mkfs: (device, uuid, options) => ({
      program: "mkfs.xfs",
      // the request's own -m follows, so that both stand; mkfs.xfs merges repeated -m
      args: ["-q", "-m", `uuid=${uuid}`, ...options, device],
      mutates: true,
    }),
    // what its log still has, only the kernel can replay; it refuses a second filesystem of one UUID without being told so
    journalReplay: { mountFlags: ["nouuid", "nodev", "noexec", "nosuid"] },
    changeUuid: (device, uuid) => ({ program: "xfs_db", args: ["-x", "-c", `uuid ${uuid}`, device], mutates: true }),
    resize: ({ path }) => ({ program: "xfs_growfs", args: ["-d", path], mutates: true }),
  },
  btrfs: {
    // mkfs is content with less, but the kernel refuses to resize to less (btrfs_ioctl_resize), even to the same size.
    minimumBytes: 256n << 20n,
    mkfsFlags: BTRFS_MKFS_FLAGS,
    mountFlags: BTRFS_MOUNT_FLAGS,
    supportsDiscard: true,
    mkfs: (device, uuid, options) => ({
      program: "mkfs.btrfs",
      args: ["-q", "-U", uuid, ...options, device],
      mutates: true,
    }),
    // its UUID in the superblock alone: -U would rewrite all metadata. What was written out before the cut is committed.
    changeUuid: (device, uuid) => ({ program: "btrfstune", args: ["-M", uuid, device], mutates: true }),
    resize: ({ path }) => ({ program: "btrfs", args: ["filesystem", "resize", "max", path], mutates: true }),
  },
};

/** The filesystem that a volume gets when nobody names one. */
export const DEFAULT_FILESYSTEM: FilesystemType = "ext4";

/** The filesystem that the text names; `undefined` for one that volumes cannot have. */
export function parseFilesystemType(text: string): FilesystemType | undefined {
  return FILESYSTEM_TYPES.find((type) => type === text);
}

/** The smallest volume that can carry the filesystem, in bytes. */
export function minimumBytes(type: FilesystemType): bigint {
  return FILESYSTEMS[type].minimumBytes;
}

/** Whether the filesystem can tell the disk of what it has freed. */
export function supportsDiscard(type: FilesystemType): boolean {
  return FILESYSTEMS[type].supportsDiscard;
}

/**
 * The arguments for mkfs that a text of flags and values stands for.
 *
 * @throws {StorageError} `InvalidArgument` for a flag or a value that is not on the filesystem's list.
 */
export function parseMkfsOptions(type: FilesystemType, text: string): string[] {
  const words = text.split(/\s+/).filter((word) => word !== "");
  const flags = FILESYSTEMS[type].mkfsFlags;
  for (let index = 0; index < words.length; index++) {
    const flag = words[index]!;
    const valuePattern = Object.hasOwn(flags, flag) ? flags[flag] : undefined;
    if (valuePattern === undefined) {
      throw new StorageError(
        "InvalidArgument",
        `mkfs option ${JSON.stringify(flag)}: not allowed for ${type}; allowed are ${Object.keys(flags).join(" ")}`,
      );
    }
    if (valuePattern === null) continue;
    const value = words[++index];
    if (value === undefined || !valuePattern.test(value)) {
      throw new StorageError(
        "InvalidArgument",
        `mkfs option ${flag}: the value ${JSON.stringify(value ?? "")} is not allowed for ${type}`,
      );
    }
  }
  return words;
}

/**
 * Checks mount flags against the filesystem's list, or where the type is not known yet against those of all.
 *
 * @throws {StorageError} `InvalidArgument` for a flag that is not on it.
 */
export function checkMountFlags(type: FilesystemType | undefined, flags: readonly string[]): void {
  const types = type === undefined ? FILESYSTEM_TYPES : [type];
  const allowed = [...COMMON_MOUNT_FLAGS, ...types.flatMap((type) => FILESYSTEMS[type].mountFlags)];
  for (const flag of flags) {
    if (!allowed.some((form) => form.test(flag))) {
      throw new StorageError(
        "InvalidArgument",
        `mount flag ${JSON.stringify(flag)}: not allowed for ${type ?? "any filesystem"}`,
      );
    }
  }
}

/** Those of the flags that a bind mount of the filesystem has for itself. */
export function bindMountFlags(flags: readonly string[]): string[] {
  return flags.filter((flag) => PER_MOUNT_FLAG.test(flag));
}

/** The command that makes the filesystem with the UUID on a device that is blank. */
export function mkfsCommand(type: FilesystemType, device: string, uuid: string, options: readonly string[]): Command {
  return FILESYSTEMS[type].mkfs(device, uuid, options);
}

/** The command to run before a mount, and whether an exit status of it allows the mount. */
export function fsckCommand(
  type: FilesystemType,
  device: string,
): { command: Command; isSuccess: (exitCode: number) => boolean } | undefined {
  const command = FILESYSTEMS[type].fsck?.(device);
  return command && { command, isSuccess: FILESYSTEMS[type].isFsckSuccess ?? ((code) => code === 0) };
}

/** How a copy is brought to rest: a command and which of its exit statuses are good, or flags for a mount. */
export type JournalReplay =
  | { readonly command: Command; readonly isSuccess: (exitCode: number) => boolean }
  | { readonly mountFlags: readonly string[] };

/** How a copy of a filesystem that was in use is brought to rest; `undefined` where it is. */
export function journalReplayOf(type: FilesystemType, device: string): JournalReplay | undefined {
  const { journalReplay, isFsckSuccess = (code: number) => code === 0 } = FILESYSTEMS[type];
  return typeof journalReplay === "function"
    ? { command: journalReplay(device), isSuccess: isFsckSuccess }
    : journalReplay;
}

/** The command that gives the filesystem on a device, which is at rest, another UUID. */
export function changeUuidCommand(type: FilesystemType, device: string, uuid: string): Command {
  return FILESYSTEMS[type].changeUuid(device, uuid);
}

/**
 * The command that grows the mounted filesystem to the size of its device.
 *
 * @throws {StorageError} `FailedPrecondition` for a filesystem that cannot be grown.
 */
export function resizeCommand(type: string, mounted: MountedDevice): Command {
  const knownType = parseFilesystemType(type);
  if (knownType === undefined) {
    throw new StorageError(
      "FailedPrecondition",
      `growing the filesystem at ${mounted.path}: it is ${type}; only ${FILESYSTEM_TYPES.join(", ")} can be grown`,
    );
  }
  return FILESYSTEMS[knownType].resize(mounted);
}
