/**
 * Health of volumes, groups and thin pools, from a report and the mount table.
 *
 * Each problem has a reason in one word. The reason decides the severity everywhere: in a CSI response, and in a
 * condition of an LVMVolume.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import type { ErrorKind, StorageError } from "../../base/error.ts";
import type { GroupSpace } from "../model/groups.ts";
import { filesystemMounts, type Mount } from "../host/mounts.ts";
import { type PoolState, poolState, remedyFor } from "../pools/pool_status.ts";
import { redundancyOf, type RedundancyState } from "../model/redundancy.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { describePool, findPool, isDriverPool, isPoolUsedByDriver, poolsOf } from "../pools/pool.ts";
import type { Volume } from "../inventory/volume.ts";

/**
 * The severity of a problem (CSI spec, VolumeHealthErrorType). `Degraded`: the volume's data can be read, but not
 * everything is as it should be. `Inaccessible`: the volume cannot be used now. `DataLoss`: its data is lost, as far as
 * can be determined.
 */
export type HealthStatus = "Degraded" | "Inaccessible" | "DataLoss";

const STATUS = {
  /** The volume was in use, and its LV is missing or replaced. */
  Lost: "DataLoss",
  /** Several LVs have the tags of the volume, or its tags cannot be parsed. */
  ForeignData: "Inaccessible",
  /** The volume's node is not in the cluster any more. */
  NodeNotFound: "Inaccessible",
  /** The disks of its group do not respond. */
  VolumeGroupUnresponsive: "Inaccessible",
  /** A physical volume with data of the volume is missing, without redundancy. */
  Partial: "Inaccessible",
  /** A physical volume of its group is missing: LVM neither extends the volume nor creates snapshots of it. */
  PhysicalVolumesMissing: "Degraded",
  /** Its group is read-only or exported, with the same consequences. */
  VolumeGroupReadOnly: "Degraded",
  /** The metadata of its thin pool has to be repaired; until then the pool cannot be activated again. */
  ThinPoolDamaged: "Inaccessible",
  ThinPoolFull: "Degraded",
  ThinPoolNearFull: "Degraded",
  /** Its cache, or the disk of it, has failed: reads and writes fail, or what only the cache had is lost. */
  CacheFailed: "Inaccessible",
  /** The metadata of its cache cannot be written, so that the cache takes in nothing more. */
  CacheReadOnly: "Degraded",
  /** The kernel has made its filesystem read-only, or shut it down, after an error. */
  FilesystemReadOnly: "Degraded",
  /** Its passphrase or its volume key could not be changed as its secret requests. It is used as before. */
  KeyChangeFailed: "Degraded",
  /** A change of its passphrase was interrupted: the former one may still open it. */
  KeyChangeInterrupted: "Degraded",
  /** A change of its volume key was interrupted: a part of its data is encrypted by each of two. */
  ReencryptionInterrupted: "Degraded",
  /** Its data is being encrypted by another volume key, and nobody can use it meanwhile. */
  KeyChangeRunning: "Inaccessible",
  RaidFailed: "Inaccessible",
  Degraded: "Degraded",
  RefreshNeeded: "Degraded",
  SharedPhysicalVolume: "Degraded",
  Rebuilding: "Degraded",
  Mismatches: "Degraded",
} as const satisfies Record<Exclude<RedundancyState, "InSync">, HealthStatus> & Record<string, HealthStatus>;

/** A reason of a problem, in one word. */
export type HealthReason = keyof typeof STATUS;

/** A problem. */
export interface Problem<R extends HealthReason = HealthReason> {
  /** The reason, in one word. */
  readonly reason: R;
  /** The problem, its object, and the remedy, in a sentence. */
  readonly message: string;
}

/** The health of a volume. */
export interface VolumeHealth {
  /** The id of the volume. */
  readonly id: string;
  /** Its problems, each reason at most once; empty when none is known. */
  readonly problems: readonly Problem[];
}

