/**
 * The steps of copies, carried out. Each may be done again, whatever instruction the driver died at.
 *
 * @module
 */

import { activation } from "../volumes/activation.ts";
import { cutBytes, deadCuts, type Place, requireCut } from "./rules.ts";
import { type CopyState, type CopyStep, sourceBytes } from "./plan.ts";
import { describeSignatures, readSignatures, requireBlank, verifyDevice } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { runOk } from "../exec.ts";
import { giveIdentity, unmountLeftovers } from "./filesystem_uuid.ts";
import { cutLvName, freeLvName } from "../ids.ts";
import type { Lvm } from "../model/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import {
  type ContentRecord,
  cutOf,
  cutTags,
  describeSource,
  markContent,
  markCopied,
  markCutDeleted,
  markFilled,
  markVolumeDeleted,
  ownedVolumeId,
} from "../model/tags.ts";
import { isThin, poolOf } from "../pools/pool.ts";
import { thinSnapshotOptions } from "../volumes/thin_volumes.ts";
import { doomedLvs, type Upkeep } from "../volumes/reaper.ts";
import type { Volumes } from "../volumes/volumes.ts";
import { writeOut } from "../snapshots/sync.ts";

/** What steps of copies work with. */
export interface CopyHands {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Where volumes are found and made. */
  readonly volumes: Volumes;
  /** Removes what was given up. */
  readonly upkeep: Pick<Upkeep, "look">;
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
  readonly groups: readonly VolumeGroup[];
  /** How far this process is. */
  readonly work: CopyWork;
}

/** The bytes that dd moves at once: large enough to be fast without the page cache, a multiple of any disk's blocks. */
const BLOCK_BYTES = 4n << 20n;

/** After how many bytes the progress is recorded: what a crash costs at most. */
const RECORDED_BYTES = 16n << 30n;

/** How long one piece may take, in milliseconds, before it counts as failed; the command itself is never killed. */
const PIECE_MS = 60 * 60 * 1000;

/**
 * Carries a step out.
 *
 * @throws {StorageError} `Busy` while something else has a device open; why the copy cannot be made.
 */
export async function carryOut(step: CopyStep, { copy, groups, work }: CopyTask, hands: CopyHands): Promise<void> {
  switch (step.do) {
    case "wait":
      throw new StorageError("Busy", `filling ${pathOf(copy.to)}: something else has it open`);
    case "restart":
      return await restart(step, { copy, work }, hands);
    case "drop":
      return await drop(copy, hands);
    case "discard":
      return await discard(step.cut, hands);
    case "cut":
      return await cutOff(copy, { original: step.original, groups }, hands);
    case "activate":
      return await activate(step.place, hands);
    case "copy":
      return await copyPiece(step, { copy, work }, hands);
    case "complete":
      return await complete(copy, hands);
    case "fail":
      throw step.error;
  }
}

async function restart(
  { recorded }: Extract<CopyStep, { do: "restart" }>,
  { copy: { to, tags: { content } }, work }: Pick<CopyTask, "copy" | "work">,
  hands: CopyHands,
): Promise<void> {
  if (!await isFree(to, hands)) return;
  const wanted: ContentRecord = content.state === "raw" ? content : { state: "wanted", type: content.type };
  const changes = [
    ...(wanted.state === content.state ? [] : markContent(content, wanted)),
    ...markCopied(recorded, 0n),
  ];
  if (changes.length > 0) await change(hands, to, changes);
  delete work.offset;
}

/** Gives up a copy: its LV is removed in the background, and whoever asks again has it made anew. */
async function drop({ id, to }: CopyState, hands: CopyHands): Promise<void> {
  if (!await isFree(to, hands)) return;
  await change(hands, to, markVolumeDeleted(id));
  hands.upkeep.look();
}

/** Takes off what was mounted of an LV; answers whether there was nothing, or else the next look tells what is left. @throws */
async function isFree(place: Place, hands: CopyHands): Promise<boolean> {
  if (await unmountLeftovers(hands.lvm.exec, place.lv, scratchOf(place.lv, hands))) return false;
  if (!place.lv.open) return true;
  throw new StorageError("Busy", `filling ${pathOf(place)} anew: something else has it open`);
}

