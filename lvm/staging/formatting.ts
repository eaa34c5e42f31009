/**
 * Formatting the device of a volume exactly once.
 *
 * The recorded format state is `unformatted`, then `formatting` with a UUID that the driver chose, then `formatted`.
 * Each state is recorded before the step that it names, and `formatted` before the first mount. So a filesystem with
 * the recorded UUID is the driver's own unfinished work, without any data, while the state is `formatting`. Only such a
 * filesystem may be created again. Anything else that is found unexpectedly is an error that names it. Only beside a filesystem
 * that is `formatted` or `copied`, further signatures are no error: a file in it may lie where libblkid looks for others.
 *
 * What mkfs created is read before `formatted` is recorded: options and a host's mke2fs.conf(5) can turn an ext2 into
 * an ext3, which would be refused at the next use.
 *
 * @module
 */

import {
  type BlockDevice,
  describeSignatures,
  foreignDataError,
  readSignatures,
  requireBlank,
  type Signature,
  wipeSignatures,
} from "../host/device.ts";
import { defined } from "../../base/defined.ts";
import { changeUuid } from "./filesystem_uuid.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, refusalKind, runOk, runThen } from "../exec.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { type FilesystemType, fsckCommand, mkfsCommand, parseMkfsOptions } from "../settings/filesystem.ts";
import { missingXfsFeatures, xfsKernelOptions } from "../settings/mkfs_defaults.ts";
import { readKernelRelease } from "../host/kernel.ts";
import type { Lvm } from "../client/client.ts";
import { formatStateTag, markFormatState } from "../model/tags.ts";
import type { FormatState } from "../settings/format.ts";
import type { Volume } from "../inventory/volume.ts";
import { lvchangeTags } from "../model/commands.ts";

/** A filesystem that is recorded: as created, or as one that is being created. */
export type RecordedFilesystem = Extract<FormatState, { readonly state: "formatting" | "formatted" | "renewing" }>;

/** What is wrong with the filesystem of a volume that is staged nevertheless, because the kernel can mount it. */
export interface StagingWarning {
  /** The reason, in one word. */
  readonly reason: "FurtherSignatures" | "FilesystemNotChecked" | "FilesystemNotResized";
  /** What was found, and what to do, in a sentence. */
  readonly message: string;
}

/** Options of {@linkcode prepareFilesystem}. */
export interface PrepareOptions {
  /** The device for the filesystem: that of the LV, or the mapping of an encrypted volume. */
  readonly device: BlockDevice;
  /** Whether the volume is known from an earlier report: then LVM makes sure that it is still so. */
  readonly isKnown: boolean;
  /** Records that the volume is in use, which is done before anything else is recorded. */
  readonly recordUse: () => Promise<void>;
  /** Receives what is wrong, but does not prevent a mount. */
  readonly warn: (warning: StagingWarning) => void;
}

/**
 * Checks that a volume's device holds the recorded filesystem, or that it may be created: then this is recorded.
 *
 * @returns the volume as it is recorded then, whose filesystem {@linkcode makeFilesystem} is to create if its state is `formatting`
 * @throws {StorageError} those of {@linkcode PrepareOptions.recordUse}; `ForeignData` when the device holds something else, or nothing where a filesystem is
 * recorded; `NotFound` when the volume is known and LVM finds that it is not so any more
 */
export async function prepareFilesystem(
  lvm: Lvm,
  volume: Volume,
  options: PrepareOptions,
): Promise<RecordedFilesystem> {
  const { recordUse, warn } = options;
  const { exec } = lvm;
  const { format } = volume.tags;
  const path = contentDevice(volume.lv).devicePath;
  switch (format.state) {
    case "formatted":
      await recordUse();
      requireRecordedFilesystem(format, await readSignatures(exec, path), { path, warn });
      return format;
    case "formatting": {
      await recordUse();
      const signatures = await readSignatures(exec, path);
      if (signatures.length > 0) {
        requireOwnWork(format, signatures, path);
        await wipeSignatures(exec, path);
      }
      return format;
    }
    case "copied": {
      await recordUse();
      const signatures = await readSignatures(exec, path);
      if (signatures.length === 0) return await beginFormatting(lvm, volume, options); // of an original that was never formatted
      if (!signatures.some(({ type }) => type === format.type)) {
        throw foreignDataError(path, `it should hold ${format.type}, but holds ${describeSignatures(signatures)}`);
      }
      const renewing = { ...format, state: "renewing", uuid: crypto.randomUUID() } as const;
      await recordFormatState(lvm, volume, format, renewing);
      return renewing;
    }
    case "renewing":
      await recordUse();
      return format;
    case "unformatted":
      return await beginFormatting(lvm, volume, options);
    case "raw":
      throw new StorageError(
        "FailedPrecondition",
        `mounting volume ${volume.id}: it is a block volume and has no filesystem`,
      );
  }
}

