/**
 * LVM's settings, as the tools themselves see them (lvmconfig(8)): lvm.conf, lvmlocal.conf and the built-in defaults in one.
 *
 * @module
 */

import { type Command, commandError, type Exec } from "../exec.ts";

/** The settings that are asked for. Their last elements differ, since lvmconfig answers with those alone. */
const SETTINGS = [
  "global/locking_type",
  "global/use_lvmlockd",
  "global/wait_for_locks",
  "global/locking_dir",
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
  "global/thin_check_executable",
  "global/thin_dump_executable",
  "global/thin_repair_executable",
] as const;

/** The name of a setting, with its section. */
export type Setting = typeof SETTINGS[number];

/** LVM's settings. A setting that this version of LVM does not know, or that has no default, is absent. */
export class Configuration {
  readonly #values: ReadonlyMap<string, readonly string[]>;

  /** Takes the values by the last elements of their names. */
  constructor(values: ReadonlyMap<string, readonly string[]>) {
    this.#values = values;
  }

  /** The setting as a list; `undefined` when it is not set. */
  list(setting: Setting): readonly string[] | undefined {
    return this.#values.get(setting.split("/")[1]!);
  }

  /** The setting as one text or number; `undefined` when it is not set. */
  value(setting: Setting): string | undefined {
    return this.list(setting)?.[0];
  }
}

/** The command whose answer {@linkcode parseConfiguration} reads. */
export const CONFIGURATION_COMMAND: Command = {
  program: "lvm",
  args: ["lvmconfig", "--type", "full", ...SETTINGS],
  mutates: false,
};

/**
 * Asks LVM for its settings.
 *
 * @throws {StorageError} `CommandFailed` when the settings cannot be read, as when a file of them is broken.
 */
export async function readConfiguration(exec: Exec): Promise<Configuration> {
  const output = await exec.run(CONFIGURATION_COMMAND);
  // a name that this version does not know fails the command, though the others are answered
  if (output.code !== 0 && output.stdout.trim() === "") throw commandError(CONFIGURATION_COMMAND, output);
  return parseConfiguration(output.stdout);
}

/** Reads lines such as `monitoring=1` and `filter=["a|.*|"]`; quotes and backslashes in a text have a backslash before. */
export function parseConfiguration(stdout: string): Configuration {
  const values = new Map<string, readonly string[]>();
  for (const line of stdout.split("\n")) {
    const [, name, value] = /^\s*(\w+)=(.*\S)\s*$/.exec(line) ?? [];
    if (name === undefined || value === undefined) continue;
    const quoted = [...value.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text!.replace(/\\(.)/g, "$1"));
    values.set(name, /^["[]/.test(value) ? quoted : [value]);
  }
  return new Configuration(values);
}

/** How full, in percent, LVM's own daemon lets the stores of snapshots be before it grows them; `undefined` when it does not. */
export function snapshotAutoextendThreshold(settings: Configuration): number | undefined {
  const threshold = Number(settings.value("activation/snapshot_autoextend_threshold") ?? "100");
  return settings.value("activation/monitoring") === "1" && threshold < 100 ? threshold : undefined;
}
