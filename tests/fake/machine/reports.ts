/**
 * The output of the fake machine's `lvm fullreport`, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { REPORT_COMMAND } from "../../../lvm/model/report_command.ts";
import { SURVEY_COMMAND, UNLOCKED_SURVEY_COMMAND } from "../../../lvm/model/survey.ts";
import { LINEAR, lvHealthStatus, pvRow, pvSegmentsOf, pvsegRow, segRow } from "./pvs.ts";
import type { Segment } from "../../../lvm/model/report.ts";
import { METADATA_AREA_BYTES, metadataFree } from "./metadata_area.ts";
import {
  devicePath,
  failure,
  type FakeGroup,
  type FakeLv,
  type FakeMachine,
  isMounted,
  newUuid,
  ok,
} from "./machine.ts";
import { isPoolOpen, thinFields } from "./thin.ts";
import { cacheFields } from "./cache.ts";

const REPORTS = [REPORT_COMMAND, SURVEY_COMMAND, UNLOCKED_SURVEY_COMMAND].map(({ args }) => args.slice(1).join("\n"));

/** Runs `lvm fullreport …`, of which it knows those that the driver asks for, of all groups or of one by its name. */
export function fullreport(machine: FakeMachine, args: readonly string[]): Output {
  const name = REPORTS.includes(args.slice(0, -1).join("\n")) ? args.at(-1)! : undefined;
  if (name === undefined && !REPORTS.includes(args.join("\n"))) {
    throw new Error(`the fake lvm has no report like ${args.join(" ")}`);
  }
  // of copies of a group LVM shows one: that in use, if there is one
  const all = [...Map.groupBy(machine.groups, ({ uuid }) => uuid).values()]
    .map((copies) => copies.find(({ lvs }) => lvs.some(({ active }) => active)) ?? copies.at(-1)!);
  const groups = all.filter((group) => name === undefined || group.name === name);
  if (name !== undefined && groups.length === 0) {
    return failure(5, `  Volume group "${name}" not found\n  Cannot process volume group ${name}`);
  }
  const { root, warnings } = machine.host;
  if (!root) return { ...ok('{"report": []}'), stderr: NOT_ROOT };
  const unusedPvs = (name === undefined ? machine.host.unusedPvs : []).map(({ path, uuid }) => ({
    ...{ pv_name: path, pv_uuid: uuid, pv_missing: "0", pv_allocatable: "0", pv_pe_count: "0", pv_pe_alloc_count: "0" },
  }));
  const stdout = JSON.stringify({
    report: groups.map((group): Record<string, unknown> => ({
      vg: [vgRow(group)],
      pv: group.pvs.map((pv) => pvRow(group, pv)),
      lv: group.lvs.flatMap((lv) => [lvRow(machine, group, lv), ...subLvRows(machine, group, lv)]),
      pvseg: group.lvs.flatMap((lv) => pvSegmentsOf(group, lv).map((segment) => pvsegRow(group, lv, segment))),
      seg: group.lvs.map((lv) => segRow(lv)),
    })).concat(unusedPvs.length === 0 ? [] : [{ pv: unusedPvs, pvseg: [] }]),
  });
  for (const { lvs } of groups) lvs.forEach(continueSync);
  const duplicates = machine.groups.filter((group) => !all.includes(group))
    .flatMap(({ pvs }) => pvs.map(({ path, uuid }) => `Not using device ${path} for PV ${uuid}.`));
  return { ...ok(stdout), stderr: [...warnings, ...duplicates].map((sentence) => `  WARNING: ${sentence}\n`).join("") };
}

/** The warning that LVM prints for users other than root. */
export const NOT_ROOT = "  WARNING: Running as a non-root user. Functionality may be unavailable.\n";

/** Continues the first synchronization of a RAID LV, of which each report shows more. */
function continueSync({ active, raid }: FakeLv): void {
  if (!active || raid === undefined || !raid.isNew || raid.isSlowed) return;
  raid.syncPercent = Math.min(100, raid.syncPercent + 50);
  if (raid.syncPercent === 100) Object.assign(raid, { action: "idle", isNew: false });
}

