/**
 * The metrics of volume groups, physical volumes and logical volumes: what LVM's last report shows.
 *
 * A scrape runs no command of LVM. The number of series is bounded by what the node has: some per group, physical volume,
 * logical volume and thin pool.
 *
 * @module
 */

import { allocatedVirtual, availableVirtual, isCowSnapshot, isDamaged, isThin, poolsOf } from "../../lvm/pools/pool.ts";
import { type LogicalVolume, lvsOf } from "../../lvm/model/report.ts";
import { defined } from "../../base/defined.ts";
import { erasingOf } from "../../lvm/inventory/leftovers.ts";
import { isRaid, redundancyOf } from "../../lvm/model/redundancy.ts";
import type { SurveyedGroup, SurveyedPv } from "../../lvm/model/survey.ts";
import { ownedSnapshotId, ownedVolumeId } from "../../lvm/model/tags.ts";

/** Returns the last report; none before the first. */
export type LastSurvey = () => readonly SurveyedGroup[];

/** Returns the claim of a volume, or of the source of a snapshot, as `namespace/name`; `undefined` where none is known. */
export type ClaimOf = (id: string) => string | undefined;

/** A volume, as metrics name it. */
export interface NamedVolume {
  /** Its id. */
  readonly volume: string;
  /** Its claim as `namespace/name`, where it is known. */
  readonly claim?: string | undefined;
}

/** The labels that name a claim. */
const CLAIM_LABELS = ["persistentvolumeclaim", "claim_namespace"];

/** The labels that name a volume. */
export const VOLUME_LABELS: readonly string[] = ["volume", ...CLAIM_LABELS];

/** Returns the labels that name a volume. */
export function volumeLabels({ volume, claim }: NamedVolume): Sample["labels"] {
  return { volume, ...claimLabels(claim) };
}

/** Returns the labels that name a claim; none where it is not known. */
function claimLabels(claim: string | undefined): Sample["labels"] {
  const [claim_namespace, persistentvolumeclaim] = claim?.split("/") ?? [];
  return defined({ persistentvolumeclaim, claim_namespace });
}

/** A gauge of a kind of thing: its name after the common prefix, its help, and its value; `undefined` for no sample. */
type Row<Parts extends readonly unknown[]> = readonly [
  name: string,
  help: string,
  value: (...parts: Parts) => number | bigint | boolean | undefined,
];

/** The gauges of each volume group. */
const GROUP_ROWS: readonly Row<[group: SurveyedGroup, driver: string]>[] = [
  ["size_bytes", "Size of the volume group", ({ size }) => size],
  ["free_bytes", "Space of the volume group that LVM would allocate, without its spare space", ({ free }) => free],
  ["spare_bytes", "Spare space of the volume group, which volumes never get", ({ spare = 0n }) => spare],
  ["writeable", "1 if LVM would change the volume group; 0 if it is read-only or exported", (vg) => vg.writeable],
  ["metadata_size_bytes", "Size of the smallest metadata area of the volume group", (vg) => vg.metadataSize],
  ["metadata_free_bytes", "Free space in the fullest metadata area of the volume group", (vg) => vg.metadataFree],
  ["metadata_areas", "Metadata areas of the volume group", ({ metadataAreas }) => metadataAreas],
  ["metadata_areas_used", "Metadata areas of the volume group that LVM writes", (vg) => vg.metadataAreasUsed],
  ["physical_volumes", "Physical volumes of the volume group", ({ pvs }) => pvs.length],
  ["physical_volumes_limit", "Maximum number of physical volumes; 0 for no limit", ({ pvsLimit }) => pvsLimit],
  ["missing_physical_volumes", "Missing physical volumes of the volume group", ({ missingPvs }) => missingPvs],
  ["logical_volumes", "Logical volumes of the volume group", ({ lvs }) => lvs.length],
  ["logical_volumes_limit", "Maximum number of logical volumes; 0 for no limit", ({ lvsLimit }) => lvsLimit],
  ["snapshots", "COW snapshots of the volume group", ({ lvs }) => lvs.filter(isCowSnapshot).length],
  [
    "erasing_volumes",
    "Deleted logical volumes of the volume group that are still to be erased and removed",
    (group, driver) => erasingOf(driver, group).volumes,
  ],
  [
    "erasing_bytes",
    "Bytes of its deleted logical volumes that are not recorded as erased yet",
    (group, driver) => erasingOf(driver, group).remaining,
  ],
];

