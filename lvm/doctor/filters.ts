/**
 * The doctor's check of LVM's filters and activation lists, and of its settings for archives and extension.
 *
 * @module
 */

import { type Configuration, snapshotAutoextendThreshold } from "../model/configuration.ts";
import type { Disk } from "../host/disks.ts";
import { acceptsAll, HOST_PATTERN, HOST_UDEV_FILE, HOST_UDEV_RULES, passesFilter } from "../host/stacked_devices.ts";
import {
  type CheckResult,
  error,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  LVM_CONF,
  NO_SETTINGS,
  settingRemedy,
  skippedCheck,
  warning,
} from "./finding.ts";
import { type Mount, mountAbove } from "../host/mounts.ts";
import type { Survey, SurveyedGroup } from "../model/survey.ts";

/** Checks whether LVM uses all disks with its label, and activates the LVs that the driver creates. */
export function checkFilters(facts: HostFacts): CheckResult {
  const { configuration, mounts, disks, stackedFilter, survey, groups, driver } = facts;
  if ("error" in configuration) return skippedCheck(NO_SETTINGS);
  const { value: settings } = configuration;
  const all = "value" in disks ? disks.value : [];
  const patterns = "value" in stackedFilter ? stackedFilter.value : [HOST_PATTERN];
  const stacked = all.filter(({ type, path }) => type === "lvm" || !passesFilter(patterns, path));
  const scanned = all.filter((disk) => !stacked.includes(disk));
  const hidden = "value" in survey ? hiddenPvs(settings, scanned, survey.value) : [];
  const unlisted = "error" in disks ? [warning("disks", failureSummary(disks.error))] : [];
  return {
    summary: hidden.length === 0
      ? "LVM uses all disks with its label"
      : `LVM does not use ${hidden.length} of the disks with its label`,
    findings: [
      ...hidden,
      ...unlisted,
      ...stackedDevices(settings, stacked),
      ...assembledMembers(stacked),
      ...activationLists(settings, groups, driver),
      ...archiveDirectory(settings, "value" in mounts ? mounts.value : []),
      ...recoverySettings(settings),
    ],
  };
}

/** Finds disks with LVM's label that LVM does not report. */
function hiddenPvs(settings: Configuration, disks: readonly Disk[], { groups, unassignedPvs }: Survey): Found[] {
  const pvs = groups.flatMap((group) => group.pvs.map((pv) => ({ ...pv, group: group.name })));
  const reportedUuids = new Set([...pvs, ...unassignedPvs].filter((pv) => !pv.missing).map(({ uuid }) => uuid));
  return disks.filter(({ pvUuid }) => pvUuid !== undefined && !reportedUuids.has(pvUuid)).map(({ path, pvUuid }) => {
    const group = pvs.find(({ uuid }) => uuid === pvUuid)?.group;
    const { why, remedy } = hidingRule(settings, path);
    return group === undefined
      ? warning(path, `it is a physical volume (${pvUuid}), but LVM does not use it: ${why}`, remedy)
      : error(
        path,
        `it is a missing physical volume of volume group ${group}, but LVM does not use it: ${why}`,
        remedy,
      );
  });
}

/**
 * Finds devices over logical volumes that this host's own LVM reads: the driver's does not. Whoever uses a block volume can
 * write physical volumes on them, which the host then activates, and whose names LVM confuses with those of the host.
 */
function stackedDevices(settings: Configuration, stacked: readonly Disk[]): Found[] {
  const scansLvs = settings.value("devices/scan_lvs") === "1";
  const fix = settingRemedy("devices/scan_lvs", "0");
  const ofLvs = scansLvs ? [warning("devices/scan_lvs", "1: LVM of this host reads what is on volumes", fix)] : [];
  const filters = [settings.list("devices/global_filter") ?? [], settings.list("devices/filter") ?? []];
  const isRead = ({ type, path }: Disk) => type !== "lvm" && filters.every((filter) => passesFilter(filter, path));
  if (settings.value("devices/use_devicesfile") === "1") return ofLvs;
  const read = stacked.filter(isRead);
  // the whole of a filter, if one is not in use: a device passes a filter that accepts any of its names
  const setting = !acceptsAll(filters[0]) && acceptsAll(filters[1]) ? "devices/filter" : "devices/global_filter";
  // as they are: without its last pattern, which accepts all, one that rejects names in /dev/disk would hide all disks
  const others = acceptsAll(filters[0]) || acceptsAll(filters[1]) ? [] : filters[0]!;
  const remedy = settingRemedy(setting, formatList([HOST_PATTERN, ...others]));
  const labelled = read.filter(({ pvUuid }) => pvUuid !== undefined).map(({ path, pvUuid }) =>
    warning(
      path,
      `it is over a logical volume, and whoever uses that made a physical volume of it (${pvUuid}): the driver does not read ` +
        "it, but LVM of this host does",
      remedy,
    )
  );
  if (read.length === 0 || labelled.length > 0) return [...ofLvs, ...labelled];
  const found = `no filter rejects ${
    read[0]!.path
  }, which is over a logical volume: LVM of this host reads what pods write there`;
  return [...ofLvs, info(setting, found, remedy)];
}

/** What udev gives to programs that use it at once: mdadm, the kernel's btrfs, and bcache. */
const ASSEMBLED = ["linux_raid_member", "ddf_raid_member", "isw_raid_member", "bcache", "btrfs"];

