/**
 * The driver without an orchestrator of its own: all services on one socket, all state in LVM's tags and the kernel's
 * mount table.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { Exec } from "../lvm/exec.ts";
import type { GroupMatcher } from "../lvm/groups.ts";
import type { SnapshotId, VolumeId } from "../lvm/ids.ts";
import { IoLimiter, type LimitingOptions, type LimitsState } from "../lvm/io_limiter.ts";
import { Locks } from "../lvm/locks.ts";
import { Lvm } from "../lvm/lvm.ts";
import { withRealPaths } from "../lvm/mounts.ts";
import { PoolGate } from "../lvm/pool_gate.ts";
import type { PoolGrowth } from "../lvm/pool_growth.ts";
import { PoolMonitor } from "../lvm/pool_monitor.ts";
import { Snapshots } from "../lvm/snapshots.ts";
import { Staging } from "../lvm/staging.ts";
import { DEFAULT_POLICY, parseStorePolicy, type StorePolicy } from "../lvm/store_growth.ts";
import { StoreKeeper, type StoreListener } from "../lvm/store_keeper.ts";
import { Upkeep, type UpkeepOptions } from "../lvm/upkeep.ts";
import type { RecordedLv } from "../lvm/volume_state.ts";
import { Volumes } from "../lvm/volumes.ts";
import { controllerHandlers } from "./controller.ts";
import { Controller, Identity, Node } from "./csi_pb.ts";
import { identityHandlers } from "./identity.ts";
import { localVolumes } from "./local_volumes.ts";
import { nodeHandlers } from "./node.ts";
import { serve } from "./server.ts";
import { bindService, type Handlers } from "./service.ts";

/** How thin pools are treated. */
export interface ThinOptions {
  /** How much pools may promise that say nothing else, in percent of their sizes. */
  readonly overcommit?: bigint;
  /** When and by how much those of the driver grow. */
  readonly growth?: PoolGrowth;
  /** Whether those of the driver are removed with their last volume; they stay by default. */
  readonly removeEmpty?: boolean;
}

/** How a standalone driver is set up. */
export interface StandaloneOptions {
  /** The path of its socket. */
  readonly socketPath: string;
  /** The driver's name. */
  readonly driver: string;
  /** The driver's version. */
  readonly version: string;
  /** The name of this node in topologies. */
  readonly nodeId: string;
  /** The volume groups in which it makes volumes. */
  readonly groups: GroupMatcher;
  /** The directories below which volumes may be staged and published: absolute, normalized, not the root directory. */
  readonly mountRoots: readonly string[];
  /** Where a cgroup v2 hierarchy is mounted, for the limits of volumes; without it they are only recorded. */
  readonly cgroupRoot?: string;
  /** What runs its commands. */
  readonly exec: Exec;
  /** How thin pools are treated. */
  readonly thin?: ThinOptions;
  /** When stores of snapshots grow; without it, never. By default as the flag of the command line. */
  readonly storePolicy?: StorePolicy | undefined;
}

/** A driver that answers on its socket. */
export interface Driver {
  /** The socket's path. */
  readonly socketPath: string;
  /** Resolves when nothing is done in the background: deleted volumes are erased and removed there. */
  settled(): Promise<void>;
  /**
   * Takes no further calls, lets those under way and the commands they started end, and removes the socket. Answers
   * whether the calls ended within `graceMs` milliseconds; commands that change something are waited for in any case.
   */
  stop(graceMs: number): Promise<boolean>;
}

/** How long an answer to "are you ready" is good for, in milliseconds: it costs a report. */
const READY_MS = 60_000;

const log = getLogger(["denolith", "driver"]);

/** A driver's services, before they are on a socket. */
export interface Services {
  /** The Identity service. */
  readonly identity: Handlers<typeof Identity>;
  /** The Controller service. */
  readonly controller: Handlers<typeof Controller>;
  /** The Node service. */
  readonly node: Handlers<typeof Node>;
  /** The background work, not yet started. */
  readonly upkeep: Upkeep;
  /** What holds pods to the limits of their volumes, not yet started. */
  readonly limiter: IoLimiter;
  /** The watch over thin pools, which starts with the background work. */
  readonly monitor: PoolMonitor;
  /** The background work for stores of snapshots. */
  readonly stores: StoreKeeper;
}

/** What {@linkcode openMachine} needs. */
export interface MachineOptions
  extends
    Pick<StandaloneOptions, "exec" | "driver" | "groups" | "mountRoots" | "thin" | "storePolicy">,
    Pick<UpkeepOptions, "onRemoved">,
    Partial<StoreListener> {
  /** Is told in words when a thin pool grew; nobody by default. */
  readonly onPoolGrown?: (words: string) => void;
  /** What is recorded elsewhere of volumes and snapshots that were made, beside LVM's own records; nothing by default. */
  readonly recorded?: {
    /** Of a volume. */
    readonly volume: (id: VolumeId) => RecordedLv | undefined;
    /** Of a snapshot. */
    readonly snapshot: (id: SnapshotId) => RecordedLv | undefined;
  };
  /** How limits of volumes are applied. */
  readonly limiting?: LimitingOptions;
}

/** What a driver has on this machine. */
export interface Machine {
  /** LVM. */
  readonly lvm: Lvm;
  /** The background work, not yet started. */
  readonly upkeep: Upkeep;
  /** The watch over thin pools, which starts with the background work. */
  readonly monitor: PoolMonitor;
  /** The background work for stores of snapshots. */
  readonly stores: StoreKeeper;
  /** The volumes. */
  readonly volumes: Volumes;
  /** The snapshots. */
  readonly snapshots: Snapshots;
  /** The volumes in use. */
  readonly staging: Staging;
  /** What holds pods to the limits of their volumes, not yet started. */
  readonly limiter: IoLimiter;
  /** Locks by volume and snapshot. */
  readonly locks: Locks;
}

