/**
 * The one place that talks to lvm(8): reports, and changes of one group each.
 *
 * lvm looks at all disks, whatever it is asked for, so one disk that does not answer stops every command on the host. When
 * a report stops, {@linkcode Lvm} asks each group that it knows alone, by its own disks (`--devices`, lvm(8)), and changes
 * those that answer in the same way. The others are shown as they were last seen, and are left alone until they answer.
 *
 * @module
 */

import { type ErrorKind, StorageError } from "../error.ts";
import { type Exec, type Output, runOk } from "../exec.ts";
import { parseReport, type VolumeGroup } from "./report.ts";
import { REPORT_COMMAND } from "./report_command.ts";
import { withinDeadline } from "../clock.ts";

/**
 * What LVM says in English (LC_ALL=C) when it refuses, and what that means. Its exit status is 5 for all of them (lvm(8)).
 * Captured from LVM 2.03; anything else is `CommandFailed`.
 */
const REFUSALS: readonly [RegExp, ErrorKind][] = [
  [/insufficient free space/i, "NoSpace"],
  [/insufficient suitable .*allocatable extents/i, "NoSpace"],
  [/no specified PVs have space available/i, "NoSpace"],
  [/number of stripes .* must not exceed number of physical volumes/i, "NoSpace"],
  [/too large for circular buffer|metadata .*is too large/i, "NoSpace"],
  [/free space in thin pool .* reached threshold/i, "NoSpace"],
  [/already exists in volume group/i, "AlreadyExists"],
  [/contains a filesystem in use/i, "InUse"],
  [/is used by another device|in use: not deactivating|is in use/i, "InUse"],
  [/only while inactive/i, "InUse"],
  [/does not accept LV type/i, "FailedPrecondition"],
  [/cannot change VG .* while PVs are missing/i, "FailedPrecondition"],
  [/required device-mapper target\(s\) not detected/i, "FailedPrecondition"],
  [/failed to find logical volume|volume group ".*" not found/i, "NotFound"],
];

/** The kind of failure that LVM's answer stands for. */
export function classifyRefusal(output: Output): ErrorKind {
  return REFUSALS.find(([pattern]) => pattern.test(output.stderr))?.[1] ?? "CommandFailed";
}

/** How long one group alone is waited for, in milliseconds: it is asked when a report has taken too long already. */
const SINGLE_GROUP_DEADLINE_MS = 10_000;

/** How long a report waits for changes that are under way, in milliseconds: LVM's lock would have it wait for each in turn. */
const CHANGES_WAIT_MS = 5_000;

/** What is known of a group while not all of them answer. */
interface KnownGroup {
  /** The group as it was last seen. */
  group: VolumeGroup;
  /** Whether the last question is still under way, though nobody waits for it: until it is over there is no further one. */
  unresponsive: boolean;
}

declare const fresh: unique symbol;

