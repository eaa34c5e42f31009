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
import { IoLimiter, type LimitingOptions } from "./staging/io_limiter.ts";
import { Locks } from "./locks.ts";
import { Lvm } from "./model/client.ts";
import { PoolGate } from "./pools/pool_reservation.ts";
import type { PoolGrowth } from "./pools/pool_growth.ts";
import { PoolMonitor } from "./pools/pool_monitor.ts";
import type { VolumeGroup } from "./model/report.ts";
import { Snapshots } from "./snapshots/snapshots.ts";
import { Staging } from "./staging/staging.ts";
import { DEFAULT_POLICY, parseStorePolicy, type StorePolicy } from "./snapshots/cow_growth.ts";
import { StoppedFilesystems } from "./health/read_only_filesystems.ts";
import { StoreKeeper, type StoreListener } from "./snapshots/cow_monitor.ts";
import { type TrimListener, Trimmer } from "./staging/trimmer.ts";
import { Upkeep, type UpkeepOptions } from "./volumes/reaper.ts";
import type { RecordedLv } from "./inventory/volume_state.ts";
import { Volumes } from "./volumes/volumes.ts";

/** How thin pools are treated. */
export interface ThinOptions {
  /** How much pools may promise that say nothing else, in percent of their sizes. */
  readonly overcommit?: bigint;
  /** When and by how much those of the driver grow. */
  readonly growth?: PoolGrowth;
  /** Whether those of the driver are removed with their last volume; they stay by default. */
  readonly removeEmpty?: boolean;
}

/** What is done in the background. */
export interface Background {
  /** Begins it, with what an earlier driver left. */
  start(): void;
  /** Resolves when nothing is being done. */
  settled(): Promise<void>;
  /** Ends after the commands that are under way. */
  stop(): Promise<void>;
}

/** What {@linkcode openMachine} needs. */
export interface MachineOptions
  extends
    Pick<UpkeepOptions, "onRemoved">,
    Partial<StoreListener>,
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
  readonly limiting?: LimitingOptions;
  /** How thin pools are treated. */
  readonly thin?: ThinOptions;
  /** Is told in words when a thin pool grew; nobody by default. */
  readonly onPoolGrown?: (words: string) => void;
  /** When stores of snapshots grow; without it, never. By default as the flag of the command line. */
  readonly storePolicy?: StorePolicy | undefined;
}

/** What a driver has on this machine. */
export interface Machine {
  /** LVM. */
  readonly lvm: Lvm;
  /** The volumes. */
  readonly volumes: Volumes;
  /** The snapshots. */
  readonly snapshots: Snapshots;
  /** The volumes in use. */
  readonly staging: Staging;
  /** Looks at the health of all that. */
  readonly health: HealthCheck;
  /** Which filesystems the kernel has stopped writing to; to be looked at now and then. */
  readonly filesystems: StoppedFilesystems;
  /** Fills volumes that are made from others. */
  readonly copies: Copies;
  /** What holds pods to the limits of their volumes. */
  readonly limiter: IoLimiter;
  /** The watch over thin pools. */
  readonly monitor: PoolMonitor;
  /** The watch over stores of snapshots. */
  readonly stores: StoreKeeper;
  /** What trims filesystems now and then. */
  readonly trimmer: Trimmer;
  /** What is done in the background by all of these, not yet started. */
  readonly background: Background;
  /** Locks by volume and snapshot. */
  readonly locks: Locks;
}

const log = getLogger(["denolith", "driver"]);

