/**
 * The controllers, each with the delay after consecutive failures of an object.
 *
 * @module
 */

import type { Backoff } from "../../base/clock.ts";
import { DEFAULT_BACKOFF } from "./queue.ts";

/** The delay after consecutive failures of an object in the agent of its node. */
const AGENT_BACKOFF: Backoff = { startMs: 1_000, capMs: 60_000 };

/** The delay after which a request of a claim that cannot be fulfilled is tried again, in milliseconds. */
export const INFEASIBLE_RETRY_MS = 300_000;

const BACKOFFS = {
  /** Claims. */
  provisioner: DEFAULT_BACKOFF,
  /** PersistentVolumes that are deleted. */
  reclaimer: DEFAULT_BACKOFF,
  /** Claims from which others are cloned. */
  cloning: DEFAULT_BACKOFF,
  /** VolumeSnapshots from which claims are restored. */
  snapshotsources: DEFAULT_BACKOFF,
  /** Claims that request more space. */
  resizer: DEFAULT_BACKOFF,
  /** Claims that request another VolumeAttributesClass. */
  modifier: DEFAULT_BACKOFF,
  /** VolumeSnapshotContents, also those whose snapshots are not ready yet. */
  snapshotter: DEFAULT_BACKOFF,
  /** VolumeGroupSnapshotContents. */
  groupsnapshotter: DEFAULT_BACKOFF,
  /** Published capacity: short, since stale capacity misleads the scheduler. */
  capacity: { startMs: 1_000, capMs: 30_000 },
  /** Leases of agents. */
  agentlease: DEFAULT_BACKOFF,
  /** Snapshots that another node may read. */
  transfer: DEFAULT_BACKOFF,
  /** LVMMoves. */
  mover: DEFAULT_BACKOFF,
  /** LVMImports. */
  importer: DEFAULT_BACKOFF,
  /** What moves left. */
  "move-garbage-collector": DEFAULT_BACKOFF,
  /** LVMVolumes of a node, in its agent. */
  lvmvolume: AGENT_BACKOFF,
  /** LVMSnapshots of a node, in its agent. */
  lvmsnapshot: AGENT_BACKOFF,
} as const satisfies Record<string, Backoff>;

/** The name of a controller, as in metrics and logs. */
export type ControllerName = keyof typeof BACKOFFS;

/** Returns the delay after consecutive failures of an object of a controller. */
export function backoffOf(name: ControllerName): Backoff {
  return BACKOFFS[name];
}
