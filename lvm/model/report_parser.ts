/**
 * Reads the output of LVM's reports into checked types.
 *
 * Only a report that succeeded shows whether something exists.
 *
 * @module
 */

import {
  asArray,
  asInteger,
  asObject,
  asPercent,
  asPositiveInteger,
  asString,
  asUnsignedInteger,
  parseJson,
} from "../json.ts";
import { defined } from "../defined.ts";
import type { LogicalVolume, PhysicalVolume, Segment, VolumeGroup } from "./report.ts";
import { spaceForVolumes } from "../spec/spare_space.ts";
import { CACHE_PV } from "./tag_text.ts";

/** What LVM prints about each group that it could not read, with LC_ALL=C. */
const UNREADABLE = /^\s*Cannot process volume group (\S+)$/gm;

/** Returns the names of the groups because of which LVM refused a report, from what it wrote to its standard error. */
export function parseUnreadable(stderr: string): string[] {
  return [...new Set([...stderr.matchAll(UNREADABLE)].map(([, name]) => name!))];
}

/**
 * Reads the output of `REPORT_COMMAND` (report_command.ts).
 *
 * @throws {StorageError} `CommandFailed` when the text is not the JSON that LVM writes, or a field is missing or invalid
 */
export function parseReport(stdout: string): VolumeGroup[] {
  const groups = vgEntries(stdout).map((entry) => {
    const row = asObject(asArray(entry.vg)[0]);
    const pvs = parsePvs(entry, asPositiveInteger(row.vg_extent_size));
    return parseGroup(row, pvs, parseLvs(entry, asPositiveInteger(row.vg_extent_size)));
  });
  const byName = Map.groupBy(groups, ({ name }) => name);
  return groups.map((group) => byName.get(group.name)!.length > 1 ? { ...group, ambiguous: true } : group);
}

/** The path that LVM reports for a physical volume that it cannot find. */
const MISSING_PV_PATH = "[unknown]";

/** Returns the physical volumes of an entry of a report. */
export function parsePvs(entry: ReportRow, extentSize: bigint): PhysicalVolume[] {
  return asArray(entry.pv).map(asObject).map((pv) => {
    const missing = parseFlag(pv.pv_missing);
    const extents = asUnsignedInteger(pv.pv_pe_count);
    const isUsable = !missing && parseFlag(pv.pv_allocatable);
    const free = isUsable ? (extents - asUnsignedInteger(pv.pv_pe_alloc_count)) * extentSize : 0n;
    return {
      path: asString(pv.pv_name),
      uuid: asString(pv.pv_uuid),
      missing,
      size: extents * extentSize,
      ...(parseList(pv.pv_tags ?? "").includes(CACHE_PV) ? { free: 0n, cacheFree: free } : { free }),
    };
  });
}

/** Returns the LVs of a group, without the sub LVs that are visible because their LV is incomplete. */
function parseLvs(entry: ReportRow, extentSize: bigint): LogicalVolume[] {
  const segments = new Map(
    asArray(entry.seg).map(asObject).reverse().map((row) => [asString(row.lv_name), parseSegment(row)]),
  );
  const pvSegments = Map.groupBy(
    asArray(entry.pvseg).map(asObject),
    ({ lv_name }) => splitSubLvName(asString(lv_name)).lvName,
  );
  // the report has no other fields of hidden LVs
  const sizeOf = (hidden: string) =>
    asArray(entry.pvseg).map(asObject).filter(({ lv_name }) => lv_name === hidden)
      .reduce((sum, { pvseg_size }) => sum + asUnsignedInteger(pvseg_size) * extentSize, 0n);
  const cacheOf = (poolLv: unknown) => {
    const [hidden, name] = CACHE_LV_NAME.exec(asString(poolLv ?? "")) ?? [];
    return hidden === undefined ? undefined : { name: name!, size: sizeOf(hidden) };
  };
  const rows = asArray(entry.lv).map(asObject);
  const visibleNames = rows.map(({ lv_name }) => asString(lv_name)).filter((name) => !name.startsWith("["));
  const incompleteNames = new Set(
    visibleNames.map(splitSubLvName).filter(({ subLv }) => subLv !== "").map(({ lvName }) => lvName),
  );
  const looseChecksums = Map.groupBy(
    rows.map((row) => ({ name: asString(row.lv_name), uuid: asString(row.lv_uuid) }))
      .filter(({ name }) => !HIDDEN_LV_NAME.test(name) && splitSubLvName(name).subLv.endsWith("_imeta")),
    ({ name }) => splitSubLvName(name).lvName,
  );
  return rows.filter(({ lv_name }) => isTopLevelLv(asString(lv_name))).map((row) => {
    const name = asString(row.lv_name);
    return parseLv(row, {
      segment: segments.get(name) ?? { type: "", stripes: 0, stripeSize: 0n },
      pvSegments: (pvSegments.get(name) ?? []).map((pvseg) => ({
        subLv: splitSubLvName(asString(pvseg.lv_name)).subLv,
        pvUuid: asString(pvseg.pv_uuid),
        size: asUnsignedInteger(pvseg.pvseg_size) * extentSize,
      })),
      incomplete: incompleteNames.has(name),
      ...defined({ looseChecksums: looseChecksums.get(name), cache: cacheOf(row.pool_lv) }),
    });
  });
}

