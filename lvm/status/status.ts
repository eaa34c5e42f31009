/**
 * Reads the status of the driver on this machine: groups, thin pools, volumes, snapshots, their usage, and
 * inconsistencies.
 *
 * It reads LVM's report, the mount table and the usage of what is mounted, and changes nothing.
 *
 * @module
 */

import { type Exec, execWith } from "../exec.ts";
import { filesystemMounts, type Mount, mountsOf, readMountStates, readUsages, type Usage } from "../host/mounts.ts";
import { sum } from "../../base/size.ts";
import { contentDevice } from "../encryption/mapping.ts";
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
import type { IoRates } from "../settings/io_limits.ts";
import { describeLayoutOf } from "../model/layout.ts";
import { type PoolStatus, poolStatus } from "../pools/pool_status.ts";
import type { LocatedSnapshot } from "../inventory/snapshot_finder.ts";
import { readSurvey, type SurveyedGroup } from "../model/survey.ts";
import { ownersOf } from "../model/tags.ts";
import { DEFAULT_OVERCOMMIT, isThin, poolsOf } from "../pools/pool.ts";
import type { DeletedLv } from "../inventory/leftovers.ts";
import type { Volume } from "../inventory/volume.ts";
import { type ReportedVolume, type VolumeDetails, volumeDetails } from "./volume_details.ts";
import { type Encryption, encryptionOf } from "../settings/format.ts";
import { defined } from "../../base/defined.ts";

/** Options of {@linkcode readStatus}. */
export interface StatusOptions {
  /** Runs the commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** The groups to show; by default those with LVs or tags of the driver, or all if there are none. */
  readonly groups?: GroupMatcher;
  /** The volumes and snapshots that are known outside LVM; by default LVM is the only record. */
  readonly known?: KnownObjects;
  /** The reports on volumes outside LVM, by id; by default the tags are the only source. */
  readonly reported?: ReadonlyMap<string, ReportedVolume>;
  /** The overcommit ratio of thin pools without one in their tags, in percent of their sizes; 100 by default. */
  readonly overcommit?: bigint;
}

/** Status of a volume group; sizes in bytes. */
export interface GroupStatus {
  /** Its name. */
  readonly name: string;
  /** Its UUID. */
  readonly uuid: string;
  /** Its size. */
  readonly size: bigint;
  /** Its free space, without its spare space. */
  readonly free: bigint;
  /** Its spare space, as far as it is free. */
  readonly spare: bigint;
  /** The space that the driver's LVs take of its physical volumes, with all RAID images. */
  readonly used: bigint;
  /** The size of its smallest metadata area, and the free space of the metadata area that has the least. */
  readonly metadata: { readonly size: bigint; readonly free: bigint };
  /** The number of its physical volumes, and of those that are missing. */
  readonly physicalVolumes: { readonly count: number; readonly missing: number };
  /** True if LVM can change it: it is writeable and not exported. */
  readonly writeable: boolean;
  /** What this machine itself uses of it, so that only classes that name it use it; absent for nothing. */
  readonly hostUse?: string;
}

/**
 * State of a volume.
 *
 * - `Ready`: its LV exists.
 * - `Partial`: its LV exists, but a part of its data is on a missing physical volume.
 * - `Degraded`: its data is complete, but would not survive the loss of a physical volume.
 * - `Rebuilding`: it is degraded, and LVM is syncing a RAID image.
 * - `Lost`: it was in use, and its LV is missing or replaced.
 * - `Inconsistent`: several LVs claim to be it, or its tags cannot be read.
 * - `Unknown`: LVM cannot read its group.
 * - `Copying`: it is still being filled from its source, and cannot be used yet. `Partial`, `Degraded` and `Rebuilding`
 *   take precedence over it.
 */
export type VolumeStateName =
  | "Ready"
  | "Partial"
  | "Degraded"
  | "Rebuilding"
  | "Lost"
  | "Inconsistent"
  | "Unknown"
  | "Copying";

/** A mount of a volume. */
export interface MountStatus {
  /** The path of the mount point. */
  readonly target: string;
  /** True if the mount is read-only. */
  readonly readOnly: boolean;
}

