/**
 * The driver without Kubernetes: all services on one socket, and all state in LVM tags and the mount table of the
 * kernel.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { dirname } from "@std/path";
import { systemClock } from "../base/clock.ts";
import type { Exec } from "../lvm/exec.ts";
import type { GroupMatcher } from "../lvm/model/groups.ts";
import type { VolumeId } from "../base/ids.ts";
import type { LimitsState } from "../lvm/staging/io_limiter.ts";
import type { Lvm } from "../lvm/client/client.ts";
import { withRealPaths } from "../lvm/host/mounts.ts";
import type { SnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import { type ControllerHandlers, controllerHandlers } from "./controller.ts";
import { Controller, GroupController, Identity, Node, SnapshotMetadata } from "./proto/csi_pb.ts";
import { groupControllerHandlers } from "./group_controller.ts";
import { identityHandlers } from "./identity.ts";
import { localGroupSnapshotService, localSnapshotService, localVolumeService } from "./local_service.ts";
import { EarlierGuards } from "../lvm/group_snapshots/suspension.ts";
import {
  type BackgroundWorkers,
  type MachineListener,
  type MachineOptions,
  openMachine,
  type ThinPoolOptions,
} from "../lvm/machine.ts";
import { nodeHandlers } from "./node.ts";
import { serve } from "./server.ts";
import { snapshotMetadataHandlers } from "./snapshot_metadata.ts";
import { bindService, type Handlers } from "./service.ts";

/** Options of {@linkcode startStandalone}. */
export interface StandaloneOptions {
  /** Path of the socket. */
  readonly socketPath: string;
  /** Name of the driver. */
  readonly driver: string;
  /** Version of the driver. */
  readonly version: string;
  /** Name of this node in topologies. */
  readonly nodeId: string;
  /** Volume groups to create volumes in. */
  readonly groups: GroupMatcher;
  /** Directories below which volumes may be staged and published: absolute, normalized, not the root directory. */
  readonly mountRoots: readonly string[];
  /** Mount point of a cgroup v2 hierarchy; without it, IO limits are recorded and not applied. */
  readonly cgroupRoot?: string;
  /** Runs commands. */
  readonly exec: Exec;
  /** The options of thin pools. */
  readonly thin?: ThinPoolOptions;
  /** The policy for the extension of COW space; `undefined` for no extension. Its default is that of the flag. */
  readonly snapshotAutoextend?: SnapshotAutoextend | undefined;
  /**
   * True if no process ran this driver in the last 20 s. By default, group snapshots wait as long for what one may have left
   * that was killed during another group snapshot.
   */
  readonly isFirstProcess?: boolean;
}

/** A running driver. */
export interface StandaloneDriver {
  /** The socket's path. */
  readonly socketPath: string;
  /** Resolves when no background work is left: deleted volumes are removed, and copies complete. */
  idle(): Promise<void>;
  /**
   * Stops the driver: takes no further calls, waits for those in progress, and removes the socket. Commands that change
   * something are waited for in any case.
   *
   * @param graceMs how long calls in progress may take, in milliseconds
   * @returns whether they completed in that time
   */
  stop(graceMs: number): Promise<boolean>;
}

/** The time that a positive answer about readiness is cached, in milliseconds: each costs an LVM report. */
const READINESS_CACHE_MS = 60_000;

const log = getLogger(["denolith", "standalone"]);
const machineLog = getLogger(["denolith", "machine"]);

/** The services of a driver, and its background work. */
export interface CsiServices {
  /** The Identity service. */
  readonly identity: Handlers<typeof Identity>;
  /** The Controller service. */
  readonly controller: ControllerHandlers;
  /** The GroupController service. */
  readonly groupController: Handlers<typeof GroupController>;
  /** The Node service. */
  readonly node: Handlers<typeof Node>;
  /** The SnapshotMetadata service. */
  readonly snapshotMetadata: Handlers<typeof SnapshotMetadata>;
  /** Background work, not yet started. */
  readonly background: BackgroundWorkers;
}

