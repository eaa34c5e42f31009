/**
 * What a driver has on its machine: volumes, snapshots, what is in use, and what goes on in the background.
 *
 * @module
 */

import { Copies } from "./copies/copies.ts";
import type { Exec } from "./exec.ts";
import type { GroupMatcher } from "./model/groups.ts";
import { HealthCheck } from "./health/health_check.ts";
import type { SnapshotId, VolumeId } from "./ids.ts";
import { IoLimiter, type IoLimiterSettings } from "./staging/io_limiter.ts";
import { Locks } from "./locks.ts";
import { Lvm } from "./model/client.ts";
import { PoolReservation } from "./pools/pool_reservation.ts";
import type { PoolAutoextend } from "./pools/pool_autoextend.ts";
import { PoolMonitor } from "./pools/pool_monitor.ts";
import type { VolumeGroup } from "./model/report.ts";
import { SnapshotFinder } from "./inventory/snapshot_finder.ts";
import { VolumeFinder } from "./inventory/volume_finder.ts";
import { Snapshots } from "./snapshots/snapshots.ts";
import { Staging } from "./staging/staging.ts";
import {
  DEFAULT_SNAPSHOT_AUTOEXTEND,
  parseSnapshotAutoextend,
  type SnapshotAutoextend,
} from "./snapshots/cow_autoextend.ts";
import { ReadOnlyFilesystems } from "./health/read_only_filesystems.ts";
import { type CowListener, CowMonitor } from "./snapshots/cow_monitor.ts";
import { type TrimListener, Trimmer } from "./staging/trimmer.ts";
import { Reaper } from "./volumes/reaper.ts";
import type { RecordedLv } from "./inventory/volume_state.ts";
import { Volumes } from "./volumes/volumes.ts";
import { defined } from "./defined.ts";

/** How thin pools are treated. */
export interface ThinPoolOptions {
  /** How much pools may promise that say nothing else, in percent of their sizes. */
  readonly overcommit?: bigint;
  /** When and by how much those of the driver grow. */
  readonly autoextend?: PoolAutoextend;
  /** Whether those of the driver are removed with their last volume; they stay by default. */
  readonly removeEmptyPools?: boolean;
}

/** What is done in the background. */
export interface BackgroundWorkers {
  /** Begins it, with what an earlier driver left. */
  start(): void;
  /** Resolves when nothing is being done. */
  idle(): Promise<void>;
  /** Ends after the commands that are under way. */
  stop(): Promise<void>;
}

/**
 * A listener to what happens in the background. The machine calls only those methods that are there, and none of them may
 * throw.
 */
export interface MachineListener extends Partial<CowListener>, Partial<TrimListener> {
  /** Called after the LV of a deleted volume or snapshot was removed, so that its space is free. */
  onRemoved?(): void;
  /** Called with a sentence after a thin pool was extended. */
  onPoolExtended?(message: string): void;
  /** Called for a volume when more of it is copied, when it is complete, or when it cannot be made. */
  onProgress?(id: VolumeId): void;
  /** Called when background work failed; the machine tries it again later. `action` names the work. */
  onFailure?(action: string, error: unknown): void;
}

/** Options of {@linkcode openMachine}. */
export interface MachineOptions {
  /** What runs its commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** The volume groups in which it makes volumes. */
  readonly groups: GroupMatcher;
  /** The directories below which volumes may be staged and published: absolute, normalized, not the root directory. */
  readonly mountRoots: readonly string[];
  /** A directory of the driver's own, in which it may make and mount things for a moment. */
  readonly scratch: string;
  /** What is recorded elsewhere of volumes and snapshots that were made, beside LVM's own records; nothing by default. */
  readonly recorded?: {
    /** Of a volume. */
    readonly volume: (id: VolumeId) => RecordedLv | undefined;
    /** Of a snapshot. */
    readonly snapshot: (id: SnapshotId) => RecordedLv | undefined;
  };
  /** How limits of volumes are applied. */
  readonly limiting?: IoLimiterSettings;
  /** How thin pools are treated. */
  readonly thin?: ThinPoolOptions;
  /** A listener to what happens in the background. */
  readonly listener?: MachineListener;
  /** When stores of snapshots grow; without it, never. By default as the flag of the command line. */
  readonly snapshotAutoextend?: SnapshotAutoextend | undefined;
}

/** What a driver has on this machine. */
export interface Machine {
  /** LVM. */
  readonly lvm: Lvm;
  /** Finds the volumes in a report. */
  readonly volumeFinder: VolumeFinder;
  /** Finds the snapshots in a report. */
  readonly snapshotFinder: SnapshotFinder;
  /** The volumes. */
  readonly volumes: Volumes;
  /** The snapshots. */
  readonly snapshots: Snapshots;
  /** The volumes in use. */
  readonly staging: Staging;
  /** Looks at the health of all that. */
  readonly health: HealthCheck;
  /** Which filesystems the kernel has stopped writing to; to be looked at now and then. */
  readonly filesystems: ReadOnlyFilesystems;
  /** Fills volumes that are made from others. */
  readonly copies: Copies;
  /** What holds pods to the limits of their volumes. */
  readonly limiter: IoLimiter;
  /** The watch over thin pools. */
  readonly poolMonitor: PoolMonitor;
  /** The watch over stores of snapshots. */
  readonly cowMonitor: CowMonitor;
  /** What trims filesystems now and then. */
  readonly trimmer: Trimmer;
  /** What is done in the background by all of these, not yet started. */
  readonly background: BackgroundWorkers;
  /** Locks by volume and snapshot. */
  readonly locks: Locks;
}

