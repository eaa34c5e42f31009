/**
 * Decides what is to be done with a disk that an administrator accepted as a physical volume. It decides by what was read just
 * now; {@linkcode DiskTaking} reads and acts.
 *
 * Taking is done in steps, and each can be the last one before a crash. The UUID of the physical volume is chosen and recorded
 * before anything is written to the disk, so that what is found later tells how far it came.
 *
 * @module
 */

import { GROUP_NAME } from "../model/groups.ts";
import type { VolumeGroup } from "../model/report.ts";
import type { Survey, SurveyedGroup } from "../model/survey.ts";
import type { NamedDisk } from "./reading.ts";

/** What an administrator accepted: a disk as it is attached now, for a volume group as it is now. */
export interface DiskOrder {
  /** The disk's name in /dev/disk/by-id. */
  readonly name: string;
  /** The volume group. */
  readonly group: string;
  /** The UUID of the group; absent if the group is to be created. */
  readonly groupUuid?: string;
  /** What tells the disk from another one behind its name ({@linkcode diskIdentity}). */
  readonly identity: string;
}

/** What is recorded of a disk before anything is written to it, and stays. */
export interface DiskRecord {
  /** The disk's name in /dev/disk/by-id. */
  readonly name: string;
  /** The volume group. */
  readonly group: string;
  /** The UUID that its physical volume gets, or has. */
  readonly pvUuid: string;
  /** The UUID of the group; absent until the physical volume is in it. */
  readonly groupUuid?: string;
}

/** What a decision depends on. */
export interface DiskFacts {
  /** The disk that rules name, by the name of the order. */
  readonly disk: NamedDisk | undefined;
  /** Whether the machine has a disk of this name, whatever rules say. */
  readonly isThere: boolean;
  /** Checks of the disk that failed, in addition to those of the machine. */
  readonly objections: readonly string[];
  /** All groups, those of other hosts among them, and the physical volumes without a group. */
  readonly survey: Pick<Survey, "groups" | "unassignedPvs">;
  /** The groups that LVM would change here. */
  readonly report: readonly VolumeGroup[];
  /** The number of the device that has the recorded physical volume, if it is in no group. */
  readonly pvNumber: string | undefined;
  /** The groups that are recorded for volumes or disks, by name, with their UUIDs. */
  readonly recordedGroups: ReadonlyMap<string, string>;
  /** The UUIDs of the physical volumes of all records. */
  readonly recordedPvs: ReadonlySet<string>;
}

/** The next step. */
export type DiskStep =
  /** There is nothing to do. */
  | { readonly kind: "none" }
  /** It is not taken, and nothing was written to it: a record is not needed any more. */
  | { readonly kind: "refuse"; readonly reason: string }
  /** It has its physical volume, and cannot go on. The record stays. */
  | { readonly kind: "stay"; readonly reason: string }
  /** The record is not needed any more: nothing was written, or somebody removed the physical volume. */
  | { readonly kind: "forget" }
  /** A UUID is chosen and recorded. */
  | { readonly kind: "record" }
  /** The physical volume is created. */
  | { readonly kind: "createPv"; readonly disk: NamedDisk; readonly record: DiskRecord }
  /** The group is created of it. */
  | { readonly kind: "createGroup"; readonly disk: NamedDisk; readonly record: DiskRecord }
  /** It is added to the group. */
  | { readonly kind: "extendGroup"; readonly disk: NamedDisk; readonly group: VolumeGroup }
  /** The physical volume is removed: nobody wants it any more, and it is in no group. */
  | { readonly kind: "removePv"; readonly path: string; readonly record: DiskRecord }
  /** It is in the group. */
  | { readonly kind: "done"; readonly groupUuid: string }
  /** It was in the group, and the machine does not have it any more. */
  | { readonly kind: "lost" };

/**
 * Returns the next step for a disk.
 *
 * @param order what is accepted; `undefined` when it is not, or not any more
 * @param record what is recorded; `undefined` before anything is
 */
export function nextStep(order: DiskOrder | undefined, record: DiskRecord | undefined, facts: DiskFacts): DiskStep {
  if (record === undefined) {
    if (order === undefined) return { kind: "none" };
    const reasons = orderObjections(order, facts);
    return reasons.length > 0 ? refusal(reasons) : { kind: "record" };
  }
  const isOurs = ({ uuid }: { readonly uuid: string }) => uuid === record.pvUuid;
  const home = facts.survey.groups.find(({ pvs }) => pvs.some((pv) => isOurs(pv) && !pv.missing));
  if (home !== undefined) return inGroup(record, home);
  const unassigned = facts.survey.unassignedPvs.find((pv) => isOurs(pv) && !pv.missing);
  // of an acceptance for another group, nothing is continued
  const same = order?.group === record.group ? order : undefined;
  if (record.groupUuid !== undefined) return afterDone(same, facts, unassigned !== undefined);
  if (unassigned !== undefined) return withPv(same, record, facts, unassigned.path);
  if (same === undefined) return { kind: "forget" };
  const reasons = orderObjections(same, facts);
  return reasons.length > 0 ? refusal(reasons) : { kind: "createPv", disk: facts.disk!, record };
}

