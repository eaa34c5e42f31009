/**
 * The steps of copies, carried out. Each may be done again, whatever instruction the driver died at.
 *
 * @module
 */

import { activationArguments } from "../volumes/activation.ts";
import { copySnapshotBytes, requireSpaceForCopySnapshot } from "./rules.ts";
import { type CopyState, type CopyStep, sourceBytes } from "./plan.ts";
import { describeSignatures, readSignatures, requireBlank, verifyDevice } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { runOk } from "../exec.ts";
import { changeUuid, unmountLeftovers } from "./filesystem_uuid.ts";
import { copySnapshotLvName, uniqueLvName } from "../ids.ts";
import type { FreshReport, Lvm } from "../model/client.ts";
import { type LocatedLv, type LogicalVolume, lvPath } from "../model/report.ts";
import {
  copySnapshotOf,
  copySnapshotTags,
  describeSource,
  type FormatState,
  markCopied,
  markCopyComplete,
  markCopySnapshotDeleted,
  markFormatState,
  markVolumeDeleted,
  ownedVolumeId,
} from "../model/tags.ts";
import { findPool, isThin } from "../pools/pool.ts";
import { thinSnapshotArguments } from "../volumes/thin_volumes.ts";
import { staleCopySnapshots } from "../inventory/copying.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import type { Reaper } from "../volumes/reaper.ts";
import { syncFilesystem } from "../snapshots/sync.ts";

/** What steps of copies work with. */
export interface CopyContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Finds volumes. */
  readonly volumeFinder: VolumeFinder;
  /** Reserves space in the machine's thin pools. All who allocate from them share one reservation. */
  readonly reservation: PoolReservation;
  /** Removes what was given up. */
  readonly reaper: Pick<Reaper, "wake">;
  /** A directory of the driver's own, in which a copied filesystem may be mounted for a moment. */
  readonly scratch: string;
}

/** What this process knows of how far a copy is; sizes in bytes. */
export interface CopyWork {
  /** How many bytes it has copied; `undefined` before it has taken the copy over. */
  offset?: bigint;
  /** How many there are. */
  total?: bigint;
}

/** A copy with what is known of it. */
export interface CopyTask {
  /** The copy, according to a report. */
  readonly copy: CopyState;
  /** That report. */
  readonly groups: FreshReport;
  /** How far this process is. */
  readonly work: CopyWork;
}

/** The bytes that dd moves at once: large enough to be fast without the page cache, a multiple of any disk's blocks. */
const BLOCK_BYTES = 4n << 20n;

/** After how many bytes the progress is recorded: what a crash costs at most. */
const RECORD_INTERVAL_BYTES = 16n << 30n;

/** How long one piece may take, in milliseconds, before it counts as failed; the command itself is never killed. */
const CHUNK_DEADLINE_MS = 60 * 60 * 1000;

/**
 * Carries a step out.
 *
 * @throws {StorageError} `Busy` while something else has a device open; why the copy cannot be made.
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
  const unformatted: FormatState = format.state === "raw" ? format : { state: "unformatted", type: format.type };
  const changes = [
    ...(unformatted.state === format.state ? [] : markFormatState(format, unformatted)),
    ...markCopied(recorded, 0n),
  ];
  if (changes.length > 0) await changeLv(context, destination, changes);
  delete work.offset;
}

/** Gives up a copy: its LV is removed in the background, and whoever asks again has it made anew. */
async function drop({ id, destination }: CopyState, context: CopyContext): Promise<void> {
  if (!await ensureUnused(destination, context)) return;
  await changeLv(context, destination, markVolumeDeleted(id));
  context.reaper.wake();
}

/** Takes off what was mounted of an LV; answers whether there was nothing, or else the next look tells what is left. @throws */
async function ensureUnused(located: LocatedLv, context: CopyContext): Promise<boolean> {
  if (await unmountLeftovers(context.lvm.exec, located.lv, scratchPath(located.lv, context))) return false;
  if (!located.lv.open) return true;
  throw new StorageError("Busy", `filling ${lvPath(located)} anew: something else has it open`);
}

/** Makes the snapshot that keeps a volume as it is while it is copied: of a thin one, in its pool, and without a store. */
async function createCopySnapshot(
  { id }: CopyState,
  { original, groups }: { original: LocatedLv; groups: FreshReport },
  { lvm, driver, volumeFinder, reservation }: CopyContext,
): Promise<void> {
  const { group, lv } = original;
  const { tags: { erase, format } } = volumeFinder.require(groups, ownedVolumeId(driver, lv.tags)!);
  await syncFilesystem(lvm.exec, lv, format);
  const deleted = [...deletedLvs(driver, [group]), ...staleCopySnapshots(driver, groups)].map(({ lv }) => lv.name);
  const lvcreate = (options: readonly string[]) =>
    lvm.change(group, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission",
      "r",
      "--name",
      uniqueLvName(copySnapshotLvName(id), deleted),
      ...options,
      ...copySnapshotTags(driver, { copy: id, erase }).flatMap((tag) => ["--addtag", tag]),
      lvPath(original),
    ]);
  if (!isThin(lv)) return await lvcreate(["--size", `${copySnapshotBytes(original)}b`]);
  await reservation.runExclusive(groups, group, async (current) => {
    requireSpaceForCopySnapshot(reservation, id, { lv, group: current });
    await lvcreate(thinSnapshotArguments(driver, current, lv));
  });
}

