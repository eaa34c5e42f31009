/**
 * Flags that several subcommands have, and the parsers of the flags of thin pools.
 *
 * @module
 */

import type { PoolAutoextend } from "../lvm/pools/pool_autoextend.ts";
import { parseOvercommit } from "../lvm/pools/pool.ts";
import { DEFAULT_SNAPSHOT_AUTOEXTEND } from "../lvm/snapshots/cow_autoextend.ts";
import { type Flag, type Flags, UsageError } from "./command_line.ts";

/** Flags that name the driver, its socket and the API server. */
export const COMMON_FLAGS = {
  endpoint: {
    value: "unix:///PATH.sock",
    help: "Unix socket of the driver; the environment variable CSI_ENDPOINT changes the default",
    default: () => Deno.env.get("CSI_ENDPOINT") ?? "unix:///run/denolith/csi.sock",
  },
  "driver-name": {
    value: "NAME",
    help: "Name of the driver; LVM tags name it as the owner of a logical volume",
    default: () => "lvm.denolith.dev",
  },
  kubeconfig: {
    value: "PATH",
    help: "Path to a kubeconfig file; only required outside of a pod",
  },
} as const satisfies Record<string, Flag>;

/** Flags of the log. */
export const LOG_FLAGS = {
  "log-level": { value: "LEVEL", help: "Lowest level to log: debug, info, warning or error", default: () => "info" },
  "log-format": { value: "FORMAT", help: "Format of the log on standard error: text or json", default: () => "text" },
} as const satisfies Record<string, Flag>;

/** Flags of thin pools. */
export const THIN_POOL_FLAGS = {
  "thin-pool-overcommit": {
    value: "RATIO",
    help: "Virtual size that a thin pool may allocate, as a multiple of its own size; the tag " +
      "denolith.overcommit of a pool takes precedence",
    default: () => "1",
  },
  "thin-pool-autoextend-threshold": {
    value: "PERCENT",
    help: "Usage in percent at which a thin pool of the driver is extended; 100 disables it",
    default: () => "80",
  },
  "thin-pool-autoextend-percent": {
    value: "PERCENT",
    help: "Percentage of its size that the thin pool is extended by, as far as its volume group has free space",
    default: () => "20",
  },
  "thin-pool-remove-empty": { help: "Remove a thin pool of the driver together with the last volume in it" },
} as const satisfies Record<string, Flag>;

/** Flags of the processes that manage volumes on a machine. */
export const MACHINE_FLAGS = {
  "cgroup-root": {
    value: "PATH",
    help: "Directory outside of /sys where cgroup v2 is mounted; without it, IO limits are recorded and not applied",
  },
  "snapshot-autoextend": {
    value: "THRESHOLD:PERCENT",
    help: "Usage in percent at which the COW space of a snapshot is extended, and by how much of its size; off " +
      "disables it",
    default: () => DEFAULT_SNAPSHOT_AUTOEXTEND,
  },
  ...THIN_POOL_FLAGS,
} as const satisfies Record<string, Flag>;

/** Flags of the processes of a cluster. */
export const CLUSTER_FLAGS = {
  "driver-name": COMMON_FLAGS["driver-name"],
  kubeconfig: COMMON_FLAGS.kubeconfig,
  "disable-process-metrics": { help: "Omit the metrics process_* from /metrics" },
  ...LOG_FLAGS,
} as const satisfies Record<string, Flag>;

/** Returns the flag of the HTTP address of a process of a cluster. @param address the default */
export function httpFlag(address: string): Flag {
  return {
    value: "ADDRESS",
    help:
      "Address to serve /livez, /readyz and /metrics on, HOST:PORT, or :PORT for all IPv4 and IPv6 addresses; off disables it",
    default: () => address,
  };
}

/** The values of the flags of thin pools. */
export interface ThinPoolFlagValues {
  /** Virtual size that a pool may allocate, in percent of its size. */
  readonly overcommit: bigint;
  /** The policy for the extension of the driver's pools. */
  readonly autoextend: PoolAutoextend;
  /** True if a pool of the driver is removed together with its last volume. */
  readonly removeEmptyPools: boolean;
}

/**
 * Parses the flags of thin pools.
 *
 * @throws {UsageError} when one of them cannot be parsed
 */
export function thinPoolOptions(flags: Flags): ThinPoolFlagValues {
  const autoextend = {
    threshold: parsePercentFlag(flags, "thin-pool-autoextend-threshold", { min: 50, max: 100 }),
    percent: BigInt(parsePercentFlag(flags, "thin-pool-autoextend-percent", { min: 1, max: 100 })),
  };
  return {
    overcommit: parseOvercommitFlag(flags),
    autoextend,
    removeEmptyPools: flags["thin-pool-remove-empty"] !== undefined,
  };
}

/**
 * Parses `--thin-pool-overcommit`.
 *
 * @returns the virtual size that a thin pool may allocate, in percent of its size
 * @throws {UsageError} when it cannot be parsed
 */
export function parseOvercommitFlag(flags: Flags): bigint {
  const ratio = flags["thin-pool-overcommit"]!;
  const overcommit = parseOvercommit(ratio);
  if (overcommit !== undefined) return overcommit;
  throw new UsageError(`--thin-pool-overcommit ${ratio}: must be a number from 1 to 1000, with at most two decimals`);
}

function parsePercentFlag(
  flags: Flags,
  name: "thin-pool-autoextend-threshold" | "thin-pool-autoextend-percent",
  { min, max }: { readonly min: number; readonly max: number },
): number {
  const text = flags[name]!;
  const percent = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
  if (percent >= min && percent <= max) return percent;
  throw new UsageError(`--${name} ${text}: must be a whole number from ${min} to ${max}`);
}
