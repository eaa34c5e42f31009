/**
 * Which agents are silent: they have given no sign of life for minutes, although their nodes exist. A sign of life is a
 * renewal of the agent's Lease, or a write of its LVMNode: an older agent writes only the latter.
 *
 * Only the clock of this process decides: it compares when signs of life arrive, not the times in them. While the API
 * server does not answer, no agent is silent, because none could give one.
 *
 * @module
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { NodeChoice } from "../../lvm/volume_service.ts";
import { nodeOfAgentLease, SILENT_AFTER_MS } from "../api/agent_leases.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import type { Lease } from "../api/objects.ts";
import { listNodeNames } from "../api/pods.ts";
import type { Informer } from "../runtime/informer.ts";

/** Options of {@linkcode AgentLiveness}. */
export interface AgentLivenessOptions {
  /** The LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** The Leases of the agents. */
  readonly agentLeases: Informer<Lease>;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** Tells whether an agent is silent. */
export type SilentAgents = Pick<AgentLiveness, "isSilent">;

/** The last sign of life of an agent, by this process' clock. */
interface LastSign {
  readonly atMs: number;
  readonly cancel: () => void;
}

/** Observes the signs of life of all agents. */
export class AgentLiveness {
  readonly #nodes: Informer<LvmNode>;
  readonly #agentLeases: Informer<Lease>;
  readonly #clock: Clock;
  readonly #signs = new Map<string, LastSign>();
  readonly #silent = new Set<string>();
  #isStopped = false;
  readonly #listeners = new Set<(nodeName: string) => void>();

  /** Subscribes to the LVMNodes and the Leases. */
  constructor({ nodes, agentLeases, clock = systemClock }: AgentLivenessOptions) {
    this.#nodes = nodes;
    this.#agentLeases = agentLeases;
    this.#clock = clock;
    nodes.subscribe((name, now, before) => {
      if (now === undefined) return this.#forget(name);
      if (now.status?.lastUpdateTime !== before?.status?.lastUpdateTime || !this.#signs.has(name)) {
        this.#recordSign(name);
      }
    });
    agentLeases.subscribe((_, now, before) => {
      const name = now && nodeOfAgentLease(now);
      if (name === undefined || nodes.get(name) === undefined) return;
      if (now?.spec?.renewTime !== before?.spec?.renewTime) this.#recordSign(name);
    });
  }

  /** Reports whether the agent of a node is silent. An agent that never existed is not. */
  isSilent(nodeName: string): boolean {
    return this.#silent.has(nodeName);
  }

  /** Calls the listener with the node's name when its agent becomes silent, and when it gives a sign of life again. Ends with the signal. */
  subscribe(listener: (nodeName: string) => void, signal?: AbortSignal): void {
    this.#listeners.add(listener);
    signal?.addEventListener("abort", () => this.#listeners.delete(listener), { once: true });
  }

  /** Stops observing. */
  stop(): void {
    this.#isStopped = true;
    for (const { cancel } of this.#signs.values()) cancel();
    this.#signs.clear();
  }

  #recordSign(name: string): void {
    this.#signs.get(name)?.cancel();
    this.#schedule(name, this.#clock.now(), SILENT_AFTER_MS);
    if (this.#silent.delete(name)) this.#notify(name);
  }

  #schedule(name: string, atMs: number, delayMs: number): void {
    if (this.#isStopped) return;
    const cancel = this.#clock.after(delayMs, () => this.#check(name, atMs));
    this.#signs.set(name, { atMs, cancel });
  }

  #check(name: string, atMs: number): void {
    const now = this.#clock.now();
    // An agent gives no sign of life while the API server does not answer. Under roles of an older version, which do not
    // allow to list Leases, it writes its LVMNode.
    const connectedSince = [this.#nodes, this.#agentLeases].filter((one) => one.hasSynced || !one.isForbidden)
      .map(({ connectedSince }) => connectedSince ?? now);
    const observedSince = Math.max(atMs, ...connectedSince);
    const remainingMs = observedSince + SILENT_AFTER_MS - now;
    if (remainingMs > 0) return this.#schedule(name, atMs, remainingMs);
    this.#silent.add(name);
    this.#notify(name);
  }

  #forget(name: string): void {
    this.#signs.get(name)?.cancel();
    this.#signs.delete(name);
    if (this.#silent.delete(name)) this.#notify(name);
  }

  #notify(name: string): void {
    for (const listener of this.#listeners) listener(name);
  }
}

/**
 * Requires that one of the allowed nodes has an agent that is not silent.
 *
 * @throws {StorageError} `NoSpace` with the names of the nodes
 */
export function requireResponsiveAgent(
  operation: string,
  { allowed }: Pick<NodeChoice, "allowed">,
  agents: SilentAgents | undefined,
): void {
  if (agents === undefined || allowed === undefined || allowed.length === 0) return;
  if (!allowed.every((name) => agents.isSilent(name))) return;
  throw new StorageError(
    "NoSpace",
    allowed.length === 1
      ? `${operation}: the agent of node ${
        allowed[0]
      } has not reported for minutes; see its log. Until it reports, its ` +
        "node gets no new volumes"
      : `${operation}: the agents of nodes ${listNodeNames(allowed)} have not reported for minutes; see their logs. ` +
        "Until they report, their nodes get no new volumes",
    { reason: "AgentSilent" },
  );
}
