/**
 * Reads volume groups: all of them by one report, as long as LVM completes one.
 *
 * When a report does not end, because a disk does not respond, each known group is read separately, on its own physical
 * volumes (`--devices`, lvm(8)). Those that do not respond are shown as last reported. A report that LVM refuses, because it
 * cannot read one group, is replaced in the same way. When no group is known yet, those that the refused report shows are read
 * separately, and those that it names as unreadable are shown as such: a volume that no other group has may be in them.
 *
 * LVM completes most reports without a group whose metadata it cannot read, and prints a warning. The absence of such a group
 * proves nothing, so it is shown as one that cannot be read, too.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { defined } from "../../base/defined.ts";
import { commandError, describeCommand, type Exec, type Output, runOk } from "../exec.ts";
import { mayHaveHostUse, withHostUse } from "../model/host_use.ts";
import type { VolumeGroup } from "../model/report.ts";
import { parseReport, parseUnreadable } from "../model/report_parser.ts";
import { REPORT_COMMAND } from "../model/report_command.ts";
import type { KnownGroups } from "./known_report.ts";

/** Deadline of a report on a single group, in milliseconds. It is read only after a complete report has passed its own. */
const SINGLE_GROUP_DEADLINE_MS = 10_000;

/** What LVM prints about a group that a report lacks, although it has succeeded. The group is known by its name. */
const LACKING_GROUP = /^\s*WARNING: (Reading VG (\S+) on \S+ failed)\.?$/gm;

/** The same where LVM has not even found the name of the group, on a physical volume. */
const LACKING_GROUP_OF_PV = /^\s*WARNING: (PV (\S+) is marked in use but no VG was found using it)\.?$/gm;

/** What LVM prints about a disk with the physical volume of another disk, which it uses. */
const DUPLICATE_PV = /^\s*WARNING: Not using device \S+ for PV (\S+)\.$/gm;

/** State of a group while not all groups respond. */
interface KnownGroup {
  /** The group as last reported. */
  group: VolumeGroup;
  /** True if the last report on the group is still running after its deadline. Until it ends, no further one starts. */
  unresponsive: boolean;
}

/** Reads the volume groups of this machine. */
export class GroupReader {
  readonly #exec: Exec;
  readonly #known: KnownGroups;
  #groups: KnownGroup[] = [];
  /** The groups that LVM could not read before it has read all of them once. */
  #unreadable: readonly VolumeGroup[] = [];
  #readsEach = false;
  /**
   * The error of a complete report that is still running after its deadline: a disk hangs, which may be in no group. Until
   * the report ends, no further one starts.
   */
  #hungReport: StorageError | undefined;

  /**
   * Creates a reader.
   *
   * @param known receives each full report, or its absence
   */
  constructor(exec: Exec, known: KnownGroups) {
    this.#exec = exec;
    this.#known = known;
  }

  /** True while groups are read separately, because a disk hangs. */
  get readsEach(): boolean {
    return this.#readsEach;
  }

