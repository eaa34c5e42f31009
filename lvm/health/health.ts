/**
 * What is wrong with a volume, and with what the volumes of a machine are in: decided from a report and the mount table.
 *
 * Each problem has a reason in one word. A reason says how bad it is, wherever it is told: in an answer of CSI, or in a
 * condition of an LVMVolume.
 *
 * @module
 */

import type { ErrorKind, StorageError } from "../error.ts";
import type { GroupSpace } from "../model/groups.ts";
import { filesystemMounts, type Mount } from "../host/mounts.ts";
import { type PoolState, poolState, remedyFor } from "../pools/pool_status.ts";
import { redundancyOf, type RedundancyState } from "../model/redundancy.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { describePool, findPool, isDriverPool, isPoolUsedByDriver, poolsOf } from "../pools/pool.ts";
import type { Volume } from "../inventory/volume.ts";

/**
 * How bad a problem is (CSI spec, VolumeHealthErrorType). `Degraded`: what is on the volume can be read, but not all is as it
 * should be. `Inaccessible`: it cannot be used as it is. `DataLoss`: its data is gone, as far as anybody can see.
 */
export type HealthStatus = "Degraded" | "Inaccessible" | "DataLoss";

const STATUS = {
  /** The volume was in use, and its LV is gone or replaced. */
  Lost: "DataLoss",
  /** Several LVs claim to be the volume, or its tags cannot be read. */
  ForeignData: "Inaccessible",
  /** The node that the volume is on is no node of the cluster any more. */
  NodeNotFound: "Inaccessible",
  /** The disks of its group do not answer. */
  VolumeGroupUnresponsive: "Inaccessible",
  /** A disk that the volume is on is missing, and nothing replaces what is on it. */
  Partial: "Inaccessible",
  /** A disk of its group is missing: LVM neither grows the volume nor takes snapshots of it. */
  PhysicalVolumesMissing: "Degraded",
  /** Its group is read-only or exported: likewise. */
  VolumeGroupReadOnly: "Degraded",
  /** The metadata of its thin pool has to be repaired, and without that the pool does not come up again. */
  ThinPoolDamaged: "Inaccessible",
  ThinPoolFull: "Degraded",
  ThinPoolNearFull: "Degraded",
  /** The kernel has made its filesystem read-only, or shut it down, after an error. */
  FilesystemReadOnly: "Degraded",
  RaidFailed: "Inaccessible",
  Degraded: "Degraded",
  RefreshNeeded: "Degraded",
  SharedPhysicalVolume: "Degraded",
  Rebuilding: "Degraded",
  Mismatches: "Degraded",
} as const satisfies Record<Exclude<RedundancyState, "InSync">, HealthStatus> & Record<string, HealthStatus>;

/** What can be wrong, in one word. */
export type HealthReason = keyof typeof STATUS;

/** Something that is wrong. */
export interface Problem<R extends HealthReason = HealthReason> {
  /** What, in one word. */
  readonly reason: R;
  /** What, on what, and what to do. */
  readonly message: string;
}

/** How a volume is. */
export interface VolumeHealth {
  /** Its id. */
  readonly id: string;
  /** What is wrong with it, each reason at most once; nothing, when nothing is known to be wrong. */
  readonly problems: readonly Problem[];
}

/** How bad it is. */
export function healthStatus(reason: HealthReason): HealthStatus {
  return STATUS[reason];
}

/** Whether a word is a reason, as {@linkcode Problem} has it. */
export function isHealthReason(word: string): word is HealthReason {
  return Object.hasOwn(STATUS, word);
}

/** What is wrong with a volume that is there. Of a group that does not answer, no more is known than that. */
export function volumeProblems({ lv, group }: Pick<Volume, "lv" | "group">, mounts: readonly Mount[]): Problem[] {
  const ofGroup = groupProblem(group);
  if (ofGroup?.reason === "VolumeGroupUnresponsive") return [ofGroup];
  const all = [pvProblem(lv, group), poolProblem(lv, group), mountProblem(lv, mounts), ofGroup];
  return all.filter((problem) => problem !== undefined);
}

/** What a failure to find a volume says of its health; `undefined` when it says nothing of that. */
export function problemOf({ kind, message }: Pick<StorageError, "kind" | "message">): Problem | undefined {
  return isUnusable(kind) ? { reason: kind, message } : undefined;
}

