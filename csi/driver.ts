/**
 * The driver without an orchestrator of its own: all services on one socket, all state in LVM's tags and the kernel's
 * mount table.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { Exec } from "../lvm/exec.ts";
import type { GroupMatcher } from "../lvm/groups.ts";
import { Locks } from "../lvm/locks.ts";
import { withRealPaths } from "../lvm/mounts.ts";
import { UsedRecords } from "../lvm/records.ts";
import { readReport } from "../lvm/report.ts";
import { Snapshots } from "../lvm/snapshots.ts";
import { Staging } from "../lvm/staging.ts";
import { Volumes } from "../lvm/volumes.ts";
import { controllerHandlers } from "./controller.ts";
import { Controller, Identity, Node } from "./csi_pb.ts";
import { identityHandlers } from "./identity.ts";
import { nodeHandlers } from "./node.ts";
import { serve } from "./server.ts";
import { bindService } from "./service.ts";

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
  /** What runs its commands. */
  readonly exec: Exec;
}

/** A driver that answers on its socket. */
export interface Driver {
  /** The socket's path. */
  readonly socketPath: string;
  /**
   * Takes no further calls, lets those under way and the commands they started end, and removes the socket. Answers
   * whether the calls ended within `graceMs` milliseconds; commands that change something are waited for in any case.
   */
  stop(graceMs: number): Promise<boolean>;
}

/** How long an answer to "are you ready" is good for, in milliseconds: it costs a report. */
const READY_MS = 60_000;

const log = getLogger(["denolith", "driver"]);

/**
 * Starts a standalone driver.
 *
 * @throws {StorageError} `FailedPrecondition` when another process answers on the socket.
 */
export async function startStandalone(options: StandaloneOptions): Promise<Driver> {
  const { exec, driver, version, nodeId, groups } = options;
  const mountRoots = await withRealPaths(options.mountRoots);
  const records = new UsedRecords(exec, (error) => log.warn("removing records of deleted volumes failed", { error }));
  const volumes = new Volumes({ exec, driver, groups, records });
  const snapshots = new Snapshots({ exec, driver, volumes });
  const staging = new Staging({ exec, volumes, records, mountRoots });
  const locks = new Locks();

  const server = await serve(options.socketPath, [
    bindService(Identity, identityHandlers({ driver, version, ready: lvmAnswers(exec) })),
    bindService(Controller, controllerHandlers({ volumes, snapshots, nodeId, locks })),
    bindService(Node, nodeHandlers({ staging, nodeId, mountRoots, locks })),
  ]);
  log.info("serving", { socket: server.path, driver, version, nodeId, groups: String(groups), mountRoots });

  return {
    socketPath: server.path,
    stop: async (graceMs) => {
      const drained = await server.close(graceMs);
      await exec.settled();
      await records.settled();
      log.info("stopped", { drained });
      return drained;
    },
  };
}

function lvmAnswers(exec: Exec): () => Promise<boolean> {
  let goodUntil = 0;
  return async () => {
    if (performance.now() < goodUntil) return true;
    try {
      await readReport(exec);
    } catch (error) {
      log.warn("not ready", { error });
      return false;
    }
    goodUntil = performance.now() + READY_MS;
    return true;
  };
}