  /** Reads all groups, with those that cannot be read as last reported. @throws {StorageError} as `Lvm.report` */
  async read(): Promise<VolumeGroup[]> {
    if (this.#hungReport !== undefined && this.#groups.length === 0) throw this.#hungReport;
    const all = this.#readsEach ? { refusal: undefined } : await this.#readAll();
    if ("groups" in all) return all.groups;
    this.#known.clear();
    const results = await Promise.all(this.#groups.map((known) => this.#readGroup(known)));
    // a group that is gone, or cannot be read, is no reason to go on so: the complete report shows what it is
    if (this.#hungReport === undefined && results.every(({ hangs }) => !hangs)) this.#readsEach = false;
    if (all.refusal !== undefined && results.every(({ group }) => !group.responsive)) throw all.refusal;
    return [...results.map(({ group }) => group), ...this.#unreadable];
  }

  /** Reads a report of all groups. @returns why the groups must be read separately, if they must: nothing for a disk that hangs */
  async #readAll(): Promise<{ groups: VolumeGroup[] } | { refusal: StorageError | undefined }> {
    try {
      const noteGroups = this.#known.startReport();
      const output = await this.#exec.run(REPORT_COMMAND);
      if (output.code !== 0) {
        const refusal = commandError(REPORT_COMMAND, output);
        if (this.#groups.length === 0) this.#adopt(output, refusal);
        return { refusal };
      }
      const parsed = markDuplicates(parseReport(output.stdout), output);
      // without a wait where there is nothing to read: callers of a report that run together stay together
      const groups = mayHaveHostUse(parsed) ? await withHostUse(this.#exec, parsed) : parsed;
      const { kept, unreadable } = this.#findLacking(groups, output);
      const all = [...groups, ...kept, ...unreadable];
      if (all.length > groups.length) this.#known.clear();
      else noteGroups(groups);
      this.#groups = [...groups, ...kept].map((group) => ({ group, unresponsive: false }));
      this.#unreadable = unreadable;
      return { groups: all };
    } catch (error) {
      if (!(error instanceof StorageError && isUnresponsiveError(error))) throw error;
      this.#hungReport = error;
      error.completion?.then(() => {}, () => {}).then(() => this.#hungReport = undefined);
      if (this.#groups.length === 0) throw error;
      this.#readsEach = true;
      return { refusal: undefined };
    }
  }

  /** Finds the groups that a report lacks because LVM cannot read them: those that were known, and those by their names alone. */
  #findLacking(groups: readonly VolumeGroup[], { stderr }: Output) {
    const byName = new Map([...stderr.matchAll(LACKING_GROUP)].map(([, text, name]) => [name!, text!]));
    const byPv = new Map([...stderr.matchAll(LACKING_GROUP_OF_PV)].map(([, text, path]) => [path!, text!]));
    const kept = this.#groups.map(({ group }) => group)
      .filter(({ uuid }) => !groups.some((shown) => shown.uuid === uuid))
      .flatMap((group) => {
        const text = byName.get(group.name) ?? group.pvPaths.map((path) => byPv.get(path)).find(Boolean);
        return text === undefined ? [] : [{ ...group, responsive: false, readError: `LVM: ${text}` }];
      });
    const others = [...byName].filter(([name]) => ![...groups, ...kept].some((group) => group.name === name));
    return { kept, unreadable: others.map(([name, text]) => unreadableGroup(name, `LVM: ${text}`)) };
  }

  /** Takes the groups of a refused report as known, to read each of them. @throws the refusal, if it does not name the others */
  #adopt({ stdout, stderr }: Output, refusal: StorageError): void {
    const names = parseUnreadable(stderr);
    if (names.length === 0) throw refusal;
    const groups = parseReport(stdout).filter(({ name }) => !names.includes(name));
    this.#groups = groups.map((group) => ({ group, unresponsive: false }));
    const readError = refusal.message.replace(describeCommand(REPORT_COMMAND), "LVM");
    this.#unreadable = names.map((name) => unreadableGroup(name, readError));
  }

  /**
   * Reads one group on its own physical volumes. For a group that hangs it waits until the previous command has ended.
   */
  async #readGroup(knownGroup: KnownGroup): Promise<{ readonly group: VolumeGroup; readonly hangs: boolean }> {
    const { group } = knownGroup;
    if (knownGroup.unresponsive) return { group: { ...group, responsive: false }, hangs: true };
    // with its name: a report of all groups waits for LVM's global lock, which vgremove holds while it asks
    const args = [...REPORT_COMMAND.args, group.name, "--devices", group.pvPaths.join(",")];
    const command = { ...REPORT_COMMAND, args, deadlineMs: SINGLE_GROUP_DEADLINE_MS };
    const unreadable = (readError: string) => ({ group: { ...group, responsive: false, readError }, hangs: false });
    try {
      const current = parseReport(await runOk(this.#exec, command)).find(({ uuid }) => uuid === group.uuid);
      if (current === undefined) return unreadable("LVM finds no such volume group on these disks any more");
      knownGroup.group = { ...current, ...defined({ hostUse: group.hostUse }) };
      return { group: knownGroup.group, hangs: false };
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      if (!isUnresponsiveError(error)) return unreadable(error.message.replace(describeCommand(command), "LVM"));
      knownGroup.unresponsive = true;
      error.completion?.then(() => {}, () => {}).then(() => knownGroup.unresponsive = false);
      return { group: { ...group, responsive: false }, hangs: true };
    }
  }
}

/** Marks the groups of which LVM finds a physical volume on several disks. */
function markDuplicates(groups: VolumeGroup[], { stderr }: Output): VolumeGroup[] {
  const uuids = [...stderr.matchAll(DUPLICATE_PV)].map(([, uuid]) => uuid);
  return groups.map((group) =>
    group.pvs.some(({ uuid }) => uuids.includes(uuid)) ? { ...group, duplicatePvs: true } : group
  );
}

/** Returns a group of which only the name is known. */
function unreadableGroup(name: string, readError: string): VolumeGroup {
  return {
    name,
    uuid: "",
    size: 0n,
    free: 0n,
    extentSize: 1n,
    missingPvs: 0,
    tags: [],
    pvPaths: [],
    pvs: [],
    lvs: [],
    writeable: false,
    responsive: false,
    readError,
  };
}

function isUnresponsiveError(error: unknown): boolean {
  return error instanceof StorageError && error.kind === "Unavailable" && error.completion !== undefined;
}
