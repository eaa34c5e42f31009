/**
 * Finds out when the outcome of a request is known, which was not when a call ended, such as the creation of a volume
 * whose content is copied for an hour.
 *
 * @module
 */

import type { AgentManaged, LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import type { Informer } from "../runtime/informer.ts";
import { isObserved } from "./remote_objects.ts";
import { blocksSource } from "./waiting_deletions.ts";

/** The controllers whose requests have no outcome yet. */
export interface SettledRequests {
  /** Creates volumes. */
  readonly provisioner: {
    /** Requeues the creation of a volume, if it waits for the outcome. */
    requeueRequest(requestName: string): void;
  };
  /** Expands volumes. */
  readonly resizer: {
    /** Requeues the expansion of the volume of a handle, if it waits for the outcome. */
    requeueExpansion(handle: string): void;
  };
  /** Takes and deletes snapshots. */
  readonly snapshotter: {
    /** Requeues what waits for a request, by its name, or for a snapshot, by its handle. */
    requeueWaiting(awaited: string): void;
  };
  /** Takes and deletes group snapshots. */
  readonly groupSnapshotter: {
    /** Requeues what waits for a request, by its name, or for a group snapshot, by its handle. */
    requeueWaiting(awaited: string): void;
  };
}

/** The informers of the objects of requests. */
export interface RequestInformers {
  /** All LVMVolumes. */
  readonly volumes: Pick<Informer<LvmVolume>, "subscribe">;
  /** All LVMSnapshots. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "subscribe" | "get">;
}

/** Requeues what waits for the outcome of a request when the agent of the node has reported it. */
export function requeueSettledRequests(
  { volumes, snapshots }: RequestInformers,
  { provisioner, resizer, snapshotter, groupSnapshotter }: SettledRequests,
): void {
  volumes.subscribe((handle, now, before) => {
    if (hasSettled(now, before)) {
      provisioner.requeueRequest(now!.spec.requestName);
      resizer.requeueExpansion(handle);
    }
    const source = before?.spec.source?.snapshot;
    const isCopied = before !== undefined && blocksSource(before) && (now === undefined || !blocksSource(now));
    if (source !== undefined && isCopied) requeueDeletion(source, snapshots.get(source));
  });
  snapshots.subscribe((handle, now, before) => {
    if (now === undefined) requeueDeletion(handle, before);
    else if (hasSettled(now, before)) {
      (now.spec.groupSnapshot ? groupSnapshotter : snapshotter).requeueWaiting(now.spec.requestName);
    }
  });

  /** Requeues the deletion of a snapshot, or that of its group. */
  function requeueDeletion(handle: string, object: LvmSnapshot | undefined): void {
    const group = object?.spec.groupSnapshot?.name;
    if (group === undefined) snapshotter.requeueWaiting(handle);
    else groupSnapshotter.requeueWaiting(group);
  }
}

/**
 * Reports whether the agent has reported an outcome that was not known before. After an outage, a list shows the
 * outcome alone: neither the object without it, nor that a new one was asked for.
 */
function hasSettled(now: AgentManaged | undefined, before: AgentManaged | undefined): boolean {
  if (now === undefined || !isObserved(now)) return false;
  if (before === undefined || !isObserved(before)) return true;
  return now.status?.observedGeneration !== before.status?.observedGeneration;
}