/** Returns the severity of a reason. */
export function healthStatus(reason: HealthReason): HealthStatus {
  return STATUS[reason];
}

/** Reports whether a word is a {@linkcode HealthReason}. */
export function isHealthReason(word: string): word is HealthReason {
  return Object.hasOwn(STATUS, word);
}

/** Returns the problems of a volume that exists. For a group that does not respond, that is the only one. */
export function volumeProblems({ lv, group }: Pick<Volume, "lv" | "group">, mounts: readonly Mount[]): Problem[] {
  const ofGroup = groupProblem(group);
  if (ofGroup?.reason === "VolumeGroupUnresponsive") return [ofGroup];
  const all = [pvProblem(lv, group), cacheProblem(lv), poolProblem(lv, group), mountProblem(lv, mounts), ofGroup];
  return all.filter((problem) => problem !== undefined);
}

/**
 * Returns the health problem that an error reports when a volume is not found; `undefined` when the error says nothing
 * about the volume's health.
 */
export function problemOf({ kind, message }: Pick<StorageError, "kind" | "message">): Problem | undefined {
  return isUnusable(kind) ? { reason: kind, message } : undefined;
}

function isUnusable(kind: ErrorKind): kind is "Lost" | "ForeignData" {
  return kind === "Lost" || kind === "ForeignData";
}

/** Returns the problem with the physical volumes of an LV: one is missing, or the redundancy is reduced. */
export function pvProblem(
  lv: LogicalVolume,
  group: Pick<VolumeGroup, "name" | "pvs">,
): Problem<"Partial" | Exclude<RedundancyState, "InSync">> | undefined {
  const redundancy = redundancyOf(lv, group);
  if (redundancy === undefined) {
    if (lv.health !== "partial") return undefined;
    return { reason: "Partial", message: `a physical volume of volume group ${group.name} with its data is missing` };
  }
  const { state, message, remedy } = redundancy;
  if (state === "InSync") return undefined;
  return { reason: state, message: remedy === undefined ? message : `${message}. ${remedy}` };
}

/** The problems of caches by LVM's words (lvs(8), lv_health_status): `error` is that of dm-writecache. */
const CACHE_PROBLEMS: Readonly<Record<string, Problem<"CacheFailed" | "CacheReadOnly">>> = {
  error: {
    reason: "CacheFailed",
    message: "its cache reports an error, as of its disk: reads and writes fail (dmesg)",
  },
  failed: { reason: "CacheFailed", message: "its cache has failed, as after an error of its disk (dmesg)" },
  metadata_read_only: {
    reason: "CacheReadOnly",
    message:
      "the metadata of its cache cannot be written, as after an error of its disk (dmesg): it caches nothing more",
  },
};

/** Returns the problem of the cache of an LV, if there is one. */
export function cacheProblem(
  { cache, health }: Pick<LogicalVolume, "cache" | "health">,
): Problem<"CacheFailed" | "CacheReadOnly"> | undefined {
  return cache === undefined ? undefined : CACHE_PROBLEMS[health];
}

const POOL_PROBLEMS: Readonly<
  Partial<Record<PoolState, Problem<"ThinPoolNearFull" | "ThinPoolFull" | "ThinPoolDamaged">>>
> = {
  NearFull: {
    reason: "ThinPoolNearFull",
    message: "when it is full, writes to the volume wait, and then fail",
  },
  CannotExtend: {
    reason: "ThinPoolNearFull",
    message: "when it is full, writes to the volume wait, and then fail",
  },
  Full: { reason: "ThinPoolFull", message: "writes to the volume wait, and then fail" },
  Damaged: { reason: "ThinPoolDamaged", message: "writes to the volume fail" },
};

/** Returns the problem of the thin pool that contains an LV, if there is one. */
export function poolProblem(
  lv: Pick<LogicalVolume, "pool">,
  group: VolumeGroup,
): Problem<"ThinPoolNearFull" | "ThinPoolFull" | "ThinPoolDamaged"> | undefined {
  const pool = findPool(group, lv.pool);
  const problem = pool && POOL_PROBLEMS[poolState(group, pool)];
  return problem && { ...problem, message: `${describePool(group, pool)}: ${problem.message}` };
}

