/**
 * What the fake machine has in the blocks of devices: dd that reads past the page cache, the COW space of snapshots after the
 * kernel's dm-snap-persistent, and thin_delta 0.9.
 *
 * @module
 */

import { Buffer } from "node:buffer";
import type { Command, Output } from "../../../lvm/exec.ts";
import { devicePath, expectArgs, failure, type FakeGroup, type FakeLv, type FakeMachine, ok } from "./machine.ts";
import { thinId } from "./suspension.ts";
import { kernelPools } from "./thin.ts";

/** The size of a chunk of a snapshot (lvcreate(8), --chunksize), and what the machine knows of each device, in bytes. */
const CHUNK_BYTES = 4096;

/** The chunks of COW space that one table describes. */
const TABLE_CHUNKS = CHUNK_BYTES / 16;

/** The chunks in a block of a small thin pool, which has 64 KiB. */
const CHUNKS_PER_BLOCK = 16;

/** A hidden device of LVM. */
interface HiddenDevice {
  readonly group: FakeGroup;
  readonly lv: FakeLv;
  readonly uuid: string;
  readonly number: string;
}

let writes = 0;

/** What dd wrote, by the number of the write. */
const SOURCES = new Map<number, string>();

/** Notes what came to an LV from another one, by the bytes of its chunks. */
export function noteReceived(lv: FakeLv, offset: number, bytes: Uint8Array): void {
  const noted = new Map(lv.content.writes);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    const [chunk, write] = [(offset + at) / CHUNK_BYTES, view.getUint32(at, true)];
    const source = SOURCES.get(write);
    if (source === undefined) noted.delete(chunk);
    else {
      noted.set(chunk, write);
      (lv.content.luks?.content ?? lv.content).data.add(source);
    }
  }
  lv.content.writes = noted;
}

/** Returns what an LV has in a range of whole chunks: each begins with the number of its write. */
export function bytesOf({ content }: FakeLv, offset: number, length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < length; at += CHUNK_BYTES) {
    const write = content.writes.get((offset + at) / CHUNK_BYTES) ?? 0;
    if (write > 0) view.setUint32(at, write, true);
  }
  return bytes;
}

/** Notes what dd writes to an LV: something that is nowhere else, or zeros. */
export function noteWrites(lv: FakeLv, from: number, to: number, source: string): void {
  const noted = new Map(lv.content.writes);
  for (let chunk = Math.floor(from / CHUNK_BYTES); chunk * CHUNK_BYTES < to; chunk++) {
    noted.set(chunk, source === "/dev/zero" ? -++writes : ++writes);
    if (source !== "/dev/zero") SOURCES.set(writes, source);
  }
  lv.content.writes = noted;
}

/** Notes what a discard takes from a thin LV: whole blocks. They are in its pool as long as a snapshot has them. */
export function noteDiscard(lv: FakeLv, from: number, to: number): void {
  const blockBytes = CHUNKS_PER_BLOCK * CHUNK_BYTES;
  const [first, after] = [Math.ceil(from / blockBytes), Math.floor(to / blockBytes)];
  lv.content.writes = new Map(
    [...lv.content.writes].filter(([chunk]) => chunk < first * CHUNKS_PER_BLOCK || chunk >= after * CHUNKS_PER_BLOCK),
  );
}

/** Passes the output of a command on to whoever takes it in pieces. Each character is a byte. */
export async function passOn({ onOutput }: Command, output: Output): Promise<Output> {
  if (onOutput === undefined) return output;
  const bytes = Uint8Array.from(Buffer.from(output.stdout, "latin1"));
  for (let at = 0; at < bytes.length; at += 50_000) await onOutput(bytes.slice(at, at + 50_000)); // not at the ends of chunks
  return { ...output, stdout: "" };
}

