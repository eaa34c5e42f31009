/**
 * The fake machine's dd that reads a device to its output, or writes its input to a device. What an LV has is written into its
 * blocks: each begins with a JSON text, and has zeros after it, or what dd wrote to it, chunk by chunk. So a device that gets what
 * differs from another one, without the beginnings of blocks, has what was written since.
 *
 * @module
 */

import type { Command, Output } from "../../../lvm/exec.ts";
import { failure, type FakeLv, type FakeMachine, isReadOnly, ok } from "./machine.ts";
import { blankContent, type DeviceContent, type FakeLuks } from "./device_content.ts";
import { deviceBytes } from "./thin.ts";
import { bytesOf, noteReceived } from "./block_tools.ts";
import { zeroesNewBlocks } from "./copy_tools.ts";

/** The size of a block: that of dd for all of a device. */
const BLOCK_BYTES = 4 << 20;

/** The size of the blocks of dd for what differs. */
const UNIT_BYTES = 64 << 10;

/** The size of a text with the zeros after it. */
const HEAD_BYTES = 4096;

/** The size of the parts that a command writes at a time. */
const PART_BYTES = 1 << 20;

/** The text in a block. */
interface BlockText {
  /** The UUID of the LV that it was read from first. */
  readonly from: string;
  /** The number of its blocks. */
  readonly count: number;
  /** In the first block: what the LV has. */
  readonly content?: Record<string, unknown>;
}

/** What was written to LVs as streams: the texts of their blocks. */
const BLOCKS = new WeakMap<FakeLv, Map<number, string>>();

/** Reports whether a command streams a range of a device that is copied. Other readers of devices count in bytes. */
export function isDeviceStream({ program, args, input, onOutput }: Command): boolean {
  return program === "dd" && (input ?? onOutput) !== undefined && !args.some((arg) => arg.includes("skip_bytes"));
}

/** Runs dd with a stream. */
export async function streamDevice(machine: FakeMachine, { args, input, onOutput }: Command): Promise<Output> {
  const values = new Map(args.map((arg) => arg.split("=", 2) as [string, string]));
  if (![BLOCK_BYTES, UNIT_BYTES].includes(Number(values.get("bs")))) {
    throw new Error(`dd in other blocks: ${args.join(" ")}`);
  }
  return input === undefined ? await read(machine, values, onOutput!) : await write(machine, values, input);
}

async function read(
  machine: FakeMachine,
  values: ReadonlyMap<string, string>,
  onOutput: NonNullable<Command["onOutput"]>,
): Promise<Output> {
  const path = values.get("if")!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return failure(1, `dd: failed to open '${path}': No such file or directory`);
  if (lv.invalid || lv.content.unreadable) return failure(1, `dd: error reading '${path}': Input/output error`);
  using _open = machine.openDevice(path);
  const size = Number(deviceBytes(lv));
  const bs = Number(values.get("bs"));
  const first = Number(values.get("skip")) * bs;
  const end = Math.min(first + Number(values.get("count")) * bs, size);
  for (let at = first; at < end; at += PART_BYTES) {
    const bytes = bytesOf(lv, at, Math.min(PART_BYTES, end - at));
    for (let block = Math.ceil(at / BLOCK_BYTES); block * BLOCK_BYTES < at + bytes.length; block++) {
      const text = BLOCKS.get(lv)?.get(block) ?? textOf(lv, block, Math.ceil(size / BLOCK_BYTES));
      const head = bytes.subarray(block * BLOCK_BYTES - at).subarray(0, HEAD_BYTES);
      head.fill(0).set(new TextEncoder().encode(text));
    }
    await onOutput(bytes);
  }
  return ok();
}

function textOf({ uuid, content }: FakeLv, block: number, count: number): string {
  return JSON.stringify({ from: uuid, count, ...(block === 0 ? { content: serialize(content) } : {}) });
}