/** Returns why LVM would create nothing in a group now (see `isUsable`), if there is a reason. */
export function groupProblem(
  { name, responsive, readError, missingPvs, writeable, ambiguous }: Pick<
    GroupSpace,
    "name" | "responsive" | "readError" | "missingPvs" | "writeable" | "ambiguous"
  >,
): Problem<"VolumeGroupUnresponsive" | "PhysicalVolumesMissing" | "VolumeGroupReadOnly"> | undefined {
  if (!responsive) {
    return {
      reason: "VolumeGroupUnresponsive",
      message: readError === undefined
        ? `volume group ${name} does not respond: look for a disk that hangs`
        : `volume group ${name} cannot be read: ${readError}`,
    };
  }
  if (missingPvs > 0) {
    return {
      reason: "PhysicalVolumesMissing",
      message: `volume group ${name} has ${missingPvs} missing physical volumes: LVM changes nothing in it`,
    };
  }
  if (writeable && !ambiguous) return undefined;
  return {
    reason: "VolumeGroupReadOnly",
    message: writeable
      ? `several volume groups have the name ${name}: LVM changes nothing in them; rename the others (vgrename UUID NAME)`
      : `volume group ${name} is read-only or exported: LVM changes nothing in it`,
  };
}

/** Returns a problem when the kernel has stopped writes to the filesystem of an LV that is mounted read-write. */
export function mountProblem(lv: LogicalVolume, mounts: readonly Mount[]): Problem<"FilesystemReadOnly"> | undefined {
  const stopped = filesystemMounts(mounts, contentDevice(lv)).find(({ readOnly, filesystemWritable }) =>
    !readOnly && !filesystemWritable
  );
  if (stopped === undefined) return undefined;
  return {
    reason: "FilesystemReadOnly",
    message: `its filesystem at ${stopped.target} no longer accepts writes, as after an error of its disk (dmesg): ` +
      "scale the workloads that use it to 0, so that it is unmounted; it is checked when it is mounted again",
  };
}

/** The severity of a problem for all volumes in the same group or pool (CSI spec, StorageHealthErrorType). */
export type StorageStatus = "Degraded" | "Unreachable";

/** A problem of groups or thin pools. */
export interface StorageProblem {
  /** The severity. */
  readonly status: StorageStatus;
  /** The reason, in one word. */
  readonly reason: string;
  /** The problem, its object, and the remedy: a sentence for each object. */
  readonly message: string;
}

/** Returns the problems of groups, and of the thin pools in them that the driver uses; each reason once. */
export function storageProblems(groups: readonly VolumeGroup[], driver: string): StorageProblem[] {
  const problems: Problem[] = groups.flatMap((group) => {
    const ofGroup = groupProblem(group);
    if (ofGroup?.reason === "VolumeGroupUnresponsive") return [ofGroup];
    return [...(ofGroup === undefined ? [] : [ofGroup]), ...poolProblems(group, driver)];
  });
  const byReason = Map.groupBy(problems, ({ reason }) => reason);
  return [...byReason].map(([reason, of]) => ({
    status: reason === "VolumeGroupUnresponsive" ? "Unreachable" : "Degraded",
    reason,
    message: of.map(({ message }) => message).join("; "),
  }));
}

function poolProblems(group: VolumeGroup, driver: string): Problem[] {
  return poolsOf(group).filter((pool) => isPoolUsedByDriver(driver, group, pool)).flatMap((pool) => {
    const reason = POOL_PROBLEMS[poolState(group, pool)]?.reason;
    const message = `${describePool(group, pool)}; ${remedyFor(group, pool, isDriverPool(driver, pool))}`;
    return reason === undefined ? [] : [{ reason, message }];
  });
}
