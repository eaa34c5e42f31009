/**
 * The kernel's device-mapper, as dmsetup(8) and LVM report it: its targets, modules and devices.
 *
 * @module
 */

import { type Command, commandError, type Exec, runOk } from "../exec.ts";
import { defined } from "../../base/defined.ts";
import { SharedRuns } from "../../base/queues.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";

/** A device-mapper device. */
export interface MappedDevice {
  /** The name, as below `/dev/mapper`. */
  readonly name: string;
  /**
   * The UUID. That of an LVM device is `LVM-`, the UUID of the group and the UUID of the LV without hyphens, and for a
   * hidden layer its name.
   */
  readonly uuid: string;
  /** The device number, `major:minor`. */
  readonly number: string;
  /** True if it is suspended: reads and writes wait until it is resumed. */
  readonly suspended: boolean;
  /** The numbers of the devices below it. */
  readonly dependencies: readonly string[];
  /** The tables that are loaded: the one in use, and one that takes its place when the device is resumed. */
  readonly tables: LoadedTables;
}

/** The tables of a device, as dmsetup(8) names them (`tables_loaded`). */
export type LoadedTables = "None" | "Live" | "Inactive" | "Both";

/** The versions of LVM and of the kernel's device-mapper. */
export interface LvmVersion {
  /** The version of LVM, such as `2.03.16`. */
  readonly lvm: string;
  /** The version of the kernel's driver; `undefined` when the kernel's device-mapper cannot be reached. */
  readonly dmDriver?: string;
}

/**
 * Reads LVM's version.
 *
 * @throws {StorageError} `CommandFailed` when the output contains none
 */
export async function readLvmVersion(exec: Exec): Promise<LvmVersion> {
  const command: Command = { program: "lvm", args: ["version"], mutates: false };
  const output = await exec.run(command);
  const lvm = /LVM version:\s+(\d+\.\d+\.\d+)/.exec(output.stdout)?.[1];
  if (lvm === undefined) throw commandError(command, output);
  const dmDriver = /Driver version:\s+(\S+)/.exec(output.stdout)?.[1];
  return { lvm, ...defined({ dmDriver }) };
}

/**
 * Reads the targets that the kernel has now. A target whose module is not loaded is not included.
 *
 * @returns the version of each target, by its name
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached
 */
export async function readDmTargets(exec: Exec): Promise<ReadonlyMap<string, string>> {
  const answer = await runOk(exec, { program: "dmsetup", args: ["targets"], mutates: false });
  return new Map([...answer.matchAll(/^(\S+)\s+v(\S+)$/gm)].map(([, name, version]) => [name!, version!]));
}

/** Returns those of the kernel modules that the running kernel can load, or has built in (modinfo(8)). */
export async function readModules(exec: Exec, modules: readonly string[]): Promise<ReadonlySet<string>> {
  const found = await Promise.all(modules.map(async (module) => {
    const command: Command = { program: "modinfo", args: ["--field", "filename", module], mutates: false };
    return (await exec.run(command)).code === 0;
  }));
  return new Set(modules.filter((_, index) => found[index]));
}

/** What dmsetup says of a device that the kernel does not have. */
const IS_GONE = /not found|does not exist/i;

/** How often all devices are read while one goes after the other. */
const LIST_ATTEMPTS = 5;

/**
 * Reads all device-mapper devices. dmsetup fails when one of them goes while it lists them: then it is asked again.
 *
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached
 */
export async function readMappedDevices(exec: Exec): Promise<MappedDevice[]> {
  const command = listDevices([]);
  for (let attempt = 1;; attempt++) {
    const output = await exec.run(command);
    if (output.code === 0) return parseDevices(output.stdout);
    if (!IS_GONE.test(output.stderr) || attempt === LIST_ATTEMPTS) throw commandError(command, output);
  }
}

/**
 * Reads the device-mapper device of a name.
 *
 * @returns `undefined` when the kernel has none
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached
 */
export async function readMappedDevice(exec: Exec, name: string): Promise<MappedDevice | undefined> {
  const command = listDevices([name]);
  const output = await exec.run(command);
  if (output.code === 0) return parseDevices(output.stdout)[0];
  if (IS_GONE.test(output.stderr)) return undefined;
  throw commandError(command, output);
}

/** Reads devices by their names, those of callers that ask at the same time together. */
export class MappedDeviceReader {
  readonly #exec: Exec;
  readonly #runs = new SharedRuns<readonly MappedDevice[]>();
  readonly #names = new Set<string>();