/** Puts together what a driver has on this machine; nothing runs yet. */
export function openMachine(options: MachineOptions): Machine {
  const { exec, driver, groups, mountRoots, recorded, onRemoved, thin = {} } = options;
  const lvm = new Lvm(exec, (groups) => stores.see(groups));
  const locks = new Locks();
  const told = (what: string) => (error: unknown) => log.warn(`${what} failed`, { error });
  const gate = new PoolGate(lvm, thin.overcommit);
  const monitor = new PoolMonitor({
    lvm,
    driver,
    ...(thin.growth && { growth: thin.growth }),
    onGrown: (words) => {
      log.info("a thin pool grew", { words });
      options.onPoolGrown?.(words);
    },
    onError: told("watching thin pools"),
  });
  const stores = new StoreKeeper({ lvm, driver, locks, ...storeOptions(options), onError: told("growing stores") });
  const upkeep = new Upkeep({
    lvm,
    driver,
    onError: told("upkeep"),
    onReport: (groups) => monitor.see(groups),
    ...(onRemoved && { onRemoved }),
    ...(thin.removeEmpty && { emptyPools: gate }),
  });
  const volumes = new Volumes({
    ...{ lvm, driver, groups, upkeep, gate, onPool: () => monitor.look() },
    ...(recorded && { recorded: recorded.volume }),
  });
  const snapshots = new Snapshots({ lvm, driver, volumes, upkeep, ...(recorded && { recorded: recorded.snapshot }) });
  const limiter = new IoLimiter({ ...options.limiting, lvm, volumes, onError: told("applying limits") });
  const staging = new Staging({ lvm, volumes, mountRoots, limiter });
  return { lvm, upkeep, monitor, stores, volumes, snapshots, staging, limiter, locks };
}

/** When stores grow, and what is logged of it. */
function storeOptions(options: MachineOptions): StoreListener & { policy: StorePolicy | undefined } {
  return {
    policy: "storePolicy" in options ? options.storePolicy : parseStorePolicy(DEFAULT_POLICY),
    onGrown: (store, size) => {
      log.info("store grown", { snapshot: store.id, lv: `${store.group.name}/${store.lv.name}`, size });
      options.onGrown?.(store, size);
    },
    onStuck: (store, why) => {
      log.warn("store cannot grow", { snapshot: store.id, why });
      options.onStuck?.(store, why);
    },
  };
}

/** Puts the services of a standalone driver together; nothing runs yet. */
export function standaloneServices(options: Omit<StandaloneOptions, "socketPath">): Services {
  const { driver, version, nodeId, mountRoots, cgroupRoot } = options;
  const limiting = { cgroupRoot, onChange: logLimits };
  const machine = openMachine({ ...options, limiting });
  const { lvm, upkeep, monitor, stores, volumes, snapshots, staging, limiter, locks } = machine;
  return {
    identity: identityHandlers({ driver, version, ready: lvmAnswers(lvm) }),
    controller: controllerHandlers({ volumes: localVolumes(volumes, { nodeId, limiter }), snapshots, locks }),
    node: nodeHandlers({ staging, nodeId, mountRoots, locks }),
    upkeep,
    limiter,
    monitor,
    stores,
  };
}

/** Says of a driver alone what has become of a volume's limits: nobody else would hear of it. */
function logLimits(volume: VolumeId, state: LimitsState | undefined): void {
  if (state === undefined) return;
  const { applied, reason, message } = state;
  if (applied) log.info("limits are applied", { volume, message });
  else log.warn("limits are not applied", { volume, reason, message });
}

/**
 * Starts a standalone driver.
 *
 * @throws {StorageError} `FailedPrecondition` when another process answers on the socket.
 */
export async function startStandalone(options: StandaloneOptions): Promise<Driver> {
  const { driver, version, nodeId, groups, exec } = options;
  const mountRoots = await withRealPaths(options.mountRoots);
  const { identity, controller, node, upkeep, limiter, monitor, stores } = standaloneServices({
    ...options,
    mountRoots,
  });
  const server = await serve(options.socketPath, [
    bindService(Identity, identity),
    bindService(Controller, controller),
    bindService(Node, node),
  ]);
  upkeep.start();
  if (options.cgroupRoot !== undefined) limiter.look(); // else there is nothing to be applied
  log.info("serving", { socket: server.path, driver, version, nodeId, groups: String(groups), mountRoots });

  return {
    socketPath: server.path,
    settled: async () => {
      await limiter.settled();
      await upkeep.settled();
      await stores.settled();
      await monitor.settled();
    },
    stop: async (graceMs) => {
      const drained = await server.close(graceMs);
      await limiter.stop();
      await upkeep.stop();
      await monitor.stop();
      await stores.stop();
      await exec.settled();
      log.info("stopped", { drained });
      return drained;
    },
  };
}

/** Whether LVM answers, looked at once a minute at most. */
export function lvmAnswers(lvm: Lvm): () => Promise<boolean> {
  let goodUntil = 0;
  return async () => {
    if (performance.now() < goodUntil) return true;
    try {
      await lvm.report();
    } catch (error) {
      log.warn("not ready", { error });
      return false;
    }
    goodUntil = performance.now() + READY_MS;
    return true;
  };
}
