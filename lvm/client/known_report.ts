/**
 * What is known of the volume groups without a new report: the last report, and what this process has changed since.
 *
 * Other programs may have changed anything since the report. So nothing may depend on a {@linkcode KnownReport} alone: it is
 * used to write a command that LVM itself refuses, or that selects nothing, when what is known is not true any more. When
 * LVM does so, a new report decides.
 *
 * @module
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { type LogicalVolume, mayReadAlone, type VolumeGroup } from "../model/report.ts";

declare const known: unique symbol;

/**
 * A report, with the changes of this process to LVs that it has, and with the LVs that this process has created since and has
 * noted. Its free space is that of the report. It is no fresh report, and cannot be used as one.
 */
export type KnownReport = readonly VolumeGroup[] & { readonly [known]: true };

/** A change that the last report may not show. */
export interface PendingChange {
  /** The name of the group. */
  readonly group: string;
  /** The arguments of lvm. */
  readonly args: readonly string[];
  /** Whether it changed something; `undefined` as long as it runs, and when it failed: what it changed is not known. */
  changed?: boolean;
  /** True if it does not run any more: a report that starts now shows it. */
  ended?: true;
  /** The LV that it created, once that is known. */
  created?: LogicalVolume;
}

/** The age at which no change depends on a report any more, in milliseconds: a disk may have failed, or hang, since. */
const MAX_AGE_MS = 10_000;

/** The age at which a report is not used any more even where the kernel confirms it, in milliseconds. Agents read one a minute. */
const MAX_CONFIRMED_AGE_MS = 90_000;

/** Keeps the last report, and the changes since. */
export class KnownGroups {
  readonly #clock: Clock;
  #last: { readonly groups: readonly VolumeGroup[]; readonly startedAt: number } | undefined;
  #changes: PendingChange[] = [];
  #clears = 0;

  /** Knows nothing before the first report. */
  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Notes that a change starts. The caller sets its {@linkcode PendingChange.changed}, and that it has ended. */
  startChange(group: string, args: readonly string[]): PendingChange {
    const change: PendingChange = { group, args };
    this.#changes.push(change);
    return change;
  }

