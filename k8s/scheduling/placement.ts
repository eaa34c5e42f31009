/**
 * The choice of a node for a volume, by the free capacity of the nodes.
 *
 * @module
 */

import { firstReason, type Reason, StorageError } from "../../base/error.ts";
import {
  compare,
  findCandidates,
  type GroupCapacity,
  groupCapacity,
  type GroupSpace,
  isSelected,
  selectCandidates,
} from "../../lvm/model/groups.ts";
import { formatBytes } from "../../base/size.ts";
import { withSpaceFor } from "../../lvm/pools/pool.ts";
import type { CapacityRequest } from "../../lvm/inventory/volume.ts";
import type { NodeChoice } from "../../lvm/volume_service.ts";
import { listNodeNames, MAX_LISTED_NODES } from "../api/pods.ts";
import type { NodeCapacity } from "./free_capacity.ts";
import type { NamedVolumeRequest } from "../api/volume_mapping.ts";

/**
 * Chooses the node for a volume: the first preferred one with enough space, or else the one with the best group of all. One
 * that has refused the volume before is chosen when the others have too little space: what it reports is not all that counts.
 *
 * @param refusedBy the nodes that have refused the volume
 * @throws {StorageError} `NoSpace` with what each node has; `OutOfRange` when the size fits no whole extents anywhere.
 */
export function chooseNode(
  request: NamedVolumeRequest,
  choice: NodeChoice,
  nodes: readonly NodeCapacity[],
  refusedBy: ReadonlySet<string> = new Set(),
): string {
  const { allowed, preferred } = choice;
  const allowedNames = allowed && new Set(allowed);
  const allowedNodes = allowedNames === undefined ? nodes : nodes.filter(({ name }) => allowedNames.has(name));
  if (allowedNodes.length === 0) {
    const known = listNodeNames(nodes.map(({ name }) => name)) || "none";
    throw new StorageError(
      "NoSpace",
      `choosing a node for volume ${request.id}: ${
        allowed === undefined ? "no node" : `none of ${listNodeNames(allowed)}`
      } has an agent of the driver; those that have one: ${known}`,
      { reason: "NodeWithoutAgent" },
    );
  }
  const fittingNodes = new Map<string, bigint>();
  let fitsNoExtents = true;
  for (const node of allowedNodes) {
    const result = bestGroupFor(request, node);
    if (result !== "OutOfRange") fitsNoExtents = false;
    if (typeof result !== "string") fittingNodes.set(node.name, result.free);
  }
  if (fittingNodes.size === 0) throw refusal(fitsNoExtents ? "OutOfRange" : "NoSpace", request, allowedNodes);
  const others = new Map([...fittingNodes].filter(([name]) => !refusedBy.has(name)));
  const candidates = others.size > 0 ? others : fittingNodes;
  const preferredNode = preferred.find((name) => candidates.has(name));
  if (preferredNode !== undefined) return preferredNode;
  const sign = request.preference === "leastFree" ? 1 : -1;
  const nodeOrder = ([a, aFree]: [string, bigint], [b, bFree]: [string, bigint]) =>
    sign * compare(aFree, bFree) || compare(a, b);
  return [...candidates].reduce((best, node) => nodeOrder(node, best) < 0 ? node : best)[0];
}

/**
 * Returns why the content of a volume could not be used in a group; `undefined` when it could, or that is not known. The agent
 * chooses the group, so another one of its node, with less space, is no remedy.
 */
function sectorRefusal(
  { maximumSectorBytes }: NamedVolumeRequest,
  { name, sectorBytes }: GroupSpace,
): string | undefined {
  if (maximumSectorBytes === undefined || sectorBytes === undefined || sectorBytes <= maximumSectorBytes) {
    return undefined;
  }
  return `volume group ${name}, which it would be in, has logical sectors of ${
    formatBytes(sectorBytes)
  }, and what is to be ` +
    `copied can be used on sectors of ${formatBytes(maximumSectorBytes)} at most; copy its files into a new volume`;
}

/** Returns the group of a node that the volume would be created in, or the kind of the failure. */
function bestGroupFor(request: NamedVolumeRequest, { groups }: NodeCapacity): GroupSpace | "NoSpace" | "OutOfRange" {
  const { groups: matcher, range, preference, layout, thin } = request;
  try {
    const [best] = findCandidates(withSpaceFor(groups, thin), matcher, range, preference, layout);
    return best === undefined || sectorRefusal(request, best.group) !== undefined ? "NoSpace" : best.group;
  } catch (error) {
    if (error instanceof StorageError) return error.kind === "OutOfRange" ? "OutOfRange" : "NoSpace";
    throw error;
  }
}

/** Returns why none of the nodes can take the volume. Of many nodes, it describes those with the most free space. */
function refusal(
  kind: "NoSpace" | "OutOfRange",
  request: NamedVolumeRequest,
  nodes: readonly NodeCapacity[],
): StorageError {
  const byFreeSpace = nodes.length <= MAX_LISTED_NODES ? nodes : nodes
    .map((node) => ({ node, free: mostFreeSpace(request, node) }))
    .sort((a, b) => compare(b.free, a.free)).map(({ node }) => node);
  const refusals = byFreeSpace.slice(0, MAX_LISTED_NODES).map((node) => ({ node, refused: refusalOf(request, node) }));
  const listed = refusals.map(({ node, refused }) => `node ${node.name}: ${refused.message}`).join("; ");
  const reason = firstReason(refusals.map(({ refused }) => refused.reason));
  const more = nodes.length - MAX_LISTED_NODES;
  return new StorageError(
    kind,
    more <= 0
      ? listed
      : `none of the ${nodes.length} nodes can take the volume; those with the most free space: ${listed}; ` +
        `${more} more nodes cannot take it either`,
    { reason },
  );
}

/** Returns why a node cannot take the volume. */
function refusalOf(request: NamedVolumeRequest, node: NodeCapacity): { message: string; reason?: Reason } {
  const { groups: matcher, range, preference, layout, thin } = request;
  try {
    const [best] = selectCandidates(withSpaceFor(node.groups, thin), matcher, range, preference, layout);
    return { message: sectorRefusal(request, best!.group) ?? "its volume groups changed" };
  } catch (error) {
    if (error instanceof StorageError) return error;
    throw error;
  }
}

/** Returns the free space of the group that matches and has the most, in bytes; -1 when no group matches. */
function mostFreeSpace({ groups: matcher, thin }: NamedVolumeRequest, { groups }: NodeCapacity): bigint {
  return withSpaceFor(groups, thin).filter((group) => isSelected(group, matcher))
    .reduce((most, { free }) => free > most ? free : most, -1n);
}

/** Returns the capacity of the groups of nodes for such volumes. */
export function totalCapacity(
  { groups: matcher, layout, thin }: CapacityRequest,
  nodes: readonly NodeCapacity[],
): GroupCapacity {
  return groupCapacity(nodes.flatMap(({ groups }) => withSpaceFor(groups, thin)), matcher, layout);
}
