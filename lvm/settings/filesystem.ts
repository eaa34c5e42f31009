/**
 * The filesystems: how each is created, checked and resized, and which options a request may set.
 *
 * A new filesystem is one more entry of each table here, and of those that the compiler names then. Its programs and its type
 * also go into deno.json, packages.txt of the image, and the schema of LVMVolumes. The driver runs the programs themselves, never scripts such as fsadm
 * or xfs_admin.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { createdExtType } from "./ext_features.ts";
import { extDefaults, xfsDefaults } from "./mkfs_defaults.ts";

/** The supported filesystems. */
export const FILESYSTEM_TYPES = ["ext4", "ext3", "ext2", "xfs", "btrfs"] as const;

/** A supported filesystem. */
export type FilesystemType = typeof FILESYSTEM_TYPES[number];

/** A mounted filesystem. */
export interface MountedDevice {
  /** The block device. */
  readonly device: string;
  /** A writable mount of the device. */
  readonly path: string;
}

interface Filesystem {
  /** The smallest device that the driver uses for the filesystem, in bytes. */
  readonly minimumBytes: bigint;
  /**
   * The flags of mkfs that a request may set: each with the pattern of its value, or `null` for a flag without a value.
   */
  readonly mkfsFlags: Readonly<Record<string, RegExp | null>>;
  /**
   * Returns the type that libblkid reports of a filesystem that mkfs creates with the options. Without it, no option
   * changes the type.
   */
  createdType?(options: readonly string[]): FilesystemType;
  /** True if the filesystem can discard freed blocks, at once (mount option `discard`) and by fstrim(8). */
  readonly supportsDiscard: boolean;
  /** Returns the command that creates the filesystem with the UUID. */
  mkfs(device: string, uuid: string, options: readonly string[]): Command;
  /**
   * Returns the command that checks the filesystem and repairs what is safe to repair, before a mount; `undefined`
   * where the mount itself does it.
   */
  fsck?(device: string): Command;
  /** Reports whether the filesystem may be mounted after a check with the exit status. */
  isFsckSuccess?(exitCode: number): boolean;
  /**
   * The journal replay of a copy that was created while its source was in use. The UUID can be changed only after it.
   * It is a command, whose exit status {@linkcode Filesystem.isFsckSuccess} judges, or a mount with flags; `undefined`
   * where a copy needs no replay.
   */
  journalReplay?: ((device: string) => Command) | { readonly mountFlags: readonly string[] };
  /** Returns the command that changes the UUID, after the journal replay. */
  changeUuid(device: string, uuid: string): Command;
  /**
   * Returns the command that resizes the mounted filesystem to its device. It changes nothing when the filesystem has
   * that size.
   */
  resize(mounted: MountedDevice): Command;
}

const NUMBER = /^\d{1,12}$/;
const SIZE = /^\d{1,12}[kKmMgG]?$/;
const LABEL = /^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,11}$/;

/** Returns the pattern of a comma-separated list of `item`s. */
function listOf(item: RegExp): RegExp {
  return new RegExp(`^(?:${item.source})(?:,(?:${item.source}))*$`);
}

const EXT_FEATURES =
  /\^?(?:64bit|bigalloc|casefold|dir_index|dir_nlink|ea_inode|encrypt|ext_attr|extent|extra_isize|fast_commit|filetype|flex_bg|has_journal|huge_file|inline_data|large_dir|large_file|metadata_csum|metadata_csum_seed|orphan_file|project|quota|resize_inode|sparse_super|sparse_super2|uninit_bg|verity)/;

/**
 * Flags of mke2fs(8). Flags that name another device or file, set an offset, or create nothing are left out on purpose.
 */
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

/** Flags of mkfs.xfs(8), by the same rule. */
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

/** A feature of mkfs.btrfs. `list-all` is none: with it, mkfs.btrfs prints the features and creates nothing. */
const BTRFS_FEATURE = /\^?(?!list-all(?:,|$))[a-z][a-z0-9-]{1,30}/;

/** Flags of mkfs.btrfs(8), by the same rule; only profiles for one device. */
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
  "-O": listOf(BTRFS_FEATURE),
  "--features": listOf(BTRFS_FEATURE),
  "--csum": /^(?:crc32c|xxhash|sha256|blake2)$/,
  "--checksum": /^(?:crc32c|xxhash|sha256|blake2)$/,
};

