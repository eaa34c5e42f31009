/**
 * Flags that several subcommands have, and the parsers of the values of flags. A parser throws an error that names the
 * flag, the value, and what is accepted. The process that parses the command line loads this module, so it stays small.
 *
 * @module
 */

import { parseOvercommit, type PoolAutoextend } from "../lvm/pools/pool.ts";
import { parseGroupEntries, requireDriverName, socketPath } from "../csi/driver_options.ts";
import { quote } from "../base/error.ts";
import { ANY_GROUP } from "../lvm/model/groups.ts";
import { parseDiskRules } from "../lvm/disks/rules.ts";
import { DEFAULT_SNAPSHOT_AUTOEXTEND, parseSnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import { httpAddress } from "./api_access.ts";
import { type Check, type Flag, type Flags, UsageError } from "./command_line.ts";
import { cgroupRoot } from "./paths.ts";

/** The levels of the log, the most verbose first. */
export const LOG_LEVELS = ["debug", "info", "warning", "error"] as const;

/** The formats of the log. */
export const LOG_FORMATS = ["text", "json"] as const;

/** The groups of controllers of `denolith controller`. */
export const CONTROLLER_NAMES = ["provisioner", "resizer", "snapshotter", "capacity"] as const;

/** The shells that have a completion script. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

/** The name of a group of controllers. */
export type ControllerName = (typeof CONTROLLER_NAMES)[number];

/** Checks a list of volume groups. The library for patterns is loaded only for a list that has one. */
export const checkGroupList: Check = async (list, field) => {
  if (list.includes("/")) return (await import("../csi/group_list.ts")).parseGroupList(list, field);
  return parseGroupEntries(list, field, () => ANY_GROUP);
};

/** Checks rules that propose disks. The library for patterns is loaded only for them. */
export const checkDiskRules: Check = async (text, field) =>
  parseDiskRules(text, (await import("../csi/group_list.ts")).patternMatcher, field);

/** The socket without `--endpoint` and CSI_ENDPOINT. */
const DEFAULT_ENDPOINT = "unix:///run/denolith/csi.sock";

/** Default of a flag for a name of this machine. */
export const HOST_NAME = { default: () => Deno.hostname(), defaultName: "the host name" } as const;

/** Flags that name the driver, its socket and the API server. */
export const COMMON_FLAGS = {
  endpoint: {
    value: "unix:///PATH.sock",
    help: "Unix socket of the driver; the environment variable CSI_ENDPOINT changes the default",
    default: () => Deno.env.get("CSI_ENDPOINT") || DEFAULT_ENDPOINT,
    defaultName: DEFAULT_ENDPOINT,
    variable: "CSI_ENDPOINT",
    check: socketPath,
  },
  "driver-name": {
    value: "NAME",
    help: "Name of the driver; LVM tags name it as the owner of a logical volume",
    default: () => "lvm.denolith.dev",
    check: requireDriverName,
  },
  kubeconfig: {
    value: "PATH",
    help: "Path to a kubeconfig file; only required outside of a pod",
    check: path,
    candidates: "files",
  },
} as const satisfies Record<string, Flag>;

/** Flags of the log. */
export const LOG_FLAGS = {
  "log-level": {
    value: "LEVEL",
    help: "Lowest level to log: debug, info, warning or error",
    default: () => "info",
    ...choice(LOG_LEVELS),
  },
  "log-format": {
    value: "FORMAT",
    help: "Format of the log on standard error: text or json",
    default: () => "text",
    ...choice(LOG_FORMATS),
  },
} as const satisfies Record<string, Flag>;

/** The percentages that flags of thin pools accept. */
const PERCENT_RANGES = {
  "thin-pool-autoextend-threshold": { min: 50, max: 100 },
  "thin-pool-autoextend-percent": { min: 1, max: 100 },
} as const;

/** Flags of thin pools. */
export const THIN_POOL_FLAGS = {
  "thin-pool-overcommit": {
    value: "RATIO",
    help: "Virtual size that a thin pool may allocate, as a multiple of its own size; the tag " +
      "denolith.overcommit of a pool takes precedence",
    default: () => "1",
    check: overcommitRatio,
  },
  "thin-pool-autoextend-threshold": {
    value: "PERCENT",
    help: "Usage in percent at which a thin pool of the driver is extended; 100 disables it",
    default: () => "80",
    check: percent(PERCENT_RANGES["thin-pool-autoextend-threshold"]),
  },
  "thin-pool-autoextend-percent": {
    value: "PERCENT",
    help: "Percentage of its size that the thin pool is extended by, as far as its volume group has free space",
    default: () => "20",
    check: percent(PERCENT_RANGES["thin-pool-autoextend-percent"]),
  },
  "thin-pool-remove-empty": { help: "Remove a thin pool of the driver together with the last volume in it" },
} as const satisfies Record<string, Flag>;

/** Flags of the processes that manage volumes on a machine. */
export const MACHINE_FLAGS = {
  "cgroup-root": {
    value: "PATH",
    help: "Directory outside of /sys where cgroup v2 is mounted; without it, IO limits are recorded and not applied",
    check: (path) => cgroupRoot({ "cgroup-root": path }),
    candidates: "directories",
  },
  "snapshot-autoextend": {
    value: "THRESHOLD:PERCENT",
    help: "Usage in percent at which the COW space of a snapshot is extended, and by how much of its size; off " +
      "disables it",
    default: () => DEFAULT_SNAPSHOT_AUTOEXTEND,
    check: parseSnapshotAutoextend,
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
    check: (text) => httpAddress({ "http-address": text }),
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
  const percentOf = (flag: keyof typeof PERCENT_RANGES) => percent(PERCENT_RANGES[flag])(flags[flag]!, `--${flag}`);
  const autoextend = {
    threshold: percentOf("thin-pool-autoextend-threshold"),
    percent: BigInt(percentOf("thin-pool-autoextend-percent")),
  };
  return {
    overcommit: overcommitOption(flags),
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
export function overcommitOption(flags: Flags): bigint {
  return overcommitRatio(flags["thin-pool-overcommit"]!, "--thin-pool-overcommit");
}

/** Returns a parser of one of several words. */
export function oneOf<T extends string>(words: readonly T[]): (text: string, field: string) => T {
  return (text, field) => {
    const word = words.find((word) => word === text);
    if (word !== undefined) return word;
    throw new UsageError(`${field} ${quote(text)}: must be ${inWords(words)}`);
  };
}

/** Returns the properties of a flag whose value is one of several words. */
export function choice<T extends readonly string[]>(words: T): { check: Check; candidates: T } {
  return { check: oneOf(words), candidates: words };
}

/** Returns the path of a file if it can be one. Whether there is a file, who reads it finds out. */
export function path(text: string, field: string): string {
  if (/^(?!-)\P{Cc}{1,4095}$/u.test(text)) return text;
  throw new UsageError(
    `${field} ${
      quote(text)
    }: must be a path of at most 4095 characters, without control characters and a dash at its ` +
      "beginning",
  );
}

/** Returns a reason if it can be recorded in objects, in one line of a few. */
export function reasonText(text: string, field: string): string {
  if (/\S/.test(text) && /^\P{Cc}{1,500}$/u.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be 1 to 500 characters on one line`);
}

/** Returns a parser of a whole number of percent. */
export function percent(range: { readonly min: number; readonly max: number }) {
  return (text: string, field: string): number => {
    const value = /^\d{1,3}$/.test(text) ? Number(text) : NaN;
    if (value >= range.min && value <= range.max) return value;
    throw new UsageError(`${field} ${quote(text)}: must be a whole number from ${range.min} to ${range.max}`);
  };
}

/** Parses a ratio of overcommit. @returns the virtual size that a pool may allocate, in percent of its size */
function overcommitRatio(text: string, field: string): bigint {
  const overcommit = parseOvercommit(text);
  if (overcommit !== undefined) return overcommit;
  throw new UsageError(`${field} ${quote(text)}: must be a number from 1 to 1000, with at most two decimals`);
}

/** Parses a list of groups of controllers, separated by commas. */
export function controllerNames(text: string, field: string): readonly ControllerName[] {
  const names = listOf(text);
  const known = names.map((name) => CONTROLLER_NAMES.find((one) => one === name));
  const unknown = names.find((_, index) => known[index] === undefined);
  if (names.length > 0 && unknown === undefined) return known.filter((name) => name !== undefined);
  throw new UsageError(`${field} ${quote(unknown ?? text)}: must be ${inWords(CONTROLLER_NAMES)}, separated by commas`);
}

/** Parses a list of names of labels, separated by commas. */
export function labelNames(text: string, field: string): readonly string[] {
  const names = listOf(text);
  const isName = (name: string) => /^(?:[a-z0-9.-]{1,253}\/)?[A-Za-z0-9_.-]{1,63}$/.test(name);
  if (names.length > 0 && names.every(isName)) return names;
  throw new UsageError(`${field} ${quote(text)}: must be names of labels, separated by commas`);
}

/** Returns the name of a namespace if it is valid (RFC 1123, label). */
export function namespaceName(text: string, field: string): string {
  if (/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be 1 to 63 lowercase letters, digits or "-"`);
}

/** Returns the name of a process if it is valid: an event names it, too, in at most 128 characters. */
export function processName(text: string, field: string): string {
  if (/^[!-~]{1,128}$/.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be 1 to 128 letters, digits or punctuation, without spaces`);
}

/** Returns settings of LVM if they look like some, each of them once. LVM itself parses them. */
export function lvmSettings(text: string, field: string): string {
  if (!/^.*=.*$/.test(text)) {
    throw new UsageError(
      `${field} ${quote(text)}: must be settings of lvm.conf, such as activation/udev_sync=0, on one line`,
    );
  }
  const names = [...text.replaceAll(/"(?:[^"\\]|\\.)*"/g, "").matchAll(/(?:^|\s)([\w/]+)\s*=/g)].map(([, name]) =>
    name!
  );
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice === undefined) return text;
  // LVM would warn about it at every command
  throw new UsageError(`${field} ${quote(text)}: must have each setting once, and has ${twice} twice`);
}

/** Returns the name of a devices file of LVM if it can be one. */
export function devicesFileName(text: string, field: string): string {
  if (/^(?![.-])[\w.-]{1,127}$/.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be auto or the name of a file in /etc/lvm/devices`);
}

function listOf(text: string): string[] {
  return text.split(",").map((name) => name.trim()).filter((name) => name !== "");
}

/** Returns words as a list of alternatives. */
export function inWords(words: readonly string[]): string {
  return words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}
