/**
 * Volume groups, logical volumes and physical volumes as LVM reports them, read into checked types.
 *
 * Only a report that succeeded shows whether something exists.
 *
 * @module
 */

import { asArray, asInteger, asObject, asString, asUnsignedInteger, parseJson } from "../json.ts";

/** How an LV is laid out, as its first segment says (lvs(8), segtype and so on). */
export interface Segment {
  /** `linear`, `striped`, `raid1`, `raid5` and so on. */
  readonly type: string;
  /** Over how many disks it goes, those for redundancy included; 1 for `linear`. */
  readonly stripes: number;
  /** What stands on one disk before the next one's turn, in bytes; 0 where there are no stripes. */
  readonly stripeSize: bigint;
}

/** A piece of a disk that an LV has. */
export interface PvSegment {
  /** The part of the LV that it belongs to, as LVM calls it: `rimage_0`, `rmeta_1`, `tdata`; empty for an LV without parts. */
  readonly subLv: string;
  /** The UUID of the disk. */
  readonly pvUuid: string;
  /** Its size in bytes. */
  readonly size: bigint;
}

/** What the kernel says of a RAID LV that is active (lvmraid(7)). */
export interface RaidState {
  /** What is being done to it: `idle`, `resync`, `recover`, `check`, `repair` and so on. */
  readonly action: string;
  /** How much of it is in sync, in percent. */
  readonly syncPercent: number;
  /** How many differences the last check found, in sectors. */
  readonly mismatches: number;
}

/** A disk of a group (pvs(8)); sizes in bytes. */
export interface PhysicalVolume {
  /** Its path; `[unknown]` while LVM cannot find it. */
  readonly path: string;
  /** Its UUID. */
  readonly uuid: string;
  /** Whether LVM cannot find it, or did not when the group was changed last. */
  readonly missing: boolean;
  /** Its space that LVM would give to an LV now: none while it is missing, or not allocatable (pvchange(8)). */
  readonly free: bigint;
}

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
  /** How exactly. */
  readonly segment: Segment;
  /** What it has of the disks. */
  readonly pvSegments: readonly PvSegment[];
  /** What LVM finds wrong with it (lv_health_status): `partial`, `refresh needed`, `mismatches exist`; empty for nothing. */
  readonly health: string;
  /** The state of its redundancy; `undefined` when it has none, or is inactive. */
  readonly raid?: RaidState;
  /**
   * Whether the lvcreate that made it died before it was whole: parts of it show that are hidden in a whole one. LVM makes a
   * RAID LV in several steps under one lock, so that a report shows what is between them only then.
   */
  readonly incomplete: boolean;
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
  /** Whether the kernel wants its metadata to be checked (`c` or `C` as the fifth character of lv_attr, lvs(8)). */
  readonly needsCheck: boolean;
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
  /** The disks that it is on and LVM finds, by the paths of their nodes. */
  readonly pvPaths: readonly string[];
  /** All its disks, and what is on them. */
  readonly pvs: readonly PhysicalVolume[];
  /** Whether this is what its disks say now; otherwise it is what they said last, and they do not answer. */
  readonly responsive: boolean;
  /** Its visible LVs. */
  readonly lvs: readonly LogicalVolume[];
}

/**
 * Reads the output of `REPORT_COMMAND` (report_command.ts).
 *
 * @throws {StorageError} `CommandFailed` when the text is not the JSON that LVM writes, or a field is missing or odd.
 */
export function parseReport(stdout: string): VolumeGroup[] {
  return vgEntries(stdout).map((entry) => {
    const row = asObject(asArray(entry.vg)[0]);
    const pvs = parsePvs(entry, asUnsignedInteger(row.vg_extent_size));
    return parseGroup(row, pvs, parseLvs(entry, asUnsignedInteger(row.vg_extent_size)));
  });
}

/** What stands in the place of the path of a disk that LVM cannot find. */
const MISSING_PV_PATH = "[unknown]";