/** Returns the hidden device at a path: the COW space of an active snapshot, or the metadata of an active pool. */
export function hiddenDevice(machine: FakeMachine, path: string): HiddenDevice | undefined {
  const plain = (uuid: string) => uuid.replaceAll("-", "");
  const active = machine.allLvs().filter(({ lv }) => lv.active && lv.thinPool === undefined);
  for (const { group, lv } of [...active, ...kernelPools(machine)]) {
    const suffix = lv.thinPool !== undefined
      ? "_tmeta"
      : lv.origin !== undefined && lv.pool === undefined
      ? "-cow"
      : "";
    if (suffix === "" || `${devicePath(group, lv)}${suffix}` !== path) continue;
    const own = suffix === "-cow" ? `${plain(lv.uuid)}-cow` : `${plain(lv.uuid).split("").reverse().join("")}-tmeta`;
    return { group, lv, uuid: `LVM-${plain(group.uuid)}${own}`, number: `253:${500 + lv.minor}` };
  }
  return undefined;
}

/** Reads a device past the page cache. */
export function readBlocks(machine: FakeMachine, values: ReadonlyMap<string, string>): Output {
  const path = values.get("if")!;
  const hidden = hiddenDevice(machine, path);
  const lv = hidden?.lv ?? machine.lvAt(path);
  if (lv === undefined) return failure(1, `dd: failed to open '${path}': No such file or directory`);
  if (lv.content.unreadable || (lv.invalid && hidden === undefined)) {
    return failure(1, `dd: error reading '${path}': Input/output error`);
  }
  const size = hidden !== undefined ? Number(lv.size) : Number(lv.origin?.size ?? lv.size);
  const offset = Number(values.get("skip"));
  const end = Math.min(offset + Number(values.get("count")), size);
  let text = "";
  for (let at = offset; at < end;) {
    const chunk = Math.floor(at / CHUNK_BYTES);
    const bytes = hidden === undefined ? contentOf(lv, chunk) : storeChunk(lv, chunk);
    const [from, to] = [at - chunk * CHUNK_BYTES, Math.min(end - chunk * CHUNK_BYTES, CHUNK_BYTES)];
    text += bytes.slice(from, to);
    at += to - from;
  }
  return ok(text);
}

/** Returns numbers as bytes, little-endian. */
function littleEndian(numbers: readonly number[], bytesEach: number): string {
  return numbers.map((number) =>
    Array.from({ length: bytesEach }, (_, index) => String.fromCharCode(Math.floor(number / 2 ** (8 * index)) % 256))
      .join("")
  ).join("");
}

const ZEROS = "\0".repeat(CHUNK_BYTES);

function contentOf({ content }: FakeLv, chunk: number): string {
  const write = content.writes.get(chunk) ?? 0;
  const bytes = write <= 0 ? ZEROS : littleEndian([write], 4).repeat(CHUNK_BYTES / 4);
  return superblockPieces(content).filter(([at]) => Math.floor(at / CHUNK_BYTES) === chunk).reduce(
    (all, [at, piece]) => all.slice(0, at % CHUNK_BYTES) + piece + all.slice(at % CHUNK_BYTES + piece.length),
    bytes,
  );
}

/** Returns what is known of the superblock of a filesystem: its magic number, and its size of blocks or sectors. */
function superblockPieces({ signatures, blockBytes }: FakeLv["content"]): [at: number, piece: string][] {
  const bytes = Number(blockBytes);
  return signatures.flatMap(({ type }): [number, string][] =>
    type === "xfs"
      ? [[0, "XFSB"], [102, String.fromCharCode(bytes >> 8, bytes & 255)]]
      : type === "btrfs"
      ? [[0x10040, "_BHRfS_M"], [0x10090, littleEndian([4096], 4)]]
      : type.startsWith("ext")
      ? [[1024 + 0x38, "\x53\xef"], [1024 + 0x18, littleEndian([Math.log2(bytes / 1024)], 4)]]
      : []
  );
}

