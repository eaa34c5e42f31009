/**
 * The command that reports all volume groups: `lvm fullreport`, with the fields that {@linkcode parseReport} reads.
 *
 * One command reports all groups, those without LVs included (`vgs -o lv_name` omits them). It names no group on the
 * command line: LVM fails the whole report for a name that is absent, and the absence of one group must not hide the
 * others.
 *
 * @module
 */

import type { Command } from "../exec.ts";

const VG_FIELDS = [
  "vg_name",
  "vg_uuid",
  "vg_size",
  "vg_extent_size",
  "vg_missing_pv_count",
  "vg_exported",
  "vg_permissions",
  "vg_tags",
  "vg_mda_free",
  "max_lv",
];

const LV_FIELDS = [
  "lv_name",
  "lv_uuid",
  "lv_size",
  "lv_tags",
  "lv_dm_path",
  "lv_kernel_major",
  "lv_kernel_minor",
  "lv_active",
  "lv_suspended",
  "lv_device_open",
  "lv_layout",
  "origin",
  "origin_size",
  "lv_snapshot_invalid",
  "snap_percent",
  "lv_time",
  "lv_attr",
  "lv_health_status",
  "pool_lv",
  "data_percent",
  "metadata_percent",
  "lv_metadata_size",
  "sync_percent",
  "raid_sync_action",
  "raid_mismatch_count",
];

const PV_FIELDS = ["pv_name", "pv_uuid", "pv_missing", "pv_allocatable", "pv_pe_count", "pv_pe_alloc_count", "pv_tags"];

/** The fields of an LV's segments. A full report always has this part. */
const SEG_FIELDS = ["lv_name", "segtype", "stripes", "stripe_size", "transaction_id", "thin_id"];

/** The fields of the segments of physical volumes. Only here does LVM name the hidden LVs, in brackets. */
const PVSEG_FIELDS = ["pv_uuid", "pvseg_size", "lv_name"];

/** The settings of lvm.conf(5) on which the form of a report depends, with the values that {@linkcode parseReport} needs. */
export const REPORT_SETTINGS: Readonly<Record<string, string>> = {
  "report/time_format": "%s",
  "report/compact_output": "0", // would leave out fields that are empty everywhere
  "report/list_item_separator": ",",
  "report/prefixes": "0",
  "report/mark_hidden_devices": "1",
  "report/two_word_unknown_device": "0",
};

/** The settings that put other texts on standard output, with values that prevent it. */
const SILENT_SETTINGS: Readonly<Record<string, string>> = {
  "log/silent": "1",
  "log/command_names": "0",
  "log/prefix": "  ",
  "log/report_command_log": "0",
  "backup/backup": "0", // a report that finds no backup would make one, and archives with advice about them
  "backup/archive": "0",
};

/** The settings of a report as `--config` takes them. */
export const REPORT_CONFIG = Object.entries({ ...REPORT_SETTINGS, ...SILENT_SETTINGS })
  .map(([name, value]) => `${name}=${/^\d$/.test(value) ? value : `"${value}"`}`).join(" ");

/** The options and fields of a report in addition to those of {@linkcode REPORT_COMMAND}. */
export interface ReportExtras {
  /** Options of the report itself. */
  readonly options: readonly string[];
  /** Fields of each group (vgs(8)). */
  readonly vg: readonly string[];
  /** Fields of each LV (lvs(8)). */
  readonly lv: readonly string[];
  /** Fields of each physical volume (pvs(8)). */
  readonly pv: readonly string[];
}

/** The command whose output {@linkcode parseReport} reads. */
export const REPORT_COMMAND: Command = reportCommand({ options: [], vg: [], lv: [], pv: [] });

/** Returns the command of a report with further fields, which {@linkcode parseReport} reads, too. */
export function reportCommand(extras: ReportExtras): Command {
  return {
    program: "lvm",
    args: [
      "fullreport",
      ...extras.options,
      "--reportformat",
      "json",
      "--units",
      "b",
      "--nosuffix",
      "--binary",
      "--config",
      REPORT_CONFIG,
      "--configreport",
      "vg",
      "--options",
      [...VG_FIELDS, ...extras.vg].join(","),
      "--configreport",
      "lv",
      "--options",
      [...LV_FIELDS, ...extras.lv].join(","),
      "--configreport",
      "pv",
      "--options",
      [...PV_FIELDS, ...extras.pv].join(","),
      "--configreport",
      "seg",
      "--options",
      SEG_FIELDS.join(","),
      "--configreport",
      "pvseg",
      "--options",
      PVSEG_FIELDS.join(","),
    ],
    mutates: false,
  };
}