function vgRow(group: FakeGroup): Record<string, string> {
  return {
    vg_name: group.name,
    vg_uuid: group.uuid,
    vg_size: `${group.size}`,
    vg_extent_size: `${group.extentSize}`,
    vg_missing_pv_count: `${group.missingPvs}`,
    vg_exported: group.exported ? "1" : "0",
    vg_permissions: group.readOnly ? "read-only" : "writeable",
    vg_tags: [...group.tags].join(","),
    vg_mda_size: `${METADATA_AREA_BYTES}`,
    vg_mda_free: `${metadataFree(group)}`,
    vg_mda_count: `${group.pvs.length}`,
    vg_mda_used_count: `${group.pvs.length}`,
    max_lv: `${group.maxLvs ?? 0}`,
    max_pv: "0",
    vg_systemid: group.systemId,
    vg_lock_type: group.lockType,
    vg_clustered: "0",
    vg_allocation_policy: "normal",
  };
}

/** Returns the rows of a RAID LV whose lvcreate was interrupted: its metadata, with the tags of the whole. */
function subLvRows(machine: FakeMachine, group: FakeGroup, lv: FakeLv): Record<string, string>[] {
  if (!lv.incomplete) return [];
  return pvSegmentsOf(group, lv).filter(({ subLv }) => subLv.startsWith("rmeta")).map(({ subLv, size }) =>
    lvRow(machine, group, { ...lv, name: `${lv.name}_${subLv}`, uuid: newUuid(), size, segment: LINEAR })
  );
}

/** Returns the value of lv_layout: the type of the segments, and the algorithm of parity (lvmraid(7)). */
function layoutOf({ type }: Segment): string {
  const algorithm = { raid5: ",raid5_ls", raid6: ",raid6_zr" }[type] ?? "";
  return type.startsWith("raid") ? `raid,${type}${algorithm}` : type;
}

function lvRow(machine: FakeMachine, group: FakeGroup, lv: FakeLv): Record<string, string> {
  return {
    lv_name: lv.name,
    lv_uuid: lv.uuid,
    lv_size: `${lv.size}`,
    lv_tags: [...lv.tags].join(","),
    lv_dm_path: devicePath(group, lv),
    lv_kernel_major: lv.active ? "253" : "-1",
    lv_kernel_minor: lv.active ? `${lv.minor}` : "-1",
    lv_active: machine.host.debian === 12 ? lv.active ? "active" : "" : lv.active ? "1" : "0",
    lv_suspended: lv.active ? lv.suspended ? "1" : "0" : "-1",
    lv_device_open: lv.active ? isOpen(machine, lv) || isPoolOpen(group, lv) ? "1" : "0" : "-1",
    lv_layout: layoutOf(lv.segment ?? LINEAR),
    origin: lv.origin?.name ?? "",
    origin_size: `${lv.origin?.size ?? lv.size}`,
    lv_snapshot_invalid: lv.origin === undefined ? "-1" : lv.invalid ? "1" : "0",
    snap_percent: lv.origin === undefined || !lv.active ? "" : (lv.invalid ? 100 : lv.cowPercent).toFixed(2),
    lv_time: `${lv.createdAt}`,
    lv_attr: lv.origin === undefined
      ? `-${permissionOf(lv)}i-${stateOf(lv)}-----`
      : `s${permissionOf(lv)}i-${stateOf(lv)}-s---`,
    lv_health_status: lvHealthStatus(group, lv),
    sync_percent: lv.active ? lv.raid?.syncPercent.toFixed(2) ?? "" : "",
    raid_sync_action: lv.active ? lv.raid?.action ?? "" : "",
    raid_mismatch_count: lv.active && lv.raid !== undefined ? `${lv.raid.mismatches}` : "",
    pool_lv: "",
    data_percent: lv.origin === undefined || !lv.active ? "" : (lv.invalid ? 100 : lv.cowPercent).toFixed(2),
    metadata_percent: "",
    lv_metadata_size: "",
    lv_when_full: "",
    ...thinFields(lv),
    ...cacheFields(lv),
  };
}

/** Returns the fifth character of lv_attr (lvs(8)). `i`: a device without a table in use. */
function stateOf({ active, killedTable }: FakeLv): "a" | "i" | "-" {
  return !active ? "-" : killedTable === "only" ? "i" : "a";
}

/** Returns the second character of lv_attr. `R`: the kernel refuses writes, though LVM permits them. */
export function permissionOf({ permission, setReadOnly, active }: FakeLv): "r" | "R" | "w" {
  return permission === "r" ? "r" : setReadOnly && active ? "R" : "w";
}

/** Reports whether an LV is open: a filesystem on it is mounted, or a process has its device open. */
export function isOpen(machine: FakeMachine, lv: FakeLv): boolean {
  const isUsed = isMounted(machine, lv) || machine.openLvs.includes(lv) || lv.mapping !== undefined;
  return isUsed || machine.host.swapLvs.has(lv);
}
