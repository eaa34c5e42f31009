/**
 * The only code that runs lvm(8): reports, and changes of one group each.
 *
 * lvm scans all disks, whatever the command. So one disk that does not respond blocks every command on the host.
 * {@linkcode GroupReader} reads each group separately then, and {@linkcode Lvm} changes the groups that respond in the same
 * way. The other groups are not changed until they respond.
 *
 * @module
 */

import { type Command, commandError, type Exec, type Output, runThen } from "../exec.ts";
import { formatBytes } from "../../base/size.ts";
import { describeFree } from "../settings/spare_space.ts";
import { Queues, SharedRuns } from "../../base/queues.ts";
import { lvchangeTags, type LvremoveOptions, onlyWithAllPvs, type Selection } from "../model/command_lines.ts";
import { ignoring, lateCompletion, StorageError } from "../../base/error.ts";
import { pvsToName } from "../model/layout.ts";
import { ExclusiveChanges } from "./exclusive_changes.ts";
import { GroupReader } from "./group_reader.ts";
import { KnownGroups, type KnownReport } from "./known_report.ts";
import { Removals } from "./removals.ts";
import {
  classifyRefusal,
  groupRefusalIn,
  GroupRefusals,
  isPoolRefusal,
  LACKS_PV,
  MAX_EXIT_STATUS,
  refusalReason,
} from "./refusals.ts";
import { type LocatedLv, type LogicalVolume, lvPath, mayReadAlone, type VolumeGroup } from "../model/report.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { withinDeadline } from "../../base/clock.ts";

/** What LVM prints about each LV or group that a command changed, with LC_ALL=C. */
const CHANGED = /^\s*(?:Logical volume \S+ (?:successfully removed|changed)|Volume group \S+ successfully changed)/m;

/** What LVM prints about each LV that it removed, with the LV's name. */
const REMOVED = /^\s*Logical volume "(\S+)" successfully removed/gm;

/** The time to wait for running changes, in milliseconds. With LVM's lock, a report would wait for each of them in turn. */
const CHANGES_WAIT_MS = 5_000;

/** Commands that together do what one command does. */
interface Parts {
  readonly args: readonly (readonly string[])[];
  /** Returns of each part whether it would have changed something, by what the command printed. */
  readonly areChanged: (output: Output) => readonly boolean[];
}

/** Options of a change. */
interface ChangeOptions {
  /** Commands that would do the same, and which of them would have changed something. */
  readonly parts?: Parts;
  /** Whether it belongs to the body of {@linkcode Lvm.runAlone}. */
  readonly isAlone?: boolean;
  /** Whether LVM reads the disks of the group alone. */
  readonly readsOwnDisks?: boolean;
  /** The devices that the command needs beside those of the group. */
  readonly devices?: readonly string[];
}

declare const fresh: unique symbol;

/**
 * A report that LVM began after the caller requested it. Only {@linkcode Lvm} creates one. So code that requires a
 * fresh report cannot get groups that were kept, changed or read for something else: no destructive decision is based
 * on an old report.
 */
export type FreshReport = readonly VolumeGroup[] & { readonly [fresh]: true };

/**
 * Returns groups that were derived from a fresh report, such as a part of it, as a fresh report.
 *
 * @param _report the report that the groups were derived from
 */
export function derivedReport(_report: FreshReport, groups: readonly VolumeGroup[]): FreshReport {
  return groups as FreshReport;
}

