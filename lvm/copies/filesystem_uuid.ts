/**
 * Making a copied filesystem one of its own: with a UUID that no other has, so that it can be mounted beside its original.
 *
 * @module
 */

import { describeSignatures, readSignatures } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { type Command, commandError, type Exec, runOk } from "../exec.ts";
import { changeUuidCommand, type FilesystemType, journalReplayOf } from "../spec/filesystem.ts";
import { filesystemMounts, mountDevice, readMounts, unmount } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";

/** How long checking a filesystem may take, in milliseconds: it is done in the background, and a large one takes hours. */
const CHECK_DEADLINE_MS = 24 * 60 * 60 * 1000;

/** A filesystem to be given a UUID. */
export interface CopiedFilesystem {
  /** Its type. */
  readonly type: FilesystemType;
  /** Its device. */
  readonly device: string;
  /** The UUID. */
  readonly uuid: string;
  /** A directory of our own, in which it may be mounted for a moment. */
  readonly scratch: string;
}

/**
 * Gives a copied filesystem a UUID. When this is interrupted, the filesystem cannot be relied on.
 *
 * @throws {StorageError} `FailedPrecondition` when the filesystem is broken, or its UUID cannot be changed.
 */
export async function changeUuid(exec: Exec, filesystem: CopiedFilesystem): Promise<void> {
  const { type, device, uuid } = filesystem;
  await replayJournal(exec, filesystem);
  await runOk(exec, withCheckDeadline(changeUuidCommand(type, device, uuid)), () => "FailedPrecondition");
  const found = await readSignatures(exec, device); // xfs_db says what it refused, and exits with 0
  const [only, ...more] = found;
  if (only?.type === type && only.uuid?.toLowerCase() === uuid && more.length === 0) return;
  throw new StorageError(
    "FailedPrecondition",
    `giving ${device} the UUID ${uuid}: it holds ${
      describeSignatures(found)
    } afterwards; mount the original once, unmount ` +
      `it, and try again`,
  );
}

/** Takes off what an earlier driver mounted of an LV that nobody has yet, and its directory; answers whether there was any. */
export async function unmountLeftovers(exec: Exec, lv: LogicalVolume, scratch: string): Promise<boolean> {
  const mounts = filesystemMounts(await readMounts(exec), lv);
  for (const { target } of mounts.reverse()) await unmount(exec, target);
  await Deno.remove(scratch).catch(() => {}); // there is none, as a rule
  return mounts.length > 0;
}

async function replayJournal(exec: Exec, { type, device, scratch }: CopiedFilesystem): Promise<void> {
  const replay = journalReplayOf(type, device);
  if (replay === undefined) return;
  if ("command" in replay) {
    const command = withCheckDeadline(replay.command);
    const output = await exec.run(command);
    if (!replay.isSuccess(output.code)) throw commandError(command, output, "FailedPrecondition");
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
