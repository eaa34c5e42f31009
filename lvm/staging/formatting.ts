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
  describeSignatures,
  foreignDataError,
  readSignatures,
  restoreDeviceNode,
  type Signature,
} from "../host/device.ts";
import { defined } from "../../base/defined.ts";
import { changeUuid } from "./filesystem_uuid.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, refusalKind, runOk, runThen } from "../exec.ts";
import {
  type FilesystemType,
  fsckCommand,
  mkfsCommand,
  parseMkfsOptions,
  resizeCommand,
} from "../settings/filesystem.ts";
import { missingXfsFeatures, xfsKernelOptions } from "../settings/mkfs_defaults.ts";
import { readKernelRelease } from "../host/device_bytes.ts";
import type { Lvm } from "../client/client.ts";
import { formatStateTag, markFormatState, unmountedTag } from "../model/tags.ts";
import { lvPath } from "../model/report.ts";
import type { FormatState } from "../settings/format.ts";
import type { StagedVolumes } from "./staged_volumes.ts";
import type { Volume } from "../inventory/volume.ts";
import { lvchangeTags } from "../model/command_lines.ts";

/** The format of a volume for a filesystem. */
export type FilesystemFormat = Exclude<FormatState, { readonly state: "raw" }>;

/** A filesystem that is recorded: as created, or as one that is being created. */
type RecordedFilesystem = Extract<FormatState, { readonly state: "formatting" | "formatted" | "renewing" }>;

/** What is wrong with the filesystem of a volume that is staged nevertheless, because the kernel can mount it. */
export interface StagingWarning {
  /** The reason, in one word. */
  readonly reason: "FurtherSignatures" | "FilesystemNotChecked" | "FilesystemNotResized";
  /** What was found, and what to do, in a sentence. */
  readonly message: string;
}

/** What makes the filesystem of a volume ready to be mounted. */
export interface FormatStep {
  /** It is created; gets the UUID that is recorded, and is checked; or is only checked. */
  readonly do: "make" | "renew" | "check";
  /** The filesystem, as it is recorded before that. */
  readonly filesystem: RecordedFilesystem;
  /** What is done before it is recorded so. */
  readonly first?: "require blank" | "wipe";
  /** What is wrong, but does not prevent a mount. */
  readonly warning?: StagingWarning;
}

/**
 * Decides what makes the filesystem of a volume ready to be mounted.
 *
 * @param uuid the UUID for a filesystem that has none yet
 * @returns the step, or the error when the device holds something else than what is recorded
 */
export function nextFormatStep(
  format: FilesystemFormat,
  device: { readonly path: string; readonly signatures: readonly Signature[] },
  uuid: string,
): FormatStep | { readonly do: "refuse"; readonly error: StorageError } {
  const { path, signatures: found } = device;
  const refuse = (expected: string) => {
    const reason = `it should hold ${expected}, but holds ${describeSignatures(found)}`;
    return { do: "refuse", error: foreignDataError(path, reason) } as const;
  };
  switch (format.state) {
    case "unformatted":
      return { do: "make", first: "require blank", filesystem: { ...format, state: "formatting", uuid } };
    case "formatting":
      if (found.length === 0) return { do: "make", filesystem: format };
      // its type can differ, since options and the host decide it
      if (!found.every((signature) => uuidOf(signature) === format.uuid)) return refuse(describeFilesystem(format));
      return { do: "make", first: "wipe", filesystem: format };
    case "copied":
      // of an original that was never formatted
      if (found.length === 0) return nextFormatStep({ ...format, state: "unformatted" }, device, uuid);
      if (!found.some(({ type }) => type === format.type)) return refuse(format.type);
      return { do: "renew", filesystem: { ...format, state: "renewing", uuid } };
    case "renewing":
      return { do: "renew", filesystem: format };
    case "formatted": {
      const others = found.filter((signature) => !isOf(format, signature));
      if (others.length === found.length) return refuse(describeFilesystem(format));
      const warning = others.length === 0 ? undefined : furtherSignatures(format, others, path);
      return { do: "check", filesystem: format, ...defined({ warning }) };
    }
  }
}