/** Creates the services of a standalone driver. Starts nothing. */
export function standaloneServices(
  options: Omit<StandaloneOptions, "socketPath"> & Pick<MachineOptions, "scratch" | "earlierGuards">,
): CsiServices {
  const { driver, version, nodeId, mountRoots, cgroupRoot } = options;
  const limiting = { cgroupRoot, onLimitsChanged: logLimits };
  const machine = openMachine({ ...options, limiting, listener: loggingListener() });
  const { lvm, volumes, snapshots, groupSnapshots, staging, health, copies, limiter, background, locks } = machine;
  const start = () => {
    background.start();
    if (cgroupRoot !== undefined) limiter.wake(); // without it, no limit can be applied
  };
  return {
    identity: identityHandlers({
      driver,
      version,
      hasGroupSnapshots: true,
      hasSnapshotMetadata: true,
      ready: lvmReadiness(lvm),
    }),
    controller: controllerHandlers({
      volumes: localVolumeService({ volumes, copies, limiter, health, nodeId }),
      snapshots: localSnapshotService(snapshots, nodeId),
      locks,
    }),
    groupController: groupControllerHandlers(localGroupSnapshotService(groupSnapshots, nodeId), locks),
    node: nodeHandlers({ staging, health, nodeId, mountRoots, locks }),
    snapshotMetadata: snapshotMetadataHandlers(machine.differences),
    background: { ...background, start },
  };
}

/**
 * Creates a listener that logs what happens in the background on a machine.
 *
 * @param next a listener that is called after each log record
 */
export function loggingListener(next: MachineListener = {}): MachineListener {
  return {
    onRemoved: () => next.onRemoved?.(),
    onProgress: (id) => next.onProgress?.(id),
    onPoolExtended: (message) => {
      machineLog.info("thin pool extended", { message });
      next.onPoolExtended?.(message);
    },
    onSnapshotExtended: (cow, size) => {
      machineLog.info("snapshot extended", { snapshot: cow.id, lv: `${cow.group.name}/${cow.lv.name}`, size });
      next.onSnapshotExtended?.(cow, size);
    },
    onSnapshotCannotExtend: (cow, reason) => {
      machineLog.warn("snapshot cannot be extended", { snapshot: cow.id, reason });
      next.onSnapshotCannotExtend?.(cow, reason);
    },
    onTrimmed: (volume, bytes) => {
      machineLog.info("volume trimmed", { volume: volume.id, bytes });
      next.onTrimmed?.(volume, bytes);
    },
    onTrimFailed: (volume, reason, failures) => {
      machineLog.warn("trimming failed", { volume: volume.id, reason, failures });
      next.onTrimFailed?.(volume, reason, failures);
    },
    onTrimUnsupported: (volume) => {
      machineLog.warn("discard is not supported by the device", { volume: volume.id });
      next.onTrimUnsupported?.(volume);
    },
    onStagingWarning: (volume, { reason, message }) => {
      machineLog.warn("staging warning", { volume, reason, message });
      next.onStagingWarning?.(volume, { reason, message });
    },
    onFailure: (action, error) => {
      machineLog.warn("background work failed", { action, error });
      next.onFailure?.(action, error);
    },
  };
}

/** Logs the state of the IO limits of a volume. A standalone driver has no other place to report it. */
function logLimits(volume: VolumeId, state: LimitsState | undefined): void {
  if (state === undefined) return;
  const { applied, reason, message } = state;
  if (applied) log.info("IO limits applied", { volume, message });
  else log.warn("IO limits not applied", { volume, reason, message });
}

/**
 * Starts a standalone driver.
 *
 * @throws {StorageError} `FailedPrecondition` when another process listens on the socket
 */
export async function startStandalone(options: StandaloneOptions): Promise<StandaloneDriver> {
  const { driver, version, nodeId, groups, exec } = options;
  const mountRoots = await withRealPaths(options.mountRoots);
  const scratch = dirname(options.socketPath); // the driver's permissions cover it
  const end = new AbortController();
  const earlierGuards = options.isFirstProcess ? undefined : new EarlierGuards(systemClock, end.signal);
  const services = standaloneServices({ ...options, mountRoots, scratch, earlierGuards });
  const { identity, controller, groupController, node, snapshotMetadata, background } = services;
  const server = await serve(options.socketPath, [
    bindService(Identity, identity),
    bindService(Controller, controller),
    bindService(GroupController, groupController),
    bindService(Node, node),
    bindService(SnapshotMetadata, snapshotMetadata),
  ]);
  background.start();
  log.info("serving", { socket: server.path, driver, version, nodeId, groups: String(groups), mountRoots });

  return {
    socketPath: server.path,
    idle: () => background.idle(),
    stop: async (graceMs) => {
      end.abort();
      const drained = await server.close(graceMs);
      await background.stop();
      await exec.idle();
      log.info("stopped", { drained });
      return drained;
    },
  };
}

/** Returns a function that reports whether LVM answers. It caches a positive answer for a minute. */
export function lvmReadiness(lvm: Lvm): () => Promise<boolean> {
  let readyUntil = 0;
  return async () => {
    if (performance.now() < readyUntil) return true;
    try {
      await lvm.report();
    } catch (error) {
      log.warn("not ready", { error });
      return false;
    }
    readyUntil = performance.now() + READINESS_CACHE_MS;
    return true;
  };
}
