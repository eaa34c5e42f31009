/**
 * LVM's account of a machine with what an administrator looks at besides: disks, metadata areas, who may use a group.
 *
 * It is the report of {@linkcode readReport} with more fields, and it also shows what LVM otherwise skips: groups that
 * belong to another host, and shared ones.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { type Command, commandError, type Exec } from "../exec.ts";
import { asArray, asInteger, asObject, asString, asUnsignedInteger } from "../json.ts";
import {
  parsePvs,
  parseReport,
  type PhysicalVolume,
  unassignedPvEntry,
  vgEntries,
  type VolumeGroup,
} from "./report.ts";
import { reportCommand } from "./report_command.ts";

/** A volume group with more of what LVM knows; sizes in bytes. */
export interface SurveyedGroup extends VolumeGroup {
  /** Whether it was exported (vgexport(8)): no host uses it. */
  readonly exported: boolean;
  /** The size of its smallest metadata area. */
  readonly metadataSize: bigint;
  /** What is free in the metadata area that has least. */
  readonly metadataFree: bigint;
  /** The system id of the host whose it is (lvmsystemid(7)); empty for any. */
  readonly systemId: string;
  /** How hosts that share it take locks: `sanlock`, `dlm` (lvmlockd(8)), `clvm`; empty for a local group. */
  readonly lockType: string;
}

/** What LVM answered. */
export interface Survey {
  /** The groups. */
  readonly groups: readonly SurveyedGroup[];
  /** The disks that are prepared for LVM (pvcreate(8)), but in no group. */
  readonly unassignedPvs: readonly PhysicalVolume[];
  /** What LVM warned of besides, one sentence each. */
  readonly warnings: readonly string[];
}

const SURVEY_FIELDS = { vg: ["vg_mda_size", "vg_mda_free", "vg_systemid", "vg_lock_type", "vg_clustered"], lv: [] };

/** What LVM says to every user but root, and then reports nothing at all, with exit status 0. */
const NOT_ROOT = /running as a non-root user/i;

/** The command whose answer {@linkcode parseSurvey} reads. */
export const SURVEY_COMMAND: Command = reportCommand({ ...SURVEY_FIELDS, options: ["--foreign", "--shared"] });

/** The same without taking locks: for the case that somebody holds one. What it answers may be half a change. */
export const UNLOCKED_SURVEY_COMMAND: Command = reportCommand({
  ...SURVEY_FIELDS,
  options: ["--foreign", "--shared", "--nolocking"],
});

/**
 * Asks LVM for all groups.
 *
 * @throws {StorageError} `FailedPrecondition` for another user than root; `CommandFailed` when the report failed or cannot
 * be read; `Unavailable` when LVM does not answer.
 */
export async function readSurvey(exec: Exec, command: Command = SURVEY_COMMAND): Promise<Survey> {
  const output = await exec.run(command);
  if (NOT_ROOT.test(output.stderr)) {
    throw new StorageError("FailedPrecondition", "asking LVM for its groups: it shows them to root alone");
  }
  if (output.code !== 0) throw commandError(command, output);
  const { stdout, stderr } = output;
  return { groups: parseSurvey(stdout), unassignedPvs: parseUnassignedPvs(stdout), warnings: parseWarnings(stderr) };
}

/**
 * Reads the groups of the answer to {@linkcode SURVEY_COMMAND}.
 *
 * @throws {StorageError} `CommandFailed` when a field is missing or odd.
 */
export function parseSurvey(stdout: string): SurveyedGroup[] {
  const groups = parseReport(stdout);
  return vgEntries(stdout).map((entry, index) => {
    const vg = asObject(asArray(entry.vg)[0]);
    return {
      ...groups[index]!,
      exported: asInteger(vg.vg_exported) === 1n,
      metadataSize: asUnsignedInteger(vg.vg_mda_size),
      metadataFree: asUnsignedInteger(vg.vg_mda_free),
      systemId: asString(vg.vg_systemid),
      lockType: asInteger(vg.vg_clustered) === 1n ? "clvm" : asString(vg.vg_lock_type).replace(/^none$/, ""),
    };
  });
}

/** Reads the disks of LVM's that are in no group. @throws {StorageError} `CommandFailed` when a field is missing or odd. */
export function parseUnassignedPvs(stdout: string): PhysicalVolume[] {
  const entry = unassignedPvEntry(stdout);
  return entry === undefined ? [] : parsePvs(entry, 0n); // of no group, so of no extents
}

/** The sentences of the lines that begin with `WARNING:`, each once. */
function parseWarnings(stderr: string): string[] {
  return [...new Set(stderr.split("\n").flatMap((line) => /^\s*WARNING: (.*\S)/.exec(line)?.[1] ?? []))];
}
