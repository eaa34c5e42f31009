/**
 * The doctor's look at LVM's settings: locks, filters, and what activates.
 *
 * @module
 */

import { type Configuration, type Setting, snapshotAutoextendThreshold } from "../model/configuration.ts";
import type { Disk } from "../host/disks.ts";
import type { StorageError } from "../error.ts";
import { isNotInstalled, isTimeout } from "../exec.ts";
import {
  type CheckResult,
  failureSummary,
  type Finding,
  findingsOf,
  NO_SETTINGS,
  type Reading,
  skippedCheck,
} from "./finding.ts";
import type { Mount } from "../host/mounts.ts";
import type { Survey, SurveyedGroup } from "../model/survey.ts";

const LVM_CONF = "/etc/lvm/lvm.conf";

/** What {@linkcode checkLocks} looks at. */
export interface LockReadings {
  /** LVM's settings. */
  readonly configuration: Reading<Configuration>;
  /** The mount table. */
  readonly mounts: Reading<readonly Mount[]>;
  /** LVM's report. */
  readonly survey: Reading<Survey>;
  /** Whether LVM reported only when told to take no locks. */
  readonly lockStuck: boolean;
}

/** Whether LVM's commands exclude each other, and none of them is stuck. */
export function checkLocks({ configuration, mounts, survey, lockStuck }: LockReadings): CheckResult {
  const { error } = findingsOf("locks");
  const findings: Finding[] = [];
  if (lockStuck) {
    findings.push(error(
      "lvm",
      "it reports only without locks: a command that holds one is stuck, and all others wait for it",
      "lslocks --notruncate | grep /lvm/   (names it; if it waits for udev: dmsetup udevcookies, dmsetup udevcomplete_all)",
    ));
  }
  if ("error" in survey && isTimeout(survey.error)) {
    findings.push(error(
      "lvm",
      `it does not answer, with locks or without: it waits for a disk, a suspended device or udev`,
      "dmesg | tail; dmsetup info --columns --options name,suspended; ps -eo pid,stat,wchan:20,args | grep ' D'",
    ));
  }
  if ("error" in configuration) {
    return { summary: "settings unknown", findings: [...findings, noSettings(configuration.error)] };
  }
  const { value: settings } = configuration;
  findings.push(...lockSettings(settings), ...lockDirectory(settings, "value" in mounts ? mounts.value : []));
  return { summary: `files in ${settings.value("global/locking_dir") ?? "LVM's own folder"}`, findings };
}

function noSettings(reason: StorageError): Finding {
  const { info, error } = findingsOf("locks");
  return isNotInstalled(reason)
    ? info("lvm", NO_SETTINGS)
    : error("lvm", failureSummary(reason), "lvmconfig --validate");
}

function lockSettings(settings: Configuration): Finding[] {
  const { info, warning, error } = findingsOf("locks");
  const findings: Finding[] = [];
  const type = settings.value("global/locking_type") ?? "1";
  if (type !== "1") {
    findings.push(
      error(
        "global/locking_type",
        `${type}: LVM's commands do not exclude each other`,
        settingRemedy("global/locking_type", "1"),
      ),
    );
  }
  if (settings.value("global/wait_for_locks") === "0") {
    const found = "0: a command fails at once when another one runs, instead of waiting for it";
    findings.push(warning("global/wait_for_locks", found, settingRemedy("global/wait_for_locks", "1")));
  }
  if (settings.value("global/use_lvmlockd") === "1") {
    findings.push(
      info("global/use_lvmlockd", "1: groups shared with other hosts need lvmlockd; the driver's are local"),
    );
  }
  return findings;
}

