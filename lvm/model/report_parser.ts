/**
 * Reads the output of LVM's reports into checked types.
 *
 * Only a report that succeeded shows whether something exists.
 *
 * @module
 */

import { formatBytes, sum } from "../../base/size.ts";
import {
  asArray,
  asInteger,
  asObject,
  asPercent,
  asPositiveInteger,
  asString,
  asUnsignedInteger,
  parseJson,
} from "../../base/json.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import type { LogicalVolume, PhysicalVolume, Segment, VolumeGroup } from "./report.ts";
import { spaceForVolumes } from "../settings/spare_space.ts";
import { CACHE_PV } from "./tags.ts";

/** What LVM prints about each group that it could not read, with LC_ALL=C. */
const UNREADABLE = /^\s*Cannot process volume group (\S+)$/gm;

/** Returns the names of the groups because of which LVM refused a report, from what it wrote to its standard error. */
export function parseUnreadable(stderr: string): string[] {
  return [...new Set([...stderr.matchAll(UNREADABLE)].map(([, name]) => name!))];
}

/**
 * Reads the output of `REPORT_COMMAND` (report_command.ts).
 *
 * A row that is not as LVM writes it costs that row: an LV is marked as unreadable, and so is a group; a physical volume has no
 * free space. It never hides the others.
 *
 * @throws {StorageError} `CommandFailed` when the text is not the JSON that LVM writes
 */
export function parseReport(stdout: string): VolumeGroup[] {
  const groups = vgEntries(stdout).map(parseGroup);
  const byName = Map.groupBy(groups, ({ name }) => name);
  return groups.map((group) => byName.get(group.name)!.length > 1 ? { ...group, ambiguous: true } : group);
}

/** The path that LVM reports for a physical volume that it cannot find. */
const MISSING_PV_PATH = "[unknown]";

/** A row of a report, with what of it cannot be read. */
export class Row {
  /** The names of the fields that cannot be read, with what LVM wrote there. */
  readonly problems: string[] = [];
  readonly #fields: ReportRow;

  /** Creates the reader of a row. */
  constructor(fields: ReportRow) {
    this.#fields = fields;
  }