/** Returns a chunk of COW space. What was copied into it is not shown. */
function storeChunk({ cowChunks = new Set(), invalid }: FakeLv, chunk: number): string {
  if (chunk === 0) {
    return littleEndian([0x70416e53, invalid ? 0 : 1, 1, CHUNK_BYTES / 512], 4).padEnd(CHUNK_BYTES, "\0");
  }
  if ((chunk - 1) % (TABLE_CHUNKS + 1) !== 0) return ZEROS;
  const table = (chunk - 1) / (TABLE_CHUNKS + 1);
  const copied = [...cowChunks].slice(table * TABLE_CHUNKS, (table + 1) * TABLE_CHUNKS);
  return littleEndian(copied.flatMap((each, index) => [each, chunk + 1 + index]), 8).padEnd(CHUNK_BYTES, "\0");
}

/** Compares two thin LVs by the metadata snapshot of their pool. */
export function thinDelta(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--metadata-snap --thin1 \d+ --thin2 \d+ \/\S+$/);
  const device = hiddenDevice(machine, args.at(-1)!);
  const usage = "Usage: thin_delta [options] <device or file>";
  if (device === undefined) return failure(1, `Couldn't stat path\n${usage}`);
  if (!device.lv.thinPool!.metadataSnapshot) return failure(1, `no current metadata snap\n${usage}`);
  const inPool = device.group.lvs.filter(({ pool }) => pool === device.lv.name);
  const [left, right] = [args[2], args[4]].map((id) => inPool.find((lv) => `${thinId(lv)}` === id));
  if (left === undefined) return failure(1, `Unable to find mapping tree for snap1 (${args[2]})\n${usage}`);
  if (right === undefined) return failure(1, `Unable to find mapping tree for snap2 (${args[4]})\n${usage}`);
  const ranges = deltaRanges(blocksOf(left), blocksOf(right));
  return ok(
    `<superblock uuid="" time="2" transaction="3" data_block_size="128" nr_data_blocks="0">\n` +
      `  <diff left="${args[2]}" right="${args[4]}">\n${ranges.join("")}  </diff>\n</superblock>\n`,
  );
}

/** Returns what a thin LV has in each block, as a text that differs where the pool's block differs. */
function blocksOf({ content }: FakeLv): ReadonlyMap<number, string> {
  const byBlock = Map.groupBy(content.writes, ([chunk]) => Math.floor(chunk / CHUNKS_PER_BLOCK));
  return new Map([...byBlock].map(([block, chunks]) => [block, chunks.toSorted(([a], [b]) => a - b).join()]));
}

function deltaRanges(left: ReadonlyMap<number, string>, right: ReadonlyMap<number, string>): string[] {
  const kindOf = (block: number) =>
    !right.has(block)
      ? "left_only"
      : !left.has(block)
      ? "right_only"
      : left.get(block) === right.get(block)
      ? "same"
      : "different";
  const ranges: { kind: string; begin: number; length: number }[] = [];
  for (const block of [...new Set([...left.keys(), ...right.keys()])].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last?.kind === kindOf(block) && last.begin + last.length === block) last.length++;
    else ranges.push({ kind: kindOf(block), begin: block, length: 1 });
  }
  return ranges.map(({ kind, begin, length }) => `    <${kind} begin="${begin}" length="${length}"/>\n`);
}

/** Takes a message about the metadata snapshot of a pool, of which there is one at most. */
export function metadataSnapshotMessage(machine: FakeMachine, args: readonly string[]): Output {
  const [, name, , message] = args;
  const path = `/dev/mapper/${name!.replace(/-tpool$/, "")}`;
  const pool = kernelPools(machine).find(({ group, lv }) => devicePath(group, lv) === path)?.lv.thinPool;
  const refused = (reason: string) =>
    failure(1, `device-mapper: message ioctl on ${name}  failed: ${reason}\nCommand failed.`);
  if (pool === undefined) return refused("No such device or address");
  const isReserved = message === "reserve_metadata_snap";
  if (isReserved && pool.metadataSnapshot) return refused("Device or resource busy");
  if (!isReserved && !pool.metadataSnapshot) return refused("Invalid argument");
  pool.metadataSnapshot = isReserved;
  return ok();
}
