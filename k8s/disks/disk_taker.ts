/**
 * Takes the disks that administrators accepted in the LVMNode: each becomes a physical volume of its volume group. What it is
 * about to do is recorded in the status first, so that it continues after a crash.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { defined } from "../../base/defined.ts";
import { type DiskOrder, type DiskRecord, type DiskStep, newPvUuid, nextStep } from "../../lvm/disks/orders.ts";
import { diskFacts, type DiskTaking, type MachineDisks } from "../../lvm/disks/taking.ts";
import { StorageError } from "../../base/error.ts";
import type { SurveyedGroup } from "../../lvm/model/survey.ts";
import {
  type AcceptedDisk,
  type AcceptedDiskStatus,
  type LvmNode,
  lvmNodes,
  type LvmVolume,
} from "../api/lvm_objects.ts";
import type { NewCondition } from "../api/conditions.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import { attachmentObjections, type Attachments, readAttachments } from "./attachments.ts";
import type { NodeClient } from "../client/client.ts";

/** Options of {@linkcode DiskTaker}. */
export interface DiskTakerOptions extends Omit<NodeClient, "clock"> {
  /** The recorder of events. */
  readonly events: Pick<EventRecorder, "record">;
  /** Reads and changes the machine. */
  readonly taking: Pick<DiskTaking, "running" | "read" | "act">;
  /** The LVMVolumes of this node. */
  readonly volumeObjects: Pick<Informer<LvmVolume>, "hasSynced" | "list">;
  /** Called after a volume group or the list of outcomes was changed: the next report is due at once. */
  readonly onChange: () => void;
  /** Returns a new UUID of a physical volume. */
  readonly newUuid?: () => string;
}

/** The greatest number of steps for a disk at once: record, physical volume, group, done, and one more. */
const MAX_STEPS = 6;

/** The greatest length of a message, as the CRD has it. */
const MAX_MESSAGE = 1024;

/** The conditions of an LVMNode about accepted disks. */
const CONDITIONS = { refused: "DisksRefused", lost: "DisksLost" } as const;

const log = getLogger(["denolith", "disks"]);

/** Takes the accepted disks of a node. */
export class DiskTaker {
  readonly #options: DiskTakerOptions;
  #groups: readonly SurveyedGroup[] = [];
  #outcomes: readonly AcceptedDiskStatus[] | undefined;

  /** Does nothing before {@linkcode DiskTaker.reconcile}. */
  constructor(options: DiskTakerOptions) {
    this.#options = options;
  }

