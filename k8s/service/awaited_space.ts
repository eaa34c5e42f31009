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
import type { WakeUps } from "../sidecars/wake_ups.ts";

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
