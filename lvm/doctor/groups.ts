/**
 * The doctor's check of volume groups: whether the driver can create volumes in them.
 *
 * @module
 */

import {
  type CheckResult,
  error,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  NO_REPORT,
  skippedCheck,
  warning,
} from "./finding.ts";
import { isInContainer } from "../host/mounts.ts";
import type { GroupMatcher } from "../model/groups.ts";
import { METADATA_RESERVE } from "../model/report_parser.ts";
import { redundancyOf } from "../model/redundancy.ts";
import type { LogicalVolume } from "../model/report.ts";
import { requestedSpareBytes, SPARE, unreadableSpareTags } from "../settings/spare_space.ts";
import { formatBytes } from "../../base/size.ts";
import type { SurveyedGroup } from "../model/survey.ts";

/**
 * Warnings of LVM about problems that have findings of their own: missing physical volumes, and several groups with one
 * name.
 */
const REPORTED_BY_FINDINGS =
  /couldn't find (?:device|all devices)|is missing PV|VG name .* is used by|duplicate VG name/i;

/** Checks whether LVM would create a volume in the groups now. */
export function checkGroups(facts: HostFacts): CheckResult {
  const { survey, groups, wanted } = facts;
  if ("error" in survey) {
    // reported by the checks `tools` and `locks`
    if (survey.error.kind !== "CommandFailed") return skippedCheck(NO_REPORT);
    return {
      summary: "not checked",
      findings: [error("lvm", failureSummary(survey.error), "vgs   (fails in the same way)")],
    };
  }
  const warnings = survey.value.warnings.filter((sentence) => !REPORTED_BY_FINDINGS.test(sentence))
    .map((sentence) => warning("lvm", `LVM warns: ${sentence}`));
  const sizes = groups.map(({ name, free, spare, size }) =>
    `${name} (${formatBytes(free)} of ${formatBytes(size)} free${
      spare === undefined ? "" : `, ${formatBytes(spare)} of spare space`
    })`
  );
  return {
    summary: sizes.join(", ") || "none",
    findings: [
      ...missingGroups(survey.value.groups, groups, wanted),
      ...duplicateNames(survey.value.groups),
      ...(wanted === undefined ? groupsOfHost(survey.value.groups) : []),
      ...groups.flatMap((group) => groupFindings(group)),
      ...foreignGroups(facts),
      ...warnings,
    ],
  };
}

/** Finds requested names and patterns that match no group. */
function missingGroups(
  all: readonly SurveyedGroup[],
  groups: readonly SurveyedGroup[],
  wanted: GroupMatcher | undefined,
): Found[] {
  const there = all.map(({ name }) => name).join(", ") || "none";
  const make = (on: string) =>
    error(on, `there is no such volume group; this host has ${there}`, "vgcreate NAME /dev/sdX");
  if (wanted === undefined) return groups.length === 0 ? [make("volume groups")] : [];
  return (wanted.members ?? [wanted]).filter((member) => !all.some(({ name }) => member.matches(name)))
    .map((member) => make(String(member)));
}

/** Finds groups that this machine itself uses, which are offered to those alone that name them. */
function groupsOfHost(all: readonly SurveyedGroup[]): Found[] {
  return all.filter(({ hostUse }) => hostUse !== undefined).map(({ name, hostUse }) =>
    info(
      name,
      `this host uses ${hostUse} of it: StorageClasses that name no volume group do not use it`,
      `name it, in --volume-groups, in volumeGroups of the Helm chart, or in a StorageClass`,
    )
  );
}

/** Finds groups with the same name, as on disks that were moved here: LVM refuses commands that name them. */
function duplicateNames(all: readonly SurveyedGroup[]): Found[] {
  return [...Map.groupBy(all, ({ name }) => name)].filter(([, same]) => same.length > 1).map(([name, same]) =>
    error(
      name,
      `${same.length} groups have this name: ${same.map(({ uuid }) => uuid).join(", ")}`,
      `vgrename ${same.at(-1)!.uuid} ${name}-other   (the UUID of the one that does not belong here)`,
    )
  );
}

