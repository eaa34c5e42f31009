/**
 * What the driver has on this machine: groups, thin pools, volumes, snapshots, how full they are, and what fits nowhere.
 *
 * It reads LVM's report, the mount table and the usage of what is mounted, and changes nothing.
 *
 * @module
 */

import type { Exec } from "../exec.ts";
import type { GroupMatcher } from "../model/groups.ts";
import {
  createFinders,
  type ForeignVolume,
  groupsInUse,
  type Inconsistency,
  type KnownObjects,
  type LostVolume,
  type OrphanLv,
  takeInventory,
} from "../inventory/inventory.ts";
import { mountProblem, pvProblem } from "../health/health.ts";
import type { CopyProgress } from "../inventory/copying.ts";
import type { IoRates } from "../spec/io_limits.ts";
import { describeLayoutOf } from "../model/layout.ts";
import { deviceMounts, filesystemMounts, type Mount, readMounts, readUsages, type Usage } from "../host/mounts.ts";
import { type PoolStatus, poolStatus } from "../pools/pool_status.ts";
import type { LocatedSnapshot } from "../inventory/snapshot_finder.ts";
import { readSurvey, type SurveyedGroup } from "../model/survey.ts";
import { ownersOf } from "../model/tags.ts";
import { DEFAULT_OVERCOMMIT, isThin, poolsOf } from "../pools/pool.ts";
import type { DeletedLv } from "../inventory/leftovers.ts";
import type { Volume } from "../inventory/volume.ts";
import { type ReportedVolume, type VolumeDetails, volumeDetails } from "./volume_details.ts";
import { defined } from "../defined.ts";

/** What is to be told. */
export interface StatusOptions {
  /** Runs the commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** Which groups to show; by default those with anything of the driver, or else all. */
  readonly groups?: GroupMatcher;
  /** What is known elsewhere of what is here; by default, what is here is all that there is to know. */
  readonly known?: KnownObjects;
  /** What is told elsewhere of volumes, by id; by default, their tags tell all. */
  readonly reported?: ReadonlyMap<string, ReportedVolume>;
  /** How much thin pools may promise whose tags say nothing else, in percent of their sizes; as much as they have by default. */
  readonly overcommit?: bigint;
}

/** A group; sizes in bytes. */
export interface GroupStatus {
  /** Its name. */
  readonly name: string;
  /** Its UUID. */
  readonly uuid: string;
  /** All its space. */
  readonly size: bigint;
  /** Its space that no LV has. */
  readonly free: bigint;
  /** The space that the driver's LVs take of its disks, copies included. */
  readonly used: bigint;
  /** The size of its smallest metadata area, and what is free in the one that has least. */
  readonly metadata: { readonly size: bigint; readonly free: bigint };
  /** How many disks it has, and how many of them are missing. */
  readonly physicalVolumes: { readonly count: number; readonly missing: number };
  /** Whether LVM would change it now: writeable, not exported. */
  readonly writeable: boolean;
}

/**
 * The state of a volume. `Ready`: its LV is there. `Partial`: so is its LV, but not all of its data, since a disk is missing.
 * `Degraded`: its data is there, but would not survive the loss of a disk. `Rebuilding`: likewise, and that is being mended.
 * `Lost`: it was in use, and its LV is gone or replaced. `Inconsistent`: several LVs claim to be it, or its tags cannot be read.
 * `Copying`: it is still being filled from its source, and nobody has it yet; what is wrong with its disks is told first.
 */
export type VolumeStateName = "Ready" | "Partial" | "Degraded" | "Rebuilding" | "Lost" | "Inconsistent" | "Copying";

/** Where something is mounted. */
export interface MountStatus {
  /** The path. */
  readonly target: string;
  /** Whether it is read-only there. */
  readonly readOnly: boolean;
}

