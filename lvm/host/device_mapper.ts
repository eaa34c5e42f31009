/**
 * The kernel's device-mapper, as dmsetup(8) and LVM see it: its targets, its modules, its devices.
 *
 * @module
 */

import { type Command, commandError, type Exec, runOk } from "../exec.ts";

/** A device of device-mapper. */
export interface MappedDevice {
  /** Its name below `/dev/mapper`. */
  readonly name: string;
  /** Its UUID; for LVM's devices `LVM-`, the group's UUID and the LV's without hyphens, and for a hidden layer its name. */
  readonly uuid: string;
  /** `major:minor`. */
  readonly number: string;
  /** Whether whoever reads or writes it waits until it is resumed. */
  readonly suspended: boolean;
  /** The numbers of the devices that it is on. */
  readonly dependencies: readonly string[];
}

/** LVM's version and what it says of the kernel. */
export interface LvmVersion {
  /** For example `2.03.16`. */
  readonly lvm: string;
  /** The version of the kernel's driver; `undefined` when the kernel's device-mapper cannot be reached. */
  readonly dmDriver?: string;
}

/** Asks for LVM's version. @throws {StorageError} `CommandFailed` when there is none in the answer. */
export async function readLvmVersion(exec: Exec): Promise<LvmVersion> {
  const command: Command = { program: "lvm", args: ["version"], mutates: false };
  const output = await exec.run(command);
  const lvm = /LVM version:\s+(\d+\.\d+\.\d+)/.exec(output.stdout)?.[1];
  if (lvm === undefined) throw commandError(command, output);
  const dmDriver = /Driver version:\s+(\S+)/.exec(output.stdout)?.[1];
  return { lvm, ...(dmDriver === undefined ? {} : { dmDriver }) };
}

/**
 * The targets that the kernel has now, by name, with their versions. One whose module is not loaded is not among them.
 *
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached.
 */
export async function readDmTargets(exec: Exec): Promise<ReadonlyMap<string, string>> {
  const answer = await runOk(exec, { program: "dmsetup", args: ["targets"], mutates: false });
  return new Map([...answer.matchAll(/^(\S+)\s+v(\S+)$/gm)].map(([, name, version]) => [name!, version!]));
}

/** Those of the kernel modules that the running kernel can load, or has built in (modinfo(8)). */
export async function readModules(exec: Exec, modules: readonly string[]): Promise<ReadonlySet<string>> {
  const found = await Promise.all(modules.map(async (module) => {
    const command: Command = { program: "modinfo", args: ["--field", "filename", module], mutates: false };
    return (await exec.run(command)).code === 0;
  }));
  return new Set(modules.filter((_, index) => found[index]));
}

/**
 * All devices of device-mapper.
 *
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached.
 */
export async function readMappedDevices(exec: Exec): Promise<MappedDevice[]> {
  const answer = await runOk(exec, {
    program: "dmsetup",
    // '|' is no character of a name: device-mapper writes it as \x7c
    args: [
      "info",
      "--columns",
      "--noheadings",
      "--separator",
      "|",
      "--options",
      "name,uuid,devno,suspended,devnos_used",
    ],
    mutates: false,
  });
  return answer.split("\n").map((line) => line.trim().split("|")).filter((fields) => fields.length === 5)
    .map(([name, uuid, number, suspended, uses]) => ({
      name: name!,
      uuid: uuid!,
      number: number!,
      suspended: suspended === "Suspended",
      dependencies: uses!.match(/\d+:\d+/g) ?? [],
    }));
}

/** How full a thin pool is, in percent. */
export interface PoolUsage {
  /** Its data. */
  readonly data: number;
  /** Its metadata. */
  readonly metadata: number;
}

/**
 * How full the thin pools are that the kernel has, by the names of their devices. One that is out of order, and so tells no
 * figures, is full.
 *
 * @throws {StorageError} `CommandFailed` when the kernel's device-mapper cannot be reached.
 */
export async function readPoolUsage(exec: Exec): Promise<ReadonlyMap<string, PoolUsage>> {
  const args = ["status", "--target", "thin-pool", "--noflush"];
  const answer = await runOk(exec, { program: "dmsetup", args, mutates: false });
  return new Map([...answer.matchAll(/^(\S+): \d+ \d+ thin-pool (.*)$/gm)].map(([, name, status]) => {
    const [, usedMetadata, metadata, usedData, data] = /^\d+ (\d+)\/(\d+) (\d+)\/(\d+) /.exec(status!) ?? [];
    if (data === undefined) return [name!, { data: 100, metadata: 100 }];
    const percent = (used: string | undefined, total: string | undefined) =>
      Math.floor(100 * Number(used) / Number(total));
    return [name!, { data: percent(usedData, data), metadata: percent(usedMetadata, metadata) }];
  }));
}
