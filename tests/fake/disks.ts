/**
 * The fake machine's disks: what LVs have of them, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../lvm/exec.ts";
import type { Segment } from "../../lvm/model/report.ts";
import { type FakeGroup, type FakeLv, refuse } from "./machine.ts";

/** A disk of a group. */
export interface FakeDisk {
  path: string;
  uuid: string;
  /** Its size in bytes; by default its equal share of the group. */
  size?: bigint;
}

/** A piece of a disk that an LV has; sizes in bytes. */
export interface FakePiece {
  part: string;
  disk: string;
  size: bigint;
}

/** How an LV is laid out that nobody said anything about. */
export const LINEAR: Segment = { type: "linear", stripes: 1, stripeSize: 0n };

/** What an LV has of the disks: a thin one nothing, a pool its metadata besides, on the last disk. */
export function piecesOf(group: FakeGroup, lv: FakeLv): FakePiece[] {
  if (lv.pool !== undefined) return [];
  const data = dataPiecesOf(group, lv);
  if (lv.thinPool === undefined) return data;
  const metadata = { part: "tmeta", disk: group.disks.at(-1)!.uuid, size: lv.thinPool.metadataSize };
  return [...data.map((piece) => ({ ...piece, part: "tdata" })), metadata];
}

/** What an LV has of the disks for its size; one that a test made by hand is all on the first. */
export function dataPiecesOf(group: FakeGroup, lv: FakeLv): FakePiece[] {
  return lv.pieces ?? [{ part: "", disk: group.disks[0]!.uuid, size: lv.size }];
}

/** What a group keeps for the repair of its pools, on its last disk: as much as the largest metadata. */
export function spareMetadata(group: FakeGroup): bigint {
  return group.lvs.reduce((most, { thinPool }) => {
    const size = thinPool?.metadataSize ?? 0n;
    return size > most ? size : most;
  }, 0n);
}

/** The size of a disk, and what of it no LV has. */
export function spaceOf(group: FakeGroup, disk: FakeDisk): { size: bigint; free: bigint } {
  const size = disk.size ?? group.size / BigInt(group.disks.length) / group.extentSize * group.extentSize;
  const pieces = group.lvs.flatMap((lv) => piecesOf(group, lv)).filter((piece) => piece.disk === disk.uuid);
  const spare = disk === group.disks.at(-1) ? spareMetadata(group) : 0n;
  return { size, free: pieces.reduce((free, piece) => free - piece.size, size - spare) };
}

/** What of a group no LV has. */
export function freeBytes(group: FakeGroup): bigint {
  const pieces = group.lvs.flatMap((lv) => piecesOf(group, lv));
  return pieces.reduce((free, { size }) => free - size, group.size - spareMetadata(group));
}

/** Whether LVM cannot find a disk of a group. */
export function isMissing(group: FakeGroup, uuid: string): boolean {
  return group.disks.findIndex((disk) => disk.uuid === uuid) < group.missingPvs;
}

/** What LVM says is wrong with an LV. */
export function healthOf(group: FakeGroup, lv: FakeLv): string {
  const pool = group.lvs.find(({ name }) => name === lv.pool);
  if (piecesOf(group, pool ?? lv).some(({ disk }) => isMissing(group, disk))) return "partial";
  if (lv.raid?.dropped) return "refresh needed";
  return lv.raid?.mismatches ? "mismatches exist" : "";
}

/** Whether LVM would activate an LV in the mode `degraded`. */
export function isWholeEnough(group: FakeGroup, lv: FakeLv): boolean {
  const pieces = piecesOf(group, lv).filter(({ disk }) => isMissing(group, disk));
  const lost = new Set(pieces.map(({ part }) => part.replace(/\D/g, "")));
  const { type, stripes } = lv.segment ?? LINEAR;
  if (type === "raid1") return lost.size < stripes;
  if (type === "raid10") {
    return !Array.from({ length: stripes }, (_, i) => lost.has(`${i}`) && lost.has(`${i ^ 1}`)).includes(true);
  }
  return lost.size <= (type === "raid6" ? 2 : type === "raid5" ? 1 : 0);
}

/** How many of an LV's disks have different data. */
export function dataOf({ type, stripes }: Segment): bigint {
  const redundant = { raid1: stripes - 1, raid10: stripes / 2, raid5: 1, raid6: 2 }[type] ?? 0;
  return BigInt(stripes - redundant);
}

/**
 * Gives an LV of a name what it needs for so many bytes, on the disks of these paths, or whichever. What it has is kept.
 */
