/**
 * Creates the services of a driver on its machine: volumes, snapshots, staging, health, and the background workers.
 *
 * @module
 */

import { Copies } from "./copies/copies.ts";
import { Differences } from "./differences/differences.ts";
import type { RemoteSources } from "./copies/fetch.ts";
import { interruptedReencryptions } from "./inventory/read_once.ts";
import { Encryption } from "./encryption/encryption.ts";
import { KeyChanges } from "./encryption/key_changes.ts";
import type { Exec } from "./exec.ts";
import { GroupSnapshots } from "./group_snapshots/group_snapshots.ts";
import type { EarlierGuards } from "./group_snapshots/suspension.ts";
import type { GroupMatcher } from "./model/groups.ts";
import { type ContentSectors, contentSectors as contentSectorsOf } from "./health/sectors.ts";
import { HealthCheck } from "./health/health_check.ts";
import type { SnapshotId, VolumeId } from "../base/ids.ts";
import { IoLimiter, type IoLimiterSettings } from "./staging/io_limiter.ts";
import { Locks } from "../base/locks.ts";
import { Lvm } from "./client/client.ts";
import { resumeSuspended } from "./deletion/resumption.ts";
import { isThin, type PoolAutoextend } from "./pools/pool.ts";
import { PoolReservation } from "./pools/pool_reservation.ts";
import { PoolMonitor } from "./pools/pool_monitor.ts";
import type { VolumeGroup } from "./model/report.ts";
import { isOwned } from "./model/tags.ts";
import { SnapshotFinder } from "./inventory/snapshot_finder.ts";
import { VolumeFinder } from "./inventory/volume_finder.ts";
import { Snapshots } from "./snapshots/snapshots.ts";
import type { StagingWarning } from "./staging/formatting.ts";
import { StagedVolumes } from "./staging/staged_volumes.ts";
import { Formatter } from "./staging/formatter.ts";
import { Staging } from "./staging/staging.ts";
import {
  DEFAULT_SNAPSHOT_AUTOEXTEND,
  parseSnapshotAutoextend,
  type SnapshotAutoextend,
} from "./snapshots/cow_autoextend.ts";
import { ReadOnlyFilesystems } from "./health/read_only_filesystems.ts";
import { type CowListener, CowMonitor } from "./snapshots/cow_monitor.ts";
import { type TrimListener, Trimmer } from "./staging/trimmer.ts";
import { deactivateParts } from "./pools/pool_commands.ts";
import { Reaper } from "./deletion/reaper.ts";
import type { RecordedLv } from "./inventory/volume.ts";
import { removePendingThin } from "./deletion/missing_thin.ts";
import { HeldVolumes } from "./volumes/held_volumes.ts";
import { ImportedVolumes } from "./volumes/imported_volumes.ts";
import { Volumes } from "./volumes/volumes.ts";
import { defined } from "../base/defined.ts";

/** Options of thin pools. */
export interface ThinPoolOptions {
  /** The overcommit ratio of pools without one in their tags, in percent of their sizes. */
  readonly overcommit?: bigint;
  /** The policy for the extension of the driver's pools. */
  readonly autoextend?: PoolAutoextend;
  /** True if the driver's pools are removed with their last volume; false by default. */
  readonly removeEmptyPools?: boolean;
}

/** The background workers of a machine. */
export interface BackgroundWorkers {
  /** Starts the workers. They begin with what an earlier process left. */
  start(): void;
  /** Waits until no background work is running. */
  idle(): Promise<void>;
  /** Stops the workers after the commands that are running. */
  stop(): Promise<void>;
}

/**
 * A listener to what happens in the background. The machine calls only those methods that are there, and none of them
 * may throw.
 */
export interface MachineListener extends Partial<CowListener>, Partial<TrimListener> {
  /** Called after the LV of a deleted volume or snapshot was removed, so that its space is free. */
  onRemoved?(): void;
  /** Called with a sentence after a thin pool was extended. */
  onPoolExtended?(message: string): void;
  /** Called for a volume when more of it is copied, when it is complete, or when it cannot be made. */
  onProgress?(id: VolumeId): void;
  /** Called for a volume when the state of its keys has changed. */
  onKeyChange?(id: VolumeId): void;
  /** Called when the largest sectors are known on which what is on a volume can be used. */
  onSectorsRead?(): void;
  /** Called when a volume is staged although something is wrong with its filesystem. */
  onStagingWarning?(id: VolumeId, warning: StagingWarning): void;
  /** Called when background work failed; the machine tries it again later. `action` names the work. */
  onFailure?(action: string, error: unknown): void;
}

