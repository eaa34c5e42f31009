/**
 * LVM's report on a machine with more fields for an administrator: disks, metadata areas, and who may use a group.
 *
 * It is the report of {@linkcode readReport} with more fields. It also includes groups that LVM otherwise skips: those
 * of another host, and shared ones.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError, truncate } from "../../base/error.ts";
import { type Command, commandError, type Exec } from "../exec.ts";
import type { PhysicalVolume, VolumeGroup } from "./report.ts";
import { parsePvs, parseReport, parseUnreadable, Row, rowsOf, unassignedPvEntry, vgEntries } from "./report_parser.ts";
import { withHostUse } from "./host_use.ts";
import { reportCommand } from "./report_command.ts";

/** A physical volume with more of its properties; sizes in bytes. */
export interface SurveyedPv extends PhysicalVolume {
  /** The space of its extents that is allocated to LVs. */
  readonly used: bigint;
  /** True if LVM may allocate space on it (pvchange(8), `--allocatable`). */
  readonly allocatable: boolean;
  /** The size of its device; absent while LVM cannot find it. */
  readonly deviceSize?: bigint;
  /** The size of its smallest metadata area; 0 without one. */
  readonly metadataSize: bigint;
  /** The free space of its metadata area with the least free space; 0 without one. */
  readonly metadataFree: bigint;
}

/** A volume group with more of its properties; sizes in bytes. */
export interface SurveyedGroup extends VolumeGroup {
  /** All its physical volumes. */
  readonly pvs: readonly SurveyedPv[];
  /** True if it is exported (vgexport(8)): no host uses it. */
  readonly exported: boolean;
  /** The size of its smallest metadata area. */
  readonly metadataSize: bigint;
  /** The free space of the metadata area with the least free space. */
  readonly metadataFree: bigint;
  /** The number of its metadata areas. */
  readonly metadataAreas: number;
  /** The number of its metadata areas that LVM writes (vgchange(8), `--vgmetadatacopies`). */
  readonly metadataAreasUsed: number;
  /** The maximum number of its LVs (vgchange(8), `--maxlogicalvolumes`); 0 for no limit. */
  readonly lvsLimit: number;
  /** The maximum number of its physical volumes (vgchange(8), `--maxphysicalvolumes`); 0 for no limit. */
  readonly pvsLimit: number;
  /** Its allocation policy, such as `normal` (lvm(8), `--alloc`). */
  readonly allocationPolicy: string;
  /** The system id of the host that owns it (lvmsystemid(7)); empty for none. */
  readonly systemId: string;
  /** The lock type of a group that hosts share: `sanlock`, `dlm` (lvmlockd(8)), `clvm`; empty for a local group. */
  readonly lockType: string;
}

/** The parsed report. */
export interface Survey {
  /** The groups. */
  readonly groups: readonly SurveyedGroup[];
  /** The physical volumes (pvcreate(8)) that are in no group. */
  readonly unassignedPvs: readonly PhysicalVolume[];
  /** Warnings of LVM, one sentence each. */
  readonly warnings: readonly string[];
}

const SURVEY_FIELDS = {
  vg: [
    "vg_mda_size",
    "vg_mda_count",
    "vg_mda_used_count",
    "max_pv",
    "vg_systemid",
    "vg_lock_type",
    "vg_clustered",
    "vg_allocation_policy",
  ],
  lv: ["lv_when_full"],
  pv: ["dev_size", "pv_mda_size", "pv_mda_free"],
};

/** The maximum length of what a warning quotes of a refusal, in characters. */
const MAX_REFUSAL_LENGTH = 400;

/** LVM's message to every user but root. It then reports nothing at all, with exit status 0. */
const NOT_ROOT = /running as a non-root user/i;

/** The command whose output {@linkcode parseSurvey} parses. */
export const SURVEY_COMMAND: Command = reportCommand(["--foreign", "--shared"], SURVEY_FIELDS);

/** The same without locks, for when another command holds them. Its output may show a half-finished change. */
export const UNLOCKED_SURVEY_COMMAND: Command = reportCommand(
  ["--foreign", "--shared", "--nolocking"],
  SURVEY_FIELDS,
);