  /** Reads a field. In place of what is not as LVM writes it, it returns the default, and notes the problem. */
  read<T>(name: string, parse: (value: unknown) => T, otherwise: T): T {
    try {
      return parse(this.#fields[name]);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      this.problems.push(`${name}: ${error.message.replace(/^reading the output of a program: /, "")}`);
      return otherwise;
    }
  }

  /** Reads a field as text. */
  text(name: string): string {
    return this.read(name, asString, "");
  }

  /** Reads a field as a number of 0 or more. */
  size(name: string): bigint {
    return this.read(name, asUnsignedInteger, 0n);
  }

  /** Reads a field as a number of 0 or more, if it has a value. */
  optionalSize(name: string): bigint | undefined {
    return this.#fields[name] ? this.size(name) : undefined;
  }

  /** Reads a field as text, if it is there: reports have it since a later version of the driver. */
  optionalText(name: string): string {
    return this.#fields[name] === undefined ? "" : this.text(name);
  }

  /** Reads a field as a percentage, if it has a value. */
  percent(name: string): number | undefined {
    return this.#fields[name] === "" ? undefined : this.read<number | undefined>(name, asPercent, undefined);
  }

  /** Reads a flag. */
  flag(name: string): boolean {
    return this.read(name, parseFlag, false);
  }

  /** Reads a list. */
  list(name: string): string[] {
    return this.read<string[]>(name, parseList, []);
  }
}

/** Returns the rows of a part of an entry, and notes a part that is no list. */
export function rowsOf(entry: ReportRow, part: string, problems: string[] = []): Row[] {
  const parts = new Row(entry);
  const rows = parts.read(part, asArray, []).map((row) => new Row(isRow(row) ? row : {}));
  problems.push(...parts.problems);
  return rows;
}

/**
 * Returns the physical volumes of an entry of a report.
 *
 * @param problems gets a text for each that cannot be read
 */
export function parsePvs(entry: ReportRow, extentSize: bigint, problems: string[] = []): PhysicalVolume[] {
  return rowsOf(entry, "pv", problems).map((row) => {
    const missing = row.flag("pv_missing");
    const extents = row.size("pv_pe_count");
    const path = row.text("pv_name");
    const allocated = row.size("pv_pe_alloc_count");
    const isUsable = row.flag("pv_allocatable");
    const pv = { path, uuid: row.text("pv_uuid"), missing, size: extents * extentSize };
    const isForCaches = parseList(row.optionalText("pv_tags")).includes(CACHE_PV);
    if (row.problems.length > 0) problems.push(`physical volume ${path}: ${row.problems.join(", ")}`);
    const free = !missing && isUsable && row.problems.length === 0 ? (extents - allocated) * extentSize : 0n;
    return { ...pv, ...(isForCaches ? { free: 0n, cacheFree: free } : { free }) };
  });
}

/**
 * Returns the LVs of a group, without the sub LVs that are visible because their LV is incomplete.
 *
 * @param problems gets a text for each row that is not known to be of one LV
 */
function parseLvs(entry: ReportRow, extentSize: bigint, problems: string[]): LogicalVolume[] {
  const nameOf = (row: Row) => row.text("lv_name");
  const segmentRows = rowsOf(entry, "seg", problems);
  const firstSegments = new Map(segmentRows.reverse().map((row) => [nameOf(row), row]));
  const pvSegmentRows = rowsOf(entry, "pvseg", problems);
  const pvSegments = Map.groupBy(pvSegmentRows, (row) => splitSubLvName(nameOf(row)).lvName);
  const sizeOfSegment = (row: Row) => row.size("pvseg_size") * extentSize;
  const cacheOf = (poolLv: string) => {
    const [hidden, name] = CACHE_LV_NAME.exec(poolLv) ?? [];
    if (hidden === undefined) return undefined;
    // the report has no other fields of hidden LVs
    const size = sum(pvSegmentRows.filter((row) => nameOf(row) === hidden).map(sizeOfSegment));
    return { name: name!, size };
  };
  const rows = rowsOf(entry, "lv", problems).map((row) => ({ row, name: nameOf(row), uuid: row.text("lv_uuid") }));
  const visibleNames = rows.map(({ name }) => name).filter((name) => !name.startsWith("["));
  const incompleteNames = new Set(
    visibleNames.map(splitSubLvName).filter(({ subLv }) => subLv !== "").map(({ lvName }) => lvName),
  );
  const looseChecksums = Map.groupBy(
    rows.map(({ name, uuid }) => ({ name, uuid }))
      .filter(({ name }) => !HIDDEN_LV_NAME.test(name) && splitSubLvName(name).subLv.endsWith("_imeta")),
    ({ name }) => splitSubLvName(name).lvName,
  );
  const unreadablePools = new Set(
    rows.filter(({ row }) => isUnreadableThin(row)).map(({ row }) => row.optionalText("pool_lv")),
  );
  const lvs = rows.filter(({ name }) => isTopLevelLv(name)).map(({ row, name, uuid }) => {
    const tags = row.list("lv_tags");
    // whose it is cannot be read
    if (row.problems.length > 0) problems.push(`logical volume ${name}: ${row.problems.join(", ")}`);
    const segment = firstSegments.get(name);
    const ofPvs = pvSegments.get(name) ?? [];
    const lv = {
      ...parseLv(row, { name, uuid, tags }, unreadablePools),
      segment: segment === undefined ? { type: "", stripes: 0, stripeSize: 0n } : parseSegment(segment),
      pvSegments: ofPvs.map((pvseg) => ({
        subLv: splitSubLvName(nameOf(pvseg)).subLv,
        pvUuid: pvseg.text("pv_uuid"),
        size: sizeOfSegment(pvseg),
      })),
      incomplete: incompleteNames.has(name),
      ...defined({ looseChecksums: looseChecksums.get(name), cache: cacheOf(row.optionalText("pool_lv")) }),
    };
    const unreadable = [row, ...(segment === undefined ? [] : [segment]), ...ofPvs].flatMap(({ problems }) => problems);
    return unreadable.length === 0 ? lv : { ...lv, unreadable: [...new Set(unreadable)].join(", ") };
  });
  const nameless = [...segmentRows, ...pvSegmentRows].filter((row) => nameOf(row) === "" && row.problems.length > 0);
  problems.push(...new Set(nameless.map(({ problems: [first] }) => `segments: ${first}`)));
  return lvs;
}

function parseSegment(row: Row): Segment {
  const type = row.text("segtype");
  const thinId = row.optionalSize("thin_id");
  return {
    type,
    stripes: Number(row.size("stripes")),
    stripeSize: row.size("stripe_size"),
    ...defined({ transactionId: type.startsWith("thin") ? row.size("transaction_id") : undefined, thinId }),
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

/**
 * What LVM prints within a report, on the same stream: each line that does not begin as one of its JSON. It reads metadata again
 * that it could not read, or has advice for administrators.
 */
const MESSAGE_LINE = /^[^\S\n]*[^\s{}[\],"].*\n?/gm;

function reportEntries(stdout: string): ReportRow[] {
  const report = asObject(parseJson("lvm fullreport", stdout.replace(MESSAGE_LINE, ""))).report;
  return asArray(report).map((entry) => isRow(entry) ? entry : {});
}

function isRow(value: unknown): value is ReportRow {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isUnassignedPvEntry(entry: ReportRow): boolean {
  return entry.vg === undefined && entry.lv === undefined && entry.pv !== undefined;
}

/** The metadata of a volume in use, with its record, in bytes: measured, docs/reference/state.md. */
export const METADATA_BYTES_PER_VOLUME = 610n;

/** The free space of a metadata area that new volumes do not get, in bytes: changes of existing ones need some. */
export const METADATA_RESERVE = 8n * METADATA_BYTES_PER_VOLUME;

/** How many LVs a group has and may have, and the free space of its metadata area, in bytes. */
interface LvSpace {
  readonly lvs: readonly LogicalVolume[];
  readonly maxLvs: bigint;
  readonly metadataFree: bigint | undefined;
}

/** Returns how many further LVs a group takes; nothing where neither a limit nor its metadata area says so. */
function lvsLeft({ lvs, maxLvs, metadataFree }: LvSpace): Pick<VolumeGroup, "lvsLeft"> {
  const limits = [
    ...maxLvs > 0n ? [maxLvs - BigInt(lvs.length)] : [],
    ...metadataFree === undefined ? [] : [(metadataFree - METADATA_RESERVE) / METADATA_BYTES_PER_VOLUME],
  ];
  return limits.length === 0 ? {} : { lvsLeft: Math.max(0, Math.min(...limits.map(Number))) };
}

/** Returns why LVM would create no LV in a group, whatever its size, if the report shows it. */
function creationRefusal({ lvs, maxLvs, metadataFree }: LvSpace): Pick<VolumeGroup, "refusal" | "refusalReason"> {
  if (maxLvs > 0n && BigInt(lvs.length) >= maxLvs) {
    const refusal = `it has as many logical volumes as it may, ${maxLvs}: vgchange --maxlogicalvolumes`;
    return { refusal, refusalReason: "TooManyLogicalVolumes" };
  }
  if (metadataFree !== undefined && metadataFree < METADATA_RESERVE) {
    const refusal = `its metadata area is full: ${formatBytes(metadataFree)} are free`;
    return { refusal, refusalReason: "MetadataAreaFull" };
  }
  const isUnknown = lvs.some(({ layout }) => layout.includes("unknown"));
  return isUnknown ? { refusal: "it has logical volumes of a type that this LVM does not know" } : {};
}

function parseGroup(entry: ReportRow): VolumeGroup {
  const problems: string[] = [];
  const lvProblems: string[] = [];
  const pvProblems: string[] = [];
  const [row = new Row({})] = rowsOf(entry, "vg", problems);
  const extentSize = row.read("vg_extent_size", asPositiveInteger, 1n);
  const pvs = parsePvs(entry, extentSize, pvProblems);
  const lvs = parseLvs(entry, extentSize, lvProblems);
  const space = { size: row.size("vg_size"), extentSize, tags: row.list("vg_tags") };
  const isWriteable = row.text("vg_permissions") === "writeable" && !row.flag("vg_exported");
  const group = {
    name: row.text("vg_name"),
    uuid: row.text("vg_uuid"),
    ...space,
    ...spaceForVolumes(space, sum(pvs.map(({ free }) => free))),
    missingPvs: Number(row.size("vg_missing_pv_count")),
    writeable: isWriteable,
    pvPaths: pvs.map(({ path }) => path).filter((path) => path !== MISSING_PV_PATH && path !== ""),
    pvs,
    responsive: true,
    lvs,
  };
  const lvSpace = { lvs, maxLvs: row.optionalSize("max_lv") ?? 0n, metadataFree: row.optionalSize("vg_mda_free") };
  problems.push(...row.problems, ...lvProblems);
  const hidesLvs = lvProblems.length > 0 || row.problems.some((problem) => problem.startsWith("vg_tags:"));
  const unreadable = [
    ...problems,
    ...pvProblems,
    ...lvs.flatMap((lv) => lv.unreadable === undefined ? [] : [`logical volume ${lv.name}: ${lv.unreadable}`]),
  ];
  return {
    ...group,
    ...creationRefusal(lvSpace),
    ...lvsLeft(lvSpace),
    ...defined({ unreadable: unreadable.length === 0 ? undefined : [...new Set(unreadable)] }),
    ...(problems.length > 0 && {
      responsive: false,
      writeable: false,
      readError: `LVM's report: ${problems.join(", ")}`,
      ...defined({ showsLvs: hidesLvs ? undefined : true as const }),
    }),
  };
}

function parseLv(
  row: Row,
  known: Pick<LogicalVolume, "name" | "uuid" | "tags">,
  unreadablePools: ReadonlySet<string>,
): Omit<LogicalVolume, "segment" | "pvSegments" | "incomplete"> {
  const major = row.read("lv_kernel_major", asInteger, -1n);
  // a cached LV is reported as the origin of its cache's hidden LV
  const origin = row.text("origin").replace(HIDDEN_LV_NAME, "");
  const layout = row.list("lv_layout");
  const attributes = row.optionalText("lv_attr");
  // a thin snapshot has none: it is as large as its origin was
  const originSize = origin === "" ? undefined : row.optionalSize("origin_size");
  const snapshotPercent = row.percent("snap_percent");
  return {
    ...known,
    size: row.size("lv_size"),
    devicePath: row.text("lv_dm_path"),
    active: row.read("lv_active", parseActive, false) && !hasNoTable(attributes),
    suspended: row.flag("lv_suspended"),
    open: row.flag("lv_device_open"),
    layout,
    health: row.text("lv_health_status"),
    ...defined({
      deviceNumber: major < 0n ? undefined : `${major}:${row.read("lv_kernel_minor", asInteger, -1n)}`,
      readOnly: attributes[1] === "r" ? true as const : undefined,
      origin: origin === "" ? undefined : origin,
      originSize,
      snapshotPercent,
    }),
    invalidSnapshot: row.flag("lv_snapshot_invalid"),
    // LVs of old versions of LVM have no time
    createdAt: Number(row.optionalSize("lv_time") ?? 0n),
    ...(layout.includes("thin") ? parseThin(row, layout, attributes, unreadablePools.has(known.name)) : {}),
    ...parseRaid(row),
  };
}

/** Reports whether the kernel has a thin LV, and cannot read from the metadata of its pool which blocks it has (lvs(8), lv_attr). */
function isUnreadableThin(row: Row): boolean {
  return /^V...X/.test(row.optionalText("lv_attr"));
}

/** Returns the fields that only a thin LV or a thin pool has. */
function parseThin(
  row: Row,
  layout: readonly string[],
  attributes: string,
  isUnreadablePool: boolean,
): Pick<LogicalVolume, "pool" | "thinPercent" | "thinPool"> {
  const dataPercent = row.percent("data_percent");
  if (!layout.includes("pool")) {
    return { pool: row.text("pool_lv"), ...defined({ thinPercent: dataPercent }) };
  }
  const whenFull = row.optionalText("lv_when_full");
  const thinPool = {
    ...defined({
      dataPercent,
      metadataPercent: row.percent("metadata_percent"),
      queuesWhenFull: whenFull === "" ? undefined : whenFull === "queue",
    }),
    metadataSize: row.size("lv_metadata_size"),
    health: row.text("lv_health_status"),
    needsCheck: isUnreadablePool || /^.{4}[cC]/.test(attributes),
    zeroes: attributes[7] === "z",
  };
  return { thinPool };
}

/** Returns the state of a RAID LV, if LVM reports it. Fields that LVM cannot report at the moment are empty. */
function parseRaid(row: Row): Pick<LogicalVolume, "raid"> {
  const action = row.text("raid_sync_action");
  const syncPercent = row.percent("sync_percent");
  if (action === "" || syncPercent === undefined) return {};
  return { raid: { action, syncPercent, mismatches: Number(row.optionalSize("raid_mismatch_count") ?? 0n) } };
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
function hasNoTable(attributes: string): boolean {
  return /^.{4}[di]/.test(attributes);
}

function parseList(value: unknown): string[] {
  return asString(value).split(",").filter((element) => element !== "");
}
