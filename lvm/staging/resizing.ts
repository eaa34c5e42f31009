/**
 * Resizes mounted filesystems to the LVs of their volumes.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { commandError, type Exec, refusalKind } from "../exec.ts";
import { restoreDeviceNode } from "../host/device.ts";
import type { Volume } from "../inventory/volume.ts";
import { resizeCommand } from "../settings/filesystem.ts";
import type { StagingWarning } from "./formatting.ts";
import type { StagedVolumes } from "./staged_volumes.ts";

/** A mounted filesystem. */
export interface MountedFilesystem {
  /** Its type. */
  readonly type: string;
  /** The path of a mount that accepts writes. */
  readonly path: string;
  /** Runs the commands. */
  readonly exec: Exec;
  /** Remembers its size. */
  readonly staged: StagedVolumes;
}

/**
 * Resizes the filesystem of a volume.
 *
 * @throws {StorageError} `FailedPrecondition` when it cannot be resized now; `CommandFailed` when the program was killed
 */
export async function resizeFilesystem(
  volume: Volume,
  { type, path, exec, staged }: MountedFilesystem,
): Promise<void> {
  const device = contentDevice(volume.lv);
  const command = resizeCommand(type, { device: device.devicePath, path });
  let output = await exec.run(command);
  if (output.code !== 0 && await restoreDeviceNode(exec, device)) output = await exec.run(command);
  if (output.code !== 0) throw commandError(command, output, refusalKind(output));
  staged.setResized(volume, output.stdout + output.stderr);
}

/**
 * Resizes the filesystem of a volume that is being staged. One that cannot be resized is used with the size that it has.
 *
 * @throws {StorageError} while a command that outlasted its deadline still runs
 */
export async function resizeStaged(
  volume: Volume,
  { warn, ...mounted }: MountedFilesystem & { readonly warn: (warning: StagingWarning) => void },
): Promise<void> {
  try {
    await resizeFilesystem(volume, mounted);
  } catch (error) {
    if (!(error instanceof StorageError) || lateCompletion(error) !== undefined) throw error;
    const message = `its filesystem is used with the size that it has, because it cannot be resized to its volume: ` +
      `${error.message}. The driver tries again when the volume is staged`;
    warn({ reason: "FilesystemNotResized", message });
  }
}