/** Status of a volume; sizes in bytes. Unknown properties of a volume that is `Lost`, `Inconsistent` or `Unknown` are absent. */
export interface VolumeStatus {
  /** Its id. */
  readonly id: string;
  /** Its state. */
  readonly state: VolumeStateName;
  /** The name of the group that it is in, or was in. */
  readonly group?: string;
  /** The name of its LV. */
  readonly lv?: string;
  /** The size of its LV. */
  readonly size?: bigint;
  /** Its layout. */
  readonly layout?: string;
  /** The part of its RAID images that is in sync, in percent; absent without RAID, and while it is inactive. */
  readonly syncPercent?: number;
  /** The type of its filesystem, or `block`. */
  readonly format?: string;
  /** Its format state: `raw`, `unformatted`, `formatting` or `formatted` (docs/reference/state.md). */
  readonly formatState?: string;
  /** Its encryption, if it has one. */
  readonly encryption?: Encryption;
  /** True if its LV is active. */
  readonly active?: boolean;
  /** Its mounts, where it is staged and published. */
  readonly mounts: readonly MountStatus[];
  /** The usage of its filesystem, while it is mounted. */
  readonly usage?: Usage;
  /** The name of its thin pool. */
  readonly pool?: string;
  /** The state of that pool, unless it is `Ready`. */
  readonly poolState?: VolumeDetails["poolState"];
  /** The progress of its copy, while it is being filled from its source. */
  readonly copy?: CopyProgress;
  /** The IO limits of each pod that uses it, as far as they are set for the volume itself. */
  readonly ioLimits?: IoRates;
  /** Its problems. */
  readonly problem?: string;
}

/** Status of a snapshot; sizes in bytes. */
export interface SnapshotStatus {
  /** Its id. */
  readonly id: string;
  /** The id of its volume. */
  readonly source: string;
  /** The group that it is in. */
  readonly group: string;
  /** The name of its LV. */
  readonly lv: string;
  /** The size of its volume when it was created. */
  readonly size: bigint;
  /** The name of its thin pool. A thin snapshot has no COW space. */
  readonly pool?: string;
  /** The size of its COW space; of a thin snapshot, the size of its LV. */
  readonly cowSize: bigint;
  /** The usage of its COW space in percent; absent while it is inactive. */
  readonly cowPercent?: number;
  /**
   * Its state. `Ready`: it can be used. `Overflowed`: its COW space was full, so its content is lost. `Incomplete`: it
   * never became a snapshot, and is removed when the driver starts.
   */
  readonly state: "Ready" | "Overflowed" | "Incomplete";
  /** The time of its creation, in seconds since 1970. */
  readonly createdAt: number;
}

/** Status of a deleted LV, which is still to be erased and removed; sizes in bytes. */
export interface DeletedStatus {
  /** The id of the deleted volume or snapshot. */
  readonly id: string;
  /** The group that it is in. */
  readonly group: string;
  /** The name of its LV. */
  readonly lv: string;
  /** The size of its LV, which is free after its removal. */
  readonly size: bigint;
  /** The way in which its data is erased: `zero`, `discard` or `none` (docs/reference/parameters.md). */
  readonly erase: string;
}

/** Status of the driver on this machine. */
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
  /** The deleted LVs that are not yet removed. */
  readonly deleted: readonly DeletedStatus[];
  /** The LVs and tags that are none of these. */
  readonly inconsistencies: readonly Inconsistency[];
  /** The LVs of volumes and snapshots that are not known outside LVM. */
  readonly orphans: readonly Required<OrphanLv>[];
}

/** The deadline of each command, in milliseconds. */
const DEADLINE_MS = 20_000;

/**
 * Reads the status of the driver on this machine.
 *
 * @throws {StorageError} `FailedPrecondition` for another user than root, `CommandFailed` or `Unavailable` when LVM or
 * the mount table cannot be read.
 */