/**
 * A report that LVM began after the caller asked for it. Only {@linkcode Lvm} makes one, so what takes a fresh report cannot be
 * given groups that were kept, changed or read for something else: nothing destructive is decided from an old picture.
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
  /** What runs the commands; the tools beside lvm use it as it is. */
  readonly exec: Exec;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  #knownGroups: KnownGroup[] = [];
  #readsPerGroup = false;
  #currentReport: Promise<FreshReport> | undefined;
  #nextReport: Promise<FreshReport> | undefined;
  readonly #pendingChanges = new Set<Promise<unknown>>();
  #changeCount = 0;
  /** How many changes had ended when each report was begun; reports that were begun during a change are not there. */
  readonly #changeCountAtStart = new WeakMap<readonly VolumeGroup[], number>();
  #nextReportAfterChanges: Promise<FreshReport> | undefined;

  /** LVM by way of the exec. Who listens is given every report that was read. */
  constructor(exec: Exec, onReport: (groups: readonly VolumeGroup[]) => void = () => {}) {
    this.exec = exec;
    this.#onReport = onReport;
  }

  /**
   * All volume groups with their logical volumes. A group whose disks do not answer is there as it was last seen, and says
   * so ({@linkcode VolumeGroup.responsive}). Whoever asks gets a report that was begun after that; those who ask while one is
   * being read share the next.
   *
   * @throws {StorageError} `CommandFailed` when the report failed or cannot be read; `Unavailable` when LVM does not answer
   * and never did.
   */
  report(): Promise<FreshReport> {
    if (this.#currentReport === undefined) return this.#startReport();
    return this.#nextReport ??= this.#currentReport.then(() => {}, () => {}).then(() => {
      this.#nextReport = undefined;
      return this.#currentReport ?? this.#startReport();
    });
  }

  /**
   * A report as {@linkcode Lvm.report} gives it, for whoever has changed something: it begins when the changes that are under
   * way have ended, or five seconds later, so that those who changed something at the same time share one.
   */
  reportAfterChanges(): Promise<FreshReport> {
    return this.#nextReportAfterChanges ??= withinDeadline(Promise.allSettled(this.#pendingChanges), CHANGES_WAIT_MS)
      .then(() => {
        this.#nextReportAfterChanges = undefined;
        return this.report();
      });
  }

  /** Whether nothing was changed through this object since the report was begun. */
  isCurrent(groups: readonly VolumeGroup[]): boolean {
    return this.#changeCountAtStart.get(groups) === this.#changeCount && this.#pendingChanges.size === 0;
  }

  #startReport(): Promise<FreshReport> {
    const changeCount = this.#pendingChanges.size === 0 ? this.#changeCount : undefined;
    const report = this.#readGroups().then((groups) => {
      if (changeCount !== undefined) this.#changeCountAtStart.set(groups, changeCount);
      return groups as readonly VolumeGroup[] as FreshReport;
    }).finally(() => {
      if (this.#currentReport === report) this.#currentReport = undefined;
    });
    report.then(this.#onReport, () => {});
    return this.#currentReport = report;
  }

  async #readGroups(): Promise<VolumeGroup[]> {
    if (!this.#readsPerGroup) {
      try {
        const groups = parseReport(await runOk(this.exec, REPORT_COMMAND));
        this.#knownGroups = groups.map((group) => ({ group, unresponsive: false }));
        return groups;
      } catch (error) {
        if (!isUnresponsiveError(error) || this.#knownGroups.length === 0) throw error;
        this.#readsPerGroup = true;
      }
    }
    const groups = await Promise.all(this.#knownGroups.map((known) => this.#readGroup(known)));
    if (groups.every(({ responsive }) => responsive)) this.#readsPerGroup = false;
    return groups;
  }

  /**
   * Runs an LVM command that changes something in the group.
   *
   * @throws {StorageError} of the kind that {@linkcode classifyRefusal} finds, besides those of {@linkcode Exec.run}.
   */
  async change(group: VolumeGroup, args: readonly string[]): Promise<void> {
    const deviceOptions = this.#readsPerGroup ? ["--devices", group.pvPaths.join(",")] : [];
    const change = runOk(
      this.exec,
      { program: "lvm", args: [...args, ...deviceOptions], mutates: true },
      classifyRefusal,
    );
    this.#pendingChanges.add(change);
    try {
      await change;
    } finally {
      this.#changeCount++;
      this.#pendingChanges.delete(change);
    }
  }

  /** Asks one group by its own disks; one that is silent only when the question before is over. */
  async #readGroup(knownGroup: KnownGroup): Promise<VolumeGroup> {
    if (knownGroup.unresponsive) return { ...knownGroup.group, responsive: false };
    const { group } = knownGroup;
    const args = [...REPORT_COMMAND.args, "--devices", group.pvPaths.join(",")];
    try {
      const groups = parseReport(
        await runOk(this.exec, { ...REPORT_COMMAND, args, deadlineMs: SINGLE_GROUP_DEADLINE_MS }),
      );
      knownGroup.group = groups.find(({ uuid }) => uuid === group.uuid) ?? group;
      return knownGroup.group;
    } catch (error) {
      if (!isUnresponsiveError(error)) throw error;
      knownGroup.unresponsive = true;
      error.completion?.then(() => {}, () => {}).then(() => knownGroup.unresponsive = false);
      return { ...group, responsive: false };
    }
  }
}

/**
 * Makes sure that a group answers.
 *
 * @throws {StorageError} `Unavailable`.
 */
export function requireResponsive(operation: string, group: VolumeGroup): void {
  if (group.responsive) return;
  throw new StorageError(
    "Unavailable",
    `${operation}: volume group ${group.name} does not answer; look for a disk among ${
      group.pvPaths.join(", ")
    } that hangs (dmesg)`,
  );
}

/**
 * Makes sure that all disks of a group are there: else LVM changes nothing of what is where.
 *
 * @throws {StorageError} `FailedPrecondition`: not that the group is full, for with the disks back there may be room.
 */
export function requirePvs(operation: string, { name, missingPvs }: VolumeGroup): void {
  if (missingPvs === 0) return;
  throw new StorageError(
    "FailedPrecondition",
    `${operation}: LVM changes nothing in volume group ${name} while PVs are missing (${missingPvs}); attach them again, or ` +
      "take them out (vgreduce(8), --removemissing)",
  );
}

function isUnresponsiveError(error: unknown): error is StorageError {
  return error instanceof StorageError && error.kind === "Unavailable" && error.completion !== undefined;
}