function groupFindings(group: SurveyedGroup): Found[] {
  const { name } = group;
  const findings: Found[] = [];
  if (group.missingPvs > 0) findings.push(missingPvsFinding(group));
  findings.push(...group.lvs.flatMap((lv) => degradedFindings(lv, group)));
  if (group.exported) findings.push(error(name, "it is exported: no host uses it", `vgimport ${name}`));
  else if (!group.writeable) {
    findings.push(error(name, "it is read-only: nothing in it can be created, extended or deleted"));
  }
  const isMetadataFull = group.metadataFree < METADATA_RESERVE; // which the check of the metadata reports
  if (group.refusal !== undefined && !isMetadataFull) {
    findings.push(error(name, `no volume can be created in it: ${group.refusal}`));
  }
  if (group.lockType !== "") {
    findings.push(error(
      name,
      `it is shared between hosts (${group.lockType}); the driver does not use locks between hosts`,
      `vgchange --lock-type none --lock-opt force ${name}   (when no other host uses it)`,
    ));
  }
  if (group.missingPvs === 0 && group.free < group.extentSize) {
    const spare = group.spare ? `; the other ${formatBytes(group.spare)} are its spare space` : "";
    findings.push(
      warning(name, `it is full: no volume can be created or extended in it${spare}`, `vgextend ${name} /dev/sdX`),
    );
  }
  return [...findings, ...spareFindings(group)];
}

/** Finds tags of spare space that cannot be read, and spare space that something else than a volume has taken. */
function spareFindings(group: SurveyedGroup): Found[] {
  const { name, tags, spare = 0n } = group;
  const unreadable = unreadableSpareTags(tags).map((tag) =>
    error(
      name,
      `its tag ${tag} cannot be read, so that volumes get none of its free space`,
      `vgchange --deltag ${tag} --addtag ${SPARE}10Gi ${name}`,
    )
  );
  const requested = requestedSpareBytes(group);
  if (unreadable.length > 0 || group.missingPvs > 0 || spare >= requested) return unreadable;
  const message = `only ${formatBytes(spare)} of its spare space of ${formatBytes(requested)} are left`;
  return [warning(name, message, `vgextend ${name} /dev/sdX`)];
}

/**
 * Values of the chart with which LVM has the host's system id in a container, by the settings that take it from the host
 * name or the machine id: a container has others.
 */
const CONTAINER_SYSTEM_IDS = new Map([
  ["uname", "lvm.systemId=$(NODE_NAME) of the Helm chart, if the host's name is that of its node"],
  ["machineid", "hostPaths.machineId=/etc/machine-id of the Helm chart"],
  ["appmachineid", "hostPaths.machineId=/etc/machine-id of the Helm chart"],
]);

/** Finds groups of other hosts, or what makes those of this host look so. */
function foreignGroups({ groups, systemId, configuration, mounts }: HostFacts): Found[] {
  const source = "value" in configuration ? configuration.value.value("global/system_id_source") : undefined;
  const chartValue = "value" in mounts && isInContainer(mounts.value)
    ? CONTAINER_SYSTEM_IDS.get(source ?? "none")
    : undefined;
  const own = systemId === "" ? "no system id" : `the system id ${systemId}`;
  return groups.filter((group) => group.systemId !== "" && group.systemId !== systemId).map((group) => {
    if (chartValue !== undefined) {
      const found = `it belongs to the host ${group.systemId}, and this container has ${own}, by system_id_source = ` +
        `"${source}": the host may have another one`;
      return error(group.name, found, chartValue);
    }
    return error(
      group.name,
      `it belongs to the host ${group.systemId}, and this host has ${own}`,
      `vgchange --yes --config 'global/system_id_source="lvmlocal" local/system_id="${group.systemId}"' ` +
        `--systemid "${systemId}" ${group.name}   (when that host does not use it)`,
    );
  });
}

/** Finds RAID volumes that would not survive the loss of a disk. */
function degradedFindings(lv: LogicalVolume, group: SurveyedGroup): Found[] {
  const redundancy = redundancyOf(lv, group);
  if (redundancy === undefined || redundancy.state === "InSync") return [];
  const { state, message, remedy } = redundancy;
  const makeFinding = state === "Rebuilding" ? info : state === "RaidFailed" ? error : warning;
  return [makeFinding(`${group.name}/${lv.name}`, `${lv.segment.type}: ${message}`, remedy)];
}

function missingPvsFinding({ name, pvs, missingPvs, lvs }: SurveyedGroup): Found {
  const partialLvs = lvs.filter(({ health }) => health === "partial").map((lv) => lv.name);
  const uuids = pvs.filter(({ missing }) => missing).map(({ uuid }) => uuid).join(", ");
  const on = partialLvs.length === 0 ? "no volume is on them" : `these volumes are on them: ${partialLvs.join(", ")}`;
  return error(
    name,
    `${missingPvs} of its ${pvs.length} physical volumes are missing (${uuids}); ${on}`,
    `attach the disk again; if it is still reported as missing: vgextend --restoremissing ${name} /dev/sdX`,
  );
}