/** A volume; sizes in bytes. What is not known of one that is Lost or Foreign is absent. */
export interface VolumeStatus {
  /** Its id. */
  readonly id: string;
  /** Its state. */
  readonly state: VolumeStateName;
  /** The group that it is in, or was. */
  readonly group?: string;
  /** The name of its LV. */
  readonly lv?: string;
  /** The size of its LV. */
  readonly size?: bigint;
  /** How it is laid out on the disks. */
  readonly layout?: string;
  /** How much of its copies is in sync, in percent; absent without copies, and while it is inactive. */
  readonly syncPercent?: number;
  /** What is on it: the type of a filesystem, or `block`. */
  readonly format?: string;
  /** How far that is: `raw`, `wanted`, `formatting` or `formatted` (docs/reference/state.md). */
  readonly formatState?: string;
  /** Whether its device is there. */
  readonly active?: boolean;
  /** Where it is staged and published. */
  readonly mounts: readonly MountStatus[];
  /** How full its filesystem is, while it is mounted. */
  readonly usage?: Usage;
  /** The thin pool that it is in. */
  readonly pool?: string;
  /** The state of that pool, unless it is `Ready`. */
  readonly poolState?: VolumeDetails["poolState"];
  /** How far it is filled from its source, while it is. */
  readonly copy?: CopyProgress;
  /** What each pod that has it is limited to, as far as that is said of the volume itself. */
  readonly ioLimits?: IoRates;
  /** What is wrong with it. */
  readonly problem?: string;
}

/** A snapshot; sizes in bytes. */
export interface SnapshotStatus {
  /** Its id. */
  readonly id: string;
  /** The id of its volume. */
  readonly source: string;
  /** The group that it is in. */
  readonly group: string;
  /** The name of its LV. */
  readonly lv: string;
  /** What its volume had at the cut. */
  readonly size: bigint;
  /** The thin pool that it is in: a thin snapshot has no store. */
  readonly pool?: string;
  /** The size of the store for changed blocks. */
  readonly cowSize: bigint;
  /** How full the store is, in percent; absent while it is inactive. */
  readonly cowPercent?: number;
  /**
   * `Ready`; `Overflowed`: the store was too small, and the content is gone; `Incomplete`: it never became a snapshot, and is
   * removed when the driver starts.
   */
  readonly state: "Ready" | "Overflowed" | "Incomplete";
  /** When it was taken, in seconds since 1970. */
  readonly createdAt: number;
}

/** What is left of a deleted volume or snapshot until it is erased; sizes in bytes. */
export interface DeletedStatus {
  /** What its id was. */
  readonly id: string;
  /** The group that it is in. */
  readonly group: string;
  /** The name of its LV. */
  readonly lv: string;
  /** The size of its LV, which is free when this is done. */
  readonly size: bigint;
  /** What becomes of its data: `zero`, `discard` or `none` (docs/reference/parameters.md). */
  readonly erase: string;
}

/** What the driver has. */
export interface Status {
  /** The driver's name. */
  readonly driver: string;
  /** The groups, in the order of LVM's report. */
  readonly groups: readonly GroupStatus[];
  /** Their thin pools. */
  readonly pools: readonly PoolStatus[];
  /** The volumes, in the order of their ids. */
  readonly volumes: readonly VolumeStatus[];
  /** The snapshots, in the order of their ids. */
  readonly snapshots: readonly SnapshotStatus[];
  /** What is deleted and not yet gone. */
  readonly deleted: readonly DeletedStatus[];
  /** What is none of these. */
  readonly inconsistencies: readonly Inconsistency[];
  /** What of the volumes and snapshots is not known elsewhere. */
  readonly orphans: readonly Required<OrphanLv>[];
}

/** How long a command is waited for, in milliseconds. */
const DEADLINE_MS = 20_000;

/**
 * Looks at the machine.
 *
 * @throws {StorageError} `FailedPrecondition` for another user than root, `CommandFailed` or `Unavailable` when LVM or the
 * mount table cannot be read.
 */
export async function readStatus(options: StatusOptions): Promise<Status> {
  const { exec: host, driver, groups: wanted, known, reported, overcommit = DEFAULT_OVERCOMMIT } = options;
  const exec: Exec = {
    run: (command) => host.run({ ...command, deadlineMs: DEADLINE_MS }),
    idle: () => host.idle(),
  };
  const [{ groups: all }, mounts] = await Promise.all([readSurvey(exec), readMounts(exec)]);
  const groups = wanted === undefined
    ? groupsInUse(all, driver, undefined)
    : all.filter(({ name }) => wanted.matches(name));
  const isShown = (name: string) => groups.some((group) => group.name === name);
  const isAbsent = (name: string) => (wanted?.matches(name) ?? true) && !all.some((group) => group.name === name);
  // everything is looked for in all groups, so that what has moved or was copied is not taken for gone
  const inventory = takeInventory(all, createFinders(driver, known));
  const present = inventory.volumes.filter(({ group }) => isShown(group.name));
  const usages = await readUsages(exec, present.flatMap(({ lv }) => filesystemMounts(mounts, lv)[0]?.target ?? []));
  return {
    driver,
    groups: groups.map((group) => groupStatus(group, driver)),
    pools: groups.flatMap((group) => poolsOf(group).map((pool) => poolStatus(driver, group, pool, overcommit))),
    volumes: [
      ...present.map((volume) => {
        const details = volumeDetails(volume, inventory, reported?.get(volume.id));
        return volumeStatus(volume, details, { mounts, usages });
      }),
      ...inventory.lost.filter(({ groupName }) => isShown(groupName) || isAbsent(groupName)).map(lostStatus),
      ...inventory.foreign.map(foreignStatus),
    ].sort((a, b) => a.id < b.id ? -1 : 1),
    snapshots: inventory.snapshots.filter(({ group }) => isShown(group.name)).map(snapshotStatus),
    deleted: inventory.deleted.filter(({ group }) => isShown(group.name)).map(deletedStatus),
    inconsistencies: inventory.inconsistencies.filter(({ group }) => isShown(group)),
    orphans: inventory.orphans.filter(({ group }) => isShown(group)),
  };
}