/** Whether the lock files are where other commands of this host look, too: LVM makes the folder, but not on anything. */
function lockDirectory(settings: Configuration, mounts: readonly Mount[]): Finding[] {
  const { warning, error } = findingsOf("locks");
  const folder = settings.value("global/locking_dir");
  const mount = folder === undefined ? undefined : mountOf(mounts, folder);
  if (folder === undefined || mount === undefined) return [];
  if (mount.readOnly) {
    return [
      error(folder, `${mount.target} is mounted read-only: LVM cannot lock`, `mount -o remount,rw ${mount.target}`),
    ];
  }
  if (mount.fsType === "overlay") {
    const found =
      "it is in a container's own filesystem: commands of the host and of the container do not see each other";
    return [warning(folder, found, `mount the host's ${folder} into the container`)];
  }
  return [];
}

/** The mount that a path is on: the last one that was made there or above, since it hides those before. */
function mountOf(mounts: readonly Mount[], path: string): Mount | undefined {
  return mounts.findLast(({ target }) => target === "/" || path === target || path.startsWith(`${target}/`));
}

/** What {@linkcode checkFilters} looks at. */
export interface FilterReadings {
  /** LVM's settings. */
  readonly configuration: Reading<Configuration>;
  /** The disks that the kernel has. */
  readonly disks: Reading<readonly Disk[]>;
  /** LVM's report. */
  readonly survey: Reading<Survey>;
  /** The groups that the driver uses. */
  readonly groups: readonly SurveyedGroup[];
  /** The driver's name. */
  readonly driver: string;
}

/** Whether LVM sees all of its disks, and activates what the driver makes on them. */
export function checkFilters({ configuration, disks, survey, groups, driver }: FilterReadings): CheckResult {
  if ("error" in configuration) return skippedCheck("filters", NO_SETTINGS);
  const { value: settings } = configuration;
  const hidden = "value" in disks && "value" in survey ? hiddenPvs(settings, disks.value, survey.value) : [];
  const unlisted = "error" in disks ? [findingsOf("filters").warning("disks", failureSummary(disks.error))] : [];
  return {
    summary: hidden.length === 0 ? "LVM sees all of its disks" : `LVM does not see ${hidden.length} of its disks`,
    findings: [...hidden, ...unlisted, ...activationLists(settings, groups, driver), ...recoverySettings(settings)],
  };
}

/** The disks that carry LVM's label and are not among those that LVM reports. */
function hiddenPvs(settings: Configuration, disks: readonly Disk[], { groups, unassignedPvs }: Survey): Finding[] {
  const { warning, error } = findingsOf("filters");
  const pvs = groups.flatMap((group) => group.pvs.map((pv) => ({ ...pv, group: group.name })));
  const reportedUuids = new Set([...pvs, ...unassignedPvs].filter((pv) => !pv.missing).map(({ uuid }) => uuid));
  // what guests keep in their volumes is not the host's: LVM does not look there unless it is told to
  const scanned = disks.filter(({ type }) => type !== "lvm" || settings.value("devices/scan_lvs") === "1");
  return scanned.filter(({ pvUuid }) => pvUuid !== undefined && !reportedUuids.has(pvUuid)).map(({ path, pvUuid }) => {
    const group = pvs.find(({ uuid }) => uuid === pvUuid)?.group;
    const { why, remedy } = hidingRule(settings, path);
    return group === undefined
      ? warning(path, `it is a disk of LVM's (${pvUuid}), but LVM does not use it: ${why}`, remedy)
      : error(path, `it is the missing disk of group ${group}, but LVM does not use it: ${why}`, remedy);
  });
}

function hidingRule(settings: Configuration, path: string): { why: string; remedy: string } {
  if (settings.value("devices/use_devicesfile") === "1") {
    const file = settings.value("devices/devicesfile") ?? "system.devices";
    return { why: `it is not in the devices file ${file}`, remedy: `lvmdevices --adddev ${path}` };
  }
  const filters = (["devices/global_filter", "devices/filter"] as const)
    .map((name) => [name, settings.list(name) ?? []] as const)
    .filter(([, patterns]) => patterns.some((pattern) => pattern.startsWith("r")));
  if (filters.length === 0) {
    return {
      why: "no filter says so; it may be in use by something else, or a copy",
      remedy: `pvs --all ${path}; pvck ${path}`,
    };
  }
  const rules = filters.map(([name, patterns]) => `${name} = ${formatList(patterns)}`).join(", ");
  return {
    why: rules,
    remedy: `take the rejection out of ${filters.map(([name]) => name).join(", ")} in ${LVM_CONF}; pvscan`,
  };
}

