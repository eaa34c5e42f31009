/**
 * Volume groups, logical volumes and physical volumes as LVM reports them.
 *
 * @module
 */

import type { Reason } from "../../base/error.ts";

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
  /**
   * The space that LVM would now allocate on it for volumes; 0 while it is missing, or not allocatable (pvchange(8)), and on a
   * physical volume for caches.
   */
  readonly free: bigint;
  /** The space that LVM would now allocate on it for caches; absent if it is not for caches alone. */
  readonly cacheFree?: bigint;
}

/** The cache of an LV, which is a hidden LV (lvmcache(7), "cachevol"). */
export interface CacheLv {
  /** The name that it has when it is separated from the LV. */
  readonly name: string;
  /** Its size in bytes. */
  readonly size: bigint;
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
  /** True if the kernel has its device, with a table in use. */
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
  /**
   * Its health (lv_health_status): `partial`, `refresh needed`, `mismatches exist`; of a cache `failed`, `metadata_read_only`
   * or `error`; empty when nothing is wrong.
   */
  readonly health: string;
  /** The state of its redundancy; `undefined` when it has none, or is inactive. */
  readonly raid?: RaidState;
  /**
   * True if its lvcreate was interrupted: sub LVs are visible that are hidden in a complete LV. LVM creates a RAID LV
   * in several steps under one lock, so a report shows an intermediate state only after an interruption.
   */
  readonly incomplete: boolean;
  /** The LVs for the checksums of its images that such an lvcreate did not join to it; absent for none. */
  readonly looseChecksums?: readonly Pick<LogicalVolume, "name" | "uuid">[];
  /** Its cache, if it has one that is an LV. */
  readonly cache?: CacheLv;
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
  /** The time of its creation, in seconds since 1970; 0 where LVM does not know it. */
  readonly createdAt: number;
  /** What of its report cannot be read, and has defaults here; absent for nothing. The driver changes no such LV. */
  readonly unreadable?: string;
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
  /**
   * True if its metadata has to be checked: the kernel demands that (`c` or `C` as the fifth character of lv_attr, lvs(8)), or cannot
   * read it for one of its LVs (`X` there).
   */
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
   * Its space that volumes may get now: what LVM would allocate on its PVs together, without the spare space. Less than
   * `vg_free` of vgs(8), which includes PVs that are missing or not allocatable.
   */
  readonly free: bigint;
  /** Its space that LVM would allocate now, and that volumes never get; absent for none. */
  readonly spare?: bigint;
  /** The size of an extent: sizes of LVs are rounded up to a multiple of it. */
  readonly extentSize: bigint;
  /** The number of its physical volumes that are missing. */
  readonly missingPvs: number;
  /** True if LVM would change it now: it is writeable and not exported. */
  readonly writeable: boolean;
  /** Why LVM creates no LV in it now, although it would have space; absent where nothing is known. */
  readonly refusal?: string;
  /** The reason of {@linkcode refusal}; absent where it is none of its own. */
  readonly refusalReason?: Reason;
  /** How many LVs it takes before it refuses further ones, by its limit and its metadata area; absent where neither is known. */
  readonly lvsLeft?: number;
  /** True if another group has its name: LVM refuses commands that name either of them. */
  readonly ambiguous?: boolean;
  /** True if LVM finds one of its physical volumes on several disks, as of a disk that was copied: it refuses changes then. */
  readonly duplicatePvs?: true;
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
  /** True if a report that could not be read otherwise shows all its LVs and its tags: what it does not show is not there. */
  readonly showsLvs?: true;
  /** What of its report cannot be read, a text for each row; absent for nothing. */
  readonly unreadable?: readonly string[];
  /** What this machine itself uses of it, as `root (mounted), swap_1 (swap)`; absent for nothing. */
  readonly hostUse?: string;
  /** The size of the largest logical sectors of its physical volumes; absent while it is not known. */
  readonly sectorBytes?: bigint;
  /** Its visible LVs. */
  readonly lvs: readonly LogicalVolume[];
}

/**
 * Reports whether LVM may read the disks of a group alone to change it. What LVM refuses because of others, it would do then: it
 * would write to one of two disks that have the same physical volume, and use another one the next time.
 */
export function mayReadAlone({ missingPvs, ambiguous, duplicatePvs }: VolumeGroup): boolean {
  return missingPvs === 0 && !ambiguous && !duplicatePvs;
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

/** Returns all LVs of groups, each with its group. */
export function lvsOf<Group extends VolumeGroup>(
  groups: readonly Group[],
): { readonly group: Group; readonly lv: LogicalVolume }[] {
  return groups.flatMap((group) => group.lvs.map((lv) => ({ group, lv })));
}
