/**
 * What a driver has on its machine: volumes, snapshots, what is in use, and what goes on in the background.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { Copies, type CopiesOptions } from "./copies/copies.ts";
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
import { Reaper, type ReaperOptions } from "./volumes/reaper.ts";
import type { RecordedLv } from "./inventory/volume_state.ts";
import { Volumes } from "./volumes/volumes.ts";

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

/** What {@linkcode openMachine} needs. */
export interface MachineOptions
  extends
    Pick<ReaperOptions, "onRemoved">,
    Partial<CowListener>,
    Partial<TrimListener>,
    Pick<CopiesOptions, "onProgress"> {
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
  /** Is told in words when a thin pool grew; nobody by default. */
  readonly onPoolExtended?: (message: string) => void;
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

const log = getLogger(["denolith", "driver"]);

/** Puts together what a driver has on this machine; nothing runs yet. */
export function openMachine(options: MachineOptions): Machine {
  const { exec, driver, groups, mountRoots, recorded, thin = {} } = options;
  const lvm = new Lvm(exec, (groups) => {
    cowMonitor.observe(groups);
    trimmer.observe(groups);
  });
  const locks = new Locks();
  const reservation = new PoolReservation(lvm, thin.overcommit);
  const poolMonitor = new PoolMonitor({ lvm, driver, ...poolMonitorOptions(options) });
  const cowMonitor = new CowMonitor({ lvm, driver, locks, ...cowMonitorOptions(options) });
  const trimmer = new Trimmer({ lvm, driver, ...trimmerOptions(options) });
  const reaper = new Reaper({
    lvm,
    driver,
    onError: warningLogger("reaper"),
    onReport: (groups) => poolMonitor.observe(groups),
    onResumed: (groups: readonly VolumeGroup[]) => copies.start(groups),
    ...(options.onRemoved && { onRemoved: options.onRemoved }),
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
    onError: warningLogger("copying"),
    ...(options.onProgress && { onProgress: options.onProgress }),
  });
  const limiter = new IoLimiter({
    ...options.limiting,
    lvm,
    volumes: volumeFinder,
    onError: warningLogger("applying limits"),
  });
  const staging = new Staging({ lvm, volumes: volumeFinder, mountRoots, limiter, trimmer });
  const health = new HealthCheck({ lvm, volumes: volumeFinder, snapshots: snapshotFinder });
  const filesystems = new ReadOnlyFilesystems(exec, driver, warningLogger("looking at filesystems"));
  const background = combineWorkers(reaper, [limiter, copies, cowMonitor, poolMonitor, trimmer]);
  const inUse = { staging, health, filesystems, limiter, trimmer };
  const finders = { volumeFinder, snapshotFinder };
  return { lvm, ...finders, volumes, snapshots, copies, poolMonitor, cowMonitor, background, locks, ...inUse };
}

/** How pools are watched, and what is logged of it. */
function poolMonitorOptions({ thin = {}, onPoolExtended }: MachineOptions) {
  return {
    ...(thin.autoextend && { autoextend: thin.autoextend }),
    onExtended: (message: string) => {
      log.info("a thin pool grew", { message });
      onPoolExtended?.(message);
    },
    onError: warningLogger("watching thin pools"),
  };
}

/** When stores grow, and what is logged of it. */
function cowMonitorOptions(options: MachineOptions) {
  const autoextend = "snapshotAutoextend" in options
    ? options.snapshotAutoextend
    : parseSnapshotAutoextend(DEFAULT_SNAPSHOT_AUTOEXTEND);
  const listener: CowListener = {
    onSnapshotExtended: (cow, size) => {
      log.info("store grown", { snapshot: cow.id, lv: `${cow.group.name}/${cow.lv.name}`, size });
      options.onSnapshotExtended?.(cow, size);
    },
    onSnapshotCannotExtend: (cow, reason) => {
      log.warn("store cannot grow", { snapshot: cow.id, reason });
      options.onSnapshotCannotExtend?.(cow, reason);
    },
  };
  return { autoextend, ...listener, onError: warningLogger("growing stores") };
}

/** What is logged of trimming. */
function trimmerOptions(options: MachineOptions) {
  const listener: TrimListener = {
    onTrimmed: (volume, bytes) => {
      log.info("trimmed", { volume: volume.id, bytes });
      options.onTrimmed?.(volume, bytes);
    },
    onTrimFailed: (volume, reason, failures) => {
      log.warn("trimming failed", { volume: volume.id, reason, failures });
      options.onTrimFailed?.(volume, reason, failures);
    },
    onTrimUnsupported: (volume) => {
      log.warn("trimming is of no use: the device takes no discards", { volume: volume.id });
      options.onTrimUnsupported?.(volume);
    },
  };
  return { ...listener, onError: warningLogger("trimming") };
}

function warningLogger(action: string): (error: unknown) => void {
  return (error) => log.warn(`${action} failed`, { error });
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
