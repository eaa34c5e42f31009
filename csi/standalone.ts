/**
 * The driver without an orchestrator of its own: all services on one socket, all state in LVM's tags and the kernel's
 * mount table.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { dirname } from "@std/path";
import type { Exec } from "../lvm/exec.ts";
import type { GroupMatcher } from "../lvm/model/groups.ts";
import type { VolumeId } from "../lvm/ids.ts";
import type { LimitsState } from "../lvm/staging/io_limiter.ts";
import type { Lvm } from "../lvm/model/client.ts";
import { withRealPaths } from "../lvm/host/mounts.ts";
import type { SnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import { type ControllerHandlers, controllerHandlers } from "./controller.ts";
import { Controller, Identity, Node } from "./proto/csi_pb.ts";
import { identityHandlers } from "./identity.ts";
import { localSnapshotService, localVolumeService } from "./local_service.ts";
import {
  type BackgroundWorkers,
  type MachineListener,
  type MachineOptions,
  openMachine,
  type ThinPoolOptions,
} from "../lvm/machine.ts";
import { nodeHandlers } from "./node.ts";
import { serve } from "./server.ts";
import { bindService, type Handlers } from "./service.ts";

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
  readonly thin?: ThinPoolOptions;
  /** When stores of snapshots grow; without it, never. By default as the flag of the command line. */
  readonly snapshotAutoextend?: SnapshotAutoextend | undefined;
}

/** A driver that answers on its socket. */
export interface StandaloneDriver {
  /** The socket's path. */
  readonly socketPath: string;
  /** Resolves when nothing is done in the background: deleted volumes are removed there, copies made. */
  settled(): Promise<void>;
  /**
   * Takes no further calls, lets those under way and the commands they started end, and removes the socket. Answers
   * whether the calls ended within `graceMs` milliseconds; commands that change something are waited for in any case.
   */
  stop(graceMs: number): Promise<boolean>;
}

/** How long an answer to "are you ready" is good for, in milliseconds: it costs a report. */
const READINESS_CACHE_MS = 60_000;

const log = getLogger(["denolith", "driver"]);

/** A driver's services, before they are on a socket. */
export interface CsiServices {
  /** The Identity service. */
  readonly identity: Handlers<typeof Identity>;
  /** The Controller service. */
  readonly controller: ControllerHandlers;
  /** The Node service. */
  readonly node: Handlers<typeof Node>;
  /** The background work, not yet started. */
  readonly background: BackgroundWorkers;
}

/** Puts the services of a standalone driver together; nothing runs yet. */
export function standaloneServices(
  options: Omit<StandaloneOptions, "socketPath"> & Pick<MachineOptions, "scratch">,
): CsiServices {
  const { driver, version, nodeId, mountRoots, cgroupRoot } = options;
  const limiting = { cgroupRoot, onChange: logLimits };
  const { lvm, volumes, snapshots, staging, health, copies, limiter, background, locks } = openMachine({
    ...options,
    limiting,
    listener: logging(),
  });
  const start = () => {
    background.start();
    if (cgroupRoot !== undefined) limiter.wake(); // else there is nothing to be applied
  };
  return {
    identity: identityHandlers({ driver, version, ready: lvmReadiness(lvm) }),
    controller: controllerHandlers({
      volumes: localVolumeService({ volumes, copies, limiter, health, nodeId }),
      snapshots: localSnapshotService(snapshots, nodeId),
      locks,
    }),
    node: nodeHandlers({ staging, health, nodeId, mountRoots, locks }),
    background: { ...background, start },
  };
}

/**
 * Returns a listener that logs what happens in the background on a machine.
 *
 * @param next a listener that is called after the log
 */
export function logging(next: MachineListener = {}): MachineListener {
  return {
    onRemoved: () => next.onRemoved?.(),
    onProgress: (id) => next.onProgress?.(id),
    onPoolExtended: (message) => {
      log.info("a thin pool grew", { message });
      next.onPoolExtended?.(message);
    },
    onSnapshotExtended: (cow, size) => {
      log.info("store grown", { snapshot: cow.id, lv: `${cow.group.name}/${cow.lv.name}`, size });
      next.onSnapshotExtended?.(cow, size);
    },
    onSnapshotCannotExtend: (cow, reason) => {
      log.warn("store cannot grow", { snapshot: cow.id, reason });
      next.onSnapshotCannotExtend?.(cow, reason);
    },
    onTrimmed: (volume, bytes) => {
      log.info("trimmed", { volume: volume.id, bytes });
      next.onTrimmed?.(volume, bytes);
    },
    onTrimFailed: (volume, reason, failures) => {
      log.warn("trimming failed", { volume: volume.id, reason, failures });
      next.onTrimFailed?.(volume, reason, failures);
    },
    onTrimUnsupported: (volume) => {
      log.warn("trimming is of no use: the device takes no discards", { volume: volume.id });
      next.onTrimUnsupported?.(volume);
    },
    onFailure: (action, error) => {
      log.warn(`${action} failed`, { error });
      next.onFailure?.(action, error);
    },
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
export async function startStandalone(options: StandaloneOptions): Promise<StandaloneDriver> {
  const { driver, version, nodeId, groups, exec } = options;
  const mountRoots = await withRealPaths(options.mountRoots);
  const scratch = dirname(options.socketPath);
  const { identity, controller, node, background } = standaloneServices({ ...options, mountRoots, scratch });
  const server = await serve(options.socketPath, [
    bindService(Identity, identity),
    bindService(Controller, controller),
    bindService(Node, node),
  ]);
  background.start();
  log.info("serving", { socket: server.path, driver, version, nodeId, groups: String(groups), mountRoots });

  return {
    socketPath: server.path,
    settled: () => background.idle(),
    stop: async (graceMs) => {
      const drained = await server.close(graceMs);
      await background.stop();
      await exec.idle();
      log.info("stopped", { drained });
      return drained;
    },
  };
}

/** Whether LVM answers, looked at once a minute at most. */
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
