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

/** The fields of each part of a report, which always has all parts. */
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  vg: [
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
  ],
  lv: [
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
  ],
  pv: ["pv_name", "pv_uuid", "pv_missing", "pv_allocatable", "pv_pe_count", "pv_pe_alloc_count", "pv_tags"],
  seg: ["lv_name", "segtype", "stripes", "stripe_size", "transaction_id", "thin_id"],
  // only here does LVM name the hidden LVs, in brackets
  pvseg: ["pv_uuid", "pvseg_size", "lv_name"],
};

/** The settings of lvm.conf(5) on which the form of a report depends, with the values that {@linkcode parseReport} needs. */
const REPORT_SETTINGS: Readonly<Record<string, string>> = {
  "report/time_format": "%s",
  "report/compact_output": "0", // would leave out fields that are empty everywhere
  "report/list_item_separator": ",",
  "report/prefixes": "0",
  "report/mark_hidden_devices": "1",
  "report/two_word_unknown_device": "0",
  // what puts other texts on standard output, with values that prevent it
  "log/silent": "1",
  "log/command_names": "0",
  "log/prefix": "  ",
  "log/report_command_log": "0",
  "backup/backup": "0", // a report that finds no backup would make one, and archives with advice about them
  "backup/archive": "0",
};

/** The settings of a report as `--config` takes them. */
const REPORT_CONFIG = Object.entries(REPORT_SETTINGS)
  .map(([name, value]) => `${name}=${/^\d$/.test(value) ? value : `"${value}"`}`).join(" ");

/** The command whose output {@linkcode parseReport} reads. */
export const REPORT_COMMAND: Command = reportCommand();

/**
 * Returns the command of a report with further options and fields, which {@linkcode parseReport} reads, too.
 *
 * @param options options of the report itself
 * @param extras fields of each group, LV or physical volume in addition to those of {@linkcode REPORT_COMMAND}
 */
export function reportCommand(
  options: readonly string[] = [],
  extras: Readonly<Record<string, readonly string[]>> = {},
): Command {
  const format = ["--reportformat", "json", "--units", "b", "--nosuffix", "--binary", "--config", REPORT_CONFIG];
  const parts = Object.entries(FIELDS).flatMap((
    [part, fields],
  ) => ["--configreport", part, "--options", [...fields, ...extras[part] ?? []].join(",")]);
  return { program: "lvm", args: ["fullreport", ...options, ...format, ...parts], mutates: false };
}