function parseSegment(row: ReportRow): Segment {
  const type = asString(row.segtype);
  return {
    type,
    stripes: Number(asUnsignedInteger(row.stripes)),
    stripeSize: asUnsignedInteger(row.stripe_size),
    ...(type.startsWith("thin") ? { transactionId: asUnsignedInteger(row.transaction_id) } : {}),
    ...(row.thin_id ? { thinId: asUnsignedInteger(row.thin_id) } : {}),
  };
}

/** The name of a hidden LV, in brackets (lvs(8), --all). */
const HIDDEN_LV_NAME = /^\[(.*)\]$/;

/**
 * The name of a sub LV of a RAID LV, a thin pool or a cached LV. The sub LVs of a pool may be RAID LVs themselves. Only LVM
 * can give an LV such a name (lvm(8), "VALID NAMES").
 */
const SUB_LV_NAME = /^(.+?)_((?:t(?:data|meta)_)?r(?:image|meta)_\d+(?:_i(?:orig|meta))?|t(?:data|meta)|w?corig)$/;

/** The name of an LV that is the cache of another one. It gets the first part back when it is separated from that LV. */
const CACHE_LV_NAME = /^\[(.+)_cvol\]$/;

/** Splits the name of a sub LV into the name of its LV and its own; the latter is empty for other LVs. */
function splitSubLvName(name: string): { lvName: string; subLv: string } {
  const bare = HIDDEN_LV_NAME.exec(name)?.[1] ?? name;
  const [, lvName = bare, subLv = ""] = SUB_LV_NAME.exec(bare) ?? [];
  return { lvName, subLv };
}

function isTopLevelLv(name: string): boolean {
  return splitSubLvName(name).subLv === "" && !HIDDEN_LV_NAME.test(name);
}

/** Returns the entries of a report that are about groups. */
export function vgEntries(stdout: string): ReportRow[] {
  return reportEntries(stdout).filter((entry) => !isUnassignedPvEntry(entry));
}

/** Returns the entry about physical volumes in no group, if any. It comes last, and has no group and no LVs. */
export function unassignedPvEntry(stdout: string): ReportRow | undefined {
  return reportEntries(stdout).find(isUnassignedPvEntry);
}

/** What LVM prints within a report, on the same stream, when it reads metadata again that it could not read. */
const RETRY_MESSAGE = /^ *Retrying metadata scan\.\n/gm;

function reportEntries(stdout: string): ReportRow[] {
  return asArray(asObject(parseJson("lvm fullreport", stdout.replace(RETRY_MESSAGE, ""))).report).map(asObject);
}

function isUnassignedPvEntry(entry: ReportRow): boolean {
  return entry.vg === undefined && entry.lv === undefined && entry.pv !== undefined;
}

function parseGroup(row: ReportRow, pvs: PhysicalVolume[], lvs: LogicalVolume[]): VolumeGroup {
  const space = {
    size: asUnsignedInteger(row.vg_size),
    extentSize: asPositiveInteger(row.vg_extent_size),
    tags: parseList(row.vg_tags),
  };
  return {
    name: asString(row.vg_name),
    uuid: asString(row.vg_uuid),
    ...space,
    ...spaceForVolumes(space, pvs.reduce((sum, { free }) => sum + free, 0n)),
    missingPvs: Number(asUnsignedInteger(row.vg_missing_pv_count)),
    writeable: asString(row.vg_permissions) === "writeable" && !parseFlag(row.vg_exported),
    pvPaths: pvs.map(({ path }) => path).filter((path) => path !== MISSING_PV_PATH),
    pvs,
    responsive: true,
    lvs,
  };
}