/** What LVM activates: a group's name, `group/volume`, `@tag`, or `@*` for a tag of the host (lvm.conf(5)). */
function activationLists(settings: Configuration, groups: readonly SurveyedGroup[], driver: string): Finding[] {
  const { warning, error } = findingsOf("filters");
  const allowed = settings.list("activation/volume_list");
  const readOnly = settings.list("activation/read_only_volume_list") ?? [];
  const includesGroup = (list: readonly string[], { name, tags }: SurveyedGroup) =>
    [name, `@denolith=${driver}`, ...tags.map((tag) => `@${tag}`)].some((entry) => list.includes(entry));
  return groups.flatMap((group) => {
    const findings: Finding[] = [];
    if (allowed !== undefined && !includesGroup(allowed, group)) {
      const found = `volume_list = ${
        formatList(allowed)
      } keeps its logical volumes inactive: none can be made or mounted`;
      const remedy = `add "${group.name}" to activation/volume_list in ${LVM_CONF}`;
      findings.push(
        allowed.includes("@*")
          ? warning(group.name, `${found}, unless it carries a tag of this host`, remedy)
          : error(group.name, found, remedy),
      );
    }
    if (includesGroup(readOnly, group)) {
      const found = `read_only_volume_list = ${formatList(readOnly)} makes its logical volumes read-only`;
      findings.push(error(group.name, found, `take it out of activation/read_only_volume_list in ${LVM_CONF}`));
    }
    return findings;
  });
}

/** What decides whether a logical volume that was removed can be brought back, and who grows snapshots and thin pools. */
function recoverySettings(settings: Configuration): Finding[] {
  const { info, warning } = findingsOf("filters");
  const findings: Finding[] = [];
  if (settings.value("devices/issue_discards") === "1") {
    const found = "1: the data of a logical volume that is removed by mistake is gone at once";
    findings.push(info("devices/issue_discards", found, settingRemedy("devices/issue_discards", "0")));
  }
  if (settings.value("backup/archive") === "0") {
    const found = "0: no metadata of before is kept, so vgcfgrestore cannot bring a Lost volume back";
    findings.push(info("backup/archive", found, settingRemedy("backup/archive", "1")));
  }
  const threshold = snapshotAutoextendThreshold(settings);
  if (threshold !== undefined) {
    const found = `${threshold}: dmeventd grows the stores of snapshots, and the driver leaves that to it`;
    findings.push(info("activation/snapshot_autoextend_threshold", found));
  }
  const poolThreshold = Number(settings.value("activation/thin_pool_autoextend_threshold") ?? "100");
  if (settings.value("activation/monitoring") === "1" && poolThreshold < 100) {
    const found =
      `${poolThreshold}: dmeventd grows thin pools that it watches. It is not to watch those of the driver, ` +
      "which grows them itself; but what activates all of a group registers them (lvm2-monitor.service)";
    const fix = settingRemedy("activation/thin_pool_autoextend_threshold", "100");
    findings.push(
      warning("activation/thin_pool_autoextend_threshold", found, `${fix}, or --thin-pool-autoextend-threshold 100`),
    );
  }
  return findings;
}

function settingRemedy(setting: Setting, value: string): string {
  const [section, name] = setting.split("/");
  return `${name} = ${value} in the section ${section} of ${LVM_CONF}`;
}

function formatList(list: readonly string[]): string {
  return `[${list.map((entry) => JSON.stringify(entry)).join(", ")}]`;
}