function isUnusable(kind: ErrorKind): kind is "Lost" | "ForeignData" {
  return kind === "Lost" || kind === "ForeignData";
}

/** What is wrong with the disks that an LV is on: one is missing, or its copies are not as they should be. */
export function pvProblem(
  lv: LogicalVolume,
  group: Pick<VolumeGroup, "name" | "pvs">,
): Problem<"Partial" | Exclude<RedundancyState, "InSync">> | undefined {
  const redundancy = redundancyOf(lv, group);
  if (redundancy === undefined) {
    if (lv.health !== "partial") return undefined;
    return { reason: "Partial", message: `a disk of volume group ${group.name} that it is on is missing` };
  }
  const { state, message, remedy } = redundancy;
  if (state === "InSync") return undefined;
  return { reason: state, message: remedy === undefined ? message : `${message}. ${remedy}` };
}

const POOL_PROBLEMS: Readonly<
  Partial<Record<PoolState, Problem<"ThinPoolNearFull" | "ThinPoolFull" | "ThinPoolDamaged">>>
> = {
  NearFull: {
    reason: "ThinPoolNearFull",
    message: "when it is full, what is written to the volume waits, and then fails",
  },
  CannotExtend: {
    reason: "ThinPoolNearFull",
    message: "when it is full, what is written to the volume waits, and then fails",
  },
  Full: { reason: "ThinPoolFull", message: "what is written to the volume waits, and then fails" },
  Damaged: { reason: "ThinPoolDamaged", message: "what is written to the volume fails" },
};

/** What is wrong with the thin pool that an LV is in, if it is in one. */
export function poolProblem(
  lv: Pick<LogicalVolume, "pool">,
  group: VolumeGroup,
): Problem<"ThinPoolNearFull" | "ThinPoolFull" | "ThinPoolDamaged"> | undefined {
  const pool = findPool(group, lv.pool);
  const problem = pool && POOL_PROBLEMS[poolState(group, pool)];
  return problem && { ...problem, message: `${describePool(group, pool)}: ${problem.message}` };
}

/** Why LVM would make nothing in a group now (see `usable`). */
export function groupProblem(
  { name, responsive, missingPvs, writeable }: Pick<GroupSpace, "name" | "responsive" | "missingPvs" | "writeable">,
): Problem<"VolumeGroupUnresponsive" | "PhysicalVolumesMissing" | "VolumeGroupReadOnly"> | undefined {
  if (!responsive) {
    return {
      reason: "VolumeGroupUnresponsive",
      message: `volume group ${name} does not respond: look for a disk that hangs`,
    };
  }
  if (missingPvs > 0) {
    return {
      reason: "PhysicalVolumesMissing",
      message: `volume group ${name} has ${missingPvs} disks missing: LVM changes nothing in it`,
    };
  }
  if (writeable) return undefined;
  return {
    reason: "VolumeGroupReadOnly",
    message: `volume group ${name} is read-only or exported: LVM changes nothing in it`,
  };
}

/** Whether the kernel has stopped writing to the filesystem of an LV that somebody has mounted to be written. */
export function mountProblem(lv: LogicalVolume, mounts: readonly Mount[]): Problem<"FilesystemReadOnly"> | undefined {
  const stopped = filesystemMounts(mounts, lv).find(({ readOnly, filesystemWritable }) =>
    !readOnly && !filesystemWritable
  );
  if (stopped === undefined) return undefined;
  return {
    reason: "FilesystemReadOnly",
    message:
      `its filesystem at ${stopped.target} takes no writes any more, as after an error of its disk (dmesg): end what ` +
      "uses it, so that it is unmounted; it is checked when it is mounted again",
  };
}

/** How bad a problem is for all volumes that are in the same place (CSI spec, StorageHealthErrorType). */
export type StorageStatus = "Degraded" | "Unreachable";

/** Something that is wrong with groups or thin pools. */
export interface StorageProblem {
  /** How bad it is. */
  readonly status: StorageStatus;
  /** What, in one word. */
  readonly reason: string;
  /** What, on what, and what to do: a sentence for each place. */
  readonly message: string;
}

/** What is wrong with the groups, and with the thin pools in them that concern the driver; each reason once. */
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