function ext(type: "ext4" | "ext3" | "ext2"): Filesystem {
  return {
    minimumBytes: 8n << 20n,
    mkfsFlags: EXT_MKFS_FLAGS,
    createdType: (options) => createdExtType(type, options),
    supportsDiscard: type !== "ext2", // the kernel's own ext2 driver supports neither
    mkfs: (device, uuid, options) => ({
      program: "mke2fs",
      args: ["-q", "-t", type, "-U", uuid, ...extDefaults(options), ...options, device],
      mutates: true,
    }),
    // preen: replay the journal, and repair what is safe to repair without questions (e2fsck(8))
    fsck: (device) => ({ program: "e2fsck", args: ["-p", device], mutates: true }),
    isFsckSuccess: (exitCode) => exitCode <= 1,
    // tune2fs requires a check after the last change if the metadata has checksums: these contain the UUID
    journalReplay: (device) => ({ program: "e2fsck", args: ["-f", "-p", device], mutates: true }),
    // what was written on a block volume may tell the kernel to stop the node at the first error (ext4(5), errors=panic)
    changeUuid: (device, uuid) => ({
      program: "tune2fs",
      args: ["-U", uuid, "-e", "continue", device],
      mutates: true,
    }),
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
    supportsDiscard: true,
    mkfs: (device, uuid, options) => ({
      program: "mkfs.xfs",
      // the request's own -m follows: mkfs.xfs merges repeated -m, so both apply
      args: ["-q", "-m", `uuid=${uuid}`, ...xfsDefaults(options), ...options, device],
      mutates: true,
    }),
    // only the kernel can replay the log; without nouuid it refuses a second filesystem with the same UUID
    journalReplay: { mountFlags: ["nouuid", "nodev", "noexec", "nosuid"] },
    changeUuid: (device, uuid) => ({ program: "xfs_db", args: ["-x", "-c", `uuid ${uuid}`, device], mutates: true }),
    resize: ({ path }) => ({ program: "xfs_growfs", args: ["-d", path], mutates: true }),
  },
  btrfs: {
    // mkfs accepts less, but the kernel refuses to resize to less (btrfs_ioctl_resize), even to the same size.
    minimumBytes: 256n << 20n,
    mkfsFlags: BTRFS_MKFS_FLAGS,
    supportsDiscard: true,
    mkfs: (device, uuid, options) => ({
      program: "mkfs.btrfs",
      args: ["-q", "-U", uuid, ...options, device],
      mutates: true,
    }),
    // only the UUID in the superblock: -U would rewrite all metadata. A sync before the copy snapshot committed the data.
    changeUuid: (device, uuid) => ({ program: "btrfstune", args: ["-M", uuid, device], mutates: true }),
    resize: ({ path }) => ({ program: "btrfs", args: ["filesystem", "resize", "max", path], mutates: true }),
  },
};

/** The filesystem of volumes whose request names none. */
export const DEFAULT_FILESYSTEM: FilesystemType = "ext4";

/**
 * Parses the name of a filesystem.
 *
 * @returns the filesystem, or `undefined` when it is not supported
 */
export function parseFilesystemType(text: string): FilesystemType | undefined {
  return FILESYSTEM_TYPES.find((type) => type === text);
}

/** Returns the size of the smallest volume that can have the filesystem, in bytes. */
export function minimumBytes(type: FilesystemType): bigint {
  return FILESYSTEMS[type].minimumBytes;
}

/** Reports whether the filesystem can discard freed blocks. */
export function supportsDiscard(type: FilesystemType): boolean {
  return FILESYSTEMS[type].supportsDiscard;
}

/**
 * Parses flags and values for mkfs, separated by blanks.
 *
 * @returns the arguments
 * @throws {StorageError} `InvalidArgument` for a flag or a value that the filesystem does not allow, and for options
 * with which mkfs would create a filesystem of another type
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
        `mkfs option ${quote(flag)}: not allowed for ${type}; allowed are ${Object.keys(flags).join(" ")}`,
        { reason: "WrongParameter" },
      );
    }
    if (valuePattern === null) continue;
    const value = words[++index];
    if (value === undefined || !valuePattern.test(value)) {
      throw new StorageError(
        "InvalidArgument",
        `mkfs option ${flag}: the value ${quote(value ?? "")} is not allowed for ${type}`,
        { reason: "WrongParameter" },
      );
    }
  }
  const created = FILESYSTEMS[type].createdType?.(words) ?? type;
  if (created !== type) {
    throw new StorageError(
      "InvalidArgument",
      `mkfs options ${quote(text)}: they create ${created} where ${type} is requested; request ${created}, or ` +
        `leave out the options that change the type`,
      { reason: "WrongParameter" },
    );
  }
  return words;
}

/** Returns the command that creates the filesystem with the UUID on a blank device. */
export function mkfsCommand(type: FilesystemType, device: string, uuid: string, options: readonly string[]): Command {
  return FILESYSTEMS[type].mkfs(device, uuid, options);
}

