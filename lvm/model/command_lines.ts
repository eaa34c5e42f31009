/**
 * The LVM commands that change something: every command line that the driver runs as root to change volume groups.
 *
 * Each function builds the arguments of one command. Options have LVM's long names, and stand in the order in which they are
 * given; their meaning is in the command's man page. What reads only is in report_command.ts and configuration.ts.
 *
 * @module
 */

/** The value of an option: `true` for an option without value, a `bigint` for bytes, a list for an option that is repeated. */
type OptionValue = true | string | number | bigint | readonly string[];

/** Options that several commands have (lvm(8)). */
interface CommonOptions {
  /** Answers all questions with yes. */
  readonly yes?: true;
  /** Settings of lvm.conf(5) for this command. */
  readonly config?: string;
  /** Tags to add. */
  readonly addtag?: readonly string[];
}

/** Options of lvcreate(8). */
export interface LvcreateOptions extends CommonOptions {
  /** Wipes the signatures that are found on the new LV. */
  readonly wipesignatures?: "y" | "n";
  /** The type of segments: `raid1`, `thin`, `thin-pool` and so on; linear by default. */
  readonly type?: string;
  /** The LV that becomes the cache of the new one. */
  readonly cachevol?: string;
  /** Leaves the new LV inactive. */
  readonly activate?: "n";
  /** Makes the LV as a snapshot of the LV that the command names. */
  readonly snapshot?: true;
  /** The permission of the LV: read-only, or writable. */
  readonly permission?: "r" | "rw";
  /** The LV's name. */
  readonly name?: string;
  /** Zeroes the start of an LV, or each new block of a thin pool. An inactive LV is not zeroed. */
  readonly zero?: "y" | "n";
  /** The size, in bytes; of a copy-on-write snapshot that of its COW space. */
  readonly size?: bigint;
  /** The number of images beside the first one. */
  readonly mirrors?: number;
  /** The number of stripes, those for parity not counted. */
  readonly stripes?: number;
  /** The size of a stripe, in bytes. */
  readonly stripesize?: bigint;
  /** Gives each RAID image checksums of its data. */
  readonly raidintegrity?: "y";
  /** Activates a thin snapshot with other LVs; by default it is skipped (lvmthin(7)). */
  readonly setactivationskip?: "n";
  /** The thin pool of a thin LV. */
  readonly thinpool?: string;
  /** The size of a thin LV, in bytes. */
  readonly virtualsize?: bigint;
}

/** Wipes old signatures from a new LV without asking: its extents are free, so nobody needs what is on them. */
export const WIPE_SIGNATURES = { yes: true, wipesignatures: "y" } as const satisfies LvcreateOptions;

/** Options of lvextend(8). */
export interface LvextendOptions extends Pick<CommonOptions, "config"> {
  /** The new size, in bytes. */
  readonly size?: bigint;
  /** The new size of a thin pool's metadata, in bytes. */
  readonly poolmetadatasize?: bigint;
}

/** Options of lvchange(8), tags aside. */
export interface LvchangeOptions extends Pick<CommonOptions, "yes" | "config"> {
  /** Activates or deactivates the LV. */
  readonly activate?: "y" | "n";
  /** Activates the LV also if it is to be skipped, as snapshots are that others made (lvmthin(7)). */
  readonly ignoreactivationskip?: true;
  /** The mode in which an LV with missing PVs is activated; `degraded` if its RAID level tolerates their loss. */
  readonly activationmode?: "degraded";
  /** Loads the LV's tables again, and resumes it. */
  readonly refresh?: true;
  /** The permission of the LV: read-only, or writable. */
  readonly permission?: "r" | "rw";
}

/**
 * What an LV must be so that a command changes it. LVM checks it under the lock under which it changes the LV, and changes
 * nothing, without an error, when it is not so (lvmreport(7), "SELECTION").
 */
export interface Selection {
  /** The UUID of the LV: another LV may have the name by now. */
  readonly uuid: string;
  /** Tags that it has. */
  readonly tags?: readonly string[];
  /** Tags that it does not have. */
  readonly withoutTags?: readonly string[];
  /** It has no snapshots, and is no external origin: these would be removed with it. */
  readonly withoutDependents?: true;
  /** All of its disks are there, and in use. */
  readonly healthy?: true;
  /** Nothing has its device open. */
  readonly closed?: true;
  /** A tag that its group does not have. */
  readonly withoutGroupTag?: string;
}

