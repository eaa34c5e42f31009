/**
 * What is on a volume's device, and formatting it exactly once.
 *
 * The record goes `wanted` → `formatting` with a UUID of our choice → `formatted`, each step written before the deed that
 * it names, and `formatted` before the first mount. So a filesystem found with the recorded UUID while the record says
 * `formatting` is our own unfinished work and nobody's data, and it alone may be made anew. Whatever else is found where
 * it is not expected is an error that names it.
 *
 * @module
 */

import {
  type BlockDevice,
  describeSignatures,
  foreign,
  readSignatures,
  requireBlank,
  type Signature,
  wipeSignatures,
} from "../host/device.ts";
import { StorageError } from "../error.ts";
import { type Exec, failure, runOk } from "../exec.ts";
import { checkCommand, type FilesystemType, makeCommand, parseMkfsOptions } from "../spec/filesystem.ts";
import type { Lvm } from "../model/client.ts";
import { type ContentRecord, markContent } from "../model/tags.ts";
import type { Volume } from "../inventory/volume.ts";

type Recorded = Extract<ContentRecord, { uuid: string }>;

/**
 * Makes sure that the recorded filesystem is on the volume's device, and makes it if it was never made.
 *
 * @throws {StorageError} `ForeignData` when something else is on the device, or nothing where a filesystem is recorded.
 */
export async function ensureFormatted(lvm: Lvm, volume: Volume, device: BlockDevice): Promise<void> {
  const { exec } = lvm;
  const { content } = volume.tags;
  const path = volume.lv.devicePath;
  switch (content.state) {
    case "formatted":
      return requireRecorded(content, await readSignatures(exec, path), path);
    case "formatting": {
      const signatures = await readSignatures(exec, path);
      if (signatures.length > 0) {
        requireRecorded(content, signatures, path);
        await wipeSignatures(exec, path);
      }
      return await make(lvm, volume, content);
    }
    case "wanted": {
      await requireBlank(exec, device, path);
      const formatting = { state: "formatting", type: content.type, uuid: crypto.randomUUID() } as const;
      await record(lvm, volume, content, formatting);
      return await make(lvm, volume, formatting);
    }
    case "raw":
      throw new StorageError(
        "FailedPrecondition",
        `mounting volume ${volume.id}: it is a block volume, it has no filesystem`,
      );
  }
}

/**
 * Checks the filesystem before it is mounted, and mends what is safe to mend.
 *
 * @throws {StorageError} `FailedPrecondition` when it needs more than that.
 */
export async function checkFilesystem(exec: Exec, type: FilesystemType, path: string): Promise<void> {
  const check = checkCommand(type, path);
  if (check === undefined) return;
  const output = await exec.run(check.command);
  if (!check.passed(output.code)) throw failure(check.command, output, "FailedPrecondition");
}

async function make(lvm: Lvm, volume: Volume, formatting: Recorded): Promise<void> {
  const { type, uuid } = formatting;
  const options = parseMkfsOptions(type, volume.tags.mkfsOptions.join(" "));
  await runOk(lvm.exec, makeCommand(type, volume.lv.devicePath, uuid, options));
  await record(lvm, volume, formatting, { state: "formatted", type, uuid });
}

async function record(lvm: Lvm, volume: Volume, from: ContentRecord, to: ContentRecord): Promise<void> {
  const path = `${volume.group.name}/${volume.lv.name}`;
  await lvm.change(volume.group, ["lvchange", ...markContent(from, to), path]);
}

function requireRecorded(recorded: Recorded, found: readonly Signature[], path: string): void {
  const same = found.length > 0 &&
    found.every(({ type, uuid }) => type === recorded.type && uuid?.toLowerCase() === recorded.uuid);
  if (!same) {
    throw foreign(
      path,
      `it should hold ${recorded.type} with the UUID ${recorded.uuid}, but holds ${describeSignatures(found)}`,
    );
  }
}
