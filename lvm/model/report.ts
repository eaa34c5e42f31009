/**
 * Volume groups, logical volumes and physical volumes as LVM reports them, read into checked types.
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

/** The layout of an LV, according to its first segment (lvs(8), segtype and so on). */
export interface Segment {
  /** `linear`, `striped`, `raid1`, `raid5` and so on. */
  readonly type: string;
  /** The number of its stripes or RAID images, those for redundancy included; 1 for `linear`. */
  readonly stripes: number;
  /** The size of a stripe on one physical volume, in bytes; 0 where there are no stripes. */
  readonly stripeSize: bigint;
  /** For a thin pool, the number of its last transaction (lvs(8), transaction_id); for a thin LV, that of the one before it. */
  readonly transactionId?: bigint;
  /** For a thin LV, its number in its pool, which no other LV of the pool has (lvs(8), thin_id). */
  readonly thinId?: bigint;
}

/** A segment of a physical volume that is allocated to an LV. */
export interface PvSegment {
  /** The sub LV that it belongs to: `rimage_0`, `rmeta_1`, `tdata`; empty for an LV without sub LVs. */
  readonly subLv: string;
  /** The UUID of the physical volume. */
  readonly pvUuid: string;
  /** Its size in bytes. */
  readonly size: bigint;
}

/** The state of an active RAID LV, according to the kernel (lvmraid(7)). */
export interface RaidState {
  /** The current sync action: `idle`, `resync`, `recover`, `check`, `repair` and so on. */
  readonly action: string;
  /** The part of it that is in sync, in percent. */
  readonly syncPercent: number;
  /** The number of differences that the last check found, in sectors. */
  readonly mismatches: number;
}

/** A physical volume of a group (pvs(8)); sizes in bytes. */
export interface PhysicalVolume {
  /** Its path; `[unknown]` while LVM cannot find it. */
  readonly path: string;
  /** Its UUID. */
  readonly uuid: string;
  /** True if LVM cannot find it, or did not when the group was changed last. */
  readonly missing: boolean;
  /** The space of its extents, used and free. */
  readonly size: bigint;
  /** The space that LVM would now allocate on it; 0 while it is missing, or not allocatable (pvchange(8)). */
  readonly free: bigint;
}

/** A logical volume as LVM reports it (lvs(8)); sizes in bytes. */
export interface LogicalVolume {
  /** Its name within the group. */
  readonly name: string;
  /** Its UUID, which never changes and is never used again. */
  readonly uuid: string;
  /** Its size; for a COW snapshot, the size of its COW space. */
  readonly size: bigint;
  /** Its tags. */
  readonly tags: readonly string[];
  /** The device-mapper node, `/dev/mapper/…`. */
  readonly devicePath: string;
  /** The device number as `major:minor`; `undefined` while inactive. */
  readonly deviceNumber?: string;
  /** True if the kernel has its device. */
  readonly active: boolean;
  /** True if the kernel holds back what is written to its device, as during a change of its tables. */
  readonly suspended: boolean;
  /** True if LVM does not permit writes to it (lvchange(8), `--permission`). */
  readonly readOnly?: true;
  /** True if something has its device open: a mount, a process, another device. */
  readonly open: boolean;
  /**
   * Its layout on the physical volumes (lvs(8), lv_layout): `linear`, `thin`, `raid` and so on; several where one is on
   * another.
   */
  readonly layout: readonly string[];
  /** Its first segment, for the details of the layout. */
  readonly segment: Segment;
  /** The segments of physical volumes that are allocated to it. */
  readonly pvSegments: readonly PvSegment[];
  /** Its health (lv_health_status): `partial`, `refresh needed`, `mismatches exist`; empty when nothing is wrong. */
  readonly health: string;
  /** The state of its redundancy; `undefined` when it has none, or is inactive. */
  readonly raid?: RaidState;
  /**
   * True if its lvcreate was interrupted: sub LVs are visible that are hidden in a complete LV. LVM creates a RAID LV
   * in several steps under one lock, so a report shows an intermediate state only after an interruption.
   */
  readonly incomplete: boolean;
  /** The name of the LV that this one is a snapshot of. */
  readonly origin?: string;
  /** For a COW snapshot, the size of its origin at the time of its creation. */
  readonly originSize?: bigint;
  /** True if this is a COW snapshot that overflowed: its content is lost. */
  readonly invalidSnapshot: boolean;
  /** The usage of a snapshot's COW space, in percent; `undefined` where LVM does not report it. */
  readonly snapshotPercent?: number;
  /** For a thin LV, the name of its pool. */
  readonly pool?: string;
  /** For a thin LV, the part of its size that takes space of its pool, in percent; `undefined` while it is inactive. */
  readonly thinPercent?: number;
  /** For a thin pool, its state. The LV's size is that of the pool's data. */
  readonly thinPool?: ThinPoolState;
  /** The time of its creation, in seconds since 1970. */
  readonly createdAt: number;
}

