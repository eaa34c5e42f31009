/**
 * The steps of copies, carried out. Each may be done again, whatever instruction the driver died at.
 *
 * @module
 */

import { activation } from "./activation.ts";
import { cutBytes, deadCuts, type Place } from "./copy_source.ts";
import { type CopyState, type CopyStep, sourceBytes } from "./copy_step.ts";
import { describeSignatures, readSignatures, requireBlank, verifyDevice } from "./device.ts";
import { StorageError } from "./error.ts";
import { runOk } from "./exec.ts";
import { giveIdentity, unmountLeftovers } from "./identity.ts";
import { cutLvName, freeLvName } from "./ids.ts";
import type { Lvm } from "./lvm.ts";
import type { LogicalVolume, VolumeGroup } from "./report.ts";
import {
  type ContentRecord,
  cutOf,
  cutTags,
  describeSource,
  markContent,
  markCopied,
  markCutDeleted,
  markFilled,
  ownedVolumeId,
} from "./tags.ts";
import { doomedLvs, type Upkeep } from "./upkeep.ts";
import type { Volumes } from "./volumes.ts";

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
      return await restart(copy, work, hands);
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

async function restart({ to, tags: { content, copied } }: CopyState, work: CopyWork, hands: CopyHands): Promise<void> {
  if (await unmountLeftovers(hands.lvm.exec, to.lv, scratchOf(to.lv, hands))) return; // the next look tells what is left
  if (to.lv.open) throw new StorageError("Busy", `filling ${pathOf(to)} anew: something else has it open`);
  const wanted: ContentRecord = content.state === "raw" ? content : { state: "wanted", type: content.type };
  const changes = [
    ...(wanted.state === content.state ? [] : markContent(content, wanted)),
    ...markCopied(copied, 0n),
  ];
  if (changes.length > 0) await change(hands, to, changes);
  delete work.offset;
}

/** Makes the snapshot that keeps a volume as it is while it is copied. */
async function cutOff(
  { id }: CopyState,
  { original, groups }: { original: Place; groups: readonly VolumeGroup[] },
  { lvm, driver, volumes }: CopyHands,
): Promise<void> {
  const { group, lv } = original;
  const { tags: { erase } } = volumes.require(groups, ownedVolumeId(driver, lv.tags)!);
  const deleted = [...doomedLvs(driver, [group]), ...deadCuts(driver, groups)].map(({ lv }) => lv.name);
  await lvm.change(group, [
    "lvcreate",
    "--yes",
    "--snapshot",
    "--permission",
    "r",
    "--name",
    freeLvName(cutLvName(id), deleted),
    "--size",
    `${cutBytes(original)}b`,
    ...cutTags(driver, { copy: id, erase }).flatMap((tag) => ["--addtag", tag]),
    pathOf(original),
  ]);
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
  { from, offset, length }: Extract<CopyStep, { do: "copy" }>,
  { copy, work }: Pick<CopyTask, "copy" | "work">,
  hands: CopyHands,
): Promise<void> {
  const { to, tags: { copied } } = copy;
  const { exec } = hands.lvm;
  if (offset - copied >= RECORDED_BYTES) {
    work.offset = offset;
    return await change(hands, to, markCopied(copied, offset));
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
      "conv=fsync,nocreat,notrunc",
      "status=none",
    ],
    mutates: true,
    deadlineMs: PIECE_MS,
  });
  work.offset = offset + length;
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
