/**
 * The Leases of agents, by which they show that they are alive. The controller creates the Lease of each LVMNode, and
 * the agent renews it (docs/adr/0020).
 *
 * @module
 */

import { type LvmNode, lvmNodes } from "./lvm_objects.ts";
import { apiVersionOf, type Lease } from "./objects.ts";

/** The label with the name of a driver, as the official provisioner has it on what it publishes. */
export const DRIVER_NAME_LABEL = "csi.storage.k8s.io/drivername";

/** The time without a sign of life after which an agent is silent, in milliseconds. A report may take two minutes. */
export const SILENT_AFTER_MS = 300_000;

/** The beginning of the names. Those of Leases of leader elections have no dot. */
const PREFIX = "agent.";

/** Returns the name of the Lease of a node's agent. */
export function agentLeaseName(nodeName: string): string {
  return PREFIX + nodeName;
}

/** Returns the name of the node whose agent has a Lease; `undefined` for another Lease. */
export function nodeOfAgentLease({ metadata: { name } }: Lease): string | undefined {
  return name.startsWith(PREFIX) ? name.slice(PREFIX.length) : undefined;
}

/** Returns the selector of the Leases of a driver's agents. */
export function agentLeaseSelector(driverName: string): string {
  return `${DRIVER_NAME_LABEL}=${driverName}`;
}

/** Returns the Lease of an agent that has not renewed it yet. It is deleted with the LVMNode. */
export function agentLeaseFor({ metadata: { name, uid }, spec }: LvmNode, namespace: string): Lease {
  return {
    metadata: {
      name: agentLeaseName(name),
      namespace,
      labels: { [DRIVER_NAME_LABEL]: spec.driverName },
      ownerReferences: [{ apiVersion: apiVersionOf(lvmNodes), kind: lvmNodes.kind, name, uid: uid! }],
    },
    spec: { leaseDurationSeconds: SILENT_AFTER_MS / 1_000 },
  };
}

/** Returns the time of the last sign of life of an agent, in milliseconds; `undefined` before the first one. */
export function lastSignOfLife({ metadata: { name }, status }: LvmNode, leases: readonly Lease[]): number | undefined {
  const renewals = leases.filter((lease) => nodeOfAgentLease(lease) === name).map(({ spec }) => spec?.renewTime);
  const times = [status?.lastUpdateTime, ...renewals].map((time) => Date.parse(time ?? ""));
  const known = times.filter((ms) => !Number.isNaN(ms));
  return known.length === 0 ? undefined : Math.max(...known);
}