  /** Keeps a report, and returns the conditions that were true after the last reconciliation; none before the first one. */
  observe(groups: readonly SurveyedGroup[]): NewCondition[] {
    this.#groups = groups;
    if (this.#outcomes === undefined) return [];
    const describe = ({ name, message = "" }: AcceptedDiskStatus) => message === "" ? name : `${name}: ${message}`;
    const refused = this.#outcomes.filter(({ state, message }) => state !== "Lost" && message !== undefined).map(
      describe,
    );
    const lost = this.#outcomes.filter(({ state }) => state === "Lost").map(({ name, volumeGroup }) =>
      `${name}, a physical volume of volume group ${volumeGroup}`
    );
    const text = (parts: readonly string[]) => parts.join("; ").slice(0, 4_096);
    return [
      refused.length === 0
        ? { type: CONDITIONS.refused, status: "False", reason: "DisksTaken", message: "no accepted disk waits" }
        : { type: CONDITIONS.refused, status: "True", reason: "DisksRefused", message: text(refused) },
      lost.length === 0
        ? {
          type: CONDITIONS.lost,
          status: "False",
          reason: "DisksPresent",
          message: "all disks that were taken are there",
        }
        : { type: CONDITIONS.lost, status: "True", reason: "DisksLost", message: text(lost) },
    ];
  }

  /** Takes the disks that are accepted and not taken. What fails is said in the status, and tried again the next time. */
  async reconcile(seen: LvmNode): Promise<void> {
    const { taking, client, nodeName, driver, volumeObjects } = this.#options;
    this.#outcomes = seen.status?.acceptedDisks ?? [];
    const names = namesOf(seen);
    if (names.every((name) => this.#isSettled(seen, name))) return;
    if (taking.running !== undefined || !volumeObjects.hasSynced) return;
    try {
      for (const name of names) {
        if (!this.#isSettled(seen, name)) await this.#settle(name);
      }
    } catch (error) {
      log.warn("taking disks failed", { error });
    }
    const after = await client.get(lvmNodes, { name: nodeName });
    if (after.spec.driverName !== driver || after.metadata.uid !== seen.metadata.uid) return;
    const outcomes = after.status?.acceptedDisks ?? [];
    if (JSON.stringify(outcomes) !== JSON.stringify(this.#outcomes)) this.#options.onChange();
    this.#outcomes = outcomes;
  }

  /** Reports whether a disk was taken, and is in its group by the last report. */
  #isSettled(node: LvmNode, name: string): boolean {
    const record = node.status?.acceptedDisks?.find((one) => one.name === name);
    if (record?.state !== "Taken" || record.message !== undefined) return false;
    const group = this.#groups.find(({ uuid }) => uuid === record.volumeGroupUUID);
    return group?.pvs.some(({ uuid, missing }) => uuid === record.physicalVolumeUUID && !missing) ?? false;
  }

  /**
   * Goes from step to step. Before each, it reads the acceptance, the machine and what is attached again: what was true when the
   * disk was accepted, or recorded, may not be true any more.
   */
  async #settle(name: string): Promise<void> {
    const { client, nodeName, driver, taking } = this.#options;
    for (let count = 0; count < MAX_STEPS; count++) {
      const machine = await taking.read();
      let node = await client.get(lvmNodes, { name: nodeName });
      if (node.spec.driverName !== driver) return;
      let step = this.#nextStep(node, name, machine);
      // the list is that of the whole cluster: a disk that is not about to be taken needs none
      if (step.kind === "record" || step.kind === "createPv") {
        const attachments = await readAttachments(client, nodeName);
        node = await client.get(lvmNodes, { name: nodeName }); // the last to be read: it may be withdrawn any time
        if (node.spec.driverName !== driver) return;
        step = this.#nextStep(node, name, machine, attachments);
      }
      if (!await this.#take(node, { name, step, machine })) return;
    }
  }

  #nextStep(node: LvmNode, name: string, machine: MachineDisks, attachments?: Attachments): DiskStep {
    const found = machine.named.disks.find((disk) => disk.name === name);
    const record = recordOf(node, name);
    const facts = diskFacts(machine, {
      ...{ name, record, recordedGroups: this.#recordedGroups(node), recordedPvs: recordedPvs(node) },
      objections: found === undefined || attachments === undefined
        ? []
        : attachmentObjections({ path: found.path, names: found.ids }, attachments),
    });
    return nextStep(orderOf(node, name), record, facts);
  }

  /** Takes a step. @returns whether another one follows */
  async #take(
    node: LvmNode,
    { name, step, machine }: { readonly name: string; readonly step: DiskStep; readonly machine: MachineDisks },
  ): Promise<boolean> {
    const known = node.status?.acceptedDisks?.find((one) => one.name === name);
    const order = orderOf(node, name);
    const volumeGroup = order?.group ?? known?.volumeGroup ?? "";
    switch (step.kind) {
      case "none":
        if (known !== undefined) await this.#write(node, name, asTaken(known));
        return false;
      case "refuse":
        await this.#refuse(node, { name, volumeGroup, state: "Refused" }, step.reason);
        return false;
      case "stay":
        await this.#refuse(
          node,
          { ...known!, state: known!.volumeGroupUUID === undefined ? "Taking" : "Taken" },
          step.reason,
        );
        return false;
      case "forget":
        await this.#write(node, name, undefined);
        return false;
      case "lost":
        await this.#write(node, name, { ...withoutMessage(known!), state: "Lost" });
        return false;
      case "done":
        await this.#write(node, name, { ...withoutMessage(known!), state: "Taken", volumeGroupUUID: step.groupUuid });
        if (known!.volumeGroupUUID === undefined) this.#recordTaken(node, known!, machine);
        return false;
      case "record": {
        const physicalVolumeUUID = (this.#options.newUuid ?? newPvUuid)();
        await this.#write(node, name, { name, volumeGroup, state: "Taking", physicalVolumeUUID });
        return true;
      }
      default:
        return await this.#act(node, known!, step);
    }
  }

  /**
   * Changes the machine. What LVM refuses is said, and the record stays: the next report shows how far it came. That comes in its
   * own time, unless a command still runs and ends before.
   */
  async #act(node: LvmNode, known: AcceptedDiskStatus, step: DiskStep): Promise<boolean> {
    const { taking, onChange } = this.#options;
    try {
      await taking.act(step);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      void taking.running?.then(onChange);
      await this.#refuse(node, known, error.message);
      return false;
    }
    onChange();
    return true;
  }

  #recordTaken(node: LvmNode, { name, volumeGroup }: AcceptedDiskStatus, { named }: MachineDisks): void {
    const path = named.disks.find((disk) => disk.name === name)?.path ?? "?";
    const message = `disk ${name} (${path}) is a physical volume of volume group ${volumeGroup}`;
    this.#options.events.record(node, "Normal", "DiskTaken", message);
  }

  /** Writes why a disk is not taken, with an event when that is news. */
  async #refuse(node: LvmNode, outcome: AcceptedDiskStatus, reason: string): Promise<void> {
    const message = reason.slice(0, MAX_MESSAGE);
    const before = node.status?.acceptedDisks?.find(({ name }) => name === outcome.name);
    await this.#write(node, outcome.name, { ...outcome, message });
    if (before?.message === message) return;
    const text =
      `disk ${outcome.name} was accepted for volume group ${outcome.volumeGroup}, and is not taken: ${message}`;
    this.#options.events.record(node, "Warning", "DiskRefused", text);
  }

  /** Writes what became of a disk, if it differs. Only this agent writes the list. */
  async #write(node: LvmNode, name: string, outcome: AcceptedDiskStatus | undefined): Promise<void> {
    const before = node.status?.acceptedDisks ?? [];
    const others = before.filter((one) => one.name !== name);
    const acceptedDisks = [...others, ...(outcome === undefined ? [] : [outcome])]
      .sort((a, b) => a.name < b.name ? -1 : 1);
    if (JSON.stringify(acceptedDisks) === JSON.stringify(before)) return;
    const { client, nodeName } = this.#options;
    await client.patch(lvmNodes, { name: nodeName }, { merge: { status: { acceptedDisks } }, subresource: "status" });
  }

  /** Returns the groups that are recorded for volumes and taken disks, by name. */
  #recordedGroups(node: LvmNode): Map<string, string> {
    const { volumeObjects, driver } = this.#options;
    return new Map([
      ...volumeObjects.list().flatMap(({ spec, status }): [string, string][] =>
        spec.driverName === driver && status?.volumeGroup !== undefined && status.volumeGroupUUID !== undefined
          ? [[status.volumeGroup, status.volumeGroupUUID]]
          : []
      ),
      ...(node.status?.acceptedDisks ?? []).flatMap(({ volumeGroup, volumeGroupUUID }): [string, string][] =>
        volumeGroupUUID === undefined ? [] : [[volumeGroup, volumeGroupUUID]]
      ),
    ]);
  }
}

