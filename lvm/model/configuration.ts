/**
 * LVM's settings, as lvmconfig(8) reports them: lvm.conf, lvmlocal.conf and the built-in defaults.
 *
 * @module
 */

import { type Command, commandError, type Exec } from "../exec.ts";

/** The settings that are read. Their last elements differ, since lvmconfig prints only those. */
const SETTINGS = [
  "global/locking_type",
  "global/use_lvmlockd",
  "global/use_lvmetad",
  "global/wait_for_locks",
  "global/locking_dir",
  "global/system_id_source",
  "devices/filter",
  "devices/global_filter",
  "devices/use_devicesfile",
  "devices/devicesfile",
  "devices/scan_lvs",
  "devices/issue_discards",
  "activation/volume_list",
  "activation/read_only_volume_list",
  "activation/udev_sync",
  "activation/udev_rules",
  "activation/monitoring",
  "activation/snapshot_autoextend_threshold",
  "activation/thin_pool_autoextend_threshold",
  "backup/archive",
  "backup/archive_dir",
  "global/thin_check_executable",
  "global/thin_dump_executable",
  "global/thin_repair_executable",
] as const;

/** The name of a setting, with its section. */
export type Setting = typeof SETTINGS[number];

/** LVM's settings. A setting that this version of LVM does not have, or that has no default, is absent. */
export class Configuration {
  readonly #values: ReadonlyMap<string, readonly string[]>;

  /** Creates settings from the values by the last elements of their names. */
  constructor(values: ReadonlyMap<string, readonly string[]>) {
    this.#values = values;
  }

  /** Returns a setting as a list; `undefined` when it is not set. */
  list(setting: Setting): readonly string[] | undefined {
    return this.#values.get(setting.split("/")[1]!);
  }

  /** Returns a setting as a text or number; `undefined` when it is not set. */
  value(setting: Setting): string | undefined {
    return this.list(setting)?.[0];
  }
}

/** The command whose output {@linkcode parseConfiguration} parses. */
const CONFIGURATION_COMMAND: Command = {
  program: "lvm",
  args: ["lvmconfig", "--type", "full", ...SETTINGS],
  mutates: false,
};

/**
 * Reads LVM's settings.
 *
 * @throws {StorageError} `CommandFailed` when they cannot be read, for example because a file is invalid
 */
export async function readConfiguration(exec: Exec): Promise<Configuration> {
  const output = await exec.run(CONFIGURATION_COMMAND);
  // a setting that this version does not have fails the command, though it prints the others
  if (output.code !== 0 && output.stdout.trim() === "") throw commandError(CONFIGURATION_COMMAND, output);
  return parseConfiguration(output.stdout);
}

/**
 * Parses lines such as `monitoring=1` and `filter=["a|.*|"]`. Quotes and backslashes within a text are escaped by
 * backslashes.
 */
export function parseConfiguration(stdout: string): Configuration {
  return new Configuration(parseSettings(stdout));
}

/** Parses such lines. @returns the values by the last elements of their names */
export function parseSettings(stdout: string): ReadonlyMap<string, readonly string[]> {
  const values = new Map<string, readonly string[]>();
  for (const line of stdout.split("\n")) {
    const [, name, value] = /^\s*(\w+)=(.*\S)\s*$/.exec(line) ?? [];
    if (name === undefined || value === undefined) continue;
    const quoted = [...value.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text!.replace(/\\(.)/g, "$1"));
    values.set(name, /^["[]/.test(value) ? quoted : [value]);
  }
  return values;
}

/** Returns the usage of COW space at which dmeventd extends it, in percent; `undefined` when it does not. */
export function snapshotAutoextendThreshold(settings: Configuration): number | undefined {
  const threshold = Number(settings.value("activation/snapshot_autoextend_threshold") ?? "100");
  return settings.value("activation/monitoring") === "1" && threshold < 100 ? threshold : undefined;
}