/** Finds what udev of this host has found on the loop devices of block volumes, although whoever uses the volume wrote it. */
function assembledMembers(stacked: readonly Disk[]): Found[] {
  const rules = HOST_UDEV_RULES.map((rule) => `'${rule}'`).join(" ");
  const remedy = `printf '%s\\n' ${rules} > ${HOST_UDEV_FILE}; udevadm control --reload`;
  return stacked.filter(({ type, content }) => type === "loop" && ASSEMBLED.includes(content?.type ?? "")).map((disk) =>
    warning(
      disk.path,
      `it is over a logical volume, and whoever uses that wrote ${
        disk.content!.type
      } on it: udev of this host gives it to the ` +
        "programs for that, which keep the volume in use",
      remedy,
    )
  );
}

function hidingRule(settings: Configuration, path: string): { why: string; remedy: string } {
  if (settings.value("devices/use_devicesfile") === "1") {
    const file = settings.value("devices/devicesfile") ?? "system.devices";
    return { why: `it is not in the devices file ${file}`, remedy: `lvm lvmdevices --adddev ${path}` };
  }
  const filters = (["devices/global_filter", "devices/filter"] as const)
    .map((name) => [name, settings.list(name) ?? []] as const)
    .filter(([, patterns]) => patterns.some((pattern) => pattern.startsWith("r")));
  if (filters.length === 0) {
    return {
      why: "no filter rejects it; it may be in use by another program, or be a copy of another disk",
      remedy: `pvs --all ${path}; pvck ${path}`,
    };
  }
  const rules = filters.map(([name, patterns]) => `${name} = ${formatList(patterns)}`).join(", ");
  return {
    why: rules,
    remedy: `remove the rejection from ${filters.map(([name]) => name).join(", ")} in ${LVM_CONF}; pvscan`,
  };
}

/**
 * Checks which LVs LVM activates: the settings list names of groups, `group/volume`, `@tag`, or `@*` for a tag of the
 * host (lvm.conf(5)).
 */
function activationLists(settings: Configuration, groups: readonly SurveyedGroup[], driver: string): Found[] {
  const allowed = settings.list("activation/volume_list");
  const readOnly = settings.list("activation/read_only_volume_list") ?? [];
  const includesGroup = (list: readonly string[], { name, tags }: SurveyedGroup) =>
    [name, `@denolith=${driver}`, ...tags.map((tag) => `@${tag}`)].some((entry) => list.includes(entry));
  return groups.flatMap((group) => {
    const findings: Found[] = [];
    if (allowed !== undefined && !includesGroup(allowed, group)) {
      const found = `volume_list = ${
        formatList(allowed)
      } keeps its logical volumes inactive: none can be created or mounted`;
      const remedy = `add "${group.name}" to activation/volume_list in ${LVM_CONF}`;
      findings.push(
        allowed.includes("@*")
          ? warning(group.name, `${found}, unless it has a tag of this host`, remedy)
          : error(group.name, found, remedy),
      );
    }
    if (includesGroup(readOnly, group)) {
      const found = `read_only_volume_list = ${formatList(readOnly)} makes its logical volumes read-only`;
      findings.push(error(group.name, found, `remove it from activation/read_only_volume_list in ${LVM_CONF}`));
    }
    return findings;
  });
}

/** Checks whether LVM can write its archives: otherwise it changes nothing (lvm.conf(5), archive). */
function archiveDirectory(settings: Configuration, mounts: readonly Mount[]): Found[] {
  const folder = settings.value("backup/archive_dir");
  const mount = folder === undefined ? undefined : mountAbove(mounts, folder);
  const isWritable = mount === undefined || (!mount.readOnly && mount.filesystemWritable);
  if (folder === undefined || isWritable || settings.value("backup/archive") === "0") return [];
  const found = `${mount.target} is read-only: LVM keeps no previous metadata there, and so changes no volume group`;
  const remedy = `${settingRemedy("backup/archive_dir", '"DIRECTORY"')}, or lvm.archiveDir of the Helm chart`;
  return [error(folder, found, remedy)];
}

/** Checks settings that decide whether a removed LV can be restored, and what extends snapshots and thin pools. */
function recoverySettings(settings: Configuration): Found[] {
  const findings: Found[] = [];
  if (settings.value("devices/issue_discards") === "1") {
    const found = "1: the data of a logical volume that is removed by mistake is lost at once";
    findings.push(info("devices/issue_discards", found, settingRemedy("devices/issue_discards", "0")));
  }
  if (settings.value("backup/archive") === "0") {
    const found = "0: LVM keeps no previous metadata, so vgcfgrestore cannot restore a Lost volume";
    findings.push(info("backup/archive", found, settingRemedy("backup/archive", "1")));
  }
  const threshold = snapshotAutoextendThreshold(settings);
  if (threshold !== undefined) {
    const found = `${threshold}: dmeventd extends the COW space of snapshots, so the driver does not`;
    findings.push(info("activation/snapshot_autoextend_threshold", found));
  }
  const poolThreshold = Number(settings.value("activation/thin_pool_autoextend_threshold") ?? "100");
  if (settings.value("activation/monitoring") === "1" && poolThreshold < 100) {
    const found =
      `${poolThreshold}: dmeventd extends thin pools that it monitors. It must not monitor the driver's pools, ` +
      "which the driver extends itself; but lvm2-monitor.service registers every pool of an active volume group";
    const fix = settingRemedy("activation/thin_pool_autoextend_threshold", "100");
    findings.push(
      warning("activation/thin_pool_autoextend_threshold", found, `${fix}, or --thin-pool-autoextend-threshold 100`),
    );
  }
  return findings;
}

function formatList(list: readonly string[]): string {
  return `[${list.map((entry) => JSON.stringify(entry)).join(", ")}]`;
}
