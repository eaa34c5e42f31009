/**
 * Flushes the caches of disks, so that what was written is still there after a loss of power.
 *
 * LVM writes its metadata past the page cache, and does not ask the disks to flush their own caches. blkdiscard(8) does
 * not, either. A filesystem does at each fsync(2), for everything that was written to its disks before.
 *
 * @module
 */

import type { Exec } from "./exec.ts";

/**
 * Flushes the caches of block devices.
 *
 * It never fails: a disk that cannot be flushed cannot be written to, which the commands on it show.
 *
 * @param paths the devices; a logical volume stands for the disks below it
 * @throws {StorageError} those of {@linkcode Exec.run}
 */
export async function flushDisks(exec: Exec, paths: readonly string[]): Promise<void> {
  // sync(1) opens each file for reading, and calls fsync(2)
  if (paths.length > 0) await exec.run({ program: "sync", args: paths, mutates: false });
}