/** Puts together what a driver has on this machine; nothing runs yet. */
export function openMachine(options: MachineOptions): Machine {
  const { exec, driver, groups, mountRoots, recorded, thin = {}, listener = {} } = options;
  const onErrorOf = (action: string) => (error: unknown) => listener.onFailure?.(action, error);
  const lvm = new Lvm(exec, (groups) => {
    cowMonitor.observe(groups);
    trimmer.observe(groups);
  });
  const locks = new Locks();
  const reservation = new PoolReservation(lvm, thin.overcommit);
  const poolMonitor = new PoolMonitor({
    lvm,
    driver,
    ...defined({ autoextend: thin.autoextend }),
    onExtended: (message) => listener.onPoolExtended?.(message),
    onError: onErrorOf("watching thin pools"),
  });
  const cowMonitor = new CowMonitor({
    ...{ lvm, driver, locks, autoextend: snapshotAutoextendOf(options) },
    onSnapshotExtended: (cow, size) => listener.onSnapshotExtended?.(cow, size),
    onSnapshotCannotExtend: (cow, reason) => listener.onSnapshotCannotExtend?.(cow, reason),
    onError: onErrorOf("extending COW space"),
  });
  const trimmer = new Trimmer({
    lvm,
    driver,
    onTrimmed: (volume, bytes) => listener.onTrimmed?.(volume, bytes),
    onTrimFailed: (volume, reason, failures) => listener.onTrimFailed?.(volume, reason, failures),
    onTrimUnsupported: (volume) => listener.onTrimUnsupported?.(volume),
    onError: onErrorOf("trimming"),
  });
  const reaper = new Reaper({
    lvm,
    driver,
    onError: onErrorOf("reaper"),
    onReport: (groups) => poolMonitor.observe(groups),
    onResumed: (groups: readonly VolumeGroup[]) => copies.start(groups),
    onRemoved: () => listener.onRemoved?.(),
    ...(thin.removeEmptyPools && { emptyPoolReservation: reservation }),
  });
  const volumeFinder = new VolumeFinder({ driver, groups, ...(recorded && { recordedLv: recorded.volume }) });
  const snapshotFinder = new SnapshotFinder({ driver, ...(recorded && { recordedLv: recorded.snapshot }) });
  const volumes: Volumes = new Volumes({
    ...{ lvm, finder: volumeFinder, reaper, reservation, onPoolCreated: () => poolMonitor.wake() },
    copies: { abandon: (located) => copies.abandon(located), wake: () => copies.wake() },
  });
  const snapshots = new Snapshots({ lvm, finder: snapshotFinder, volumes: volumeFinder, reaper, reservation });
  const copies: Copies = new Copies({
    ...{ lvm, driver, volumes, volumeFinder, snapshotFinder, reaper, reservation, scratch: options.scratch },
    onError: onErrorOf("copying"),
    onProgress: (id) => listener.onProgress?.(id),
  });
  const limiter = new IoLimiter({
    ...options.limiting,
    lvm,
    volumes: volumeFinder,
    onError: onErrorOf("applying limits"),
  });
  const staging = new Staging({ lvm, volumes: volumeFinder, mountRoots, limiter, trimmer });
  const health = new HealthCheck({ lvm, volumes: volumeFinder, snapshots: snapshotFinder });
  const filesystems = new ReadOnlyFilesystems(exec, driver, onErrorOf("looking at filesystems"));
  const background = combineWorkers(reaper, [limiter, copies, cowMonitor, poolMonitor, trimmer]);
  const inUse = { staging, health, filesystems, limiter, trimmer };
  const finders = { volumeFinder, snapshotFinder };
  return { lvm, ...finders, volumes, snapshots, copies, poolMonitor, cowMonitor, background, locks, ...inUse };
}

/** Returns when COW space is extended: by default as the flag of the command line. */
function snapshotAutoextendOf(options: MachineOptions): SnapshotAutoextend | undefined {
  return "snapshotAutoextend" in options
    ? options.snapshotAutoextend
    : parseSnapshotAutoextend(DEFAULT_SNAPSHOT_AUTOEXTEND);
}

/** All workers as one. The reaper begins, and has the others go on when devices do. */
function combineWorkers(reaper: Reaper, workers: readonly Omit<BackgroundWorkers, "start">[]): BackgroundWorkers {
  return {
    start: () => reaper.start(),
    idle: async () => {
      await reaper.idle();
      for (const worker of workers) await worker.idle();
      await reaper.idle(); // copies give it something to do at last
    },
    stop: async () => void await Promise.all([reaper, ...workers].map((worker) => worker.stop())),
  };
}