/** LVM on this machine. */
export class Lvm {
  /** Runs the commands; other programs than lvm use it directly. */
  readonly exec: Exec;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  readonly #onKilled: () => void;
  #currentReport: Promise<FreshReport> | undefined;
  #nextReport: Promise<FreshReport> | undefined;
  readonly #known = new KnownGroups();
  readonly #reader: GroupReader;
  readonly #removals = new Removals({
    removeOne: (group, args) => this.changeSelected(group, args),
    removeTogether: (group, args, parts) => this.#removeTogether(group, args, parts),
  });
  readonly #exclusive = new ExclusiveChanges();
  readonly #refusals = new GroupRefusals();
  /** The allocations of groups with spare space, by the UUIDs of the groups. */
  readonly #allocations = new Queues();
  readonly #flushes = new SharedRuns<void>();
  readonly #pendingChanges = new Set<Promise<unknown>>();
  /** What settles when a command has ended that outlasted its deadline, with the UUID of its group. */
  readonly #lateChanges = new Map<Promise<unknown>, string>();
  #changeCount = 0;
  /** The number of changes of each group that may have ended halfway, by the group's UUID. */
  readonly #interrupted = new Map<string, number>();
  /** The number of changes that had ended when each report started. Reports that started during a change are not in it. */
  readonly #changeCountAtStart = new WeakMap<readonly VolumeGroup[], number>();
  #nextReportAfterChanges: Promise<FreshReport> | undefined;

  /**
   * Creates a client.
   *
   * @param onReport called with every report that was read
   * @param onKilled called after a change that a signal has ended
   */
  constructor(
    exec: Exec,
    onReport: (groups: readonly VolumeGroup[]) => void = () => {},
    onKilled: () => void = () => {},
  ) {
    this.exec = exec;
    this.#reader = new GroupReader(exec, this.#known);
    this.#onReport = onReport;
    this.#onKilled = onKilled;
  }

  /**
   * Reads all volume groups with their logical volumes. A group whose disks do not respond, or that LVM cannot read, is
   * returned as last reported, and marked so ({@linkcode VolumeGroup.responsive}). The report started after the call: callers during a
   * running report share the next one.
   *
   * @throws {StorageError} `CommandFailed` when the report failed for all known groups or cannot be parsed; `Unavailable` when
   * LVM does not respond and never did
   */
  report(): Promise<FreshReport> {
    if (this.#currentReport === undefined) return this.#startReport();
    return this.#nextReport ??= this.#currentReport.then(() => {}, () => {}).then(() => {
      this.#nextReport = undefined;
      return this.#currentReport ?? this.#startReport();
    });
  }

  /**
   * Reads a report as {@linkcode Lvm.report} does, after a change. It starts when the running changes have ended, or
   * five seconds later, so that concurrent callers share one report.
   */
  reportAfterChanges(): Promise<FreshReport> {
    return this.#nextReportAfterChanges ??= withinDeadline(Promise.allSettled(this.#pendingChanges), CHANGES_WAIT_MS)
      .then(() => {
        this.#nextReportAfterChanges = undefined;
        return this.report();
      });
  }

  /**
   * Waits until this client changes nothing.
   *
   * @returns false when none of its changes has ended for five seconds, or one outlasts its deadline
   */
  async becomesIdle(): Promise<boolean> {
    while (this.#pendingChanges.size > 0) {
      const count = this.#changeCount;
      const changes = [...this.#pendingChanges].map((change) => Promise.allSettled([change]));
      await withinDeadline(Promise.race(changes), CHANGES_WAIT_MS);
      if (this.#changeCount === count) return false;
    }
    return true;
  }

  /** Reports whether nothing was changed with this client since the report started. */
  isCurrent(groups: readonly VolumeGroup[]): boolean {
    return this.#changeCountAtStart.get(groups) === this.#changeCount && this.#pendingChanges.size === 0;
  }

  /**
   * Returns how many changes of a group have ended, perhaps halfway: not as LVM refuses a command, but since it was killed, or
   * a disk failed. LVM writes its metadata several times in a command.
   */
  interruptedChanges({ uuid }: Pick<VolumeGroup, "uuid">): number {
    return this.#interrupted.get(uuid) ?? 0;
  }

  /** Adds to groups of another report why LVM has refused to change them some minutes ago. */
  withRefusals<G extends VolumeGroup>(groups: readonly G[]): readonly G[] {
    return this.#refusals.addTo(groups);
  }

  /** Returns what is known without a new report, as far as it concerns a volume or snapshot ({@linkcode KnownGroups.about}). */
  known(id: VolumeId | SnapshotId): KnownReport | undefined {
    return this.#known.about(id.slice("v1-".length)); // which is in the names of its LVs, and in the tags with its id
  }

  /** Notes what the kernel shows of an LV that this client has just created. */
  noteCreated({ name }: Pick<VolumeGroup, "name">, lv: LogicalVolume): void {
    this.#known.noteCreated(name, lv);
  }

  /** Returns what is known of a volume for a caller that asks the kernel, too ({@linkcode KnownGroups.toConfirm}). */
  knownToConfirm(id: VolumeId): KnownReport | undefined {
    return this.#known.toConfirm(id.slice("v1-".length));
  }

  #startReport(): Promise<FreshReport> {
    const changeCount = this.#pendingChanges.size === 0 ? this.#changeCount : undefined;
    const report = this.#reader.read().then((read) => {
      const groups = this.#refusals.addTo(read);
      if (changeCount !== undefined) this.#changeCountAtStart.set(groups, changeCount);
      return groups as FreshReport;
    }).finally(() => {
      if (this.#currentReport === report) this.#currentReport = undefined;
    });
    report.then(this.#onReport, () => this.#known.clear());
    return this.#currentReport = report;
  }

  /**
   * Runs an LVM command that changes something in the group. The change is still there after a loss of power.
   *
   * @param options.devices the devices that the command needs beside those of the group
   * @throws {StorageError} of the kind that {@linkcode classifyRefusal} returns, besides those of {@linkcode Exec.run}
   */
  async change(
    group: VolumeGroup,
    args: readonly string[],
    { devices = [] }: { readonly devices?: readonly string[] } = {},
  ): Promise<void> {
    await this.#change(group, args, () => this.#flush(group), { devices });
  }

  /**
   * Changes the tags of an LV, as {@linkcode Lvm.change} does.
   *
   * @param changes the arguments of lvchange
   * @param select what the LV must be
   */
  async changeTags(located: LocatedLv, changes: readonly string[], select?: Selection): Promise<void> {
    await this.change(located.group, lvchangeTags(changes, lvPath(located), select));
  }

  /**
   * Runs an LVM command that takes free space of a group, as {@linkcode Lvm.change} does. LVM does not know of the spare space of
   * a group: where there is some, one command at a time takes space, and a report before it shows what is left.
   *
   * @param bytes what it takes at most
   * @throws {StorageError} `NoSpace` when the group has less for volumes; those of {@linkcode Lvm.change}, and of {@linkcode report}
   */
  async allocate(group: VolumeGroup, bytes: bigint, args: readonly string[]): Promise<void> {
    if (group.spare === undefined) return await this.change(group, args);
    await this.#allocations.run(group.uuid, async () => {
      do {
        await this.#exclusive.wait(group);
        requireFree(await this.report(), group, bytes);
      } while (this.#exclusive.isHeld(group));
      await this.change(group, args);
    });
  }

  /**
   * Runs a body during which this client changes groups only by the function that the body gets, as {@linkcode Lvm.change} does.
   *
   * @param options.waits whether it waits for another body of one of the groups, instead of failing
   * @param options.readsOwnDisks whether LVM reads the disks of the changed group alone: devices on others may not answer
   * @throws {StorageError} those of {@linkcode ExclusiveChanges.run} and of the body
   */
  async runAlone<T>(
    groups: readonly VolumeGroup[],
    body: (change: Lvm["change"]) => Promise<T>,
    { waits = false, readsOwnDisks = false } = {},
  ): Promise<T> {
    const late = () => [...this.#lateChanges].filter(([, group]) => groups.some(({ uuid }) => uuid === group));
    const running = () => Promise.allSettled([...this.#pendingChanges, ...late().map(([ended]) => ended)]);
    const held = () => waits ? groups.find((group) => this.#exclusive.isHeld(group)) : undefined;
    for (let group = held(); group !== undefined; group = held()) await this.#exclusive.wait(group);
    return await this.#exclusive.run(
      groups,
      running,
      CHANGES_WAIT_MS,
      () =>
        body((group, args) => this.#change(group, args, () => this.#flush(group), { isAlone: true, readsOwnDisks })),
    );
  }

  /**
   * Runs an LVM command that changes what it selects (`--select`): nothing, and without an error, when nothing in the group
   * matches, or the group or the LV has another name by now.
   *
   * @param options.isLast false if another change of the group follows at once, whose end is the end of both. LVM writes all
   * metadata of a group each time, so after a loss of power neither is there, the first, or both
   * @returns whether something was changed, by what LVM printed
   * @throws {StorageError} those of {@linkcode Lvm.change}, other than `NotFound`
   */
  async changeSelected(group: VolumeGroup, args: readonly string[], { isLast = true } = {}): Promise<boolean> {
    let isChanged = false;
    await this.#change(group, args, async ({ stdout }) => {
      isChanged = CHANGED.test(stdout);
      // also when LVM says nothing, as lvm.conf may have it (log/silent)
      if (isLast) await this.#flush(group);
    }).catch(ignoring("NotFound"));
    return isChanged;
  }

  /**
   * Runs an LVM command that changes what it selects, as {@linkcode Lvm.changeSelected} does.
   *
   * @throws {StorageError} `NotFound` when it selects nothing, so that a report must decide
   */
  async changeKnown(group: VolumeGroup, args: readonly string[]): Promise<void> {
    if (await this.changeSelected(group, args)) return;
    throw new StorageError("NotFound", `running lvm ${args.join(" ")}: LVM selected nothing`);
  }

  /**
   * Removes an LV, if it is as selected, as {@linkcode Lvm.changeSelected} does. While another removal from the group runs, it
   * waits, and one command then removes all that wait ({@linkcode Removals}).
   *
   * @param lv the LV, as `vg/lv`. Not for an LV that others depend on, or of a thin pool
   * @returns whether the LV was removed, by what LVM printed
   */
  async remove(group: VolumeGroup, options: LvremoveOptions, lv: string): Promise<boolean> {
    return await this.#removals.remove(group, options, lv);
  }

  async #removeTogether(
    group: VolumeGroup,
    args: readonly string[],
    parts: readonly (readonly string[])[],
  ): Promise<readonly boolean[]> {
    let areRemoved: readonly boolean[] = [];
    const areRemovedBy = ({ stdout }: Output) => {
      const names = new Set([...stdout.matchAll(REMOVED)].map(([, name]) => `${group.name}/${name}`));
      areRemoved = parts.map((part) => names.has(part.at(-1)!));
      return areRemoved;
    };
    await this.#change(group, args, () => this.#flush(group), {
      parts: { args: parts, areChanged: areRemovedBy },
    });
    return areRemoved;
  }

  /** Flushes the disks of a group, once for all changes that have ended by then. */
  #flush({ pvPaths }: VolumeGroup): Promise<void> {
    return this.#flushes.run(pvPaths.join(), () => flushDisks(this.exec, pvPaths));
  }

  /** Returns the error of a command that LVM refused, and remembers a group that it does not change at all. */
  #refusal(group: VolumeGroup, command: Command, output: Output): StorageError {
    const message = groupRefusalIn(output);
    if (message !== undefined) this.#refusals.note(group, message);
    return commandError(command, output, classifyRefusal(output), {
      ofGroup: message !== undefined || isPoolRefusal(output),
      reason: refusalReason(output),
    });
  }

  /**
   * Runs a command, and again after a report where LVM lacks a disk: one may have been added to the group since the last report.
   *
   * @throws {StorageError} `Busy` when LVM lacks a disk again; those of {@linkcode change}
   */
  async #change(
    group: VolumeGroup,
    args: readonly string[],
    afterSuccess: (output: Output) => Promise<void>,
    options: ChangeOptions = {},
  ): Promise<void> {
    if (await this.#tryChange(group, args, afterSuccess, options)) return;
    // during a body that runs alone, a report may not end
    const now = options.isAlone ? undefined : (await this.report()).find(({ uuid }) => uuid === group.uuid);
    if (now !== undefined && await this.#tryChange(now, args, afterSuccess, options)) return;
    throw new StorageError(
      "Busy",
      `running lvm ${args[0]}: volume group ${group.name} has other disks by now; try again`,
    );
  }

  /** @returns false when LVM has changed nothing, since it lacks a disk of the group among those that it was to read */
  async #tryChange(
    group: VolumeGroup,
    args: readonly string[],
    afterSuccess: (output: Output) => Promise<void>,
    { isAlone = false, readsOwnDisks = false, devices = [], ...options }: ChangeOptions,
  ): Promise<boolean> {
    for (const lv of group.lvs) {
      if (lv.unreadable !== undefined && args.includes(lvPath({ group, lv }))) {
        requireReadable(`running lvm ${args[0]}`, { group, lv });
      }
    }
    const isChanged = ({ stdout }: Output) => [!args.includes("--select") || CHANGED.test(stdout)];
    const { parts = { args: [args], areChanged: isChanged } } = options;
    // again after each wait: the next body may begin before this continues
    while (!isAlone && this.#exclusive.isHeld(group)) await this.#exclusive.wait(group);
    const own = ["--devices", [...group.pvPaths, ...devices].join(",")];
    const named = [...args, ...pvsToName(group, args)];
    const guarded = mayReadAlone(group) ? onlyWithAllPvs(named) : undefined;
    const readsOwn = readsOwnDisks || this.#reader.readsEach || guarded !== undefined;
    const [subcommand = "", ...operands] = guarded ?? named;
    const command: Command = {
      program: "lvm",
      args: [subcommand, ...readsOwn ? own : [], ...operands],
      mutates: true,
    };
    const noted = parts.args.map((part) => this.#known.startChange(group.name, part));
    let lacksPv = false;
    const change = runThen(this.exec, command, async (output) => {
      if (output.code > MAX_EXIT_STATUS) this.#onKilled();
      lacksPv = guarded !== undefined && output.code <= MAX_EXIT_STATUS && LACKS_PV.test(output.stderr);
      if (lacksPv) return noted.forEach((each) => each.changed = false);
      if (output.code !== 0) throw this.#refusal(group, command, output);
      this.#refusals.forget(group);
      for (const [index, isChanged] of parts.areChanged(output).entries()) noted[index]!.changed = isChanged;
      await afterSuccess(output);
    });
    this.#pendingChanges.add(change);
    const end = (error?: unknown) => {
      for (const each of noted) each.ended = true;
      this.#changeCount++;
      this.#pendingChanges.delete(change);
      const isInterrupted = error instanceof StorageError && error.kind === "CommandFailed";
      if (isInterrupted) this.#interrupted.set(group.uuid, this.interruptedChanges(group) + 1);
    };
    try {
      await change;
      end();
      return !lacksPv;
    } catch (error) {
      // a command that outlasted its deadline still changes something: no report is current before it has ended
      const completion = lateCompletion(error);
      if (completion !== undefined) this.#known.clear();
      if (completion === undefined) end(error);
      else {
        const ended: Promise<unknown> = completion.then(() => end(), end).then(() => this.#lateChanges.delete(ended));
        this.#lateChanges.set(ended, group.uuid);
      }
      throw error;
    }
  }
}

/**
 * Checks that a group responds.
 *
 * @param operation beginning of the error message
 * @throws {StorageError} `Unavailable` when it does not
 */
export function requireResponsive(operation: string, group: VolumeGroup): void {
  if (group.responsive) return;
  const disks = group.pvPaths.join(", ") || "in pvs(8)";
  const name = `${operation}: volume group ${group.name}`;
  if (group.readError === undefined) {
    const message = `${name} does not respond; look for a disk among ${disks} that hangs (dmesg)`;
    throw new StorageError("Unavailable", message, { reason: "VolumeGroupUnresponsive" });
  }
  const message = `${name} cannot be read: ${group.readError}; look at its disks ${disks} (dmesg)`;
  throw new StorageError("Unavailable", message, { reason: "VolumeGroupUnreadable" });
}

/**
 * Checks that LVM's report of an LV could be read.
 *
 * @param operation beginning of the error message
 * @throws {StorageError} `ForeignData` when it could not: nothing is done with the LV
 */
export function requireReadable(operation: string, { group, lv }: LocatedLv): void {
  if (lv.unreadable === undefined) return;
  throw new StorageError(
    "ForeignData",
    `${operation}: LVM's report of ${lvPath({ group, lv })} cannot be read (${lv.unreadable}); nothing is ` +
      "done with it meanwhile",
    { reason: "VolumeUnreadable" },
  );
}

/**
 * Checks that no physical volume of a group is missing: otherwise LVM does not change the allocation in the group.
 *
 * @param operation beginning of the error message
 * @throws {StorageError} `FailedPrecondition` when one is missing; not `NoSpace`, since there may be free space when it
 * is back
 */
export function requirePvs(operation: string, { name, missingPvs }: VolumeGroup): void {
  if (missingPvs === 0) return;
  throw new StorageError(
    "FailedPrecondition",
    `${operation}: LVM changes nothing in volume group ${name} while PVs are missing (${missingPvs}); attach them again, or ` +
      "remove them from the group (vgreduce(8), --removemissing)",
    { reason: "PhysicalVolumesMissing" },
  );
}

/**
 * Requires that a group has space for volumes.
 *
 * @param groups a report
 * @throws {StorageError} `NoSpace`; `NotFound` when the report does not show the group
 */
function requireFree(
  groups: readonly VolumeGroup[],
  { uuid, name }: Pick<VolumeGroup, "uuid" | "name">,
  bytes: bigint,
): void {
  const operation = `taking ${formatBytes(bytes)} of volume group ${name}`;
  const group = groups.find((group) => group.uuid === uuid);
  if (group === undefined) throw new StorageError("NotFound", `${operation}: it does not exist any more`);
  if (bytes > group.free) throw new StorageError("NoSpace", `${operation}: it has ${describeFree(group)}`);
}

/**
 * Flushes the caches of block devices, so that what was written is still there after a loss of power.
 *
 * LVM writes its metadata past the page cache, and does not ask the disks to flush their own caches. blkdiscard(8) does
 * not, either. A filesystem does at each fsync(2), for everything that was written to its disks before.
 *
 * Without the flush, what was written counts as not done. So the flush is never killed: who waits for the change waits for
 * it, too, and a lock is held until it has ended.
 *
 * @param paths the devices: a logical volume, which stands for the disks below it, or the physical volumes of a group. Of
 * these, one is enough: each has the group's metadata
 * @throws {StorageError} `CommandFailed` when none could be flushed; those of {@linkcode Exec.run}
 */
export async function flushDisks(exec: Exec, paths: readonly string[]): Promise<void> {
  if (paths.length === 0) return;
  // sync(1) opens each file for reading, and calls fsync(2)
  const command: Command = { program: "sync", args: paths, mutates: true };
  const output = await exec.run(command);
  if (output.code === 0) return;
  const alone = paths.length > 1 ? paths.map((path) => exec.run({ ...command, args: [path] })) : [];
  if (!(await Promise.all(alone)).some(({ code }) => code === 0)) throw commandError(command, output);
}
