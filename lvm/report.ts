/**
 * LVM's own account of volume groups and logical volumes, read into checked types.
 *
 * One `lvm fullreport` answers for all groups at once, those without LVs included (`vgs -o lv_name` leaves them out). It
 * names no group on the command line: LVM fails the whole report for a name that is absent, and absence of one group must
 * not hide the others. Whether something exists is decided by a report that succeeded, and by nothing else.
 *
 * @module
 */

import type { Command } from "./exec.ts";
import { array, integer, natural, object, parseJson, text } from "./json.ts";

/** A logical volume as LVM reports it (lvs(8)); sizes in bytes. */
export interface LogicalVolume {
  /** Its name within the group. */
  readonly name: string;
  /** Its UUID, which never changes and is never used again. */
  readonly uuid: string;
  /** Its size; for a classic snapshot, the size of the copy-on-write store. */
  readonly size: bigint;
  /** Its tags. */
  readonly tags: readonly string[];
  /** The device-mapper node, `/dev/mapper/…`. */
  readonly devicePath: string;
  /** The device number as `major:minor`; `undefined` while inactive. */
  readonly deviceNumber?: string;
  /** Whether the kernel has its device. */
  readonly active: boolean;
  /** Whether the kernel holds back what is written to its device, as during a change of its tables. */
  readonly suspended: boolean;
  /** Whether something has its device open: a mount, a process, another device. */
  readonly open: boolean;
  /** How it is laid out on the disks (lvs(8), lv_layout): `linear`, `thin`, `raid` and so on, several where one is on another. */
  readonly layout: readonly string[];
  /** Name of the LV that this one is a snapshot of. */
  readonly origin?: string;
  /** For a classic snapshot, the size of the origin at the moment of the cut. */
  readonly originSize?: bigint;
  /** Whether this is a copy-on-write snapshot whose store overflowed: its content is gone. */
  readonly invalidSnapshot: boolean;
  /** How full a snapshot's store is, in percent; `undefined` where LVM does not say. */
  readonly snapshotPercent?: number;
  /** For a thin LV, the name of the pool that it is in. */
  readonly pool?: string;
  /** For a thin pool, how it is beside its size, which is that of its data. */
  readonly thinPool?: ThinPoolState;
  /** When it was made, in seconds since 1970. */
  readonly createdAt: number;
}

/** How a thin pool is, as LVM reports it (lvs(8), lvmthin(7)). */
export interface ThinPoolState {
  /** How much of its data is taken, in percent; `undefined` while it is inactive. */
  readonly dataPercent?: number;
  /** The size of its metadata, in bytes. */
  readonly metadataSize: bigint;
  /** How much of its metadata is taken, in percent; `undefined` while it is inactive. */
  readonly metadataPercent?: number;
  /** What is wrong with it (lv_health_status): `out_of_data`, `metadata_read_only`, `failed`; empty when nothing is. */
  readonly health: string;
  /** Whether what is read before it was written is zeros (the eighth character of lv_attr). */
  readonly zeroes: boolean;
}

/** A volume group as LVM reports it (vgs(8)), with its logical volumes; sizes in bytes. */
export interface VolumeGroup {
  /** Its name. */
  readonly name: string;
  /** Its UUID. */
  readonly uuid: string;
  /** All its space. */
  readonly size: bigint;
  /** Its space that no LV has. */
  readonly free: bigint;
  /** What sizes are rounded up to. */
  readonly extentSize: bigint;
  /** How many of its physical volumes are absent. */
  readonly missingPvs: number;
  /** Whether LVM would change it now: writeable, not exported. */
  readonly writeable: boolean;
  /** Its tags. */
  readonly tags: readonly string[];
  /** The disks that it is on, by the paths of their nodes. */
  readonly disks: readonly string[];
  /** Whether this is what its disks say now; otherwise it is what they said last, and they do not answer. */
  readonly answers: boolean;
  /** Its visible LVs. */
  readonly lvs: readonly LogicalVolume[];
}

const VG_FIELDS = [
  "vg_name",
  "vg_uuid",
  "vg_size",
  "vg_free",
  "vg_extent_size",
  "vg_missing_pv_count",
  "vg_exported",
  "vg_permissions",
  "vg_tags",
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
];

/** What a report asks for beyond {@linkcode REPORT_COMMAND}. */
export interface ReportExtras {
  /** Options of the report itself. */
  readonly options: readonly string[];
  /** Fields of each group (vgs(8)). */
  readonly vg: readonly string[];
  /** Fields of each LV (lvs(8)). */
  readonly lv: readonly string[];
  /** Fields of each disk (pvs(8)), beside its name. */
  readonly pv: readonly string[];
}