/** The physical volume is in a group. */
function inGroup(record: DiskRecord, home: SurveyedGroup): DiskStep {
  if (record.groupUuid === home.uuid) return { kind: "none" };
  if (home.name === record.group || record.groupUuid !== undefined) return { kind: "done", groupUuid: home.uuid };
  return { kind: "stay", reason: `its physical volume is in volume group ${home.name}, and not in ${record.group}` };
}

/** The physical volume was in a group, and is not. An order that was carried out is not carried out again. */
function afterDone(order: DiskOrder | undefined, facts: DiskFacts, isPvThere: boolean): DiskStep {
  if (order === undefined && !isPvThere) return { kind: "forget" };
  if (!facts.isThere) return { kind: "lost" };
  return {
    kind: "stay",
    reason: isPvThere
      ? "its physical volume is not in the volume group any more"
      : "its physical volume is not on it any more; to have it taken again, withdraw the acceptance, and accept the disk again",
  };
}

/** The physical volume was created, and is in no group. */
function withPv(order: DiskOrder | undefined, record: DiskRecord, facts: DiskFacts, path: string): DiskStep {
  if (facts.disk === undefined || facts.disk.number !== facts.pvNumber) {
    const where = `its physical volume ${record.pvUuid} is on ${path}`;
    return { kind: "stay", reason: `${where}, which is not the disk: look at both, and remove it with pvremove(8)` };
  }
  if (order === undefined) return { kind: "removePv", path, record };
  const [wrong] = groupObjections(order, facts);
  if (wrong !== undefined) return { kind: "stay", reason: wrong };
  const group = facts.report.find(({ name }) => name === order.group);
  const { disk } = facts;
  return group === undefined ? { kind: "createGroup", disk, record } : { kind: "extendGroup", disk, group };
}

function refusal(reasons: readonly string[]): DiskStep {
  return { kind: "refuse", reason: reasons.join("; ") };
}

/** Returns the checks that an order fails before anything is written. */
function orderObjections(order: DiskOrder, facts: DiskFacts): string[] {
  const { disk, isThere, objections } = facts;
  if (disk === undefined) return [isThere ? "no rule names it any more" : "it is not there"];
  return [
    ...(disk.identity === order.identity ? [] : [
      "it is not as it was accepted: another disk has its name, or it was attached again, or the node was started, since; look " +
      "at it, and accept it again",
    ]),
    ...(disk.group === order.group
      ? []
      : [`it was accepted for volume group ${order.group}, and the rules name ${disk.group}`]),
    ...disk.objections,
    ...objections,
    ...groupObjections(order, facts),
  ];
}

/** Returns the checks that the group of an order fails: it must be as it was when the disk was accepted. */
function groupObjections({ group: name, groupUuid }: DiskOrder, facts: DiskFacts): string[] {
  if (!GROUP_NAME.test(name)) return ["the name of the volume group is not valid"];
  const [found, ...others] = facts.survey.groups.filter((group) => group.name === name);
  const usable = facts.report.find((group) => group.uuid === found?.uuid);
  if (others.length > 0) return [`several volume groups have the name ${name}`];
  if (found === undefined) {
    if (groupUuid !== undefined) return [`volume group ${name} (${groupUuid}) is not there any more`];
    const recorded = facts.recordedGroups.get(name);
    return recorded === undefined
      ? []
      : [`volume group ${name} (${recorded}) is not there, and must not be created a second time`];
  }
  if (groupUuid !== undefined && groupUuid !== found.uuid) {
    return [`another volume group has the name ${name} now (${found.uuid}, and not ${groupUuid})`];
  }
  if (groupUuid === undefined && !found.pvs.every(({ uuid }) => facts.recordedPvs.has(uuid))) {
    return [`volume group ${name} was created since the disk was accepted for a new one; accept it again`];
  }
  return usable === undefined
    ? [`volume group ${name} belongs to another host, or is shared by hosts`]
    : !usable.responsive
    ? [`volume group ${name} does not respond`]
    : !usable.writeable
    ? [`volume group ${name} is read-only or exported`]
    : usable.missingPvs > 0
    ? [`volume group ${name} has missing physical volumes, and LVM adds none to it`]
    : [];
}

/** The letters of LVM's UUIDs, but for `!` and `#`, which some tools do not print as they are. */
const LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** Returns a new UUID as LVM writes them (pvcreate(8), `--uuid`): 32 letters, each of 62. */
export function newPvUuid(): string {
  let text = "";
  while (text.length < 32) {
    // the values beyond the last multiple of 62 would make some letters more likely
    for (const byte of crypto.getRandomValues(new Uint8Array(32))) if (byte < 248) text += LETTERS[byte % 62];
  }
  return text.slice(0, 32).replace(/^(.{6})(.{4})(.{4})(.{4})(.{4})(.{4})(.{6})$/, "$1-$2-$3-$4-$5-$6-$7");
}
