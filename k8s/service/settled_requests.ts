/**
 * Finds out when the outcome of a request is known, which was not when a call ended, such as the creation of a volume
 * whose content is copied for an hour.
 *
 * @module
 */

import type { AgentManaged, LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import type { Informer } from "../runtime/informer.ts";
import type { WakeUps } from "../sidecars/wake_ups.ts";
import { isObserved } from "./remote_objects.ts";
import { blocksSource } from "./waiting_deletions.ts";

/** The informers of the objects of requests. */
export interface RequestInformers {
  /** All LVMVolumes. */
  readonly volumes: Pick<Informer<LvmVolume>, "subscribe">;
  /** All LVMSnapshots. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "subscribe" | "get">;
}

/** Wakes what waits for the outcome of a request when the agent of the node has reported it. */
export function wakeSettledRequests({ volumes, snapshots }: RequestInformers, wakeUps: Pick<WakeUps, "wake">): void {
  volumes.subscribe((handle, now, before) => {
    if (hasSettled(now, before)) {
      wakeUps.wake("request", now!.spec.requestName);
      wakeUps.wake("expansion", handle);
    }
    const source = before?.spec.source?.snapshot;
    const isCopied = before !== undefined && blocksSource(before) && (now === undefined || !blocksSource(now));
    if (source !== undefined && isCopied) wakeDeletion(source, snapshots.get(source));
  });
  snapshots.subscribe((handle, now, before) => {
    if (now === undefined) wakeDeletion(handle, before);
    else if (hasSettled(now, before)) wakeUps.wake("request", now.spec.requestName);
  });

  /** Wakes the deletion of a snapshot, or that of its group. */
  function wakeDeletion(handle: string, object: LvmSnapshot | undefined): void {
    wakeUps.wake("deletion", object?.spec.groupSnapshot?.name ?? handle);
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
