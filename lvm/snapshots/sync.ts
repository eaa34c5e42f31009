/**
 * Syncs mounted filesystems before a snapshot of their device is created.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import { type Command, type Exec, runOk } from "../exec.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";
import type { FormatState } from "../settings/format.ts";

/**
 * Syncs a mounted filesystem that device-mapper does not freeze itself.
 *
 * When device-mapper suspends a device, it freezes the device's filesystem. The kernel does not find a btrfs by its
 * device (freeze_bdev), so it is not frozen. A btrfs is consistent on its device at any moment, as after a loss of
 * power. But without the sync, the writes of the last half a minute would be missing in the snapshot. The same is so for
 * the filesystem of an encrypted volume: it is on the mapping, and the LV below that is suspended.
 *
 * @param lv the LV of which a snapshot will be created
 * @param content the format of the LV, from its tags
 * @throws {StorageError} `CommandFailed`.
 */
export async function syncFilesystem(exec: Exec, lv: LogicalVolume, content: FormatState): Promise<void> {
  // the report may be from before the mount, so it does not decide whether there is one
  if (content.state === "raw" || (content.type !== "btrfs" && content.luks === undefined)) return;
  const [mount] = filesystemMounts(await readMounts(exec), contentDevice(lv));
  if (mount === undefined) return;
  const command: Command = content.type === "btrfs"
    ? { program: "btrfs", args: ["filesystem", "sync", mount.target], mutates: true }
    : { program: "sync", args: ["--file-system", mount.target], mutates: true };
  await runOk(exec, command);
}