/** Gives up the snapshot that kept a volume as it was: it is removed in the background. */
export async function removeCopySnapshot(copySnapshot: LocatedLv, context: CopyContext): Promise<void> {
  const { driver, reaper } = context;
  await changeLv(context, copySnapshot, markCopySnapshotDeleted(copySnapshotOf(driver, copySnapshot.lv.tags)!));
  reaper.wake();
}

async function activate(located: LocatedLv, context: CopyContext): Promise<void> {
  const { lv, group } = located;
  // what a command that was killed left suspended would hang whoever touches it
  if (lv.suspended) return await changeLv(context, located, ["--refresh"]);
  await context.lvm.change(group, activationArguments(context.driver, group, lv));
}

async function copyChunk(
  { from, recorded, offset, length }: Extract<CopyStep, { do: "copy" }>,
  { copy: { destination }, work }: Pick<CopyTask, "copy" | "work">,
  context: CopyContext,
): Promise<void> {
  const { exec } = context.lvm;
  if (offset - recorded >= RECORD_INTERVAL_BYTES) {
    work.offset = offset;
    return await changeLv(context, destination, markCopied(recorded, offset));
  }
  work.total = sourceBytes(from);
  await verifyDevice(exec, { ...from, size: sourceBytes(from) });
  await verifyDevice(exec, destination.lv);
  const blocks = (bytes: bigint) => (bytes + BLOCK_BYTES - 1n) / BLOCK_BYTES;
  await runOk(exec, {
    program: "dd",
    args: [
      `if=${from.devicePath}`,
      `of=${destination.lv.devicePath}`,
      `bs=${BLOCK_BYTES}`,
      `skip=${blocks(offset)}`,
      `seek=${blocks(offset)}`,
      `count=${blocks(length)}`,
      "iflag=direct,fullblock",
      "oflag=direct",
      `conv=fsync,nocreat,notrunc${readsAsZeros(destination) ? ",sparse" : ""}`,
      "status=none",
    ],
    mutates: true,
    deadlineMs: CHUNK_DEADLINE_MS,
  });
  work.offset = offset + length;
}

/**
 * Whether what was never written reads as zeros, and stays so when its neighbours are written: then zeros need not be written,
 * and take no room of the pool. Of an LV that is being filled, nothing but its source was ever written.
 */
function readsAsZeros({ lv, group }: LocatedLv): boolean {
  return findPool(group, lv.pool)?.thinPool?.zeroes ?? false;
}

/** Makes what is copied a volume as any other. The UUID that its filesystem gets is recorded before it gets it. */
async function complete(
  { id, destination, tags: { format, copied, source } }: CopyState,
  context: CopyContext,
): Promise<void> {
  const { exec } = context.lvm;
  if (format.state === "raw") return await changeLv(context, destination, markCopyComplete(copied));
  if (format.state !== "unformatted") {
    throw new StorageError("CommandFailed", `volume ${id} is ${format.state} already`);
  }
  const path = destination.lv.devicePath;
  const device = await verifyDevice(exec, destination.lv);
  const found = await readSignatures(exec, path);
  if (found.length === 0) {
    await requireBlank(exec, device, path); // so it is a copy of a volume that was never in use
    return await changeLv(context, destination, markCopyComplete(copied));
  }
  const { type } = format;
  if (found.length > 1 || found[0]!.type !== type) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id} from ${describeSource(source)}: that holds ${
        describeSignatures(found)
      }, asked for is ${type}`,
    );
  }
  const formatting = { state: "formatting", type, uuid: crypto.randomUUID() } as const;
  await changeLv(context, destination, markFormatState(format, formatting));
  await changeUuid(exec, { type, device: path, uuid: formatting.uuid, scratch: scratchPath(destination.lv, context) });
  await changeLv(context, destination, [
    ...markFormatState(formatting, { ...formatting, state: "formatted" }),
    ...markCopyComplete(copied),
  ]);
}

async function changeLv({ lvm }: CopyContext, located: LocatedLv, changes: readonly string[]): Promise<void> {
  await lvm.change(located.group, ["lvchange", ...changes, lvPath(located)]);
}

/** Where a copied filesystem may be mounted for a moment. */
export function scratchPath({ name }: LogicalVolume, { scratch }: CopyContext): string {
  return `${scratch}/copy-${name}`;
}