/** The state of a thin pool, according to LVM (lvs(8), lvmthin(7)). */
export interface ThinPoolState {
  /** The usage of its data, in percent; `undefined` while it is inactive. */
  readonly dataPercent?: number;
  /** The size of its metadata, in bytes. */
  readonly metadataSize: bigint;
  /** The usage of its metadata, in percent; `undefined` while it is inactive. */
  readonly metadataPercent?: number;
  /** Its health (lv_health_status): `out_of_data`, `metadata_read_only`, `failed`; empty when nothing is wrong. */
  readonly health: string;
  /** True if the kernel demands a check of its metadata (`c` or `C` as the fifth character of lv_attr, lvs(8)). */
  readonly needsCheck: boolean;
  /** True if new blocks read as zeros (the eighth character of lv_attr). */
  readonly zeroes: boolean;
  /** True if writes to the full pool wait for its extension (lvs(8), lv_when_full); absent where a report lacks it. */
  readonly queuesWhenFull?: boolean;
}

/** A volume group as LVM reports it (vgs(8)), with its logical volumes; sizes in bytes. */
export interface VolumeGroup {
  /** Its name. */
  readonly name: string;
  /** Its UUID. */
  readonly uuid: string;
  /** Its whole space. */
  readonly size: bigint;
  /**
   * Its space that LVM would allocate now: that of its PVs together. Less than `vg_free` of vgs(8), which includes PVs
   * that are missing or not allocatable.
   */
  readonly free: bigint;
  /** The size of an extent: sizes of LVs are rounded up to a multiple of it. */
  readonly extentSize: bigint;
  /** The number of its physical volumes that are missing. */
  readonly missingPvs: number;
  /** True if LVM would change it now: it is writeable and not exported. */
  readonly writeable: boolean;
  /** True if another group has its name: LVM refuses commands that name either of them. */
  readonly ambiguous?: boolean;
  /** Its tags. */
  readonly tags: readonly string[];
  /** The paths of its physical volumes that LVM finds. */
  readonly pvPaths: readonly string[];
  /** All its physical volumes. */
  readonly pvs: readonly PhysicalVolume[];
  /** True if LVM could read it; otherwise this is its last report. */
  readonly responsive: boolean;
  /** Why LVM could not read it; absent when its physical volumes do not respond. */
  readonly readError?: string;
  /** Its visible LVs. */
  readonly lvs: readonly LogicalVolume[];
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
    const free = extents - asUnsignedInteger(pv.pv_pe_alloc_count);
    return {
      path: asString(pv.pv_name),
      uuid: asString(pv.pv_uuid),
      missing,
      size: extents * extentSize,
      free: missing || !parseFlag(pv.pv_allocatable) ? 0n : free * extentSize,
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
 * The name of a sub LV of a RAID LV or a thin pool. The sub LVs of a pool may be RAID LVs themselves. Only LVM can give
 * an LV such a name (lvm(8), "VALID NAMES").
 */
const SUB_LV_NAME = /^(.+?)_((?:t(?:data|meta)_)?r(?:image|meta)_\d+|t(?:data|meta))$/;

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
    free: pvs.reduce((sum, { free }) => sum + free, 0n),
    extentSize: asPositiveInteger(row.vg_extent_size),
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
    active: parseActive(row.lv_active),
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