/** Makes the snapshot that keeps a volume as it is while it is copied: of a thin one, in its pool, and without a store. */
async function cutOff(
  { id }: CopyState,
  { original, groups }: { original: Place; groups: readonly VolumeGroup[] },
  { lvm, driver, volumes }: CopyHands,
): Promise<void> {
  const { group, lv } = original;
  const { tags: { erase, content } } = volumes.require(groups, ownedVolumeId(driver, lv.tags)!);
  await writeOut(lvm.exec, lv, content);
  const deleted = [...doomedLvs(driver, [group]), ...deadCuts(driver, groups)].map(({ lv }) => lv.name);
  const cut = (options: readonly string[]) =>
    lvm.change(group, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission",
      "r",
      "--name",
      freeLvName(cutLvName(id), deleted),
      ...options,
      ...cutTags(driver, { copy: id, erase }).flatMap((tag) => ["--addtag", tag]),
      pathOf(original),
    ]);
  if (!isThin(lv)) return await cut(["--size", `${cutBytes(original)}b`]);
  const { gate } = volumes;
  await gate.inTurn(groups, group, async (now) => {
    requireCut(gate, id, { lv, group: now });
    await cut(thinSnapshotOptions(driver, now, lv));
  });
}

/** Gives up the snapshot that kept a volume as it was: it is removed in the background. */
export async function discard(cut: Place, hands: CopyHands): Promise<void> {
  const { driver, upkeep } = hands;
  await change(hands, cut, markCutDeleted(cutOf(driver, cut.lv.tags)!));
  upkeep.look();
}

async function activate(place: Place, hands: CopyHands): Promise<void> {
  const { lv, group } = place;
  // what a command that was killed left suspended would hang whoever touches it
  if (lv.suspended) return await change(hands, place, ["--refresh"]);
  await hands.lvm.change(group, activation(hands.driver, group, lv));
}

async function copyPiece(
  { from, recorded, offset, length }: Extract<CopyStep, { do: "copy" }>,
  { copy: { to }, work }: Pick<CopyTask, "copy" | "work">,
  hands: CopyHands,
): Promise<void> {
  const { exec } = hands.lvm;
  if (offset - recorded >= RECORDED_BYTES) {
    work.offset = offset;
    return await change(hands, to, markCopied(recorded, offset));
  }
  work.total = sourceBytes(from);
  await verifyDevice(exec, { ...from, size: sourceBytes(from) });
  await verifyDevice(exec, to.lv);
  const blocks = (bytes: bigint) => (bytes + BLOCK_BYTES - 1n) / BLOCK_BYTES;
  await runOk(exec, {
    program: "dd",
    args: [
      `if=${from.devicePath}`,
      `of=${to.lv.devicePath}`,
      `bs=${BLOCK_BYTES}`,
      `skip=${blocks(offset)}`,
      `seek=${blocks(offset)}`,
      `count=${blocks(length)}`,
      "iflag=direct,fullblock",
      "oflag=direct",
      `conv=fsync,nocreat,notrunc${readsAsZeros(to) ? ",sparse" : ""}`,
      "status=none",
    ],
    mutates: true,
    deadlineMs: PIECE_MS,
  });
  work.offset = offset + length;
}

/**
 * Whether what was never written reads as zeros, and stays so when its neighbours are written: then zeros need not be written,
 * and take no room of the pool. Of an LV that is being filled, nothing but its source was ever written.
 */
function readsAsZeros({ lv, group }: Place): boolean {
  return poolOf(group, lv.pool)?.thinPool?.zeroes ?? false;
}

/** Makes what is copied a volume as any other. The UUID that its filesystem gets is recorded before it gets it. */
async function complete(
  { id, to, tags: { content, copied, source } }: CopyState,
  hands: CopyHands,
): Promise<void> {
  const { exec } = hands.lvm;
  if (content.state === "raw") return await change(hands, to, markFilled(copied));
  if (content.state !== "wanted") throw new StorageError("CommandFailed", `volume ${id} is ${content.state} already`);
  const path = to.lv.devicePath;
  const device = await verifyDevice(exec, to.lv);
  const found = await readSignatures(exec, path);
  if (found.length === 0) {
    await requireBlank(exec, device, path); // so it is a copy of a volume that was never in use
    return await change(hands, to, markFilled(copied));
  }
  const { type } = content;
  if (found.length > 1 || found[0]!.type !== type) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id} from ${describeSource(source)}: that holds ${
        describeSignatures(found)
      }, asked for is ${type}`,
    );
  }
  const formatting = { state: "formatting", type, uuid: crypto.randomUUID() } as const;
  await change(hands, to, markContent(content, formatting));
  await giveIdentity(exec, { type, device: path, uuid: formatting.uuid, scratch: scratchOf(to.lv, hands) });
  await change(hands, to, [...markContent(formatting, { ...formatting, state: "formatted" }), ...markFilled(copied)]);
}

async function change({ lvm }: CopyHands, place: Place, changes: readonly string[]): Promise<void> {
  await lvm.change(place.group, ["lvchange", ...changes, pathOf(place)]);
}

/** Where a copied filesystem may be mounted for a moment. */
export function scratchOf({ name }: LogicalVolume, { scratch }: CopyHands): string {
  return `${scratch}/copy-${name}`;
}

function pathOf({ group, lv }: Place): string {
  return `${group.name}/${lv.name}`;
}