/** Options of {@linkcode openMachine}. */
export interface MachineOptions {
  /** Runs the commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** The volume groups in which it creates volumes. */
  readonly groups: GroupMatcher;
  /** The directories below which volumes may be staged and published: absolute, normalized, not the root directory. */
  readonly mountRoots: readonly string[];
  /** A directory that only the driver uses. It creates and mounts directories below it for a moment. */
  readonly scratch: string;
  /** The records of created volumes and snapshots outside LVM; none by default. */
  readonly recorded?: {
    /** Returns the record of a volume. */
    readonly volume: (id: VolumeId) => RecordedLv | undefined;
    /** Returns the record of a snapshot. */
    readonly snapshot: (id: SnapshotId) => RecordedLv | undefined;
  };
  /** Settings of the IO limits. */
  readonly limiting?: IoLimiterSettings;
  /** Reads snapshots of other nodes; by default, no volume is created from them. */
  readonly remote?: RemoteSources;
  /** Options of thin pools. */
  readonly thin?: ThinPoolOptions;
  /** A listener to what happens in the background. */
  readonly listener?: MachineListener;
  /**
   * The policy for the extension of COW space. By default that of the flag; if it is set to `undefined`, none is
   * extended.
   */
  readonly snapshotAutoextend?: SnapshotAutoextend | undefined;
  /** What an earlier process may have left of group snapshots; by default nothing. */
  readonly earlierGuards?: EarlierGuards | undefined;
}

/** The services of a driver on this machine. */
export interface Machine {
  /** LVM. */
  readonly lvm: Lvm;
  /** Finds the volumes in a report. */
  readonly volumeFinder: VolumeFinder;
  /** Finds the snapshots in a report. */
  readonly snapshotFinder: SnapshotFinder;
  /** Creates, expands and deletes volumes. */
  readonly volumes: Volumes;
  /** Holds volumes that are moved to another node. */
  readonly heldVolumes: HeldVolumes;
  /** Imports LVs of others. */
  readonly importedVolumes: ImportedVolumes;
  /** Creates and deletes snapshots. */
  readonly snapshots: Snapshots;
  /** Creates and deletes group snapshots. */
  readonly groupSnapshots: GroupSnapshots;
  /** Stages and publishes volumes. */
  readonly staging: Staging;
  /** Formats volumes before they are staged. */
  readonly formatter: Formatter;
  /** Checks the health of volumes, groups and pools. */
  readonly health: HealthCheck;
  /** Knows what comes of changes of passphrases and volume keys. */
  readonly keyChanges: KeyChanges;
  /** Finds filesystems that the kernel has made read-only. The caller checks them periodically. */
  readonly filesystems: ReadOnlyFilesystems;
  /** Knows the largest sectors on which what is on volumes in use can be used. */
  readonly contentSectors: ContentSectors;
  /** Creates volumes from snapshots and other volumes. */
  readonly copies: Copies;
  /** Lists what changed between snapshots. */
  readonly differences: Differences;
  /** Applies the IO limits of volumes to pods. */
  readonly limiter: IoLimiter;
  /** Extends the driver's thin pools. */
  readonly poolMonitor: PoolMonitor;
  /** Extends the COW space of snapshots. */
  readonly cowMonitor: CowMonitor;
  /** Trims filesystems periodically. */
  readonly trimmer: Trimmer;
  /** The background workers of all these services, not yet started. */
  readonly background: BackgroundWorkers;
  /** Locks by volume and snapshot. */
  readonly locks: Locks;
}

