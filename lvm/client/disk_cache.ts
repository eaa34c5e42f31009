/**
 * Flushes the caches of disks, so that what was written is still there after a loss of power.
 *
 * LVM writes its metadata past the page cache, and does not ask the disks to flush their own caches. blkdiscard(8) does
 * not, either. A filesystem does at each fsync(2), for everything that was written to its disks before.
 *
 * @module
 */

import { type Command, commandError, type Exec } from "../exec.ts";

/**
 * Flushes the caches of block devices.
 *
 * Without the flush, what was written counts as not done. So the flush is never killed: who waits for the change waits for
 * it, too, and a lock is held until it has ended.
 *
 * @param paths the devices: a logical volume, which stands for the disks below it, or the physical volumes of a group. Of
 * these, one is enough: each has the group's metadata
 * @throws {StorageError} `CommandFailed` when none could be flushed; those of {@linkcode Exec.run}
 */
export async function flushDisks(exec: Exec, paths: readonly string[]): Promise<void> {
  if (paths.length === 0) return;
  // sync(1) opens each file for reading, and calls fsync(2)
  const command: Command = { program: "sync", args: paths, mutates: true };
  const output = await exec.run(command);
  if (output.code === 0) return;
  const alone = paths.length > 1 ? paths.map((path) => exec.run({ ...command, args: [path] })) : [];
  if (!(await Promise.all(alone)).some(({ code }) => code === 0)) throw commandError(command, output);
}
