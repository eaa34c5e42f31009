/**
 * Reads and writes devices as streams, past the page cache. The programs of the closed list do it, so that the process
 * needs no right on any device.
 *
 * @module
 */

import { dd, type Exec } from "../exec.ts";
import { type Range, RANGE_UNIT } from "./protocol.ts";
import type { CommandStreams } from "../command_streams.ts";

/** The time after which reading or writing a range counts as failed, in milliseconds. */
const RANGE_DEADLINE_MS = 60 * 60 * 1000;

/**
 * Reads a range of a device. One that changes nothing is killed when its receiver fails.
 *
 * @param range of whole units, but for the end of the device
 * @param unit the bytes that are read at a time
 */
export async function readRange(
  exec: Exec,
  path: string,
  { offset, length }: Range,
  onOutput: NonNullable<CommandStreams["onOutput"]>,
  unit: bigint = RANGE_UNIT,
): Promise<void> {
  const blocks = { bs: unit, skip: offset / unit, count: (length + unit - 1n) / unit };
  await dd(exec, { if: path, ...blocks, iflag: "direct,fullblock" }, { deadlineMs: RANGE_DEADLINE_MS, onOutput });
}

/**
 * Writes a range of a device. It is never killed: when its input ends, or fails, it writes what it has, and ends.
 *
 * @param options.skipsZeros whether blocks of zeros are not written, because they read as zeros
 * @param options.unit the bytes that are written at a time
 */
export async function writeRange(
  exec: Exec,
  path: string,
  { offset }: Pick<Range, "offset">,
  input: NonNullable<CommandStreams["input"]>,
  { skipsZeros, unit = RANGE_UNIT }: { readonly skipsZeros: boolean; readonly unit?: bigint },
): Promise<void> {
  const flags = { iflag: "fullblock", oflag: "direct", conv: `fsync,nocreat,notrunc${skipsZeros ? ",sparse" : ""}` };
  await dd(exec, { of: path, bs: unit, seek: offset / unit, ...flags }, {
    mutates: true,
    deadlineMs: RANGE_DEADLINE_MS,
    input,
  });
}