/** Records that a filesystem is being created, once it is certain that the device is blank. */
async function beginFormatting(
  lvm: Lvm,
  volume: Volume,
  { device, isKnown, recordUse }: PrepareOptions,
): Promise<RecordedFilesystem> {
  const { format } = volume.tags;
  if (format.state === "raw") throw new TypeError(`volume ${volume.id} has no filesystem`);
  await allDone([recordUse(), requireBlank(lvm.exec, device, contentDevice(volume.lv).devicePath)]);
  const { type, luks } = format;
  const formatting = { state: "formatting", type, uuid: crypto.randomUUID(), ...defined({ luks }) } as const;
  if (isKnown) await recordKnownFormatState(lvm, volume, format, formatting);
  else await recordFormatState(lvm, volume, format, formatting);
  return formatting;
}

/**
 * Gives the filesystem of a copy below a LUKS header its recorded UUID, and records that it has it. When that is interrupted, it
 * is done again.
 *
 * @param scratch a directory that only the driver uses, at which the filesystem may be mounted for a moment
 * @throws {StorageError} `FailedPrecondition` when the filesystem is damaged
 */
export async function renewFilesystem(
  lvm: Lvm,
  volume: Volume,
  renewing: RecordedFilesystem,
  scratch: string,
): Promise<void> {
  const { type, uuid } = renewing;
  await changeUuid(lvm.exec, { type, uuid, device: contentDevice(volume.lv).devicePath, scratch });
  await recordFormatState(lvm, volume, renewing, { ...renewing, state: "formatted" });
}

/** The exit status with which e2fsck(8) does not begin. */
const FSCK_REFUSED = 8;

/**
 * Checks a filesystem before it is mounted, and repairs what is safe to repair. One that another mount namespace has mounted
 * cannot be checked; the kernel mounts the same one again.
 *
 * @returns what the check printed; nothing where the mount itself does it
 * @throws {StorageError} `FailedPrecondition` when it needs more than that; `CommandFailed` when the check was killed
 */
export async function checkFilesystem(
  exec: Exec,
  type: FilesystemType,
  { path, warn }: { readonly path: string; readonly warn: PrepareOptions["warn"] },
): Promise<string> {
  const check = fsckCommand(type, path);
  if (check === undefined) return "";
  const output = await exec.run(check.command);
  if (check.isSuccess(output.code)) return output.stdout;
  // what it prints has the label, too, which whoever writes to the filesystem chooses
  const isRefusal = output.code === FSCK_REFUSED;
  const [inUse] = isRefusal ? /.*is (?:in use|mounted)\.$/m.exec(output.stdout + output.stderr) ?? [] : [];
  if (inUse === undefined) throw commandError(check.command, output, refusalKind(output));
  const message =
    `its filesystem is mounted without a check (${inUse}): another mount namespace has it, or a program. ` +
    `grep ${path.replace(/^.*\//, "")} /proc/[0-9]*/mountinfo shows the processes of that namespace`;
  warn({ reason: "FilesystemNotChecked", message });
  return "";
}

/**
 * Waits for steps that run at the same time, also when one of them fails.
 *
 * @throws the error of a step; that of a command that still runs comes first, so that the volume stays locked until it ends
 */
async function allDone(steps: readonly Promise<void>[]): Promise<void> {
  const errors = (await Promise.allSettled(steps)).flatMap((step) => step.status === "rejected" ? [step.reason] : []);
  if (errors.length > 0) throw errors.find((error) => lateCompletion(error) !== undefined) ?? errors[0];
}

/**
 * Creates the filesystem of a volume whose recorded state is `formatting`, and records that it is there.
 *
 * @throws {StorageError} `FailedPrecondition` when mkfs creates another filesystem than the requested one
 */
