/**
 * Executes the steps of copies. Each step may be repeated after a crash at any point.
 *
 * @module
 */

import { headerUuidCommand } from "../encryption/cryptsetup.ts";
import { readHeaderKeys } from "../encryption/header.ts";
import { VOLUME_KEY_KEY } from "../encryption/volume_key.ts";
import { type ErrorKind, StorageError } from "../../base/error.ts";
import { dd, type Exec, runOk } from "../exec.ts";
import {
  describeSignatures,
  foreignDataError,
  readSectorBytes,
  readSignatures,
  requireBlank,
  verifyDevice,
} from "../host/device.ts";
import { type LocatedLv, type LogicalVolume, lvPath } from "../model/report.ts";
import type { FormatState } from "../settings/format.ts";
import { activationArguments } from "../pools/activation.ts";
import { copySnapshotBytes, requireSpaceForCopySnapshot } from "./rules.ts";
import { type CopyState, type CopyStep, sourceBytes } from "./plan.ts";
import { fetchDifference, fetchRange, type RemoteSources } from "./fetch.ts";
import type { CopyWork } from "./work.ts";
import { readMaximumSectorBytes } from "../host/device_bytes.ts";
import { resumeSuspended } from "../deletion/resumption.ts";
import { defined } from "../../base/defined.ts";
import { changeUuid, unmountLeftovers } from "../staging/filesystem_uuid.ts";
import { copySnapshotLvName, uniqueLvName } from "../../base/ids.ts";
import type { FreshReport } from "../client/client.ts";
import {
  copySnapshotOf,
  copySnapshotTags,
  describeSource,
  forgetSourceNode,
  markCopied,
  markCopyBase,
  markCopyComplete,
  markCopySnapshotDeleted,
  markFormatState,
  markVolumeDeleted,
  ownedVolumeId,
  snapshotPolicyOf,
} from "../model/tags.ts";
import { findPool, isThin } from "../pools/pool.ts";
import { thinSnapshotOptions } from "../volumes/thin_volumes.ts";
import { staleCopySnapshots } from "../inventory/copying.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { PoolContext } from "../pools/pool_reservation.ts";
import type { Reaper } from "../deletion/reaper.ts";
import { syncFilesystem } from "../snapshots/snapshots.ts";
import { lvcreate, type LvcreateOptions } from "../model/command_lines.ts";

/** Context of the steps of copies. */
export interface CopyContext extends PoolContext {
  /** Finds volumes. */
  readonly volumeFinder: VolumeFinder;
  /** Removes the LVs of dropped copies and of copy snapshots. */
  readonly reaper: Pick<Reaper, "wake">;
  /** A directory that only the driver uses. A copied filesystem may be mounted below it for a moment. */
  readonly scratch: string;
  /** Reads snapshots of other nodes; absent where that is off. */
  readonly remote?: RemoteSources;
}

/** A copy, with the report that it was read from and its progress. */
export interface CopyTask {
  /** The copy, according to the report. */
  readonly copy: CopyState;
  /** The report. */
  readonly groups: FreshReport;
  /** The progress in this process, which steps update. */
  readonly work: CopyWork;
}

/**
 * The block size of dd, in bytes: fast enough without the page cache, and a multiple of the block size of any device.
 */
const BLOCK_BYTES = 4n << 20n;

/** The bytes after which the progress is recorded. After a crash at most this much is copied again. */
const RECORD_INTERVAL_BYTES = 16n << 30n;

/** The same for what comes from another node, which may take longer. */
const FETCH_RECORD_INTERVAL_BYTES = 2n << 30n;

/** The size of the logical sectors that each filesystem can have, in bytes. */
const SMALLEST_SECTOR_BYTES = 512n;

/** The time after which the copy of one chunk counts as failed, in milliseconds. The command itself is never killed. */
const CHUNK_DEADLINE_MS = 60 * 60 * 1000;

/**
 * Executes a step of a copy.
 *
 * @param step the step, from {@linkcode nextStep}
 * @param task the copy that the step is for; its `work` is updated
 * @throws {StorageError} `Busy` while something else has a device open; the reason why the copy cannot be made; those
 * of the commands.
 */
export async function executeStep(
  step: CopyStep,
  { copy, groups, work }: CopyTask,
  context: CopyContext,
): Promise<void> {
  switch (step.do) {
    case "wait":
      throw new StorageError("Busy", `filling ${lvPath(copy.destination)}: something else has it open`);
    case "restart":
      return await restart(step, { copy, work }, context);
    case "drop":
      return await drop(copy, context);
    case "removeCopySnapshot":
      return await removeCopySnapshot(step.copySnapshot, context);
    case "createCopySnapshot":
      return await createCopySnapshot(copy, { original: step.original, groups }, context);
    case "activate":
      return await activate(step.located, context);
    case "copy":
      return await copyChunk(step, { copy, work }, context);
    case "fetch":
      return await fetch(step, { copy, work }, context);
    case "record filled":
      return await recordFilled(step, { copy, work }, context);
    case "fetch difference":
      await verifyDevice(context.lvm.exec, copy.destination.lv);
      return await fetchDifference(step, { copy, work }, fetchContext(copy, context));
    case "fill again":
      return await fillAgain(step, { copy, work }, context);
    case "rest":
      return;
    case "complete":
      return await complete(copy, context);
    case "fail":
      throw step.error;
  }
}