/** Puts together what a driver has on this machine; nothing runs yet. */
export function openMachine(options: MachineOptions): Machine {
  const { exec, driver, groups, mountRoots, recorded, thin = {} } = options;
  const lvm = new Lvm(exec, (groups) => {
    stores.see(groups);
    trimmer.see(groups);
  });
  const locks = new Locks();
  const gate = new PoolGate(lvm, thin.overcommit);
  const monitor = new PoolMonitor({ lvm, driver, ...poolOptions(options) });
  const stores = new StoreKeeper({ lvm, driver, locks, ...storeOptions(options) });
  const trimmer = new Trimmer({ lvm, driver, ...trimOptions(options) });
  const upkeep = new Upkeep({
    lvm,
    driver,
    onError: warnOf("upkeep"),
    onReport: (groups) => monitor.see(groups),
    onResumed: (groups: readonly VolumeGroup[]) => copies.start(groups),
    ...(options.onRemoved && { onRemoved: options.onRemoved }),
    ...(thin.removeEmpty && { emptyPools: gate }),
  });
  const volumes: Volumes = new Volumes({
    ...{ lvm, driver, groups, upkeep, gate, onPool: () => monitor.look() },
    copies: { abandon: (place) => copies.abandon(place), look: () => copies.look() },
    ...(recorded && { recorded: recorded.volume }),
  });
  const snapshots = new Snapshots({ lvm, driver, volumes, upkeep, ...(recorded && { recorded: recorded.snapshot }) });
  const copies: Copies = new Copies({
    ...{ lvm, driver, volumes, snapshots, upkeep, scratch: options.scratch },
    onError: warnOf("copying"),
    ...(options.onProgress && { onProgress: options.onProgress }),
  });
  const limiter = new IoLimiter({ ...options.limiting, lvm, volumes, onError: warnOf("applying limits") });
  const staging = new Staging({ lvm, volumes, mountRoots, limiter, trimmer });
  const health = new HealthCheck({ lvm, volumes, snapshots });
  const filesystems = new StoppedFilesystems(exec, driver, warnOf("looking at filesystems"));
  const background = backgroundOf(upkeep, [limiter, copies, stores, monitor, trimmer]);
  const inUse = { staging, health, filesystems, limiter, trimmer };
  return { lvm, volumes, snapshots, copies, monitor, stores, background, locks, ...inUse };
}

/** How pools are watched, and what is logged of it. */
function poolOptions({ thin = {}, onPoolGrown }: MachineOptions) {
  return {
    ...(thin.growth && { growth: thin.growth }),
    onGrown: (words: string) => {
      log.info("a thin pool grew", { words });
      onPoolGrown?.(words);
    },
    onError: warnOf("watching thin pools"),
  };
}

/** When stores grow, and what is logged of it. */
function storeOptions(options: MachineOptions) {
  const policy = "storePolicy" in options ? options.storePolicy : parseStorePolicy(DEFAULT_POLICY);
  const listener: StoreListener = {
    onGrown: (store, size) => {
      log.info("store grown", { snapshot: store.id, lv: `${store.group.name}/${store.lv.name}`, size });
      options.onGrown?.(store, size);
    },
    onStuck: (store, why) => {
      log.warn("store cannot grow", { snapshot: store.id, why });
      options.onStuck?.(store, why);
    },
  };
  return { policy, ...listener, onError: warnOf("growing stores") };
}

/** What is logged of trimming. */
function trimOptions(options: MachineOptions) {
  const listener: TrimListener = {
    onTrimmed: (volume, bytes) => {
      log.info("trimmed", { volume: volume.id, bytes });
      options.onTrimmed?.(volume, bytes);
    },
    onTrimFailed: (volume, why, failures) => {
      log.warn("trimming failed", { volume: volume.id, why, failures });
      options.onTrimFailed?.(volume, why, failures);
    },
    onTrimUnsupported: (volume) => {
      log.warn("trimming is of no use: the device takes no discards", { volume: volume.id });
      options.onTrimUnsupported?.(volume);
    },
  };
  return { ...listener, onError: warnOf("trimming") };
}

function warnOf(what: string): (error: unknown) => void {
  return (error) => log.warn(`${what} failed`, { error });
}

/** All workers as one. The upkeep begins, and has the others go on when devices do. */
function backgroundOf(upkeep: Upkeep, workers: readonly Omit<Background, "start">[]): Background {
  return {
    start: () => upkeep.start(),
    settled: async () => {
      await upkeep.settled();
      for (const worker of workers) await worker.settled();
      await upkeep.settled(); // copies give it something to do at last
    },
    stop: async () => void await Promise.all([upkeep, ...workers].map((worker) => worker.stop())),
  };
}