export async function readStatus(options: StatusOptions): Promise<Status> {
  const { exec: host, driver, groups: wanted, known, reported, overcommit = DEFAULT_OVERCOMMIT } = options;
  const exec = execWith(host, (command) => ({ ...command, deadlineMs: DEADLINE_MS }));
  const [{ groups: all }, mounts] = await Promise.all([readSurvey(exec), readMountStates(exec)]);
  const groups = wanted === undefined
    ? groupsInUse(all, driver, undefined)
    : all.filter(({ name }) => wanted.matches(name));
  const isShown = (name: string) => groups.some((group) => group.name === name);
  const isAbsent = (name: string) => (wanted?.matches(name) ?? true) && !all.some((group) => group.name === name);
  // The inventory covers all groups, so that a volume in another group than expected does not count as missing.
  const inventory = takeInventory(all, createFinders(driver, known));
  const present = inventory.volumes.filter(({ group }) => isShown(group.name));
  const usages = await readUsages(
    exec,
    present.flatMap(({ lv }) => filesystemMounts(mounts, contentDevice(lv))[0]?.target ?? []),
  );
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
      ...inventory.foreign.map((volume) => failedStatus("Inconsistent", volume)),
      ...inventory.unknown.map((volume) => failedStatus("Unknown", volume)),
    ].sort((a, b) => a.id < b.id ? -1 : 1),
    snapshots: inventory.snapshots.filter(({ group }) => isShown(group.name)).map(snapshotStatus),
    deleted: inventory.deleted.filter(({ group }) => isShown(group.name)).map(deletedStatus),
    inconsistencies: inventory.inconsistencies.filter(({ group }) => isShown(group)),
    orphans: inventory.orphans.filter(({ group }) => isShown(group)),
  };
}

function groupStatus(group: SurveyedGroup, driver: string): GroupStatus {
  const { name, uuid, size, free, spare = 0n, metadataSize, metadataFree, pvs, missingPvs, writeable, lvs } = group;
  const { hostUse } = group;
  // The size of a thin pool includes its thin LVs.
  const ours = lvs.filter((lv) => ownersOf(lv.tags).includes(driver) && !isThin(lv));
  return {
    name,
    uuid,
    size,
    free,
    spare,
    used: sum(ours.flatMap(({ pvSegments }) => pvSegments.map(({ size }) => size))),
    metadata: { size: metadataSize, free: metadataFree },
    physicalVolumes: { count: pvs.length, missing: missingPvs },
    writeable,
    ...defined({ hostUse }),
  };
}

/** The mounts and usages that were read. */
interface Readings {
  readonly mounts: readonly Mount[];
  readonly usages: ReadonlyMap<string, Usage>;
}

function volumeStatus(
  { id, size, tags: { format, copied }, lv, group }: Volume,
  { problems, ...details }: VolumeDetails,
  { mounts, usages }: Readings,
): VolumeStatus {
  const mounted = mountsOf(mounts, contentDevice(lv));
  const usage = mounted.map(({ target }) => usages.get(target)).find((each) => each !== undefined);
  const damage = pvProblem(lv, group);
  const state = damage && DAMAGE_STATES[damage.reason];
  const found = [damage, mountProblem(lv, mounts)].filter((problem) => problem !== undefined);
  const all = [...found.map(({ message }) => message), ...problems];
  return {
    id,
    state: state ?? (copied === undefined ? "Ready" : "Copying"),
    group: group.name,
    lv: lv.name,
    size,
    layout: describeLayoutOf(lv),
    format: format.state === "raw" ? "block" : format.type,
    formatState: format.state,
    ...(format.luks !== undefined && { encryption: encryptionOf(format) }),
    active: lv.active,
    mounts: mounted.map(({ target, readOnly }) => ({ target, readOnly })),
    ...defined({ usage, syncPercent: lv.raid?.syncPercent }),
    ...details,
    ...defined({ problem: all.length === 0 ? undefined : all.join("; ") }),
  };
}

/** The states of volumes by the problem of their physical volumes. Other problems do not change the state. */
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

function failedStatus(state: VolumeStateName, { id, error }: ForeignVolume): VolumeStatus {
  return { id, state, mounts: [], problem: error.message };
}

function deletedStatus({ lv, group, tags }: DeletedLv): DeletedStatus {
  return { id: tags.id, group: group.name, lv: lv.name, size: lv.size, erase: tags.erase };
}

function snapshotStatus({ snapshot, lv, group, incomplete }: LocatedSnapshot): SnapshotStatus {
  const { id, source, size, createdAt, ready } = snapshot;
  return {
    id,
    source,
    group: group.name,
    lv: lv.name,
    size,
    cowSize: lv.size,
    ...defined({ pool: lv.pool, cowPercent: lv.snapshotPercent }),
    state: incomplete ? "Incomplete" : ready ? "Ready" : "Overflowed",
    createdAt,
  };
}
