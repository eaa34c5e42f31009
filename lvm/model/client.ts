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
import { parseReport, REPORT_COMMAND, type VolumeGroup } from "./report.ts";
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
  return REFUSALS.find(([said]) => said.test(output.stderr))?.[1] ?? "CommandFailed";
}

/** How long one group alone is waited for, in milliseconds: it is asked when a report has taken too long already. */
const ALONE_MS = 10_000;

/** How long a report waits for changes that are under way, in milliseconds: LVM's lock would have it wait for each in turn. */
const CHANGES_MS = 5_000;

/** What is known of a group while not all of them answer. */
interface Known {
  /** The group as it was last seen. */
  group: VolumeGroup;
  /** Whether the last question is still under way, though nobody waits for it: until it is over there is no further one. */
  silent: boolean;
}

/** LVM on this machine. */
export class Lvm {
  /** What runs the commands; the tools beside lvm use it as it is. */
  readonly exec: Exec;
  readonly #onReport: (groups: readonly VolumeGroup[]) => void;
  #known: Known[] = [];
  #alone = false;
  #reading: Promise<VolumeGroup[]> | undefined;
  #next: Promise<VolumeGroup[]> | undefined;
  readonly #changes = new Set<Promise<unknown>>();
  #changed = 0;
  /** How many changes had ended when each report was begun; reports that were begun during a change are not there. */
  readonly #begun = new WeakMap<readonly VolumeGroup[], number>();
  #ofChanges: Promise<VolumeGroup[]> | undefined;

  /** LVM by way of the exec. Who listens is given every report that was read. */
  constructor(exec: Exec, onReport: (groups: readonly VolumeGroup[]) => void = () => {}) {
    this.exec = exec;
    this.#onReport = onReport;
  }

  /**
   * All volume groups with their logical volumes. A group whose disks do not answer is there as it was last seen, and says
   * so ({@linkcode VolumeGroup.answers}). Whoever asks gets a report that was begun after that; those who ask while one is
   * being read share the next.
   *
   * @throws {StorageError} `CommandFailed` when the report failed or cannot be read; `Unavailable` when LVM does not answer
   * and never did.
   */
  report(): Promise<VolumeGroup[]> {
    if (this.#reading === undefined) return this.#begin();
    return this.#next ??= this.#reading.then(() => {}, () => {}).then(() => {
      this.#next = undefined;
      return this.#reading ?? this.#begin();
    });
  }

  /**
   * A report as {@linkcode Lvm.report} gives it, for whoever has changed something: it begins when the changes that are under
   * way have ended, or five seconds later, so that those who changed something at the same time share one.
   */
  reportOfChanges(): Promise<VolumeGroup[]> {
    return this.#ofChanges ??= withinDeadline(Promise.allSettled(this.#changes), CHANGES_MS).then(() => {
      this.#ofChanges = undefined;
      return this.report();
    });
  }

  /** Whether nothing was changed through this object since the report was begun. */
  isCurrent(groups: readonly VolumeGroup[]): boolean {
    return this.#begun.get(groups) === this.#changed && this.#changes.size === 0;
  }

  #begin(): Promise<VolumeGroup[]> {
    const at = this.#changes.size === 0 ? this.#changed : undefined;
    const reading = this.#read().then((groups) => {
      if (at !== undefined) this.#begun.set(groups, at);
      return groups;
    }).finally(() => {
      if (this.#reading === reading) this.#reading = undefined;
    });
    reading.then(this.#onReport, () => {});
    return this.#reading = reading;
  }

  async #read(): Promise<VolumeGroup[]> {
    if (!this.#alone) {
      try {
        const groups = parseReport(await runOk(this.exec, REPORT_COMMAND));
        this.#known = groups.map((group) => ({ group, silent: false }));
        return groups;
      } catch (error) {
        if (!isSilence(error) || this.#known.length === 0) throw error;
        this.#alone = true;
      }
    }
    const groups = await Promise.all(this.#known.map((known) => this.#ask(known)));
    if (groups.every(({ answers }) => answers)) this.#alone = false;
    return groups;
  }

  /**
   * Runs an LVM command that changes something in the group.
   *
   * @throws {StorageError} of the kind that {@linkcode classifyRefusal} finds, besides those of {@linkcode Exec.run}.
   */
  async change(group: VolumeGroup, args: readonly string[]): Promise<void> {
    const only = this.#alone ? ["--devices", group.disks.join(",")] : [];
    const change = runOk(this.exec, { program: "lvm", args: [...args, ...only], mutates: true }, classifyRefusal);
    this.#changes.add(change);
    try {
      await change;
    } finally {
      this.#changed++;
      this.#changes.delete(change);
    }
  }

  /** Asks one group by its own disks; one that is silent only when the question before is over. */
  async #ask(known: Known): Promise<VolumeGroup> {
    if (known.silent) return { ...known.group, answers: false };
    const { group } = known;
    const args = [...REPORT_COMMAND.args, "--devices", group.disks.join(",")];
    try {
      const answer = parseReport(await runOk(this.exec, { ...REPORT_COMMAND, args, deadlineMs: ALONE_MS }));
      known.group = answer.find(({ uuid }) => uuid === group.uuid) ?? group;
      return known.group;
    } catch (error) {
      if (!isSilence(error)) throw error;
      known.silent = true;
      error.settled?.then(() => {}, () => {}).then(() => known.silent = false);
      return { ...group, answers: false };
    }
  }
}

/**
 * Makes sure that a group answers.
 *
 * @throws {StorageError} `Unavailable`.
 */
export function requireAnswer(doing: string, group: VolumeGroup): void {
  if (group.answers) return;
  throw new StorageError(
    "Unavailable",
    `${doing}: volume group ${group.name} does not answer; look for a disk among ${
      group.disks.join(", ")
    } that hangs (dmesg)`,
  );
}

/**
 * Makes sure that all disks of a group are there: else LVM changes nothing of what is where.
 *
 * @throws {StorageError} `FailedPrecondition`: not that the group is full, for with the disks back there may be room.
 */
export function requireDisks(doing: string, { name, missingPvs }: VolumeGroup): void {
  if (missingPvs === 0) return;
  throw new StorageError(
    "FailedPrecondition",
    `${doing}: LVM changes nothing in volume group ${name} while PVs are missing (${missingPvs}); attach them again, or ` +
      "take them out (vgreduce(8), --removemissing)",
  );
}

function isSilence(error: unknown): error is StorageError {
  return error instanceof StorageError && error.kind === "Unavailable" && error.settled !== undefined;
}