function furtherSignatures({ type }: RecordedFilesystem, others: readonly Signature[], path: string): StagingWarning {
  const message = `${path} holds ${describeSignatures(others)} beside its filesystem, which is mounted as ${type}: a ` +
    "file may lie there, as an image of a disk, or another program has written to the device";
  return { reason: "FurtherSignatures", message };
}

/**
 * Records a state, if the LV still has the former one. LVM reads the disks of the group alone then. Of a volume that is not known, it is
 * recorded also where LVM selects nothing, or says nothing.
 */
export async function recordFormatState(
  lvm: Lvm,
  volume: Volume,
  { from, to, isKnown = false, isUnmounted = false }: {
    readonly from: FormatState;
    readonly to: FormatState;
    readonly isKnown?: boolean;
    readonly isUnmounted?: boolean;
  },
): Promise<void> {
  const { group, lv } = volume;
  const changes = [...markFormatState(from, to), ...(isUnmounted ? ["--addtag", unmountedTag({ group, lv })] : [])];
  const selection = { uuid: lv.uuid, tags: [formatStateTag(from)] };
  if (isKnown) return await lvm.changeKnown(group, lvchangeTags(changes, lvPath(volume), selection));
  const isRecorded = await lvm.changeSelected(group, lvchangeTags(changes, lvPath(volume), selection));
  if (!isRecorded) await lvm.change(group, lvchangeTags(changes, lvPath(volume)));
}

/** The filesystem of a volume that is being staged. */
export interface VolumeFilesystem {
  /** The volume. */
  readonly volume: Volume;
  /** The path of the device that has its content. */
  readonly devicePath: string;
  /** Its type, as findmnt(8) names it. */
  readonly type: string;
  /** The path at which it is mounted, or will be. */
  readonly path: string;
  /** Remembers what is known of its size. */
  readonly staged: StagedVolumes;
  /** Receives what is wrong, but does not prevent a mount. */
  readonly warn: (warning: StagingWarning) => void;
}

/**
 * Makes the filesystem of a volume ready to be mounted, and records that it is there. When that is interrupted, it is done again.
 *
 * @param options with the next step, a directory that only the driver uses, at which the filesystem may be mounted for a moment,
 * and whether nobody is to mount it now
 * @returns whether it is known to fill its device
 * @throws {StorageError} `FailedPrecondition` when mkfs creates another filesystem than the requested one, or when it is damaged
 */
export async function completeFilesystem(
  lvm: Lvm,
  options: VolumeFilesystem & { readonly step: FormatStep; readonly scratch: string; readonly isUnmounted?: boolean },
): Promise<boolean> {
  const { volume, devicePath, staged, step, scratch, isUnmounted = false } = options;
  const { filesystem, warning } = step;
  if (warning !== undefined) options.warn(warning);
  if (step.do === "make") {
    await makeFilesystem(lvm, volume, filesystem, { devicePath, isUnmounted });
    staged.setCreated(volume);
    return true;
  }
  const isNew = step.do === "check" && !volume.used && volume.lv.tags.includes(unmountedTag(volume)) &&
    staged.isCreated(volume);
  if (isNew) return true; // nobody has mounted it
  if (step.do === "renew") {
    await changeUuid(lvm.exec, { ...filesystem, device: devicePath, scratch: `${scratch}/copy-${volume.lv.name}` });
    await recordFormatState(lvm, volume, { from: filesystem, to: { ...filesystem, state: "formatted" } });
  }
  return staged.isFilled(volume, await checkFilesystem(lvm.exec, filesystem.type, options));
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
  { devicePath, warn }: Pick<VolumeFilesystem, "devicePath" | "warn">,
): Promise<string> {
  const check = fsckCommand(type, devicePath);
  if (check === undefined) return "";
  const output = await exec.run(check.command);
  if (check.isSuccess(output.code)) return output.stdout;
  // what it prints has the label, too, which whoever writes to the filesystem chooses
  const isRefusal = output.code === FSCK_REFUSED;
  const [inUse] = isRefusal ? /.*is (?:in use|mounted)\.$/m.exec(output.stdout + output.stderr) ?? [] : [];
  if (inUse === undefined) {
    const kind = refusalKind(output);
    const reason = kind === "CommandFailed" ? "CheckKilled" : "FilesystemDamaged";
    throw commandError(check.command, output, kind, { reason });
  }
  const message =
    `its filesystem is mounted without a check (${inUse}): another mount namespace has it, or a program. ` +
    `grep ${devicePath.replace(/^.*\//, "")} /proc/[0-9]*/mountinfo shows the processes of that namespace`;
  warn({ reason: "FilesystemNotChecked", message });
  return "";
}