/** The gauges of each physical volume. */
const PV_ROWS: readonly Row<[pv: SurveyedPv]>[] = [
  ["size_bytes", "Space of the extents of the physical volume, used and free", ({ size }) => size],
  [
    "free_bytes",
    "Space of the physical volume that LVM can allocate; 0 while it is missing or not allocatable",
    ({ free }) => free,
  ],
  ["used_bytes", "Space of the physical volume that is allocated", ({ used }) => used],
  ["device_size_bytes", "Size of the device of the physical volume", ({ deviceSize }) => deviceSize],
  ["metadata_size_bytes", "Size of its smallest metadata area; 0 without one", ({ metadataSize }) => metadataSize],
  ["metadata_free_bytes", "Free space in its fullest metadata area; 0 without one", ({ metadataFree }) => metadataFree],
  ["missing", "1 while LVM cannot find the physical volume, else 0", ({ missing }) => missing],
  ["allocatable", "1 if LVM may allocate space of the physical volume, else 0", ({ allocatable }) => allocatable],
];

/** The gauges of each logical volume. */
const LV_ROWS: readonly Row<[lv: LogicalVolume]>[] = [
  ["logical_volume_size_bytes", "Size of the logical volume", ({ size }) => size],
  ["logical_volume_active", "1 while the kernel has the device of the logical volume, else 0", ({ active }) => active],
  ["logical_volume_readonly", "1 if LVM does not permit writes to it, else 0", ({ readOnly }) => readOnly === true],
  [
    "thin_volume_used_ratio",
    "Share of the size of the thin volume that takes space of its pool",
    (lv) => isThin(lv) ? ratio(lv.thinPercent) : undefined,
  ],
  [
    "snapshot_cow_used_ratio",
    "Used share of the COW space of the snapshot; at 1 the snapshot is lost",
    (lv) => ratio(lv.snapshotPercent),
  ],
  [
    "snapshot_overflowed",
    "1 if the COW space of the snapshot overflowed, so that its content is lost, else 0",
    (lv) => lv.snapshotPercent === undefined ? undefined : lv.invalidSnapshot,
  ],
];

/** The gauges of each RAID volume. */
const RAID_ROWS: readonly Row<[lv: LogicalVolume, group: SurveyedGroup]>[] = [
  [
    "raid_redundant",
    "1 while the RAID volume survives the loss of a disk, else 0",
    (lv, group) => redundancyOf(lv, group)?.redundant === true,
  ],
  ["raid_sync_ratio", "Synchronized share of the RAID volume", ({ raid }) => ratio(raid?.syncPercent)],
  ["raid_mismatches", "Sectors that differ, as found by the last check", ({ raid }) => raid?.mismatches],
];

/**
 * Returns the gauges of volume groups, and of what is in them.
 *
 * @param lastSurvey called on each scrape
 * @param driver the name of the driver whose volumes and snapshots are named
 * @param claimOf called on each scrape
 */
export function lvmGauges(lastSurvey: LastSurvey, driver: string, claimOf: ClaimOf): ReadAtScrape[] {
  const pvs = () => lastSurvey().flatMap((group) => group.pvs.map((pv) => ({ group, pv })));
  const lvs = () => lvsOf(lastSurvey());
  const raids = () => lvs().filter(({ lv }) => isRaid(lv));
  const lvLabels = ({ group, lv }: { group: SurveyedGroup; lv: LogicalVolume }) => ({ group: group.name, lv: lv.name });
  return [
    ...GROUP_ROWS.map(([name, help, value]) => ({
      name: `denolith_volume_group_${name}`,
      help,
      labels: ["group"],
      samples: () => lastSurvey().flatMap((group) => sample({ group: group.name }, value(group, driver))),
    })),
    {
      name: "denolith_volume_group_info",
      help: "1 for each volume group, with its UUID and its allocation policy",
      labels: ["group", "uuid", "allocation_policy"],
      samples: () =>
        lastSurvey().flatMap(({ name: group, uuid, allocationPolicy: allocation_policy }) =>
          sample({ group, uuid, allocation_policy }, 1)
        ),
    },
    ...PV_ROWS.map(([name, help, value]) => ({
      name: `denolith_physical_volume_${name}`,
      help,
      labels: ["group", "device", "uuid"],
      samples: () =>
        pvs().flatMap(({ group, pv }) => sample({ group: group.name, device: pv.path, uuid: pv.uuid }, value(pv))),
    })),
    {
      name: "denolith_logical_volume_info",
      help: "1 for each logical volume, with its segment type, pool, device, volume or snapshot, and the claim of that",
      labels: ["group", "lv", ...INFO_LABELS],
      samples: () => lvs().flatMap((at) => sample({ ...lvLabels(at), ...infoLabels(driver, at.lv, claimOf) }, 1)),
    },
    {
      name: "denolith_logical_volume_health_status",
      help: "1 for each logical volume, with LVM's word for its health, or ok",
      labels: ["group", "lv", "status"],
      samples: () => lvs().flatMap((at) => sample({ ...lvLabels(at), status: healthOf(at.lv) }, 1)),
    },
    ...LV_ROWS.map(([name, help, value]) => ({
      name: `denolith_${name}`,
      help,
      labels: ["group", "lv"],
      samples: () => lvs().flatMap((at) => sample(lvLabels(at), value(at.lv))),
    })),
    ...RAID_ROWS.map(([name, help, value]) => ({
      name: `denolith_${name}`,
      help,
      labels: ["group", "lv"],
      samples: () => raids().flatMap((at) => sample(lvLabels(at), value(at.lv, at.group))),
    })),
    {
      name: "denolith_raid_sync_action",
      help: "1 for each active RAID volume, with its current action, such as idle, resync or recover",
      labels: ["group", "lv", "action"],
      samples: () =>
        raids().flatMap((at) =>
          at.lv.raid === undefined ? [] : sample({ ...lvLabels(at), action: at.lv.raid.action }, 1)
        ),
    },
  ];
}