function parseLv(
  row: ReportRow,
  layoutFields: Pick<LogicalVolume, "segment" | "pvSegments" | "incomplete" | "looseChecksums" | "cache">,
): LogicalVolume {
  const major = asInteger(row.lv_kernel_major);
  const percent = asString(row.snap_percent);
  // a cached LV is reported as the origin of its cache's hidden LV
  const origin = asString(row.origin).replace(HIDDEN_LV_NAME, "");
  const layout = parseList(row.lv_layout);
  return {
    name: asString(row.lv_name),
    uuid: asString(row.lv_uuid),
    size: asUnsignedInteger(row.lv_size),
    tags: parseList(row.lv_tags),
    devicePath: asString(row.lv_dm_path),
    ...(major >= 0n ? { deviceNumber: `${major}:${asInteger(row.lv_kernel_minor)}` } : {}),
    active: parseActive(row.lv_active) && !hasNoTable(row),
    suspended: parseFlag(row.lv_suspended),
    open: parseFlag(row.lv_device_open),
    ...(asString(row.lv_attr ?? "")[1] === "r" ? { readOnly: true } : {}),
    layout,
    ...layoutFields,
    health: asString(row.lv_health_status),
    ...(origin === "" ? {} : { origin }),
    // a thin snapshot has none: it is as large as its origin was
    ...(origin === "" || row.origin_size === "" ? {} : { originSize: asUnsignedInteger(row.origin_size) }),
    invalidSnapshot: parseFlag(row.lv_snapshot_invalid),
    ...(percent === "" ? {} : { snapshotPercent: asPercent(percent) }),
    createdAt: Number(asUnsignedInteger(row.lv_time)),
    ...(layout.includes("thin") ? parseThin(row, layout) : {}),
    ...parseRaid(row),
  };
}

/** Returns the fields that only a thin LV or a thin pool has. */
function parseThin(
  row: ReportRow,
  layout: readonly string[],
): Pick<LogicalVolume, "pool" | "thinPercent" | "thinPool"> {
  const [data, metadata] = [asString(row.data_percent), asString(row.metadata_percent)];
  if (!layout.includes("pool")) {
    return { pool: asString(row.pool_lv), ...(data === "" ? {} : { thinPercent: asPercent(data) }) };
  }
  const attributes = asString(row.lv_attr);
  const thinPool = {
    ...(data === "" ? {} : { dataPercent: asPercent(data) }),
    metadataSize: asUnsignedInteger(row.lv_metadata_size),
    ...(metadata === "" ? {} : { metadataPercent: asPercent(metadata) }),
    health: asString(row.lv_health_status),
    needsCheck: /^.{4}[cC]/.test(attributes),
    zeroes: attributes[7] === "z",
    ...(row.lv_when_full === undefined ? {} : { queuesWhenFull: row.lv_when_full === "queue" }),
  };
  return { thinPool };
}

/** Returns the state of a RAID LV, if LVM reports it. Fields that LVM cannot report at the moment are empty. */
function parseRaid(row: ReportRow): Pick<LogicalVolume, "raid"> {
  const [action, percent, mismatches] = [row.raid_sync_action, row.sync_percent, row.raid_mismatch_count].map(asString);
  if (!action || !percent) return {};
  const count = mismatches === "" ? 0n : asUnsignedInteger(mismatches);
  return { raid: { action, syncPercent: asPercent(percent), mismatches: Number(count) } };
}

/** An object of a report, whose fields are not checked yet. */
export type ReportRow = Readonly<Record<string, unknown>>;

/** Parses a flag of a report with `--binary`: 1 for yes, 0 for no, -1 for unknown or not applicable. */
function parseFlag(value: unknown): boolean {
  return asInteger(value) === 1n;
}

/** Parses lv_active. LVM 2.03.31 writes a flag. LVM 2.03.16 writes a word also with `--binary`, or nothing while inactive. */
function parseActive(value: unknown): boolean {
  const text = asString(value);
  return /^-?\d+$/.test(text) ? parseFlag(text) : text !== "";
}

/**
 * Reports whether the kernel has a device for an LV, but no table of it in use (the fifth character of lv_attr, lvs(8)), as
 * after the death of the command that activated it. LVM calls it active, and an activation puts the right table in use.
 */
function hasNoTable(row: ReportRow): boolean {
  return /^.{4}[di]/.test(asString(row.lv_attr ?? ""));
}

function parseList(value: unknown): string[] {
  return asString(value).split(",").filter((element) => element !== "");
}
