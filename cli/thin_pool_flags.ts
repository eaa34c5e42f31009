/**
 * The flags about thin pools, which `denolith node` and `denolith standalone` have.
 *
 * @module
 */

import { type Flag, type Flags, UsageError } from "./command_line.ts";
import type { PoolAutoextend } from "../lvm/pools/pool_autoextend.ts";
import { parseOvercommit } from "../lvm/pools/pool.ts";

/** The flags by name. */
export const THIN_POOL_FLAGS = {
  "thin-pool-overcommit": {
    value: "RATIO",
    help: "how much thin pools may promise, in their own sizes; a pool's tag can say otherwise",
    default: () => "1",
  },
  "thin-pool-autoextend-threshold": {
    value: "PERCENT",
    help: "how full a thin pool of the driver is when it grows; 100 for never",
    default: () => "80",
  },
  "thin-pool-autoextend-percent": {
    value: "PERCENT",
    help: "by how much of its size it grows, as far as its group has room",
    default: () => "20",
  },
  "thin-pool-remove-empty": { help: "remove thin pools of the driver with their last volume; they stay by default" },
} as const satisfies Record<string, Flag>;

/** What the flags say. @throws {UsageError} when one cannot be read. */
export function thinPoolOptions(
  flags: Flags,
): { overcommit: bigint; autoextend: PoolAutoextend; removeEmptyPools: boolean } {
  const autoextend = {
    threshold: parsePercentFlag(flags, "thin-pool-autoextend-threshold", 50, 100),
    percent: BigInt(parsePercentFlag(flags, "thin-pool-autoextend-percent", 1, 100)),
  };
  return {
    overcommit: parseOvercommitFlag(flags),
    autoextend,
    removeEmptyPools: flags["thin-pool-remove-empty"] !== undefined,
  };
}

/** How much pools may promise, in percent of their sizes. @throws {UsageError} when the flag cannot be read. */
export function parseOvercommitFlag(flags: Flags): bigint {
  const ratio = flags["thin-pool-overcommit"]!;
  const overcommit = parseOvercommit(ratio);
  if (overcommit !== undefined) return overcommit;
  throw new UsageError(`--thin-pool-overcommit ${ratio}: must be a number from 1 to 1000, with at most two decimals`);
}

function parsePercentFlag(
  flags: Flags,
  name: "thin-pool-autoextend-threshold" | "thin-pool-autoextend-percent",
  min: number,
  max: number,
): number {
  const text = flags[name]!;
  const percent = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
  if (percent >= min && percent <= max) return percent;
  throw new UsageError(`--${name} ${text}: must be a whole number from ${min} to ${max}`);
}