function groupStatus(group: SurveyedGroup, driver: string): GroupStatus {
  const { name, uuid, size, free, metadataSize, metadataFree, pvs, missingPvs, writeable, lvs } = group;
  // what is in a thin pool is in the pool's size
  const ours = lvs.filter((lv) => ownersOf(lv.tags).includes(driver) && !isThin(lv));
  return {
    ...{ name, uuid, size, free },
    used: ours.flatMap(({ pvSegments }) => pvSegments).reduce((sum, { size }) => sum + size, 0n),
    metadata: { size: metadataSize, free: metadataFree },
    physicalVolumes: { count: pvs.length, missing: missingPvs },
    writeable,
  };
}

/** What else was read. */
interface Readings {
  readonly mounts: readonly Mount[];
  readonly usages: ReadonlyMap<string, Usage>;
}

function volumeStatus(
  { id, size, tags: { format, copied }, lv, group }: Volume,
  { problems, ...details }: VolumeDetails,
  { mounts, usages }: Readings,
): VolumeStatus {
  const mounted = [...filesystemMounts(mounts, lv), ...deviceMounts(mounts, lv)];
  const usage = mounted.map(({ target }) => usages.get(target)).find((each) => each !== undefined);
  const damage = pvProblem(lv, group);
  const state = damage && DAMAGE_STATES[damage.reason];
  const found = [damage, mountProblem(lv, mounts)].filter((problem) => problem !== undefined);
  const all = [...found.map(({ message }) => message), ...problems];
  return {
    id,
    state: state ?? (copied === undefined ? "Ready" : "Copying"),
    ...{ group: group.name, lv: lv.name, size },
    layout: describeLayoutOf(lv),
    format: format.state === "raw" ? "block" : format.type,
    formatState: format.state,
    active: lv.active,
    mounts: mounted.map(({ target, readOnly }) => ({ target, readOnly })),
    ...defined({ usage }),
    ...(lv.raid === undefined ? {} : { syncPercent: lv.raid.syncPercent }),
    ...details,
    ...(all.length === 0 ? {} : { problem: all.join("; ") }),
  };
}

/** The states of volumes on disks that are not as they should be; those that are not here have nothing to fear. */
const DAMAGE_STATES: Partial<Record<NonNullable<ReturnType<typeof pvProblem>>["reason"], VolumeStateName>> = {
  Partial: "Partial",
  RaidFailed: "Partial",
  Degraded: "Degraded",
  RefreshNeeded: "Degraded",
  SharedPhysicalVolume: "Degraded",
  Rebuilding: "Rebuilding",
};

function lostStatus({ id, groupName, error }: LostVolume): VolumeStatus {
  return { id, state: "Lost", group: groupName, mounts: [], problem: error.message };
}

function foreignStatus({ id, error }: ForeignVolume): VolumeStatus {
  return { id, state: "Inconsistent", mounts: [], problem: error.message };
}

function deletedStatus({ lv, group, tags }: DeletedLv): DeletedStatus {
  return { id: tags.id, group: group.name, lv: lv.name, size: lv.size, erase: tags.erase };
}

function snapshotStatus({ snapshot, lv, group, incomplete }: LocatedSnapshot): SnapshotStatus {
  const { id, source, size, createdAt, ready } = snapshot;
  return {
    ...{ id, source, group: group.name, lv: lv.name, size, cowSize: lv.size },
    ...defined({ pool: lv.pool, cowPercent: lv.snapshotPercent }),
    state: incomplete ? "Incomplete" : ready ? "Ready" : "Overflowed",
    createdAt,
  };
}