/** The disks of a part of a report. */
export function parsePvs(entry: ReportRow, extentSize: bigint): PhysicalVolume[] {
  return asArray(entry.pv).map(asObject).map((pv) => {
    const missing = parseFlag(pv.pv_missing);
    const free = asUnsignedInteger(pv.pv_pe_count) - asUnsignedInteger(pv.pv_pe_alloc_count);
    return {
      path: asString(pv.pv_name),
      uuid: asString(pv.pv_uuid),
      missing,
      free: missing || !parseFlag(pv.pv_allocatable) ? 0n : free * extentSize,
    };
  });
}

/** The LVs of a group. What belongs to another LV, and shows all the same, is not one of them. */
function parseLvs(entry: ReportRow, extentSize: bigint): LogicalVolume[] {
  const segments = new Map(
    asArray(entry.seg).map(asObject).reverse().map((row) => [asString(row.lv_name), parseSegment(row)]),
  );
  const pvSegments = Map.groupBy(
    asArray(entry.pvseg).map(asObject),
    ({ lv_name }) => splitSubLvName(asString(lv_name)).lvName,
  );
  const rows = asArray(entry.lv).map(asObject);
  const visibleNames = rows.map(({ lv_name }) => asString(lv_name)).filter((name) => !name.startsWith("["));
  const incompleteNames = new Set(
    visibleNames.map(splitSubLvName).filter(({ subLv }) => subLv !== "").map(({ lvName }) => lvName),
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
    });
  });
}

function parseSegment(row: ReportRow): Segment {
  return {
    type: asString(row.segtype),
    stripes: Number(asUnsignedInteger(row.stripes)),
    stripeSize: asUnsignedInteger(row.stripe_size),
  };
}

/** Hidden LVs stand in brackets (lvs(8), --all). */
const HIDDEN_LV_NAME = /^\[(.*)\]$/;

/**
 * The LVs of which LVM makes a RAID LV or a thin pool, the latter of which may be RAID LVs themselves. Nobody else can give an
 * LV such a name (lvm(8), "VALID NAMES").
 */
const SUB_LV_NAME = /^(.+?)_((?:t(?:data|meta)_)?r(?:image|meta)_\d+|t(?:data|meta))$/;

/** Which LV a name stands for, and which part of it. */
function splitSubLvName(name: string): { lvName: string; subLv: string } {
  const bare = HIDDEN_LV_NAME.exec(name)?.[1] ?? name;
  const [, lvName = bare, subLv = ""] = SUB_LV_NAME.exec(bare) ?? [];
  return { lvName, subLv };
}

function isTopLevelLv(name: string): boolean {
  return splitSubLvName(name).subLv === "" && !HIDDEN_LV_NAME.test(name);
}

/** The parts of a report that are about groups. */
export function vgEntries(stdout: string): ReportRow[] {
  return reportEntries(stdout).filter((entry) => !isUnassignedPvEntry(entry));
}

/** The part about disks that are in no group, if there are any: it comes last, and has no group and no LVs. */
export function unassignedPvEntry(stdout: string): ReportRow | undefined {
  return reportEntries(stdout).find(isUnassignedPvEntry);
}

function reportEntries(stdout: string): ReportRow[] {
  return asArray(asObject(parseJson("lvm fullreport", stdout)).report).map(asObject);
}

function isUnassignedPvEntry(entry: ReportRow): boolean {
  return entry.vg === undefined && entry.lv === undefined && entry.pv !== undefined;
}