/** Options of lvremove(8). */
export interface LvremoveOptions extends Pick<CommonOptions, "yes">, Selection {}

/** Options of lvconvert(8). */
export interface LvconvertOptions extends Pick<CommonOptions, "yes"> {
  /** Separates a copy-on-write snapshot from its origin. */
  readonly splitsnapshot?: true;
  /** Separates the cache from an LV, after what only the cache has was written to the LV. */
  readonly splitcache?: true;
}

/** Options of vgchange(8). */
export interface VgchangeOptions extends Pick<CommonOptions, "addtag"> {
  /** Tags to remove. */
  readonly deltag?: readonly string[];
  /** What an LV of the group must be, so that the tags of the group are changed. */
  readonly select?: Selection;
}

/** Options of pvcreate(8). */
export interface PvcreateOptions extends Pick<CommonOptions, "config"> {
  /** The UUID of the physical volume. */
  readonly uuid: string;
  /** Accepts a UUID without a backup of a group in which it is. */
  readonly norestorefile: true;
}

/**
 * Builds the command that creates a physical volume. LVM opens the disk exclusively, and refuses one with a partition table.
 * Without `yes`, it also refuses whatever signature it would ask about.
 *
 * @param path The path of the disk.
 */
export function pvcreate(options: PvcreateOptions, path: string): string[] {
  return ["pvcreate", ...optionArguments(options), path];
}

/**
 * Builds the command that removes a physical volume. LVM refuses one that is in a group.
 *
 * @param path The path of its device.
 */
export function pvremove(path: string): string[] {
  return ["pvremove", path];
}

/**
 * Builds the command that creates a volume group.
 *
 * @param vg The volume group.
 * @param path The path of its physical volume.
 */
export function vgcreate(vg: string, path: string): string[] {
  return ["vgcreate", vg, path];
}

/**
 * Builds the command that adds a physical volume to a volume group.
 *
 * @param vg The volume group.
 * @param path The path of the physical volume.
 */
export function vgextend(vg: string, path: string): string[] {
  return ["vgextend", vg, path];
}

/**
 * Builds the command that creates an LV.
 *
 * @param target The volume group; for a snapshot, its origin, as `vg/lv`.
 * @param pvs The paths of the PVs to allocate from; any by default.
 */
export function lvcreate(options: LvcreateOptions, target: string, pvs: readonly string[] = []): string[] {
  return ["lvcreate", ...optionArguments(options), target, ...pvs.map(pvArgument)];
}

/**
 * Builds the command that extends an LV.
 *
 * @param lv The LV, as `vg/lv`.
 * @param pvs The paths of the PVs to allocate from; any by default.
 */
export function lvextend(options: LvextendOptions, lv: string, pvs: readonly string[] = []): string[] {
  return ["lvextend", ...optionArguments(options), lv, ...pvs.map(pvArgument)];
}

/**
 * Returns the path of a PV as lvcreate and lvextend take it, which read what follows a colon as a range of extents, and `@` as a
 * tag. The names of lvm.conf(5), `preferred_names`, may have them.
 */
export function pvArgument(path: string): string {
  return path.replace(/[:@]/g, "\\$&");
}

/**
 * Builds the command that activates, deactivates or refreshes an LV, or changes its permission.
 *
 * @param lv The LV, as `vg/lv`.
 */
export function lvchange(options: LvchangeOptions, lv: string): string[] {
  return ["lvchange", ...optionArguments(options), lv];
}

/**
 * Builds the command that changes the tags of an LV, all of them at once.
 *
 * @param changes The arguments that the `mark…` functions of tags.ts return: `--deltag` and `--addtag` with their tags.
 * @param lv The LV, as `vg/lv`.
 * @param select What the LV must be.
 */
export function lvchangeTags(changes: readonly string[], lv: string, select?: Selection): string[] {
  return ["lvchange", ...changes, ...(select === undefined ? [] : ["--select", selectionText(select)]), lv];
}