async function restart(
  { recorded }: Extract<CopyStep, { do: "restart" }>,
  { copy: { destination, tags: { format } }, work }: Pick<CopyTask, "copy" | "work">,
  context: CopyContext,
): Promise<void> {
  if (!await ensureUnused(destination, context)) return;
  // the format of an encrypted copy changes when it is complete
  const unformatted: FormatState = format.state === "raw" || format.luks !== undefined
    ? format
    : { state: "unformatted", type: format.type };
  const changes = [
    ...(unformatted.state === format.state ? [] : markFormatState(format, unformatted)),
    ...markCopied(recorded, 0n),
  ];
  if (changes.length > 0) await context.lvm.changeTags(destination, changes);
  delete work.offset;
}

/**
 * Drops a copy: marks its LV as deleted, so that the reaper removes it. A repeated request creates the volume again.
 */
async function drop({ id, destination, tags }: CopyState, context: CopyContext): Promise<void> {
  if (!await ensureUnused(destination, context)) return;
  await context.lvm.changeTags(destination, markVolumeDeleted(id, tags.format));
  context.reaper.wake();
}

/**
 * Unmounts an LV where an earlier process mounted it.
 *
 * @returns whether the LV is unused. After an unmount it is `false`: the next report shows whether the LV is still
 * open.
 * @throws {StorageError} `Busy` while something else has the LV open.
 */
async function ensureUnused(located: LocatedLv, context: CopyContext): Promise<boolean> {
  if (await unmountLeftovers(context.lvm.exec, located.lv, scratchPath(located.lv, context))) return false;
  if (!located.lv.open) return true;
  throw new StorageError("Busy", `filling ${lvPath(located)} again: something else has it open`);
}

/**
 * Creates the copy snapshot, which keeps the data of one moment. A thin one is in the pool of its volume, without COW
 * space.
 */
async function createCopySnapshot(
  { id }: CopyState,
  { original, groups }: { original: LocatedLv; groups: FreshReport },
  { lvm, driver, volumeFinder, reservation }: CopyContext,
): Promise<void> {
  const { group, lv } = original;
  const { tags } = volumeFinder.require(groups, ownedVolumeId(driver, lv.tags)!);
  await syncFilesystem(lvm.exec, lv, tags.format);
  const deleted = [...deletedLvs(driver, [group]), ...staleCopySnapshots(driver, groups)].map(({ lv }) => lv.name);
  const command = (options: LvcreateOptions) => {
    const name = uniqueLvName(copySnapshotLvName(id), deleted);
    const addtag = copySnapshotTags(driver, { copy: id, ...snapshotPolicyOf(tags) });
    const lvcreateOptions: LvcreateOptions = { yes: true, snapshot: true, permission: "r", name, ...options, addtag };
    return lvcreate(lvcreateOptions, lvPath(original));
  };
  const size = copySnapshotBytes(original);
  if (!isThin(lv)) return await lvm.allocate(group, size, command({ size }));
  await reservation.runExclusive(groups, group, async (current) => {
    requireSpaceForCopySnapshot(reservation, id, { lv, group: current });
    await lvm.change(current, command(thinSnapshotOptions(driver, current, lv)));
    reservation.recordMessagesSent(current, lv.pool!);
  });
}

/** Marks a copy snapshot as deleted, so that the reaper removes it. */
export async function removeCopySnapshot(copySnapshot: LocatedLv, context: CopyContext): Promise<void> {
  const { driver, reaper } = context;
  await context.lvm.changeTags(copySnapshot, markCopySnapshotDeleted(copySnapshotOf(driver, copySnapshot.lv.tags)!));
  reaper.wake();
}

async function activate(located: LocatedLv, { lvm, driver }: CopyContext): Promise<void> {
  const { lv, group } = located;
  try {
    // A killed command may have left the device suspended. Any access to a suspended device hangs.
    if (await resumeSuspended(lvm, driver, [located])) return;
    await lvm.change(group, activationArguments(driver, group, lv));
  } catch (error) {
    throw continuableError(error, "NotFound"); // what its pool lacks is removed by the repair at the start
  }
}

