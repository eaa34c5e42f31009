/**
 * What a filesystem still holds in memory when a snapshot of its device is cut.
 *
 * @module
 */

import { type Exec, runOk } from "../exec.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";
import type { FormatState } from "../model/tags.ts";

/**
 * Has a mounted filesystem write what it holds, if the cut itself does not have it: device-mapper freezes the filesystem of a
 * device that it suspends, but a btrfs is not found by its device (kernel, freeze_bdev). Such a one is whole on its device at any
 * moment, as after a loss of power; without this, what was written in the last half a minute would be missing.
 *
 * @param content what is on the LV, by its tags
 * @throws {StorageError} `CommandFailed`.
 */
export async function syncFilesystem(exec: Exec, lv: LogicalVolume, content: FormatState): Promise<void> {
  if (!lv.open || content.state === "raw" || content.type !== "btrfs") return;
  const [mount] = filesystemMounts(await readMounts(exec), lv);
  if (mount === undefined) return;
  await runOk(exec, { program: "btrfs", args: ["filesystem", "sync", mount.target], mutates: true });
}
