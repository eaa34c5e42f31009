/**
 * Topology: the node of a volume.
 *
 * @module
 */

import type { Topology, TopologyRequirement } from "./proto/csi_pb.ts";
import { quote } from "../base/error.ts";
import { invalidArgument } from "./request.ts";
import type { NodeChoice } from "../lvm/volume_service.ts";

/** Key of the node in a topology. */
export const TOPOLOGY_KEY = "topology.lvm.denolith.dev/node";

/** Returns the topology of a node. @param labels further labels of the node */
export function topologyOf(nodeId: string, labels: Readonly<Record<string, string>> = {}) {
  return { segments: { ...labels, [TOPOLOGY_KEY]: nodeId } };
}

/**
 * Returns a node id if it is a valid topology value.
 *
 * @param field the name of the field, for messages
 * @throws {StorageError} `InvalidArgument` if it is not (CSI spec, Topology: as a Kubernetes label value)
 */
export function requireNodeId(nodeId: string, field = "node id"): string {
  if (/^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/.test(nodeId)) return nodeId;
  throw invalidArgument(
    `${field} ${quote(nodeId)}: must be 1 to 63 letters, digits, "-", "_" or ".", with a letter or digit at both ends`,
  );
}

/** Returns the node of a topology, or `(none)` without our key. */
export function nodeOf({ segments }: Topology): string {
  return segments[TOPOLOGY_KEY] ?? "(none)";
}

/** Returns the nodes that a requirement allows and prefers. */
export function nodeChoice(requirement: TopologyRequirement | undefined): NodeChoice {
  const allowed = requirement?.requisite.map(nodeOf) ?? [];
  const preferred = requirement?.preferred.map(nodeOf) ?? [];
  return { preferred, ...(allowed.length === 0 ? {} : { allowed }) };
}
