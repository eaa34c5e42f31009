/**
 * Finds out when a node has more free space, which something may wait for.
 *
 * @module
 */

import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import type { Informer } from "../runtime/informer.ts";
import type { AgentLiveness } from "../scheduling/agent_liveness.ts";
import { pendingBytes } from "../scheduling/free_capacity.ts";
import { freeSpaceGrowth } from "../scheduling/free_space_growth.ts";
import type { FreeSpaceGrowth } from "../sidecars/space_waiters.ts";

/** A controller of objects that may wait for free space. */
interface SpaceWaiter {
  /** Requeues the objects for which a node may have space now. */
  requeueExhausted(growth: FreeSpaceGrowth): void;
}

/** The controllers of objects that may wait for free space. */
export interface SpaceWaitingControllers {
  /** Creates volumes. It subtracts what is pending. */
  readonly provisioner: SpaceWaiter;
  /** Expands volumes. */
  readonly resizer: SpaceWaiter;
  /** Takes snapshots. */
  readonly snapshotter: SpaceWaiter;
  /** Takes group snapshots. */
  readonly groupSnapshotter: SpaceWaiter;
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
 * Requeues what waits for space when a node reports more of it, when its agent reports again, and when a volume does
 * not take the space that it was to have: no report changes by that.
 */
export function requeueAwaitedSpace(
  { nodes, volumes, agents }: SpaceInformers,
  { provisioner, resizer, snapshotter, groupSnapshotter }: SpaceWaitingControllers,
): void {
  const requeue = (growth: FreeSpaceGrowth | undefined, controllers: readonly SpaceWaiter[]) => {
    if (growth === undefined) return;
    for (const controller of controllers) controller.requeueExhausted(growth);
  };
  const all = [provisioner, resizer, snapshotter, groupSnapshotter];
  const wholeSpaceOf = (nodeName: string) => {
    const node = nodes.get(nodeName);
    return node && freeSpaceGrowth(undefined, node);
  };
  nodes.subscribe((_, now, before) => requeue(now && freeSpaceGrowth(before, now), all));
  agents.subscribe((nodeName) => {
    if (!agents.isSilent(nodeName)) requeue(wholeSpaceOf(nodeName), all);
  });
  volumes.subscribe((_, now, before) => {
    const node = before && nodes.get(before.spec.nodeName);
    if (node === undefined || pendingBytes(before!, node) <= (now ? pendingBytes(now, node) : 0n)) return;
    requeue(wholeSpaceOf(node.metadata.name), [provisioner]);
  });
}