/** The gauges of each thin pool. The last argument is the overcommit of a pool without a tag, in percent of its size. */
const POOL_ROWS: readonly Row<[group: SurveyedGroup, pool: LogicalVolume, overcommit: bigint]>[] = [
  ["size_bytes", "Size of the thin pool", (_, { size }) => size],
  ["metadata_size_bytes", "Size of the metadata of the thin pool", (_, { thinPool }) => thinPool?.metadataSize],
  ["data_used_ratio", "Used share of the data of the thin pool", (_, { thinPool }) => ratio(thinPool?.dataPercent)],
  [
    "metadata_used_ratio",
    "Used share of the metadata of the thin pool",
    (_, { thinPool }) => ratio(thinPool?.metadataPercent),
  ],
  [
    "virtual_allocated_bytes",
    "Sum of the virtual sizes of the volumes and snapshots in the thin pool",
    (group, pool) => allocatedVirtual(group, pool),
  ],
  [
    "virtual_available_bytes",
    "Virtual size that the thin pool can still allocate",
    (group, pool, overcommit) => availableVirtual(group, pool, overcommit),
  ],
  [
    "queues_when_full",
    "1 if writes to the full thin pool wait for its extension; 0 if they fail at once",
    (_, { thinPool }) => thinPool?.queuesWhenFull,
  ],
  [
    "damaged",
    "1 if the metadata of the thin pool has to be checked or repaired, else 0",
    (_, pool) => isDamaged(pool),
  ],
];

/**
 * Returns the gauges of thin pools.
 *
 * @param lastSurvey called on each scrape
 * @param overcommit virtual size that a pool without a tag may allocate, in percent of its size
 */
export function poolGauges(lastSurvey: LastSurvey, overcommit: bigint): ReadAtScrape[] {
  return POOL_ROWS.map(([name, help, value]) => ({
    name: `denolith_thin_pool_${name}`,
    help,
    labels: ["group", "pool"],
    samples: () =>
      lastSurvey().flatMap((group) =>
        poolsOf(group).flatMap((pool) => sample({ group: group.name, pool: pool.name }, value(group, pool, overcommit)))
      ),
  }));
}

/** Returns a sample in a list; none for a value that is not known. */
function sample(labels: Sample["labels"], value: number | bigint | boolean | undefined): Sample[] {
  return value === undefined ? [] : [{ labels, value: Number(value) }];
}

/** What a logical volume is. */
const INFO_LABELS = ["type", "pool", "device", "volume", "snapshot", ...CLAIM_LABELS];

/** Returns the labels that say what a logical volume is. Those that it does not have are left out. */
function infoLabels(
  driver: string,
  { tags, segment, pool, deviceNumber }: LogicalVolume,
  claimOf: ClaimOf,
): Sample["labels"] {
  const minor = deviceNumber?.split(":")[1];
  const [volume, snapshot] = [ownedVolumeId(driver, tags), ownedSnapshotId(driver, tags)];
  const id = volume ?? snapshot;
  return {
    type: segment.type,
    ...defined({ pool, device: minor === undefined ? undefined : `dm-${minor}`, volume, snapshot }),
    ...claimLabels(id === undefined ? undefined : claimOf(id)),
  };
}

/** Returns LVM's word for the health of a logical volume as the value of a label: `ok`, `partial`, `refresh_needed`. */
function healthOf({ health }: LogicalVolume): string {
  return health === "" ? "ok" : health.replaceAll(" ", "_");
}

function ratio(percent: number | undefined): number | undefined {
  return percent === undefined ? undefined : percent / 100;
}

/** A value with its labels. */
export interface Sample {
  /** The labels by their names. */
  readonly labels: Readonly<Record<string, string>>;
  /** The value. */
  readonly value: number;
}

/** A gauge without samples of its own: it has those of the moment in which it is scraped. */
export interface ReadAtScrape {
  /** The name, with the unit at its end. */
  readonly name: string;
  /** One sentence on what it measures, without the full stop. */
  readonly help: string;
  /** The names of its labels. */
  readonly labels: readonly string[];
  /** Returns the samples; called on each scrape. */
  readonly samples: () => readonly Sample[];
}