  /** Creates it. */
  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Reads a device as {@linkcode readMappedDevice} does. */
  async read(name: string): Promise<MappedDevice | undefined> {
    this.#names.add(name);
    const devices = await this.#runs.run("", async () => {
      const [first, ...others] = this.#names;
      this.#names.clear();
      if (others.length > 0) return await readMappedDevices(this.#exec); // dmsetup ends at a name that it does not find
      return [await readMappedDevice(this.#exec, first!)].filter((device) => device !== undefined);
    });
    return devices.find((device) => device.name === name);
  }
}

/**
 * Returns the commands by which a person resumes a device that a crash left suspended. A killed command of LVM may have loaded a
 * table that must not be put in use (resumption.ts).
 */
export function resumeRemedy(name: string): string {
  return `dmsetup clear ${name} && dmsetup resume ${name}`;
}

function listDevices(names: readonly string[]): Command {
  const options = ["--options", "name,uuid,devno,suspended,devnos_used,tables_loaded"];
  // no name contains '|': device-mapper writes it as \x7c
  const args = ["info", "--columns", "--noheadings", "--separator", "|", ...options, ...names];
  return { program: "dmsetup", args, mutates: false };
}

function parseDevices(stdout: string): MappedDevice[] {
  return stdout.split("\n").map((line) => line.trim().split("|")).filter((fields) => fields.length === 6)
    .map(([name, uuid, number, suspended, uses, tables]) => ({
      name: name!,
      uuid: uuid!,
      number: number!,
      suspended: suspended === "Suspended",
      dependencies: uses!.match(/\d+:\d+/g) ?? [],
      tables: tables as LoadedTables,
    }));
}

/** Usage of a thin pool, in percent. */
export interface PoolUsage {
  /** Of its data. */
  readonly data: number;
  /** Of its metadata. */
  readonly metadata: number;
}

/**
 * Reads the usage of the thin pools that the kernel has. A failed pool reports no usage: it counts as full.
 *
 * @returns the usage in percent, by the device-mapper names of the pools
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached
 */
export async function readPoolUsage(exec: Exec): Promise<ReadonlyMap<string, PoolUsage>> {
  return new Map((await readPoolStatus(exec)).map(([name, status]) => {
    const [, usedMetadata, metadata, usedData, data] = /^\d+ (\d+)\/([1-9]\d*) (\d+)\/([1-9]\d*) /.exec(status) ?? [];
    if (data === undefined) return [name, { data: 100, metadata: 100 }];
    const percent = (used: string | undefined, total: string | undefined) =>
      Math.floor(100 * Number(used) / Number(total));
    return [name, { data: percent(usedData, data), metadata: percent(usedMetadata, metadata) }];
  }));
}

/**
 * Reads the numbers of the last transactions of the thin pools that the kernel has, but for failed ones.
 *
 * @returns the numbers, by the device-mapper names of the pools
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached
 */
export async function readPoolTransactions(exec: Exec): Promise<ReadonlyMap<string, bigint>> {
  return new Map((await readPoolStatus(exec)).flatMap(([name, status]) => {
    const [, number] = /^(\d+) /.exec(status) ?? [];
    return number === undefined ? [] : [[name, BigInt(number)]];
  }));
}

/** Reads the status of the thin pools that the kernel has, each with its device-mapper name. */
export async function readPoolStatus(exec: Exec): Promise<[string, string][]> {
  const args = ["status", "--target", "thin-pool", "--noflush"];
  const answer = await runOk(exec, { program: "dmsetup", args, mutates: false });
  return [...answer.matchAll(/^(\S+): \d+ \d+ thin-pool (.*)$/gm)].map(([, name, status]) => [name!, status!]);
}

/** Sends a message to the target of a thin pool. @param name the device-mapper name of the kernel's pool */
export async function messagePool(exec: Exec, name: string, message: string): Promise<void> {
  await runOk(exec, { program: "dmsetup", args: ["message", name, "0", message], mutates: true });
}

/** Returns the UUID of the device of an LV. Those of hidden layers of it begin with that, too. */
export function deviceUuidOf(group: Pick<VolumeGroup, "uuid">, lv: Pick<LogicalVolume, "uuid">): string {
  return `LVM-${`${group.uuid}${lv.uuid}`.replaceAll("-", "")}`;
}

/** Returns the UUID of the LV whose device has a UUID; `undefined` for a device of another group, and for a hidden layer. */
export function lvUuidOf(group: Pick<VolumeGroup, "uuid">, deviceUuid: string): string | undefined {
  const [own, digits = ""] = deviceUuid.split(deviceUuidOf(group, { uuid: "" }));
  return own === ""
    ? /^(\w{6})(\w{4})(\w{4})(\w{4})(\w{4})(\w{4})(\w{6})$/.exec(digits)?.slice(1).join("-")
    : undefined;
}
