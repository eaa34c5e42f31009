/**
 * The flags about thin pools, which `denolith node` and `denolith standalone` have.
 *
 * @module
 */

import { type Flag, type Flags, UsageError } from "./command_line.ts";
import type { PoolGrowth } from "../lvm/pools/pool_growth.ts";
import { parseOvercommit } from "../lvm/pools/pool.ts";

/** The flags by name. */
export const THIN_FLAGS = {
  "thin-overcommit": {
    value: "RATIO",
    help: "how much thin pools may promise, in their own sizes; a pool's tag can say otherwise",
    default: () => "1",
  },
  "thin-grow-at": {
    value: "PERCENT",
    help: "how full a thin pool of the driver is when it grows; 100 for never",
    default: () => "80",
  },
  "thin-grow-by": {
    value: "PERCENT",
    help: "by how much of its size it grows, as far as its group has room",
    default: () => "20",
  },
  "thin-remove-empty": { help: "remove thin pools of the driver with their last volume; they stay by default" },
} as const satisfies Record<string, Flag>;

/** What the flags say. @throws {UsageError} when one cannot be read. */
export function thinOptions(flags: Flags): { overcommit: bigint; growth: PoolGrowth; removeEmpty: boolean } {
  const growth = {
    at: percentOf(flags, "thin-grow-at", 50, 100),
    by: BigInt(percentOf(flags, "thin-grow-by", 1, 100)),
  };
  return { overcommit: overcommitOption(flags), growth, removeEmpty: flags["thin-remove-empty"] !== undefined };
}

/** How much pools may promise, in percent of their sizes. @throws {UsageError} when the flag cannot be read. */
export function overcommitOption(flags: Flags): bigint {
  const ratio = flags["thin-overcommit"]!;
  const overcommit = parseOvercommit(ratio);
  if (overcommit !== undefined) return overcommit;
  throw new UsageError(`--thin-overcommit ${ratio}: must be a number from 1 to 1000, with at most two decimals`);
}

function percentOf(flags: Flags, name: "thin-grow-at" | "thin-grow-by", least: number, most: number): number {
  const text = flags[name]!;
  const percent = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
  if (percent >= least && percent <= most) return percent;
  throw new UsageError(`--${name} ${text}: must be a whole number from ${least} to ${most}`);
}