/**
 * Resizes the filesystem of a volume to its device.
 *
 * @throws {StorageError} `FailedPrecondition` when it cannot be resized now; `CommandFailed` when the program was killed
 */
export async function resizeFilesystem(
  exec: Exec,
  { volume, devicePath, type, path, staged }: Omit<VolumeFilesystem, "warn">,
): Promise<void> {
  const command = resizeCommand(type, { device: devicePath, path });
  let output = await exec.run(command);
  if (output.code !== 0 && await restoreDeviceNode(exec, { devicePath })) output = await exec.run(command);
  if (output.code !== 0) throw commandError(command, output, refusalKind(output));
  staged.setResized(volume, output.stdout + output.stderr);
}

/**
 * Resizes the filesystem of a volume that is being staged. One that cannot be resized is used with the size that it has.
 *
 * @throws {StorageError} while a command that outlasted its deadline still runs
 */
export async function resizeStaged(exec: Exec, filesystem: VolumeFilesystem): Promise<void> {
  try {
    await resizeFilesystem(exec, filesystem);
  } catch (error) {
    if (!(error instanceof StorageError) || lateCompletion(error) !== undefined) throw error;
    const message = `its filesystem is used with the size that it has, because it cannot be resized to its volume: ` +
      `${error.message}. The driver tries again when the volume is staged`;
    filesystem.warn({ reason: "FilesystemNotResized", message });
  }
}

/**
 * Creates the filesystem of a volume whose recorded state is `formatting`, and records that it is there.
 *
 * @throws {StorageError} `FailedPrecondition` when mkfs creates another filesystem than the requested one
 */
async function makeFilesystem(
  lvm: Lvm,
  volume: Volume,
  formatting: RecordedFilesystem,
  { devicePath: path, isUnmounted }: { readonly devicePath: string; readonly isUnmounted: boolean },
): Promise<void> {
  const { type, uuid } = formatting;
  const requested = parseMkfsOptions(type, volume.tags.mkfsOptions.join(" "));
  const options = [...await kernelOptions(lvm.exec, type, requested), ...requested];
  const command = mkfsCommand(type, path, uuid, options);
  // the record must follow also when nobody waits any more, or each attempt would format again
  await runThen(lvm.exec, command, async (output) => {
    if (output.code !== 0) throw commandError(command, output);
    const created = await readSignatures(lvm.exec, path);
    const isRequested = created.length > 0 && created.every((signature) => isOf(formatting, signature));
    if (!isRequested) throw creationError(command, formatting, created);
    await recordFormatState(lvm, volume, { from: formatting, to: { ...formatting, state: "formatted" }, isUnmounted });
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

function isOf(recorded: RecordedFilesystem, signature: Signature): boolean {
  return signature.type === recorded.type && uuidOf(signature) === recorded.uuid;
}

function uuidOf({ uuid }: Signature): string | undefined {
  return uuid?.toLowerCase();
}

function describeFilesystem({ type, uuid }: RecordedFilesystem): string {
  return `${type} with the UUID ${uuid}`;
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
    { reason: "WrongMkfsOptions" },
  );
}