/** Returns a content as JSON has it, with what is below its LUKS header. */
function serialize({ luks, ...content }: DeviceContent): Record<string, unknown> {
  const { signatures, zeroHead, filesystemBytes, blockBytes, checkStatus, isClean, data } = content;
  return {
    ...{ signatures, zeroHead, checkStatus, isClean, data: [...data] },
    ...{ filesystemBytes: `${filesystemBytes}`, blockBytes: `${blockBytes}` },
    ...(luks && { luks: { ...luks, content: serialize(luks.content) } }),
  };
}

/** Returns what {@linkcode serialize} has of a content, with the data or without. */
function deserialize(
  { data, filesystemBytes, blockBytes, luks, ...rest }: Record<string, unknown>,
  withData: boolean,
): DeviceContent {
  const below = luks as (FakeLuks & { content: unknown }) | undefined;
  return {
    ...blankContent(),
    ...rest as Partial<DeviceContent>,
    ...{ filesystemBytes: BigInt(filesystemBytes as string), blockBytes: BigInt(blockBytes as string) },
    ...(withData && { data: new Set(data as string[]) }),
    ...(below && {
      luks: {
        ...below,
        passphrases: below.passphrases.map((passphrase) => passphrase ?? undefined), // JSON has null
        content: deserialize(below.content as unknown as Record<string, unknown>, withData),
      },
    }),
  };
}

async function write(
  machine: FakeMachine,
  values: ReadonlyMap<string, string>,
  input: NonNullable<Command["input"]>,
): Promise<Output> {
  const path = values.get("of")!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return failure(1, `dd: failed to open '${path}': No such file or directory`);
  if (machine.mounts.some((mount) => mount.lv === lv)) throw new Error(`dd over ${path}, which is mounted`);
  const skipsZeros = values.get("conv")!.endsWith(",sparse");
  if (skipsZeros && !zeroesNewBlocks(machine, lv)) throw new Error(`${path} keeps what it has`);
  if (isReadOnly(lv)) return failure(1, `dd: error writing '${path}': Operation not permitted`);
  using _open = machine.openDevice(path);
  const bs = Number(values.get("bs"));
  let offset = Number(values.get("seek")) * bs;
  const bytes = new Uint8Array(bs);
  let length = 0;
  const flush = () => {
    if (length === 0) return;
    const isHead = offset % BLOCK_BYTES === 0;
    if (isHead) applyBlock(lv, offset / BLOCK_BYTES, bytes.subarray(0, length));
    const skipped = isHead ? HEAD_BYTES : 0;
    noteReceived(lv, offset + skipped, bytes.subarray(skipped, length));
    offset += length;
    length = 0;
  };
  try {
    for await (const part of input) {
      for (let at = 0; at < part.length;) {
        const piece = part.subarray(at, at + bs - length);
        bytes.set(piece, length);
        length += piece.length;
        at += piece.length;
        if (length === bs) flush();
      }
    }
  } finally {
    flush();
  }
  return ok();
}

/** Writes a block. When all blocks of an LV are there, its data is. */
function applyBlock(lv: FakeLv, block: number, bytes: Uint8Array): void {
  const text = new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  const { from, count, content } = JSON.parse(text) as BlockText;
  const blocks = BLOCKS.get(lv) ?? new Map<number, string>();
  BLOCKS.set(lv, blocks.set(block, text));
  lv.content.data.add(`a piece of ${from}`);
  if (content !== undefined) {
    const { data: _data, writes: _writes, ...rest } = deserialize(content, false);
    Object.assign(lv.content, { ...rest, luks: rest.luks, isInconsistent: false });
  }
  const texts = Array.from({ length: count }, (_, block) => blocks.get(block));
  if (texts.some((text) => text === undefined || (JSON.parse(text) as BlockText).from !== from)) return;
  const whole = deserialize((JSON.parse(texts[0]!) as BlockText).content!, true);
  lv.content.data = whole.data;
  if (whole.luks !== undefined) lv.content.luks = whole.luks;
}
