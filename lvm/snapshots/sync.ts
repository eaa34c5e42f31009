/**
 * Syncs mounted filesystems before a snapshot of their device is created.
 *
 * @module
 */

import { type Exec, runOk } from "../exec.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";
import type { FormatState } from "../model/tags.ts";

/**
 * Syncs a mounted filesystem that device-mapper does not freeze itself.
 *
 * When device-mapper suspends a device, it freezes the device's filesystem. The kernel does not find a btrfs by its
 * device (freeze_bdev), so it is not frozen. A btrfs is consistent on its device at any moment, as after a loss of
 * power. But without the sync, the writes of the last half a minute would be missing in the snapshot.
 *
 * @param lv the LV of which a snapshot will be created
 * @param content the format of the LV, from its tags
 * @throws {StorageError} `CommandFailed`.
 */
export async function syncFilesystem(exec: Exec, lv: LogicalVolume, content: FormatState): Promise<void> {
  // the report may be from before the mount, so it does not decide whether there is one
  if (content.state === "raw" || content.type !== "btrfs") return;
  const [mount] = filesystemMounts(await readMounts(exec), lv);
  if (mount === undefined) return;
  await runOk(exec, { program: "btrfs", args: ["filesystem", "sync", mount.target], mutates: true });
}
