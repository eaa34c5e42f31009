/**
 * Reads and writes devices as streams, past the page cache. The programs of the closed list do it, so that the process
 * needs no right on any device.
 *
 * @module
 */

import { type Exec, runOk } from "../exec.ts";
import { MAX_DATA_BYTES, type Range, RANGE_UNIT } from "./protocol.ts";
import type { CommandStreams } from "../command_streams.ts";

/** The time after which reading or writing a range counts as failed, in milliseconds. */
const RANGE_DEADLINE_MS = 60 * 60 * 1000;

/**
 * Reads a range of a device. One that changes nothing is killed when its receiver fails.
 *
 * @param range of whole units, but for the end of the device
 */
export async function readRange(
  exec: Exec,
  path: string,
  { offset, length }: Range,
  onOutput: NonNullable<CommandStreams["onOutput"]>,
): Promise<void> {
  const args = [
    ...[`if=${path}`, `bs=${MAX_DATA_BYTES}`, `skip=${offset / RANGE_UNIT}`, `count=${units(length)}`],
    ...["iflag=direct,fullblock", "status=none"],
  ];
  await runOk(exec, { program: "dd", args, mutates: false, deadlineMs: RANGE_DEADLINE_MS, onOutput });
}

/**
 * Writes a range of a device. It is never killed: when its input ends, or fails, it writes what it has, and ends.
 *
 * @param options.skipsZeros whether blocks of zeros are not written, because they read as zeros
 */
export async function writeRange(
  exec: Exec,
  path: string,
  { offset }: Pick<Range, "offset">,
  input: NonNullable<CommandStreams["input"]>,
  { skipsZeros }: { readonly skipsZeros: boolean },
): Promise<void> {
  const args = [
    ...[`of=${path}`, `bs=${MAX_DATA_BYTES}`, `seek=${offset / RANGE_UNIT}`, "iflag=fullblock", "oflag=direct"],
    ...[`conv=fsync,nocreat,notrunc${skipsZeros ? ",sparse" : ""}`, "status=none"],
  ];
  await runOk(exec, { program: "dd", args, mutates: true, deadlineMs: RANGE_DEADLINE_MS, input });
}

function units(length: bigint): bigint {
  return (length + RANGE_UNIT - 1n) / RANGE_UNIT;
}
