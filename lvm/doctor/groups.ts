/**
 * The doctor's look at volume groups: whether the driver can make volumes in them, and how many more their metadata holds.
 *
 * @module
 */

import {
  type CheckResult,
  failureSummary,
  type Finding,
  findingsOf,
  NO_REPORT,
  type Reading,
  skippedCheck,
} from "./finding.ts";
import type { GroupMatcher } from "../model/groups.ts";
import { redundancyOf } from "../model/redundancy.ts";
import type { LogicalVolume } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import type { Survey, SurveyedGroup } from "../model/survey.ts";

/** What {@linkcode checkGroups} and {@linkcode checkMetadata} look at. */
export interface GroupReadings {
  /** LVM's report. */
  readonly survey: Reading<Survey>;
  /** Those of its groups that the driver uses. */
  readonly groups: readonly SurveyedGroup[];
  /** The groups that were asked for; `undefined` for whatever the driver uses. */
  readonly wanted: GroupMatcher | undefined;
  /** The system id of this host (lvmsystemid(7)); empty for none. */
  readonly systemId: string;
}

/** What LVM warns of and a finding of ours says better: missing disks, and several groups of a name. */
const REPORTED_BY_FINDINGS =
  /couldn't find (?:device|all devices)|is missing PV|VG name .* is used by|duplicate VG name/i;

/** Whether LVM would make a volume in the groups now. */
export function checkGroups({ survey, groups, wanted, systemId }: GroupReadings): CheckResult {
  const { error, warning } = findingsOf("groups");
  if ("error" in survey) {
    // told by the checks of tools and of locks
    if (survey.error.kind !== "CommandFailed") return skippedCheck("groups", NO_REPORT);
    return {
      summary: "not checked",
      findings: [error("lvm", failureSummary(survey.error), "vgs   (fails in the same way)")],
    };
  }
  const warnings = survey.value.warnings.filter((sentence) => !REPORTED_BY_FINDINGS.test(sentence))
    .map((sentence) => warning("lvm", `it warns: ${sentence}`));
  const sizes = groups.map(({ name, free, size }) => `${name} (${formatBytes(free)} of ${formatBytes(size)} free)`);
  return {
    summary: sizes.join(", ") || "none",
    findings: [
      ...missingGroups(survey.value.groups, groups, wanted),
      ...duplicateNames(survey.value.groups),
      ...groups.flatMap((group) => groupFindings(group, systemId)),
      ...warnings,
    ],
  };
}

/** Every name and pattern that was asked for must mean a group. */
function missingGroups(
  all: readonly SurveyedGroup[],
  groups: readonly SurveyedGroup[],
  wanted: GroupMatcher | undefined,
): Finding[] {
  const { error } = findingsOf("groups");
  const there = all.map(({ name }) => name).join(", ") || "none";
  const make = (on: string) =>
    error(on, `there is no such volume group; this host has ${there}`, "vgcreate NAME /dev/sdX");
  if (wanted === undefined) return groups.length === 0 ? [make("volume groups")] : [];
  return (wanted.members ?? [wanted]).filter((member) => !all.some(({ name }) => member.matches(name)))
    .map((member) => make(String(member)));
}

/** LVM takes several groups of one name from disks that were moved here, and then refuses to work on either by name. */
function duplicateNames(all: readonly SurveyedGroup[]): Finding[] {
  const { error } = findingsOf("groups");
  return [...Map.groupBy(all, ({ name }) => name)].filter(([, same]) => same.length > 1).map(([name, same]) =>
    error(
      name,
      `${same.length} groups have this name: ${same.map(({ uuid }) => uuid).join(", ")}`,
      `vgrename ${same.at(-1)!.uuid} ${name}-other   (the UUID of the one that does not belong here)`,
    )
  );
}