async function copyChunk(
  { from, recorded, offset, length }: Extract<CopyStep, { do: "copy" }>,
  { copy: { destination, tags: { format } }, work }: Pick<CopyTask, "copy" | "work">,
  context: CopyContext,
): Promise<void> {
  const { exec } = context.lvm;
  if (offset - recorded >= RECORD_INTERVAL_BYTES) {
    work.offset = offset;
    return await context.lvm.changeTags(destination, markCopied(recorded, offset));
  }
  work.total = sourceBytes(from);
  await verifyCopiedDevice(exec, { ...from, size: sourceBytes(from) });
  await verifyCopiedDevice(exec, destination.lv);
  const blocks = (bytes: bigint) => (bytes + BLOCK_BYTES - 1n) / BLOCK_BYTES;
  const at = blocks(offset);
  const conv = `fsync,nocreat,notrunc${readsAsZeros(destination) ? ",sparse" : ""}`;
  await dd(exec, {
    if: from.devicePath,
    of: destination.lv.devicePath,
    bs: BLOCK_BYTES,
    skip: at,
    seek: at,
    count: blocks(length),
    iflag: "direct,fullblock",
    oflag: "direct",
    conv,
  }, { mutates: true, deadlineMs: CHUNK_DEADLINE_MS });
  work.offset = offset + length;
  if (offset === 0n) await requireMountable(destination, format, exec);
}

async function fetch(
  step: Extract<CopyStep, { do: "fetch" }>,
  { copy, work }: Pick<CopyTask, "copy" | "work">,
  context: CopyContext,
): Promise<void> {
  const { recorded, offset } = step;
  const { destination } = copy;
  if (offset - recorded >= FETCH_RECORD_INTERVAL_BYTES) {
    work.offset = offset;
    return await context.lvm.changeTags(destination, markCopied(recorded, offset));
  }
  await verifyDevice(context.lvm.exec, destination.lv);
  await fetchRange(step, { copy, work, skipsZeros: readsAsZeros(destination) }, fetchContext(copy, context));
  if (offset === 0n) await requireMountable(destination, copy.tags.format, context.lvm.exec);
}

/**
 * Requires that the kernel can mount what was copied: it mounts no filesystem whose own unit is smaller than a logical sector
 * of its device. What is encrypted cannot be read.
 *
 * @throws {StorageError} `InvalidArgument` when it cannot
 */
async function requireMountable(destination: LocatedLv, format: FormatState, exec: Exec): Promise<void> {
  if (format.state === "raw" || format.luks !== undefined) return;
  const sectorBytes = await readSectorBytes(exec, [destination.lv.devicePath]);
  if (sectorBytes <= SMALLEST_SECTOR_BYTES) return;
  const maximum = await readMaximumSectorBytes(exec, destination.lv.devicePath, format.type);
  if (maximum === undefined || BigInt(maximum) >= sectorBytes) return;
  throw new StorageError(
    "InvalidArgument",
    `filling ${
      lvPath(destination)
    }: its ${format.type} was made for disks with logical sectors of ${maximum} bytes at most, and ` +
      `those of volume group ${destination.group.name} have ${sectorBytes}, so that it could not be mounted; copy its files ` +
      "into a new volume",
  );
}

function fetchContext({ destination }: CopyState, context: CopyContext): Parameters<typeof fetchRange>[2] {
  const { remote } = context;
  return { ...defined({ remote }), changeTags: (changes) => context.lvm.changeTags(destination, changes) };
}

/** Records that an LV has all of the snapshot from which it was filled, also where it is larger. */
async function recordFilled(
  { recorded }: Extract<CopyStep, { do: "record filled" }>,
  { copy: { destination, tags: { format } }, work }: Pick<CopyTask, "copy" | "work">,
  context: CopyContext,
): Promise<void> {
  await requireMountable(destination, format, context.lvm.exec); // before others wait for the copy, or hold its source
  work.offset = destination.lv.size;
  await context.lvm.changeTags(destination, markCopied(recorded, destination.lv.size));
}

/** Begins to fill an LV from another snapshot. */
async function fillAgain(
  { recorded, snapshot }: Extract<CopyStep, { do: "fill again" }>,
  { copy: { destination, base }, work }: Pick<CopyTask, "copy" | "work">,
  context: CopyContext,
): Promise<void> {
  if (!await ensureUnused(destination, context)) return;
  await context.lvm.changeTags(destination, [...markCopied(recorded, 0n), ...markCopyBase(base, { id: snapshot })]);
  for (const name of ["offset", "total", "uuid", "differenceOffset"] as const) delete work[name];
}

/** Verifies a device ({@linkcode verifyDevice}). @throws {StorageError} {@linkcode continuableError} of an inactive LV */
async function verifyCopiedDevice(exec: Exec, lv: LogicalVolume): Promise<void> {
  try {
    await verifyDevice(exec, lv);
  } catch (error) {
    throw continuableError(error, "FailedPrecondition");
  }
}

