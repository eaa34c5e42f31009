/**
 * Gives copied filesystems UUIDs of their own, so that they can be mounted beside their originals.
 *
 * @module
 */

import { describeSignatures, readSignatures } from "../host/device.ts";
import { StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, runOk } from "../exec.ts";
import { changeUuidCommand, type FilesystemType, journalReplayOf } from "../settings/filesystem.ts";
import { filesystemMounts, mountDevice, readMounts, unmount } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";

/**
 * The deadline of a filesystem check, in milliseconds. It runs in the background, and takes hours for a large
 * filesystem.
 */
const CHECK_DEADLINE_MS = 24 * 60 * 60 * 1000;

/** A copied filesystem, and the UUID that it gets. */
export interface CopiedFilesystem {
  /** Its type. */
  readonly type: FilesystemType;
  /** The path of its device. */
  readonly device: string;
  /** The new UUID, in lower case. */
  readonly uuid: string;
  /** A directory that only the driver uses, at which the filesystem may be mounted for a moment. */
  readonly scratch: string;
}

/**
 * Changes the UUID of a copied filesystem, after a journal replay where its type needs one. When the change is
 * interrupted, the filesystem may be damaged and has to be copied again.
 *
 * @throws {StorageError} `FailedPrecondition` when the filesystem is damaged, or its UUID cannot be changed.
 */
export async function changeUuid(exec: Exec, filesystem: CopiedFilesystem): Promise<void> {
  const { type, device, uuid } = filesystem;
  await replayJournal(exec, filesystem);
  await runOk(exec, withCheckDeadline(changeUuidCommand(type, device, uuid)), () => "FailedPrecondition");
  const found = await readSignatures(exec, device); // xfs_db exits with 0 also when it refused the change.
  if (found.some((each) => each.type === type && each.uuid?.toLowerCase() === uuid)) return;
  throw new StorageError(
    "FailedPrecondition",
    `giving ${device} the UUID ${uuid}: it holds ${
      describeSignatures(found)
    } afterwards; mount the original once, unmount ` +
      `it, and try again`,
  );
}

/**
 * Unmounts an LV that is not in use yet where an earlier process mounted it, and removes the scratch directory.
 *
 * @returns whether the LV was mounted
 */
export async function unmountLeftovers(exec: Exec, lv: LogicalVolume, scratch: string): Promise<boolean> {
  const mounts = filesystemMounts(await readMounts(exec), lv);
  for (const { target } of mounts.reverse()) await unmount(exec, target);
  await Deno.remove(scratch).catch(() => {}); // Usually it does not exist.
  return mounts.length > 0;
}

async function replayJournal(exec: Exec, { type, device, scratch }: CopiedFilesystem): Promise<void> {
  const replay = journalReplayOf(type, device);
  if (replay === undefined) return;
  if ("command" in replay) {
    const command = withCheckDeadline(replay.command);
    const output = await exec.run(command);
    if (!replay.isSuccess(output.code)) {
      throw commandError(command, output, "FailedPrecondition", { reason: "FilesystemDamaged" });
    }
    return;
  }
  await Deno.mkdir(scratch, { recursive: true });
  await mountDevice(exec, device, scratch, { type, flags: replay.mountFlags });
  await unmount(exec, scratch);
  await Deno.remove(scratch);
}

function withCheckDeadline(command: Command): Command {
  return { ...command, deadlineMs: CHECK_DEADLINE_MS };
}