  /** Notes an LV that a change which has ended has created, as the kernel shows it. */
  noteCreated(group: string, lv: LogicalVolume): void {
    const change = this.#changes.findLast(({ group: name, args, ended }) =>
      ended && name === group && args[0] === "lvcreate" && args[args.indexOf("--name") + 1] === lv.name
    );
    if (change?.changed) change.created = lv;
  }

  /** Notes that a report of all groups starts. @returns what notes the groups that it shows */
  startReport(): (groups: readonly VolumeGroup[]) => void {
    const startedAt = this.#clock.now();
    const clears = this.#clears;
    const shown = new Set(this.#changes.filter(({ ended }) => ended));
    return (groups) => {
      if (clears !== this.#clears) return;
      this.#last = { groups, startedAt };
      this.#changes = this.#changes.filter((change) => !shown.has(change));
    };
  }

  /**
   * Forgets the last report, and one that is being read: not all groups can be read, or a command does not end. The changes that
   * have ended go with it, as the next report shows them.
   */
  clear(): void {
    this.#last = undefined;
    this.#clears++;
    this.#changes = this.#changes.filter(({ ended }) => !ended);
  }

  /**
   * Returns what is known of all groups, as far as it concerns a volume or snapshot.
   *
   * @param mark what each command that concerns it has in its arguments
   * @returns `undefined` when a report must show it: the last one is ten seconds old, or does not show all groups, or a change
   * since has an effect that is not known. And on a machine with several groups, while LVM must read all disks to change one: a
   * command that does so without a report before it would hang, and is never killed, when a disk of another group hangs
   * (ADR 0008)
   */
  about(mark: string): KnownReport | undefined {
    const groups = this.#last?.groups ?? [];
    if (groups.length > 1 && !groups.every(mayReadAlone)) return undefined;
    return this.#youngerThan(MAX_AGE_MS, mark);
  }

  /**
   * Returns what is known as {@linkcode about} does, for a caller that lets LVM change nothing because of it, and asks the kernel
   * for what it depends on. So there may be several groups, and the last report may be 90 seconds old.
   */
  toConfirm(mark: string): KnownReport | undefined {
    return this.#youngerThan(MAX_CONFIRMED_AGE_MS, mark);
  }

  #youngerThan(ageMs: number, mark: string): KnownReport | undefined {
    if (this.#last === undefined || this.#clock.now() - this.#last.startedAt > ageMs) return undefined;
    let { groups } = this.#last;
    if (groups.some(({ responsive, showsLvs }) => !responsive && !showsLvs)) return undefined;
    for (const change of this.#changes) {
      if (change.changed === false) continue;
      const changedGroups = change.changed ? applyChange(groups, change) : undefined;
      if (changedGroups !== undefined) groups = changedGroups;
      else if (concerns(change, mark, groups)) return undefined;
      if (change.args[0] === "lvcreate") groups = withoutSpaceOfLv(groups, change.group);
    }
    return groups as KnownReport;
  }
}

/** Returns the groups when one of them has an LV more. */
function withoutSpaceOfLv(groups: readonly VolumeGroup[], name: string): readonly VolumeGroup[] {
  return groups.map((group) =>
    group.name === name && group.lvsLeft !== undefined ? { ...group, lvsLeft: group.lvsLeft - 1 } : group
  );
}

/** Reports whether a change may concern what a mark is in the names and tags of. An administrator may have renamed an LV. */
function concerns({ group: groupName, args }: PendingChange, mark: string, groups: readonly VolumeGroup[]): boolean {
  return args.some((arg) => arg.includes(mark)) ||
    groups.some(({ name, lvs }) =>
      name === groupName &&
      lvs.some((lv) => args.includes(`${name}/${lv.name}`) && lv.tags.some((tag) => tag.includes(mark)))
    );
}

/** Returns the groups after a change; `undefined` when its effect is not known. */
function applyChange(groups: readonly VolumeGroup[], change: PendingChange): readonly VolumeGroup[] | undefined {
  const { group: name, args: [subcommand = "", ...args], created } = change;
  if (created !== undefined) {
    // a report that began before the end of the change may show it
    const lacksIt = (group: VolumeGroup) => group.name === name && !group.lvs.some(({ uuid }) => uuid === created.uuid);
    return groups.map((group) => lacksIt(group) ? { ...group, lvs: [...group.lvs, created] } : group);
  }
  const options = parseOptions(args);
  if (options === undefined) return undefined;
  const changeGroup = (to: (group: VolumeGroup) => VolumeGroup) =>
    groups.map((group) => group.name === name ? to(group) : group);
  const changeLvs = (to: (lv: LogicalVolume) => LogicalVolume[]) =>
    changeGroup((group) => ({ ...group, lvs: group.lvs.flatMap(to) }));
  const uuid = /^lv_uuid=([\w-]+)/.exec(options.select)?.[1];
  switch (subcommand) {
    case "vgchange":
      return changeGroup((group) => ({ ...group, tags: changeTags(group.tags, options) }));
    case "lvchange":
      return changeLvs((lv) =>
        (uuid === undefined ? `${name}/${lv.name}` === options.operand : lv.uuid === uuid)
          ? [{ ...lv, tags: changeTags(lv.tags, options) }]
          : [lv]
      );
    case "lvremove":
      return uuid === undefined ? undefined : changeLvs((lv) => lv.uuid === uuid ? [] : [lv]);
    default:
      return undefined;
  }
}

/** The options of a change whose effect is known. */
interface TagOptions {
  readonly addtag: readonly string[];
  readonly deltag: readonly string[];
  readonly select: string;
  readonly operand: string;
}

/** Returns the options of a command that changes tags only, or removes; `undefined` for one that has others. */
function parseOptions(args: readonly string[]): TagOptions | undefined {
  const values = { "--addtag": [] as string[], "--deltag": [] as string[], "--select": [] as string[] };
  const operands: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    if (Object.hasOwn(values, arg)) values[arg as keyof typeof values].push(args[++index] ?? "");
    else if (!arg.startsWith("-")) operands.push(arg);
    else if (arg !== "--yes") return undefined;
  }
  const [operand, ...more] = operands;
  if (operand === undefined || more.length > 0) return undefined;
  return { addtag: values["--addtag"], deltag: values["--deltag"], select: values["--select"][0] ?? "", operand };
}

function changeTags(tags: readonly string[], { addtag, deltag }: TagOptions): readonly string[] {
  return [...tags.filter((tag) => !deltag.includes(tag) && !addtag.includes(tag)), ...addtag];
}
