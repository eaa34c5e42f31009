/**
 * Creates the Leases by which agents show that they are alive. An agent without one writes its LVMNode instead, which
 * every version of the controller takes for a sign of life. So the Leases exist only where a controller reads them.
 * Whether the agent is alive is written into the LVMNode, where people look for it.
 *
 * @module
 */

import type { ReconcileOutcome } from "../runtime/controller.ts";
import { timestamp } from "../../base/clock.ts";
import { defined } from "../../base/defined.ts";
import {
  agentLeaseFor,
  agentLeaseName,
  DRIVER_NAME_LABEL,
  lastSignOfLife,
  nodeOfAgentLease,
} from "../api/agent_leases.ts";
import { type LvmNode, lvmNodes, type LvmNodeStatus } from "../api/lvm_objects.ts";
import { keyOfName, type Lease, leases } from "../api/objects.ts";
import { isAlreadyExists, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import type { AgentLiveness } from "./agent_liveness.ts";
import { sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";

/** Options of {@linkcode AgentLeases}. The caller starts and shares the informers. */
export interface AgentLeasesOptions extends SidecarOptions {
  /** The namespace of the Leases. */
  readonly namespace: string;
  /** The LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** The Leases of the agents. */
  readonly agentLeases: Informer<Lease>;
  /** Which agents are silent. */
  readonly agents: Pick<AgentLiveness, "isSilent" | "subscribe">;
}

/**
 * Returns the state of an agent to be written into its LVMNode; `undefined` when it has that already, or nothing was heard of
 * the agent yet. A controller that has just started knows no silent agent: one that was silent is alive only after another
 * sign of life.
 */
export function nextAgentState(node: LvmNode, lease: Lease, isSilent: boolean): LvmNodeStatus["agent"] {
  const lastSeenMs = lastSignOfLife(node, [lease]); // where its Lease cannot be renewed, an agent writes its LVMNode
  const { agent } = node.status ?? {};
  if (lastSeenMs === undefined) return undefined;
  const lastSeen = timestamp(new Date(lastSeenMs));
  if (agent?.state === "Silent" && agent.lastSeen === lastSeen) return undefined;
  if (isSilent) return { state: "Silent", lastSeen };
  return agent?.state === "Alive" ? undefined : { state: "Alive" };
}

/** The number of Leases that are created at the same time. */
const MAX_CONCURRENT_WRITES = 10;

/** The time limit for the cache to show a new Lease, in milliseconds. */
const CACHE_WAIT_MS = 10_000;

/** Creates the Leases of agents, and reports their state. Two of them at the same time create each Lease once. */
export class AgentLeases {
  readonly #options: AgentLeasesOptions;

  /** Creates it; nothing runs before {@linkcode AgentLeases.run}. */
  constructor(options: AgentLeasesOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { nodes, agentLeases, agents } = this.#options;
    const options = { parallel: MAX_CONCURRENT_WRITES, ...this.#options, waitsForNodes: false };
    const controller = sidecarController("agentlease", options, (name) => this.#reconcile(name, signal))
      .watch(nodes)
      .watch(agentLeases, (lease) => [nodeOfAgentLease(lease) ?? []].flat(), { replay: false });
    agents.subscribe((name) => controller.add(name), signal);
    await controller.run(signal);
  }

  async #reconcile(nodeName: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { client, driverName, namespace, nodes, agentLeases, agents } = this.#options;
    const node = nodes.get(nodeName);
    const key = keyOfName({ name: agentLeaseName(nodeName), namespace });
    if (node?.spec.driverName !== driverName) return { nothingToDo: "its LVMNode is gone, or another driver's" };
    const existing = agentLeases.get(key);
    if (existing !== undefined) {
      const agent = nextAgentState(node, existing, agents.isSilent(nodeName));
      if (agent === undefined) return { nothingToDo: "its LVMNode says whether the agent lives" };
      const merge = { status: { agent: { lastSeen: null, ...agent } } };
      await client.patch(lvmNodes, { name: nodeName }, { merge, subresource: "status", signal });
      return;
    }
    const lease = agentLeaseFor(node, namespace);
    try {
      await client.create(leases, lease, { signal });
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
      await this.#adopt(lease, signal);
    }
    await agentLeases.waitForCache(key, (lease) => lease !== undefined, { signal, timeoutMs: CACHE_WAIT_MS });
  }

  /** Labels a Lease that exists, since the agent renews it: somebody else, or another driver of the node, left it so. */
  async #adopt({ metadata: { name, namespace, labels, ownerReferences } }: Lease, signal: AbortSignal): Promise<void> {
    const { client, driverName } = this.#options;
    const found = await orAbsent(client.get(leases, { name, namespace }, { signal }));
    if (found === undefined || found.metadata.labels?.[DRIVER_NAME_LABEL] === driverName) return;
    const metadata = {
      ...found.metadata,
      labels: { ...found.metadata.labels, ...labels },
      ...defined({ ownerReferences }),
    };
    await client.replace(leases, { ...found, metadata }, { signal });
  }
}
