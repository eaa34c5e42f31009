/**
 * Topology: which node a volume is on.
 *
 * @module
 */

import { StorageError } from "../lvm/error.ts";
import type { TopologyRequirement } from "./csi_pb.ts";
import { invalid, quote } from "./request.ts";

/** The key under which a volume's topology names its node. */
export const TOPOLOGY_KEY = "topology.lvm.denolith.dev/node";

/** The topology of what is on a node. */
export function topologyOf(nodeId: string): { segments: Record<string, string> } {
  return { segments: { [TOPOLOGY_KEY]: nodeId } };
}

/**
 * The node id as it is, if it can be a topology value.
 *
 * @throws {StorageError} `InvalidArgument` when it cannot (CSI spec, Topology: as a Kubernetes label value).
 */
export function requireNodeId(nodeId: string): string {
  if (/^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/.test(nodeId)) return nodeId;
  throw invalid(
    `node id ${quote(nodeId)}: must be 1 to 63 letters, digits, "-", "_" or ".", with a letter or digit at both ends`,
  );
}

/**
 * Makes sure that a volume on the node satisfies the requirement: the node is among the requisite ones, if there are any.
 *
 * @throws {StorageError} `NoSpace` when it is not.
 */
export function requireReachable(requirement: TopologyRequirement | undefined, nodeId: string): void {
  const requisite = requirement?.requisite ?? [];
  if (requisite.length === 0 || requisite.some(({ segments }) => segments[TOPOLOGY_KEY] === nodeId)) return;
  const wanted = requisite.map(({ segments }) => segments[TOPOLOGY_KEY] ?? "(none)").join(", ");
  throw new StorageError(
    "NoSpace",
    `accessibility_requirements: asked for are the nodes ${wanted}, this one is ${nodeId}`,
  );
}