/**
 * Reads all groups. Where LVM refuses the report because of groups that it names, and shows the others, it returns the others
 * with a warning: what happens to one group must not hide the rest of the machine.
 *
 * @throws {StorageError} `FailedPrecondition` for a user other than root; `CommandFailed` when the report failed or
 * cannot be parsed; `Unavailable` when LVM does not respond
 */
export async function readSurvey(exec: Exec, command: Command = SURVEY_COMMAND): Promise<Survey> {
  const output = await exec.run(command);
  if (NOT_ROOT.test(output.stderr)) {
    throw new StorageError("FailedPrecondition", "reading volume groups: LVM shows them only to root");
  }
  const { code, stdout, stderr } = output;
  const unreadable = code === 0 ? [] : parseUnreadable(stderr);
  if (code !== 0 && (unreadable.length === 0 || stdout.trim() === "")) throw commandError(command, output);
  const groups = await withHostUse(exec, parseSurvey(stdout).filter(({ name }) => !unreadable.includes(name)));
  return {
    groups,
    unassignedPvs: parseUnassignedPvs(stdout),
    warnings: [
      ...parseWarnings(stderr),
      ...groups.flatMap(({ name, unreadable = [] }) =>
        unreadable.map((text) => `the report of volume group ${name} cannot be read: ${text}`)
      ),
      ...unreadable.map((name) =>
        `volume group ${name} cannot be read: ${truncate(stderr.trim(), MAX_REFUSAL_LENGTH)}`
      ),
    ],
  };
}

/**
 * Parses the groups in the output of {@linkcode SURVEY_COMMAND}. What cannot be read has the default of its kind, as in
 * {@linkcode parseReport}.
 *
 * @throws {StorageError} `CommandFailed` when the text is not the JSON that LVM writes
 */
export function parseSurvey(stdout: string): SurveyedGroup[] {
  const groups = parseReport(stdout);
  return vgEntries(stdout).map((entry, index) => {
    const [vg = new Row({})] = rowsOf(entry, "vg");
    const group = groups[index]!;
    const pvRows = rowsOf(entry, "pv");
    const lockType = vg.optionalText("vg_lock_type");
    return {
      ...group,
      pvs: group.pvs.map((pv, index) => surveyedPv(pv, pvRows[index]!, group.extentSize)),
      exported: vg.flag("vg_exported"),
      metadataSize: vg.optionalSize("vg_mda_size") ?? 0n,
      metadataFree: vg.optionalSize("vg_mda_free") ?? 0n,
      metadataAreas: Number(vg.optionalSize("vg_mda_count") ?? 0n),
      metadataAreasUsed: Number(vg.optionalSize("vg_mda_used_count") ?? 0n),
      lvsLimit: Number(vg.optionalSize("max_lv") ?? 0n),
      pvsLimit: Number(vg.optionalSize("max_pv") ?? 0n),
      allocationPolicy: vg.optionalText("vg_allocation_policy"),
      systemId: vg.optionalText("vg_systemid"),
      lockType: vg.flag("vg_clustered") ? "clvm" : lockType === "none" ? "" : lockType,
    };
  });
}

/** Returns a physical volume with what its row of the report says beyond {@linkcode PhysicalVolume}. */
function surveyedPv(pv: PhysicalVolume, row: Row, extentSize: bigint): SurveyedPv {
  const deviceSize = row.optionalSize("dev_size") ?? 0n;
  return {
    ...pv,
    used: row.size("pv_pe_alloc_count") * extentSize,
    allocatable: row.flag("pv_allocatable"),
    ...defined({ deviceSize: deviceSize === 0n ? undefined : deviceSize }),
    metadataSize: row.optionalSize("pv_mda_size") ?? 0n,
    metadataFree: row.optionalSize("pv_mda_free") ?? 0n,
  };
}

/** Parses the physical volumes that are in no group. */
export function parseUnassignedPvs(stdout: string): PhysicalVolume[] {
  const entry = unassignedPvEntry(stdout);
  return entry === undefined ? [] : parsePvs(entry, 0n); // without a group there are no extents
}

/** Returns the text of the lines that begin with `WARNING:`, each once. */
function parseWarnings(stderr: string): string[] {
  return [...new Set(stderr.split("\n").flatMap((line) => /^\s*WARNING: (.*\S)/.exec(line)?.[1] ?? []))];
}
