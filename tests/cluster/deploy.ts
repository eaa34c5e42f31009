import type { Cluster } from "../rig/cluster.ts";

/**
 * Brings the driver into a cluster that has just come up.
 *
 * @param log is told what is done
 */
export async function deploy(_cluster: Cluster, _log: (line: string) => void): Promise<void> {
  // Nothing to deploy yet.
}