/** Creates the services of a driver on this machine. Nothing runs before `background.start()`. */
export function openMachine(options: MachineOptions): Machine {
  const { exec, driver, groups, mountRoots, recorded, thin = {}, listener = {} } = options;
  const onErrorOf = (action: string) => (error: unknown) => listener.onFailure?.(action, error);
  const onReport = (groups: readonly VolumeGroup[]) => {
    cowMonitor.observe(groups);
    trimmer.observe(groups);
  };
  const lvm = new Lvm(exec, onReport, () => reaper.repairSoon());
  const locks = new Locks();
  const reservation = new PoolReservation(
    lvm,
    thin.overcommit,
    async (group) => {
      // while a group snapshot suspends thin LVs of a group, it has the reservation
      const thinLvs = group.lvs.filter((lv) => isThin(lv) && isOwned(driver, lv.tags)).map((lv) => ({ group, lv }));
      const isResumed = await resumeSuspended(lvm, driver, thinLvs);
      await deactivateParts(lvm, driver, group);
      return await removePendingThin(lvm, driver, group) || isResumed;
    },
  );
  const poolMonitor = new PoolMonitor({
    lvm,
    driver,
    ...defined({ autoextend: thin.autoextend }),
    onExtended: (message) => listener.onPoolExtended?.(message),
    onError: onErrorOf("monitoring thin pools"),
  });
  const cowMonitor = new CowMonitor({
    lvm,
    driver,
    locks,
    autoextend: snapshotAutoextendOf(options),
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
  const reaper: Reaper = new Reaper({
    lvm,
    driver,
    onError: onErrorOf("reaper"),
    onReport: (groups) => poolMonitor.observe(groups),
    onResumed: (groups: readonly VolumeGroup[]) => {
      copies.start(groups);
      differences.start(groups);
      return groupSnapshots.removeUnconfirmed(groups);
    },
    onRemoved: () => listener.onRemoved?.(),
    reservation,
    ...defined({ removeEmptyPools: thin.removeEmptyPools }),
  });
  const volumeFinder = new VolumeFinder({ driver, groups, ...(recorded && { recordedLv: recorded.volume }) });
  const snapshotFinder = new SnapshotFinder({ driver, ...(recorded && { recordedLv: recorded.snapshot }) });
  const staged = new StagedVolumes();
  const volumes: Volumes = new Volumes({
    lvm,
    finder: volumeFinder,
    reaper,
    reservation,
    onPoolCreated: () => poolMonitor.wake(),
    onChange: (id) => staged.forget(id),
    copies: { abandon: (located) => copies.abandon(located), wake: () => copies.wake() },
  });
  const heldVolumes = new HeldVolumes({ lvm, finder: volumeFinder, onChange: (id) => staged.forget(id) });
  const importedVolumes = new ImportedVolumes({ lvm, finder: volumeFinder, onChange: (id) => staged.forget(id) });
  const snapshots = new Snapshots({ lvm, finder: snapshotFinder, volumes: volumeFinder, reaper, reservation });
  const groupSnapshots: GroupSnapshots = new GroupSnapshots({
    lvm,
    finder: snapshotFinder,
    volumes: volumeFinder,
    snapshots,
    reaper,
    reservation,
    mountRoots,
    earlierGuards: options.earlierGuards,
  });
  const copies: Copies = new Copies({
    lvm,
    driver,
    volumes,
    volumeFinder,
    snapshotFinder,
    reaper,
    reservation,
    scratch: options.scratch,
    ...defined({ remote: options.remote }),
    onError: onErrorOf("copying"),
    onProgress: (id) => listener.onProgress?.(id),
  });
  const differences: Differences = new Differences({
    lvm,
    finder: snapshotFinder,
    locks,
    onError: onErrorOf("comparing snapshots"),
  });
  const limiter = new IoLimiter({
    ...options.limiting,
    lvm,
    volumes: volumeFinder,
    onError: onErrorOf("applying limits"),
  });
  const headers = interruptedReencryptions(exec, {
    onRead: (id, isInterrupted) => isInterrupted && listener.onKeyChange?.(id),
    onError: onErrorOf("reading LUKS headers"),
  });
  const keyChanges = new KeyChanges((id) => listener.onKeyChange?.(id), headers);
  const staging = new Staging({
    lvm,
    volumes: volumeFinder,
    mountRoots,
    staged,
    limiter,
    trimmer,
    scratch: options.scratch,
    encryption: new Encryption(lvm, onErrorOf("changing the keys of a volume"), keyChanges),
    onWarning: (id, warning) => listener.onStagingWarning?.(id, warning),
  });
  const onError = onErrorOf("formatting a new volume");
  const formatter = new Formatter({ lvm, finder: volumeFinder, locks, staging, onError });
  const health = new HealthCheck({ lvm, volumes: volumeFinder, snapshots: snapshotFinder, keyChanges });
  const filesystems = new ReadOnlyFilesystems(exec, driver, onErrorOf("checking filesystems"));
  const contentSectors = contentSectorsOf(exec, {
    onRead: () => listener.onSectorsRead?.(),
    onError: onErrorOf("reading the sectors of volumes"),
  });
  const workers = [formatter, limiter, copies, cowMonitor, differences, poolMonitor, trimmer, contentSectors, headers];
  const background = combineWorkers(reaper, workers);
  const inUse = { staging, formatter, health, keyChanges, filesystems, contentSectors, limiter, trimmer, differences };
  const finders = { volumeFinder, snapshotFinder };
  return {
    lvm,
    ...finders,
    volumes,
    heldVolumes,
    importedVolumes,
    snapshots,
    groupSnapshots,
    copies,
    poolMonitor,
    cowMonitor,
    background,
    locks,
    ...inUse,
  };
}

/** Returns the policy for the extension of COW space: by default that of the flag. */
function snapshotAutoextendOf(options: MachineOptions): SnapshotAutoextend | undefined {
  return "snapshotAutoextend" in options
    ? options.snapshotAutoextend
    : parseSnapshotAutoextend(DEFAULT_SNAPSHOT_AUTOEXTEND);
}

/** Combines all workers into one. It starts the reaper, which resumes devices first and then starts the copies. */
function combineWorkers(reaper: Reaper, workers: readonly Omit<BackgroundWorkers, "start">[]): BackgroundWorkers {
  return {
    start: () => reaper.start(),
    idle: async () => {
      await reaper.idle();
      for (const worker of workers) await worker.idle();
      await reaper.idle(); // Copies leave deleted LVs to the reaper.
    },
    stop: async () => void await Promise.all([reaper, ...workers].map((worker) => worker.stop())),
  };
}