export async function makeFilesystem(lvm: Lvm, volume: Volume, formatting: RecordedFilesystem): Promise<void> {
  const { type, uuid } = formatting;
  const path = contentDevice(volume.lv).devicePath;
  const requested = parseMkfsOptions(type, volume.tags.mkfsOptions.join(" "));
  const options = [...await kernelOptions(lvm.exec, type, requested), ...requested];
  const command = mkfsCommand(type, path, uuid, options);
  // the record must follow also when nobody waits any more, or each attempt would format again
  await runThen(lvm.exec, command, async (output) => {
    if (output.code !== 0) throw commandError(command, output);
    const created = await readSignatures(lvm.exec, path);
    if (!isFilesystem(formatting, created)) throw creationError(command, formatting, created);
    await recordFormatState(lvm, volume, formatting, { ...formatting, state: "formatted" });
  });
}

/** Returns the options of mkfs without which the kernel of this node would not mount the filesystem. */
async function kernelOptions(exec: Exec, type: FilesystemType, requested: readonly string[]): Promise<string[]> {
  if (type !== "xfs") return [];
  const kernel = await readKernelRelease(exec);
  if (missingXfsFeatures(kernel).length === 0) return [];
  const mkfs = await runOk(exec, { program: "mkfs.xfs", args: ["-V"], mutates: false });
  return xfsKernelOptions({ kernel, mkfs }, requested);
}

async function recordFormatState(lvm: Lvm, volume: Volume, from: FormatState, to: FormatState): Promise<void> {
  const path = `${volume.group.name}/${volume.lv.name}`;
  await lvm.change(volume.group, lvchangeTags(markFormatState(from, to), path));
}

/** Records the state if the LV still has the one that is known. */
async function recordKnownFormatState(lvm: Lvm, volume: Volume, from: FormatState, to: FormatState): Promise<void> {
  const { group, lv } = volume;
  const selection = { uuid: lv.uuid, tags: [formatStateTag(from)] };
  await lvm.changeKnown(group, lvchangeTags(markFormatState(from, to), `${group.name}/${lv.name}`, selection));
}

function requireRecordedFilesystem(
  recorded: RecordedFilesystem,
  found: readonly Signature[],
  { path, warn }: { readonly path: string; readonly warn: PrepareOptions["warn"] },
): void {
  const others = found.filter((signature) => !isOf(recorded, signature));
  if (others.length === found.length) throw unexpectedDataError(recorded, found, path);
  if (others.length === 0) return;
  const message =
    `${path} holds ${describeSignatures(others)} beside its filesystem, which is mounted as ${recorded.type}: a ` +
    "file may lie there, as an image of a disk, or another program has written to the device";
  warn({ reason: "FurtherSignatures", message });
}

/** Checks that signatures are of an unfinished filesystem. Its type can differ, since options and the host decide it. */
function requireOwnWork(formatting: RecordedFilesystem, found: readonly Signature[], path: string): void {
  if (!found.every(({ uuid }) => uuid?.toLowerCase() === formatting.uuid)) {
    throw unexpectedDataError(formatting, found, path);
  }
}

function isFilesystem(recorded: RecordedFilesystem, found: readonly Signature[]): boolean {
  return found.length > 0 && found.every((signature) => isOf(recorded, signature));
}

function isOf(recorded: RecordedFilesystem, { type, uuid }: Signature): boolean {
  return type === recorded.type && uuid?.toLowerCase() === recorded.uuid;
}

function unexpectedDataError(recorded: RecordedFilesystem, found: readonly Signature[], path: string): StorageError {
  return foreignDataError(
    path,
    `it should hold ${recorded.type} with the UUID ${recorded.uuid}, but holds ${describeSignatures(found)}`,
  );
}

function creationError(
  { program, args }: Command,
  { type }: RecordedFilesystem,
  created: readonly Signature[],
): StorageError {
  const types = created.map((signature) => signature.type).join(" and ") || "nothing";
  return new StorageError(
    "FailedPrecondition",
    `formatting ${
      args.at(-1)
    }: ${program} created ${types}, but ${type} was requested, and it would not be mounted as ` +
      `that again; correct ${program === "mke2fs" ? "mke2fs.conf(5) on this node, or " : ""}mkfsOptions in the class`,
  );
}