/**
 * Returns the command to run before a mount, and a function that reports whether the filesystem may be mounted after
 * its exit status.
 *
 * @returns `undefined` when the mount itself checks the filesystem
 */
export function fsckCommand(
  type: FilesystemType,
  device: string,
): { command: Command; isSuccess: (exitCode: number) => boolean } | undefined {
  const command = FILESYSTEMS[type].fsck?.(device);
  return command && { command, isSuccess: FILESYSTEMS[type].isFsckSuccess ?? ((code) => code === 0) };
}

/** A journal replay: a command and its successful exit statuses, or flags for a mount. */
export type JournalReplay =
  | { readonly command: Command; readonly isSuccess: (exitCode: number) => boolean }
  | { readonly mountFlags: readonly string[] };

/** Returns the journal replay of a copy of a filesystem that was in use; `undefined` where none is needed. */
export function journalReplayOf(type: FilesystemType, device: string): JournalReplay | undefined {
  const { journalReplay, isFsckSuccess = (code: number) => code === 0 } = FILESYSTEMS[type];
  return typeof journalReplay === "function"
    ? { command: journalReplay(device), isSuccess: isFsckSuccess }
    : journalReplay;
}

/** Returns the command that changes the UUID of the filesystem on a device. The journal must be replayed before. */
export function changeUuidCommand(type: FilesystemType, device: string, uuid: string): Command {
  return FILESYSTEMS[type].changeUuid(device, uuid);
}

/**
 * Returns the command that resizes the mounted filesystem to its device.
 *
 * @throws {StorageError} `FailedPrecondition` for a filesystem that the driver cannot resize
 */
export function resizeCommand(type: string, mounted: MountedDevice): Command {
  const knownType = parseFilesystemType(type);
  if (knownType === undefined) {
    throw new StorageError(
      "FailedPrecondition",
      `resizing the filesystem at ${mounted.path}: it is ${type}; only ${FILESYSTEM_TYPES.join(", ")} can be resized`,
    );
  }
  return FILESYSTEMS[knownType].resize(mounted);
}

/** The number of bytes at the start of a device that contain the superblock of any supported filesystem. */
export const SUPERBLOCK_BYTES = 68 << 10;

/** Reads the block size of ext2, ext3 and ext4 (ext4's `super.rst`): `s_log_block_size`, beside the magic number. */
function extBlockBytes(head: DataView): number | undefined {
  return head.getUint16(1024 + 0x38, true) === 0xef53 ? 1024 << head.getUint32(1024 + 0x18, true) : undefined;
}

const SECTOR_BYTES: Readonly<Record<FilesystemType, (head: DataView) => number | undefined>> = {
  ext4: extBlockBytes,
  ext3: extBlockBytes,
  ext2: extBlockBytes,
  // sb_sectsize (xfs_db(8)): the kernel reads no less than that at a time
  xfs: (head) => head.getUint32(0) === 0x58465342 ? head.getUint16(102) : undefined,
  // sectorsize of the first superblock (btrfs(5)), which has the magic number "_BHRfS_M"
  btrfs: (head) => head.getBigUint64(0x10040, true) === 0x4d5f53665248425fn ? head.getUint32(0x10090, true) : undefined,
};

/**
 * Returns the size of the largest logical sectors with which a device can have the filesystem, in bytes. The kernel mounts
 * no filesystem whose own unit is smaller than a logical sector of its device.
 *
 * @param head the first {@linkcode SUPERBLOCK_BYTES} of a device
 * @returns `undefined` when there is no such filesystem
 */
export function maximumSectorBytes(type: FilesystemType, head: Uint8Array): number | undefined {
  if (head.length < SUPERBLOCK_BYTES) return undefined;
  return SECTOR_BYTES[type](new DataView(head.buffer, head.byteOffset, head.byteLength));
}