/** Returns what is kept of a disk about which nothing is to be done: nothing, if it was only refused. */
function asTaken(known: AcceptedDiskStatus): AcceptedDiskStatus | undefined {
  return known.physicalVolumeUUID === undefined ? undefined : { ...withoutMessage(known), state: "Taken" };
}

function withoutMessage({ message: _, ...outcome }: AcceptedDiskStatus): AcceptedDiskStatus {
  return outcome;
}

/** Returns the names of the disks that are accepted, or were. */
function namesOf({ spec, status }: LvmNode): string[] {
  const all = [...spec.acceptedDisks ?? [], ...status?.acceptedDisks ?? []];
  return [...new Set(all.map(({ name }) => name))].sort();
}

function orderOf({ spec }: LvmNode, name: string): DiskOrder | undefined {
  const accepted = spec.acceptedDisks?.find((one: AcceptedDisk) => one.name === name);
  if (accepted === undefined) return undefined;
  const { volumeGroup, volumeGroupUUID, identity } = accepted;
  return { name, group: volumeGroup, identity, ...defined({ groupUuid: volumeGroupUUID }) };
}

function recordOf({ status }: LvmNode, name: string): DiskRecord | undefined {
  const outcome = status?.acceptedDisks?.find((one) => one.name === name);
  if (outcome?.physicalVolumeUUID === undefined) return undefined;
  const { volumeGroup, physicalVolumeUUID, volumeGroupUUID } = outcome;
  return { name, group: volumeGroup, pvUuid: physicalVolumeUUID, ...defined({ groupUuid: volumeGroupUUID }) };
}

function recordedPvs({ status }: LvmNode): Set<string> {
  return new Set((status?.acceptedDisks ?? []).flatMap(({ physicalVolumeUUID }) => physicalVolumeUUID ?? []));
}