/** The command whose answer {@linkcode parseReport} reads. */
export const REPORT_COMMAND: Command = reportCommand({ options: [], vg: [], lv: [], pv: [] });

/** A report that {@linkcode parseReport} reads, too, with more in it. */
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
      'report/time_format="%s"',
      "--configreport",
      "vg",
      "--options",
      [...VG_FIELDS, ...extras.vg].join(","),
      "--configreport",
      "lv",
      "--options",
      [...LV_FIELDS, ...extras.lv].join(","),
      // the other parts of a full report cannot be left out, only kept short
      "--configreport",
      "pv",
      "--options",
      ["pv_name", ...extras.pv].join(","),
      "--configreport",
      "seg",
      "--options",
      "lv_name",
      "--configreport",
      "pvseg",
      "--options",
      "pv_name",
    ],
    mutates: false,
  };
}

/**
 * Reads the answer to {@linkcode REPORT_COMMAND}.
 *
 * @throws {StorageError} `CommandFailed` when the text is not the JSON that LVM writes, or a field is missing or odd.
 */
export function parseReport(answer: string): VolumeGroup[] {
  return groupParts(answer).map((part) => {
    const [group] = array(part.vg);
    const disks = array(part.pv).map((pv) => text(object(pv).pv_name));
    return parseGroup(object(group), disks, array(part.lv).map((lv) => parseLv(object(lv))));
  });
}

/** The parts of a report that are about groups. */
export function groupParts(answer: string): Row[] {
  return reportParts(answer).filter((part) => !isSpare(part));
}

/** The part about disks that are in no group, if there are any: it comes last, and has no group and no LVs. */
export function sparePart(answer: string): Row | undefined {
  return reportParts(answer).find(isSpare);
}

function reportParts(answer: string): Row[] {
  return array(object(parseJson("lvm fullreport", answer)).report).map(object);
}

function isSpare(part: Row): boolean {
  return part.vg === undefined && part.lv === undefined && part.pv !== undefined;
}

function parseGroup(row: Row, disks: string[], lvs: LogicalVolume[]): VolumeGroup {
  return {
    name: text(row.vg_name),
    uuid: text(row.vg_uuid),
    size: natural(row.vg_size),
    free: natural(row.vg_free),
    extentSize: natural(row.vg_extent_size),
    missingPvs: Number(natural(row.vg_missing_pv_count)),
    writeable: text(row.vg_permissions) === "writeable" && !flag(row.vg_exported),
    tags: list(row.vg_tags),
    disks,
    answers: true,
    lvs,
  };
}

function parseLv(row: Row): LogicalVolume {
  const major = integer(row.lv_kernel_major);
  const percent = text(row.snap_percent);
  const origin = text(row.origin);
  const layout = list(row.lv_layout);
  return {
    name: text(row.lv_name),
    uuid: text(row.lv_uuid),
    size: natural(row.lv_size),
    tags: list(row.lv_tags),
    devicePath: text(row.lv_dm_path),
    ...(major >= 0n ? { deviceNumber: `${major}:${integer(row.lv_kernel_minor)}` } : {}),
    active: text(row.lv_active) !== "",
    suspended: flag(row.lv_suspended),
    open: flag(row.lv_device_open),
    layout,
    ...(origin === "" ? {} : { origin }),
    // a thin snapshot has none: it is as large as its origin was
    ...(origin === "" || row.origin_size === "" ? {} : { originSize: natural(row.origin_size) }),
    invalidSnapshot: flag(row.lv_snapshot_invalid),
    ...(percent === "" ? {} : { snapshotPercent: Number(percent) }),
    createdAt: Number(natural(row.lv_time)),
    ...(layout.includes("thin") ? thinPart(row, layout) : {}),
  };
}

/** What there is of a thin LV or a thin pool beside what every LV has. */
function thinPart(row: Row, layout: readonly string[]): Pick<LogicalVolume, "pool" | "thinPool"> {
  if (!layout.includes("pool")) return { pool: text(row.pool_lv) };
  const [data, metadata] = [text(row.data_percent), text(row.metadata_percent)];
  const thinPool = {
    ...(data === "" ? {} : { dataPercent: Number(data) }),
    metadataSize: natural(row.lv_metadata_size),
    ...(metadata === "" ? {} : { metadataPercent: Number(metadata) }),
    health: text(row.lv_health_status),
    zeroes: text(row.lv_attr)[7] === "z",
  };
  return { thinPool };
}

/** An object of a report, not yet looked at. */
export type Row = Readonly<Record<string, unknown>>;

/** With `--binary`: 1 yes, 0 no, -1 unknown or not applicable. */
function flag(value: unknown): boolean {
  return integer(value) === 1n;
}

function list(value: unknown): string[] {
  return text(value).split(",").filter((element) => element !== "");
}
