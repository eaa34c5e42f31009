/**
 * Runs the commands of lvm so that they do not read devices over logical volumes.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, type Output } from "../exec.ts";
import {
  acceptsAll,
  acceptsName,
  namesOfOthers,
  readStackedDevices,
  stackedFilter,
  type StackedReadings,
} from "./stacked_devices.ts";
import { parseSettings } from "../model/configuration.ts";

/** What LVM prints about filters where a devices file takes their place: what is not listed there is not read, either. */
const IGNORED = /^\s*Please remove the lvm\.conf (?:global_)?filter, it is ignored with the devices file\.\n/gm;

/** The pattern that rejects further names of devices, which are links to them. */
const OTHER_NAMES = "r|^/dev/(disk|block|md|bcache)/|";

/** The commands that read no disk, or are about LVM's own settings. */
const WITHOUT_DISKS = ["lvmconfig", "systemid", "version"];

/**
 * Runs commands as another exec does, those of lvm with a filter. The filter is that of the devices as they were before the last
 * report of all groups, so that each decision is made without the others, and what changes a group cannot mean another one.
 */
export class FilteredExec implements Exec {
  readonly #exec: Exec;
  #settings: string | undefined;
  #hostFilters: HostFilters | undefined;
  #stacked: StackedReadings | undefined;
  /** Reads the mount table as the other exec does. */
  readonly readMountTable?: NonNullable<Exec["readMountTable"]>;

  /** Creates an exec. @param exec runs the commands */
  constructor(exec: Exec) {
    this.#exec = exec;
    if (exec.readMountTable !== undefined) this.readMountTable = () => exec.readMountTable!();
  }

  /** Runs a command. LVM ignores filters for one with `--devices`, which reads these alone. */
  async run(command: Command): Promise<Output> {
    const { program, args } = command;
    if (program !== "lvm" || WITHOUT_DISKS.includes(args[0]!) || args.includes("--devices")) {
      return await this.#exec.run(command);
    }
    if (args[0] === "fullreport" || this.#settings === undefined) this.#settings = await this.#readSettings();
    const output = await this.#exec.run({ ...command, config: this.#settings });
    return { ...output, stderr: output.stderr.replace(IGNORED, "") };
  }

  /** Waits for the commands of the other exec. */
  async idle(): Promise<void> {
    await this.#exec.idle();
  }

  async #readSettings(): Promise<string> {
    const [hostFilters, stacked] = await Promise.all([
      this.#readHostFilters(),
      readStackedDevices(this.#exec, this.#stacked),
    ]);
    this.#stacked = stacked;
    return `devices/scan_lvs=0 ${filterSetting(hostFilters, stackedFilter(stacked), namesOfOthers(stacked))}`;
  }

  /** Reads the filters each time, since an administrator may change them; those before where that fails. */
  async #readHostFilters(): Promise<HostFilters> {
    try {
      return this.#hostFilters = await readHostFilters(this.#exec);
    } catch (error) {
      if (this.#hostFilters === undefined || !(error instanceof StorageError)) throw error;
      return this.#hostFilters;
    }
  }
}

/** The filters in the host's configuration of LVM, as far as they are set. */
type HostFilters = Readonly<Partial<Record<"filter" | "global_filter", readonly string[]>>>;

async function readHostFilters(exec: Exec): Promise<HostFilters> {
  // merged, since LVM would otherwise show the settings of its command line alone; it fails for one that is not set
  const args = ["lvmconfig", "--type", "current", "--mergedconfig", "devices/filter", "devices/global_filter"];
  const command: Command = { program: "lvm", args, mutates: false };
  const output = await exec.run(command);
  // another failure says nothing about the filters, and the driver's would then replace that of the host
  if (output.code !== 0 && !/node devices\/\w*filter not found/.test(output.stderr)) {
    throw commandError(command, output);
  }
  return Object.fromEntries(parseSettings(output.stdout));
}

/**
 * Returns the setting that adds patterns to the filters of the host. A device must pass both of LVM's filters, and passes one
 * when it accepts any name of the device. So the patterns are the whole of the filter that the host does not use, if there is
 * one: beside a pattern that accepts all names, they would reject no device that has another name, as in /dev/disk.
 *
 * If the host uses both, such names are rejected, too, in one that accepts all other devices by their own names.
 *
 * @param others the names of each device that is not to be rejected
 */
export function filterSetting(
  { filter, global_filter: global }: HostFilters,
  patterns: readonly string[],
  others: readonly (readonly string[])[] = [],
): string {
  if (acceptsAll(global)) return formatSetting("global_filter", patterns);
  if (acceptsAll(filter)) return formatSetting("filter", patterns);
  const acceptsOthers = (patterns: readonly string[]) =>
    others.length > 0 && others.every((names) => names.some((name) => acceptsName(patterns, name)));
  const own = { filter: [OTHER_NAMES, ...filter!], global_filter: [OTHER_NAMES, ...global!] };
  const name = (["filter", "global_filter"] as const).find((name) => acceptsOthers(own[name]));
  return name === undefined
    ? formatSetting("filter", [...patterns, ...filter!])
    : formatSetting(name, [...patterns, ...own[name]]);
}

function formatSetting(name: keyof HostFilters, all: readonly string[]): string {
  return `devices/${name}=[${all.map((pattern) => `"${pattern.replace(/["\\]/g, "\\$&")}"`).join(",")}]`;
}