function parseGroup(row: ReportRow, pvs: PhysicalVolume[], lvs: LogicalVolume[]): VolumeGroup {
  return {
    name: asString(row.vg_name),
    uuid: asString(row.vg_uuid),
    size: asUnsignedInteger(row.vg_size),
    free: asUnsignedInteger(row.vg_free),
    extentSize: asUnsignedInteger(row.vg_extent_size),
    missingPvs: Number(asUnsignedInteger(row.vg_missing_pv_count)),
    writeable: asString(row.vg_permissions) === "writeable" && !parseFlag(row.vg_exported),
    tags: parseList(row.vg_tags),
    pvPaths: pvs.map(({ path }) => path).filter((path) => path !== MISSING_PV_PATH),
    pvs,
    responsive: true,
    lvs,
  };
}

function parseLv(
  row: ReportRow,
  layoutFields: Pick<LogicalVolume, "segment" | "pvSegments" | "incomplete">,
): LogicalVolume {
  const major = asInteger(row.lv_kernel_major);
  const percent = asString(row.snap_percent);
  const origin = asString(row.origin);
  const layout = parseList(row.lv_layout);
  return {
    name: asString(row.lv_name),
    uuid: asString(row.lv_uuid),
    size: asUnsignedInteger(row.lv_size),
    tags: parseList(row.lv_tags),
    devicePath: asString(row.lv_dm_path),
    ...(major >= 0n ? { deviceNumber: `${major}:${asInteger(row.lv_kernel_minor)}` } : {}),
    active: asString(row.lv_active) !== "",
    suspended: parseFlag(row.lv_suspended),
    open: parseFlag(row.lv_device_open),
    layout,
    ...layoutFields,
    health: asString(row.lv_health_status),
    ...(origin === "" ? {} : { origin }),
    // a thin snapshot has none: it is as large as its origin was
    ...(origin === "" || row.origin_size === "" ? {} : { originSize: asUnsignedInteger(row.origin_size) }),
    invalidSnapshot: parseFlag(row.lv_snapshot_invalid),
    ...(percent === "" ? {} : { snapshotPercent: Number(percent) }),
    createdAt: Number(asUnsignedInteger(row.lv_time)),
    ...(layout.includes("thin") ? parseThin(row, layout) : {}),
    ...parseRaid(row),
  };
}

/** What there is of a thin LV or a thin pool beside what every LV has. */
function parseThin(row: ReportRow, layout: readonly string[]): Pick<LogicalVolume, "pool" | "thinPool"> {
  if (!layout.includes("pool")) return { pool: asString(row.pool_lv) };
  const [data, metadata] = [asString(row.data_percent), asString(row.metadata_percent)];
  const attributes = asString(row.lv_attr);
  const thinPool = {
    ...(data === "" ? {} : { dataPercent: Number(data) }),
    metadataSize: asUnsignedInteger(row.lv_metadata_size),
    ...(metadata === "" ? {} : { metadataPercent: Number(metadata) }),
    health: asString(row.lv_health_status),
    needsCheck: /^.{4}[cC]/.test(attributes),
    zeroes: attributes[7] === "z",
  };
  return { thinPool };
}

/** What the kernel says of the redundancy of an LV. Fields that LVM cannot tell at the moment are empty. */
function parseRaid(row: ReportRow): Pick<LogicalVolume, "raid"> {
  const [action, percent, mismatches] = [row.raid_sync_action, row.sync_percent, row.raid_mismatch_count].map(asString);
  if (!action || !percent) return {};
  return { raid: { action, syncPercent: Number(percent), mismatches: Number(mismatches) } };
}

/** An object of a report, not yet looked at. */
export type ReportRow = Readonly<Record<string, unknown>>;

/** With `--binary`: 1 yes, 0 no, -1 unknown or not applicable. */
function parseFlag(value: unknown): boolean {
  return asInteger(value) === 1n;
}

function parseList(value: unknown): string[] {
  return asString(value).split(",").filter((element) => element !== "");
}

/** An LV and its group. */
export interface LocatedLv {
  /** The LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
}

/** Returns the name of an LV with its group, `group/name`, as the commands of LVM take it. */
export function lvPath({ group, lv }: LocatedLv): string {
  return `${group.name}/${lv.name}`;
}
