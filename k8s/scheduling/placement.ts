/**
 * The choice of a node for a volume, by the free capacity of the nodes.
 *
 * @module
 */

import { StorageError } from "../../lvm/error.ts";
import { compare, type GroupCapacity, groupCapacity, selectCandidates } from "../../lvm/model/groups.ts";
import { withSpaceFor } from "../../lvm/pools/pool.ts";
import type { CapacityRequest } from "../../lvm/inventory/volume.ts";
import type { NodeChoice } from "../../lvm/volume_service.ts";
import type { NodeCapacity } from "./free_capacity.ts";
import type { NamedVolumeRequest } from "../api/volume_mapping.ts";

/**
 * Chooses the node for a volume: the first preferred one with enough space, or else the one with the best group of all.
 *
 * @throws {StorageError} `NoSpace` with what each node has; `OutOfRange` when the size fits no whole extents anywhere.
 */
export function chooseNode(request: NamedVolumeRequest, choice: NodeChoice, nodes: readonly NodeCapacity[]): string {
  const { allowed, preferred } = choice;
  const allowedNodes = nodes.filter(({ name }) => allowed?.includes(name) ?? true);
  if (allowedNodes.length === 0) {
    const known = nodes.map(({ name }) => name).join(", ") || "none";
    throw new StorageError(
      "NoSpace",
      `choosing a node for volume ${request.id}: ${
        allowed === undefined ? "no node" : `none of ${allowed.join(", ")}`
      } has an agent of the driver; those that have one: ${known}`,
    );
  }
  const refusals: StorageError[] = [];
  const fittingNodes = allowedNodes.flatMap(({ name, groups }) => {
    try {
      const { groups: matcher, range, preference, layout, thin } = request;
      const [best] = selectCandidates(withSpaceFor(groups, thin), matcher, range, preference, layout);
      return best === undefined ? [] : [{ name, free: best.group.free }];
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      refusals.push(new StorageError(error.kind, `node ${name}: ${error.message}`));
      return [];
    }
  });
  if (fittingNodes.length === 0) {
    const kind = refusals.every((refusal) => refusal.kind === "OutOfRange") ? "OutOfRange" : "NoSpace";
    throw new StorageError(kind, refusals.map(({ message }) => message).join("; "));
  }
  const preferredNode = preferred.find((name) => fittingNodes.some((node) => node.name === name));
  if (preferredNode !== undefined) return preferredNode;
  const sign = request.preference === "leastFree" ? 1 : -1;
  const [first] = fittingNodes.sort((a, b) => sign * compare(a.free, b.free) || compare(a.name, b.name));
  return first!.name;
}

/** Returns the capacity of the groups of nodes for such volumes. */
export function totalCapacity(
  { groups: matcher, layout, thin }: CapacityRequest,
  nodes: readonly NodeCapacity[],
): GroupCapacity {
  return groupCapacity(nodes.flatMap(({ groups }) => withSpaceFor(groups, thin)), matcher, layout);
}
