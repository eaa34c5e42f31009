/**
 * Topology: which node a volume is on.
 *
 * @module
 */

import type { Topology, TopologyRequirement } from "./proto/csi_pb.ts";
import { invalidArgument, quote } from "./request.ts";
import type { NodeChoice } from "../lvm/volume_service.ts";

/** The key under which a volume's topology names its node. */
export const TOPOLOGY_KEY = "topology.lvm.denolith.dev/node";

/** The topology of what is on a node, with further labels where they are given. */
export function topologyOf(nodeId: string, labels: Readonly<Record<string, string>> = {}) {
  return { segments: { ...labels, [TOPOLOGY_KEY]: nodeId } };
}

/**
 * The node id as it is, if it can be a topology value.
 *
 * @throws {StorageError} `InvalidArgument` when it cannot (CSI spec, Topology: as a Kubernetes label value).
 */
export function requireNodeId(nodeId: string): string {
  if (/^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/.test(nodeId)) return nodeId;
  throw invalidArgument(
    `node id ${quote(nodeId)}: must be 1 to 63 letters, digits, "-", "_" or ".", with a letter or digit at both ends`,
  );
}

/** The node that a topology names; one without our key is no node of ours, and stands as `(none)`. */
export function nodeOf({ segments }: Topology): string {
  return segments[TOPOLOGY_KEY] ?? "(none)";
}

/** The nodes on which a volume that satisfies the requirement may be. */
export function nodeChoice(requirement: TopologyRequirement | undefined): NodeChoice {
  const allowed = requirement?.requisite.map(nodeOf) ?? [];
  const preferred = requirement?.preferred.map(nodeOf) ?? [];
  return { preferred, ...(allowed.length === 0 ? {} : { allowed }) };
}
