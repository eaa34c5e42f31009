/**
 * Which agents are silent: they have not reported for minutes, although their nodes exist.
 *
 * Only the clock of this process decides: it compares when reports arrive, not the times in them. While the API server
 * does not answer, no agent is silent, because none could report.
 *
 * @module
 */

import { type Clock, systemClock } from "../../lvm/clock.ts";
import { StorageError } from "../../lvm/error.ts";
import type { NodeChoice } from "../../lvm/volume_service.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import { listNodeNames } from "../api/node_names.ts";
import type { Informer } from "../runtime/informer.ts";

/** Options of {@linkcode AgentLiveness}. */
export interface AgentLivenessOptions {
  /** The LVMNodes. An agent writes its own at least every minute. */
  readonly nodes: Informer<LvmNode>;
  /** The time without a report after which an agent is silent, in milliseconds; 5 minutes. */
  readonly silentAfterMs?: number | undefined;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** Tells whether an agent is silent. */
export type SilentAgents = Pick<AgentLiveness, "isSilent">;

/** The default time without a report after which an agent is silent, in milliseconds. A report may take two minutes. */
const SILENT_AFTER_MS = 300_000;

/** The last report of an agent, by this process' clock. */
interface LastReport {
  readonly atMs: number;
  readonly cancel: () => void;
}

/** Observes the reports of all agents. */
export class AgentLiveness {
  readonly #nodes: Informer<LvmNode>;
  readonly #silentAfterMs: number;
  readonly #clock: Clock;
  readonly #reports = new Map<string, LastReport>();
  readonly #silent = new Set<string>();
  #isStopped = false;
  readonly #listeners: ((nodeName: string) => void)[] = [];

  /** Subscribes to the LVMNodes. */
  constructor({ nodes, silentAfterMs = SILENT_AFTER_MS, clock = systemClock }: AgentLivenessOptions) {
    this.#nodes = nodes;
    this.#silentAfterMs = silentAfterMs;
    this.#clock = clock;
    nodes.subscribe((name, now, before) => {
      if (now === undefined) return this.#forget(name);
      if (now.status?.lastUpdateTime !== before?.status?.lastUpdateTime || !this.#reports.has(name)) {
        this.#recordReport(name);
      }
    });
  }

  /** Reports whether the agent of a node is silent. An agent that never existed is not. */
  isSilent(nodeName: string): boolean {
    return this.#silent.has(nodeName);
  }

  /** Calls the listener with the node's name when its agent becomes silent, and when it reports again. */
  subscribe(listener: (nodeName: string) => void): void {
    this.#listeners.push(listener);
  }

  /** Stops observing. */
  stop(): void {
    this.#isStopped = true;
    for (const { cancel } of this.#reports.values()) cancel();
    this.#reports.clear();
  }

  #recordReport(name: string): void {
    this.#reports.get(name)?.cancel();
    this.#schedule(name, this.#clock.now(), this.#silentAfterMs);
    if (this.#silent.delete(name)) this.#notify(name);
  }

  #schedule(name: string, atMs: number, delayMs: number): void {
    if (this.#isStopped) return;
    const cancel = this.#clock.after(delayMs, () => this.#check(name, atMs));
    this.#reports.set(name, { atMs, cancel });
  }

  #check(name: string, atMs: number): void {
    const now = this.#clock.now();
    // an agent cannot report while the API server does not answer
    const observedSince = Math.max(atMs, this.#nodes.connectedSince ?? now);
    const remainingMs = observedSince + this.#silentAfterMs - now;
    if (remainingMs > 0) return this.#schedule(name, atMs, remainingMs);
    this.#silent.add(name);
    this.#notify(name);
  }

  #forget(name: string): void {
    this.#reports.get(name)?.cancel();
    this.#reports.delete(name);
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
  );
}