/**
 * Returns the error of a step whose LV was deactivated or removed since the report: `CommandFailed`, so that the copy
 * continues by another report. Other errors are returned as they are.
 */
function continuableError(error: unknown, kind: ErrorKind): unknown {
  if (!(error instanceof StorageError && error.kind === kind)) return error;
  return new StorageError("CommandFailed", error.message, { cause: error });
}

/**
 * Reports whether blocks that were never written read as zeros, also after their neighbours were written. Then dd skips
 * zeros, which saves space in the pool. Only data of its source was ever written to an LV that is being filled.
 */
function readsAsZeros({ lv, group }: LocatedLv): boolean {
  return findPool(group, lv.pool)?.thinPool?.zeroes ?? false;
}

/**
 * Completes a copy: gives its filesystem a new UUID, and removes the copy's tags. The UUID is recorded before it is
 * set.
 */
async function complete(
  { id, destination, tags: { format, copied, source }, sourceNode, base }: CopyState,
  context: CopyContext,
): Promise<void> {
  const { exec } = context.lvm;
  const markComplete = [
    ...markCopyComplete(copied),
    ...forgetSourceNode(sourceNode),
    ...markCopyBase(base, undefined),
  ];
  if (format.luks !== undefined) {
    const renewed = await renewHeader(exec, destination.lv, format);
    const changes = renewed === undefined ? [] : markFormatState(format, renewed);
    return await context.lvm.changeTags(destination, [...changes, ...markComplete]);
  }
  if (format.state === "raw") return await context.lvm.changeTags(destination, markComplete);
  if (format.state !== "unformatted") {
    throw new StorageError("CommandFailed", `volume ${id} is ${format.state} already`);
  }
  const path = destination.lv.devicePath;
  const device = await verifyDevice(exec, destination.lv);
  const found = await readSignatures(exec, path);
  if (found.length === 0) {
    await requireBlank(exec, device); // It is a copy of a volume that was never in use.
    return await context.lvm.changeTags(destination, markComplete);
  }
  const { type } = format;
  if (!found.some((signature) => signature.type === type)) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id} from ${describeSource(source)}: the source holds ${
        describeSignatures(found)
      } (requested: ${type})`,
    );
  }
  await requireMountable(destination, format, exec);
  const formatting = { state: "formatting", type, uuid: crypto.randomUUID() } as const;
  await context.lvm.changeTags(destination, markFormatState(format, formatting));
  await changeUuid(exec, { type, device: path, uuid: formatting.uuid, scratch: scratchPath(destination.lv, context) });
  await context.lvm.changeTags(destination, [
    ...markFormatState(formatting, { ...formatting, state: "formatted" }),
    ...markComplete,
  ]);
}

/** Returns the path at which a copied filesystem may be mounted for a moment. */
export function scratchPath({ name }: LogicalVolume, { scratch }: CopyContext): string {
  return `${scratch}/copy-${name}`;
}

/**
 * Gives the LUKS header of a complete copy another UUID. A copy of an encrypted volume is what is on the disk, so it has the
 * volume key and the key slots of its original. The UUID of what is below the header is changed when it is first staged, since
 * only then there is a passphrase.
 *
 * @returns the format of the copy; `undefined` when it has no header, since its original was never in use
 * @throws {StorageError} `ForeignData` when it is something else; `FailedPrecondition` when its data is encrypted by two volume
 * keys: cryptsetup changes nothing else of such a header before all of the data has one
 */
async function renewHeader(
  exec: Exec,
  lv: LogicalVolume,
  format: FormatState,
): Promise<FormatState | undefined> {
  const device = await verifyDevice(exec, lv);
  const signatures = await readSignatures(exec, lv.devicePath);
  if (signatures.length === 0) return void await requireBlank(exec, device);
  if (!signatures.some(({ type }) => type === "crypto_LUKS")) {
    throw foreignDataError(
      lv.devicePath,
      `the copy of an encrypted volume should hold crypto_LUKS, but holds ${describeSignatures(signatures)}`,
    );
  }
  if ((await readHeaderKeys(exec, lv.devicePath)).isReencrypting) {
    throw new StorageError(
      "FailedPrecondition",
      `copying to ${lv.devicePath}: the data of the source is being encrypted by another volume key, which was interrupted; ` +
        `start a pod with the source, with the ${VOLUME_KEY_KEY} and its passphrases in its secret, and take the copy again`,
    );
  }
  const uuid = crypto.randomUUID();
  await runOk(exec, headerUuidCommand(lv.devicePath, uuid));
  const luks = { state: "formatted", uuid } as const;
  return format.state === "raw" ? { ...format, luks } : { state: "copied", type: format.type, luks };
}