export function allocate(
  group: FakeGroup,
  lv: { name: string; segment: Segment; pieces: readonly FakePiece[] },
  bytes: bigint,
  paths: readonly string[],
): FakePiece[] | Output {
  const unknown = paths.find((path) => !group.disks.some((disk) => disk.path === path));
  if (unknown !== undefined) {
    return refuse(5, `  Physical Volume "${unknown}" not found in Volume Group "${group.name}".`);
  }
  const disks = group.disks.filter(({ path }) => paths.length === 0 || paths.includes(path));
  const room = new Map(disks.map((disk) => [disk.uuid, spaceOf(group, disk).free]));
  return lv.segment.stripes === 1 ? allocateLinear(room, bytes) : allocateRow(group, lv, bytes, room);
}

/** LVM fills one disk after the other. */
function allocateLinear(room: Map<string, bigint>, bytes: bigint): FakePiece[] {
  let rest = bytes;
  return [...room].flatMap(([disk, free]) => {
    const size = free < rest ? free : rest;
    rest -= size;
    return size > 0n ? [{ part: "", disk, size }] : [];
  });
}

/**
 * One disk for each image. LVM prefers for an image the disk that it has; when that does not do, it takes any, also those of
 * the others: seen with 2.03.16.
 */
function allocateRow(
  group: FakeGroup,
  { name, segment: { type, stripes }, pieces }: { name: string; segment: Segment; pieces: readonly FakePiece[] },
  bytes: bigint,
  room: Map<string, bigint>,
): FakePiece[] | Output {
  const { extentSize } = group;
  const image = bytes / dataOf({ type, stripes, stripeSize: 0n });
  const isNew = pieces.length === 0;
  const meta = type === "striped" || !isNew ? 0n : extentSize;
  const needed = BigInt(stripes) * (image + meta) / extentSize;
  const all = [...room.values()].reduce((sum, free) => sum + free, 0n) / extentSize;
  if (all === 0n) return refuse(5, "  No specified PVs have space available.");
  if (needed > freeBytes(group) / extentSize) {
    return refuse(5, `  Insufficient free space: ${needed} extents needed, but only ${all} available`);
  }
  const roomy = [...room].filter(([, free]) => free >= image + meta).sort(([, a], [, b]) => a > b ? -1 : 1)
    .map(([disk]) => disk);
  if (roomy.length < stripes) {
    return refuse(5, `  Insufficient suitable allocatable extents for logical volume ${name}: ${needed} more required`);
  }
  const parts = Array.from({ length: stripes }, (_, index) => `rimage_${index}`);
  const own = parts.map((part) =>
    roomy.find((disk) => pieces.some((piece) => piece.part === part && piece.disk === disk))
  );
  const chosen = own.every((disk) => disk !== undefined) ? own as string[] : roomy.slice(0, stripes);
  return chosen.flatMap((disk, index) => {
    if (type === "striped") return [{ part: "", disk, size: image }];
    const rmeta = meta > 0n ? [{ part: `rmeta_${index}`, disk, size: meta }] : [];
    return [...rmeta, { part: `rimage_${index}`, disk, size: image }];
  });
}

/** A disk in a report. */
export function pvRow(group: FakeGroup, disk: FakeDisk): Record<string, string> {
  const { size, free } = spaceOf(group, disk);
  const missing = isMissing(group, disk.uuid);
  return {
    pv_name: missing ? "[unknown]" : disk.path,
    pv_uuid: disk.uuid,
    pv_missing: missing ? "1" : "0",
    pv_allocatable: "1",
    pv_pe_count: `${size / group.extentSize}`,
    pv_pe_alloc_count: `${(size - free) / group.extentSize}`,
  };
}

/** A piece of a disk in a report. */
export function pvsegRow(group: FakeGroup, lv: FakeLv, { part, disk, size }: FakePiece): Record<string, string> {
  const name = part === "" ? lv.name : `[${lv.name}_${part}]`;
  return { pv_uuid: disk, pvseg_size: `${size / group.extentSize}`, lv_name: name };
}

/** The only segment of an LV in a report. */
export function segRow({ name, pool, thinPool, segment = LINEAR }: FakeLv): Record<string, string> {
  return {
    lv_name: name,
    segtype: pool !== undefined ? "thin" : thinPool !== undefined ? "thin-pool" : segment.type,
    stripes: `${segment.stripes}`,
    stripe_size: `${segment.stripeSize}`,
  };
}
