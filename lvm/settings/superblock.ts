/**
 * What the superblocks of filesystems say about the devices on which they can be mounted.
 *
 * @module
 */

import type { FilesystemType } from "./filesystem.ts";

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