function groupFindings(group: SurveyedGroup, systemId: string): Finding[] {
  const { error, warning } = findingsOf("groups");
  const { name } = group;
  const findings: Finding[] = [];
  if (group.missingPvs > 0) findings.push(missingPvsFinding(group));
  findings.push(...group.lvs.flatMap((lv) => degradedFindings(lv, group)));
  if (group.exported) findings.push(error(name, "it is exported: no host uses it", `vgimport ${name}`));
  else if (!group.writeable) {
    findings.push(error(name, "it is read-only: nothing in it can be made, grown or deleted"));
  }
  if (group.lockType !== "") {
    findings.push(error(
      name,
      `it is shared between hosts (${group.lockType}); the driver takes no locks of other hosts`,
      `vgchange --lock-type none --lock-opt force ${name}   (when no other host uses it)`,
    ));
  }
  if (group.systemId !== "" && group.systemId !== systemId) {
    findings.push(error(
      name,
      `it belongs to the host ${group.systemId}, and this one is ${systemId || "without a system id"}`,
      `vgchange --yes --config 'global/system_id_source="lvmlocal" local/system_id="${group.systemId}"' ` +
        `--systemid "${systemId}" ${name}   (when that host does not use it)`,
    ));
  }
  if (group.free < group.extentSize) {
    findings.push(warning(name, "it is full: no volume can be made or grown in it", `vgextend ${name} /dev/sdX`));
  }
  return findings;
}

/** A volume that was made to survive the loss of a disk, and would not. */
function degradedFindings(lv: LogicalVolume, group: SurveyedGroup): Finding[] {
  const { info, warning, error } = findingsOf("groups");
  const redundancy = redundancyOf(lv, group);
  if (redundancy === undefined || redundancy.state === "InSync") return [];
  const { state, message, remedy } = redundancy;
  const makeFinding = state === "Rebuilding" ? info : state === "RaidFailed" ? error : warning;
  return [makeFinding(`${group.name}/${lv.name}`, `${lv.segment.type}: ${message}`, remedy)];
}

function missingPvsFinding({ name, pvs, missingPvs, lvs }: SurveyedGroup): Finding {
  const partialLvs = lvs.filter(({ health }) => health === "partial").map((lv) => lv.name);
  const uuids = pvs.filter(({ missing }) => missing).map(({ uuid }) => uuid).join(", ");
  const on = partialLvs.length === 0 ? "no volume is on them" : `on them are ${partialLvs.join(", ")}`;
  return findingsOf("groups").error(
    name,
    `${missingPvs} of its ${pvs.length} disks are missing (${uuids}); ${on}`,
    `attach the disk again; then, if it still counts as missing: vgextend --restoremissing ${name} /dev/sdX`,
  );
}

/** What a volume in use takes of the metadata, its record included, in bytes: measured, docs/reference/state.md. */
const METADATA_BYTES_PER_VOLUME = 610n;

/** With room for fewer further volumes than this, it is time to act. */
const MIN_VOLUMES_LEFT = 50n;

/** How many more volumes the metadata areas of the groups have room for. */
export function checkMetadata({ survey, groups }: GroupReadings): CheckResult {
  if ("error" in survey) return skippedCheck("metadata", NO_REPORT);
  const { warning, error } = findingsOf("metadata");
  const estimates = groups.map((group) => ({ ...group, volumesLeft: group.metadataFree / METADATA_BYTES_PER_VOLUME }));
  const findings = estimates.filter(({ volumesLeft }) => volumesLeft < MIN_VOLUMES_LEFT).map(
    ({ name, volumesLeft, metadataFree, metadataSize }) => {
      const free = `${formatBytes(metadataFree)} free in areas of ${formatBytes(metadataSize)}`;
      const remedy = `vgextend --metadatasize 16m ${name} /dev/sdX, then for the disks with small areas: ` +
        "pvchange --metadataignore y /dev/sdY";
      return volumesLeft === 0n
        ? error(name, `its metadata is full: ${free}`, remedy)
        : warning(name, `its metadata has room for about ${volumesLeft} more volumes: ${free}`, remedy);
    },
  );
  return {
    summary:
      estimates.map(({ name, volumesLeft }) => `${name} has room for about ${volumesLeft} more volumes`).join(", ") ||
      "no group",
    findings,
  };
}
