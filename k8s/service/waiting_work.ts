/**
 * Wakes what waits for a change of an LVMVolume, an LVMSnapshot or an LVMNode: deletions that were refused, requests whose
 * outcome was not known when their call ended, such as those of copies that take an hour, and what found too little space.
 *
 * @module
 */

import { type AgentManaged, isForgotten, type LvmNode, type LvmSnapshot, type LvmVolume } from "../api/lvm_objects.ts";
import { blocksSourceDeletion } from "../api/snapshot_mapping.ts";
import type { Informer } from "../runtime/informer.ts";
import type { FreeSpaceGrowth, WakeUps } from "../runtime/wake_ups.ts";
import { isObserved } from "./remote_objects.ts";
import type { AgentLiveness } from "../scheduling/agent_liveness.ts";
import { freeSpaceGrowth, pendingBytes } from "../scheduling/free_capacity.ts";

/** The informers of the objects that may prevent a deletion. */
export interface DeletionInformers {
  /** All LVMVolumes. */
  readonly volumes: Pick<Informer<LvmVolume>, "subscribe" | "list">;
  /** All LVMSnapshots. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "subscribe">;
  /** All LVMNodes. */
  readonly nodes: Pick<Informer<LvmNode>, "subscribe">;
}

/** Wakes the deletion of each volume when something that may have prevented it has changed. */
export function wakeWaitingDeletions(
  { volumes, snapshots, nodes }: DeletionInformers,
  wakeUps: Pick<WakeUps, "wake">,
): void {
  volumes.subscribe((handle, now, before) => {
    if (before === undefined) return;
    const isNewlyForgotten = now !== undefined && isForgotten(now) && !isForgotten(before);
    if (now === undefined || hasOtherError(now, before) || isNewlyForgotten) wakeUps.wake("deletion", handle);
    const source = before.spec.source?.volume;
    if (source !== undefined && hasReleasedSource(now, before)) wakeUps.wake("deletion", source);
  });
  snapshots.subscribe((_, now, before) => {
    if (before === undefined || !blocksSourceDeletion(before)) return;
    if (now === undefined || !blocksSourceDeletion(now)) wakeUps.wake("deletion", before.spec.sourceVolume);
  });
  // the volume of a forgotten node is deleted without it, but only once it has no LVMNode; either may be seen first
  nodes.subscribe((nodeName, now) => {
    if (now !== undefined) return;
    for (const { metadata, spec } of volumes.list()) {
      if (spec.nodeName === nodeName) wakeUps.wake("deletion", metadata.name);
    }
  });
}

/** Reports whether the error of a volume is gone or another one. The first one is the refusal itself. */
function hasOtherError(now: LvmVolume, before: LvmVolume): boolean {
  const known = before.status?.error?.message;
  return known !== undefined && now.status?.error?.message !== known;
}

/** Reports whether a volume is being created from its source, which cannot be deleted meanwhile. */
export function blocksSource({ status }: LvmVolume): boolean {
  return status?.lvUUID === undefined && status?.state !== "Failed";
}

function hasReleasedSource(now: LvmVolume | undefined, before: LvmVolume): boolean {
  return blocksSource(before) && (now === undefined || !blocksSource(now));
}

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
    if (source !== undefined && hasReleasedSource(now, before!)) wakeDeletion(source, snapshots.get(source));
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

/** What reports free space. */
export interface SpaceInformers {
  /** All LVMNodes. */
  readonly nodes: Pick<Informer<LvmNode>, "subscribe" | "get">;
  /** All LVMVolumes. */
  readonly volumes: Pick<Informer<LvmVolume>, "subscribe">;
  /** The agents that are silent: of their nodes no space is offered. */
  readonly agents: Pick<AgentLiveness, "subscribe" | "isSilent">;
}

/**
 * Wakes what waits for space when a node reports more of it, when its agent reports again, and when a volume does not
 * take the space that it was to have: no report changes by that.
 */
export function wakeSpaceWaiters({ nodes, volumes, agents }: SpaceInformers, wakeUps: Pick<WakeUps, "wake">): void {
  const wake = (kind: "space" | "unreserved", growth: FreeSpaceGrowth | undefined) => {
    if (growth !== undefined) wakeUps.wake(kind, growth);
  };
  const wholeSpaceOf = (nodeName: string) => {
    const node = nodes.get(nodeName);
    return node && freeSpaceGrowth(undefined, node);
  };
  nodes.subscribe((_, now, before) => wake("space", now && freeSpaceGrowth(before, now)));
  agents.subscribe((nodeName) => {
    if (!agents.isSilent(nodeName)) wake("space", wholeSpaceOf(nodeName));
  });
  volumes.subscribe((_, now, before) => {
    const node = before && nodes.get(before.spec.nodeName);
    if (node === undefined || pendingBytes(before!, node) <= (now ? pendingBytes(now, node) : 0n)) return;
    wake("unreserved", wholeSpaceOf(node.metadata.name));
  });
}