/**
 * Builds the command that converts an LV.
 *
 * @param lv The LV, as `vg/lv`.
 */
export function lvconvert(options: LvconvertOptions, lv: string): string[] {
  return ["lvconvert", ...optionArguments(options), lv];
}

/**
 * Builds the command that gives an LV another name, also while it is in use.
 *
 * @param lv The LV, as `vg/lv`.
 * @param to Its new name, as `vg/lv`.
 */
export function lvrename(lv: string, to: string): string[] {
  return ["lvrename", lv, to];
}

/**
 * Builds the command that removes an LV. Without `yes`, LVM refuses whatever it would ask about.
 *
 * @param lv the LV, as `vg/lv`
 */
export function lvremove({ yes, ...selection }: LvremoveOptions, lv: string): string[] {
  return ["lvremove", ...optionArguments({ ...(yes && { yes }), select: selectionText(selection) }), lv];
}

/**
 * Builds the command that removes several LVs of a group, each if it is as selected; `closed` aside: LVM 2.03.16 evaluates
 * `lv_device_open` for the first LV only. LVM removes none of them while a program has one open, and does not wait until it is
 * closed.
 */
export function lvremoveTogether(
  removals: readonly { readonly options: LvremoveOptions; readonly lv: string }[],
): string[] {
  const selections = removals.map(({ options: { yes: _yes, closed: _closed, ...selection } }) =>
    `(${selectionText(selection)})`
  );
  const options = { yes: true, config: "activation/retry_deactivation=0", select: selections.join(" || ") };
  return ["lvremove", ...optionArguments(options), ...removals.map(({ lv }) => lv)];
}

/**
 * Builds the command that changes the tags of a volume group.
 *
 * @param vg The volume group.
 */
export function vgchange({ select, ...options }: VgchangeOptions, vg: string): string[] {
  return ["vgchange", ...optionArguments({ ...options, ...(select && { select: selectionText(select) }) }), vg];
}

/** Returns a selection as LVM reads it. Tags have no quotes (lvm(8), "VALID NAMES"). */
function selectionText(
  { uuid, tags = [], withoutTags = [], withoutDependents, healthy, closed, withoutGroupTag }: Selection,
): string {
  if (uuid === "") throw new RangeError("a selection without UUID would match each LV");
  return [
    `lv_uuid=${uuid}`,
    ...tags.map((tag) => `lv_tags="${tag}"`),
    ...withoutTags.map((tag) => `lv_tags!="${tag}"`),
    ...(withoutDependents ? ["lv_role!=origin"] : []),
    ...(healthy ? ['lv_health_status=""'] : []),
    ...(closed ? ["lv_device_open=0"] : []),
    ...(withoutGroupTag === undefined ? [] : [`vg_tags!="${withoutGroupTag}"`]),
  ].join(" && ");
}

/** The subcommands that LVM refuses while a physical volume of the group is missing. */
const REFUSED_WITHOUT_PV = ["lvcreate", "lvextend"];

/**
 * Returns the arguments of a command that changes nothing while LVM does not see a physical volume of the group. LVM would change the
 * metadata on the others, and regard that one as missing from then on, also when it is back. So a command that selects has the
 * condition that none is missing (seen with LVM 2.03.16).
 *
 * @returns `undefined` for other commands
 */
export function onlyWithAllPvs(args: readonly string[]): readonly string[] | undefined {
  if (REFUSED_WITHOUT_PV.includes(args[0]!)) return args;
  const at = args.indexOf("--select") + 1;
  if (at === 0) return undefined;
  const selection = args[at]!;
  return args.with(at, `${selection.startsWith("(") ? `(${selection})` : selection} && vg_missing_pv_count=0`);
}

function optionArguments(options: object): string[] {
  return Object.entries(options as Readonly<Record<string, OptionValue>>).flatMap(([name, value]) => {
    if (value === true) return [`--${name}`];
    if (typeof value === "bigint") return [`--${name}`, `${value}b`];
    return (typeof value === "object" ? value : [value]).flatMap((each) => [`--${name}`, `${each}`]);
  });
}
