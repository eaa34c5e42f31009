/**
 * Makes physical volumes of disks that an administrator accepted, and adds them to volume groups. {@linkcode nextStep} decides;
 * this reads and acts, one step at a time.
 *
 * @module
 */

import { flushDisks, type Lvm } from "../client/client.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { runOk } from "../exec.ts";
import { readBlockDevices } from "../host/device.ts";
import { pvcreate, pvremove, vgcreate, vgextend } from "../model/command_lines.ts";
import type { VolumeGroup } from "../model/report.ts";
import { readSurvey, type Survey } from "../model/survey.ts";
import type { DiskFacts, DiskRecord, DiskStep } from "./orders.ts";
import { byIdPath, type DiskRule, type NamedDisk, type NamedDisks, readNamedDisks } from "./reading.ts";

/** Options of {@linkcode DiskTaking}. */
export interface DiskTakingOptions {
  /** LVM on this machine. */
  readonly lvm: Pick<Lvm, "exec" | "change" | "report">;
  /** The rules that name disks. */
  readonly rules: readonly DiskRule[];
  /** The data directory of kubelet. */
  readonly kubeletDirectory: string;
}

/** What was read of the machine. */
export interface MachineDisks {
  /** The disks that rules name. */
  readonly named: NamedDisks;
  /** All groups, and the physical volumes without one. */
  readonly survey: Survey;
  /** The groups that LVM would change here. */
  readonly report: readonly VolumeGroup[];
  /** The numbers of the devices of the physical volumes without a group, by their UUIDs. */
  readonly pvNumbers: ReadonlyMap<string, string>;
}

/** LVM asks about every signature that libblkid knows, not only about its own. The driver never answers. */
const CONFIG = "allocation/use_blkid_wiping=1";

/** Takes disks. */
export class DiskTaking {
  readonly #options: DiskTakingOptions;
  #running: Promise<void> | undefined;

  /** Changes nothing before {@linkcode DiskTaking.act}. */
  constructor(options: DiskTakingOptions) {
    this.#options = options;
  }

  /**
   * Resolves when a command has ended that outlasted its deadline; `undefined` while none runs. It still changes something: what
   * is read meanwhile decides nothing.
   */
  get running(): Promise<void> | undefined {
    return this.#running;
  }

  /** Reads disks, groups and physical volumes. @throws {StorageError} those of the reports */
  async read(): Promise<MachineDisks> {
    const { lvm } = this.#options;
    const named = await readNamedDisks(lvm.exec, this.#options);
    const survey = await readSurvey(lvm.exec);
    const report = await lvm.report();
    const pvNumbers = new Map<string, string>();
    for (const { uuid, path, missing } of survey.unassignedPvs) {
      const [device] = missing ? [] : await readBlockDevices(lvm.exec, [path]);
      if (device !== undefined) pvNumbers.set(uuid, device.number);
    }
    return { named, survey, report, pvNumbers };
  }

  /**
   * Takes a step that changes the machine.
   *
   * @throws {StorageError} `CommandFailed` when LVM refuses it; `StillRunning`; those of {@linkcode Lvm.change}
   */
  async act(step: DiskStep): Promise<void> {
    try {
      await this.#act(step);
    } catch (error) {
      const completion = lateCompletion(error);
      if (completion !== undefined) {
        const running = completion.catch(() => {}).then(() => {
          if (this.#running === running) this.#running = undefined;
        });
        this.#running = running;
      }
      throw error;
    }
  }

  async #act(step: DiskStep): Promise<void> {
    const { lvm } = this.#options;
    switch (step.kind) {
      case "createPv": {
        const { disk, record: { pvUuid } } = step;
        const path = await this.#requirePath(disk);
        await this.#run(pvcreate({ uuid: pvUuid, norestorefile: true, config: CONFIG }, path));
        return await flushDisks(lvm.exec, [disk.path]);
      }
      case "createGroup":
        await this.#run(vgcreate(step.record.group, await this.#requirePath(step.disk)));
        return await flushDisks(lvm.exec, [step.disk.path]);
      case "extendGroup": {
        const path = await this.#requirePath(step.disk);
        await lvm.change(step.group, vgextend(step.group.name, path), { devices: [path] });
        return await flushDisks(lvm.exec, [step.disk.path]);
      }
      case "removePv":
        return await this.#run(pvremove(step.path));
    }
  }

  /**
   * Returns the path of a disk by its name: a disk that gets the path of one that was pulled does not get that. LVM would make
   * a physical volume of any blank disk that it is given for a group.
   *
   * @throws {StorageError} `FailedPrecondition` when the name does not lead to the disk that was judged
   */
  async #requirePath({ name, number }: NamedDisk): Promise<string> {
    const path = byIdPath(name);
    const [device] = await readBlockDevices(this.#options.lvm.exec, [path]);
    if (device?.number === number) return path;
    throw new StorageError(
      "FailedPrecondition",
      `taking disk ${name}: ${path} does not lead to device ${number} any more`,
    );
  }

  async #run(args: readonly string[]): Promise<void> {
    await runOk(this.#options.lvm.exec, { program: "lvm", args, mutates: true });
  }
}

/**
 * Returns what a decision about a disk depends on.
 *
 * @param more what is known beside the machine
 */
export function diskFacts(
  { named, survey, report, pvNumbers }: MachineDisks,
  { name, record, ...more }:
    & { readonly name: string; readonly record: DiskRecord | undefined }
    & Pick<DiskFacts, "objections" | "recordedGroups" | "recordedPvs">,
): DiskFacts {
  return {
    ...more,
    survey,
    report,
    disk: named.disks.find((disk) => disk.name === name),
    isThere: named.names.has(name),
    pvNumber: record && pvNumbers.get(record.pvUuid),
  };
}
