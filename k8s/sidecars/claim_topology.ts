/**
 * The topology of the volume of a claim: the nodes where it may be.
 *
 * @module
 */

import type { Cause } from "../../base/error.ts";
import type { Segments, TopologyRequirement } from "./csi_client.ts";
import { ClaimError } from "./class_parameters.ts";
import type { CsiNode, Node, StorageClass } from "../api/objects.ts";

/** Objects without a namespace, such as those of an informer. */
export interface ObjectsByName<T> {
  /** Returns the object of a name. */
  get(name: string): T | undefined;
  /** Returns all objects. */
  list(): readonly T[];
}

/** The nodes of the cluster, and the driver's topology key. */
export interface ClusterTopology {
  /** The driver. */
  readonly driverName: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** All nodes. */
  readonly nodes: ObjectsByName<Node>;
  /** The CSINodes, which list the drivers of each node. */
  readonly csiNodes: ObjectsByName<CsiNode>;
}

type AllowedTopologies = StorageClass["allowedTopologies"];

/** The selected node cannot have the volume: the scheduler has to choose again. */
export class WrongNodeError extends Error {
  /** The name of the error class, for code that cannot use `instanceof`. */
  override readonly name = "WrongNodeError";
  /** The only node that can have the volume; without it, the scheduler chooses. */
  readonly rightNode: string | undefined;

  /** Creates the error. @param reason the cause as a code */
  constructor(message: string, readonly reason: Cause, { rightNode }: { readonly rightNode?: string } = {}) {
    super(message);
    this.rightNode = rightNode;
  }
}

/** No node of the cluster, or not the only one that can have the volume, is as the claim needs it now. */
export class TopologyError extends ClaimError {}

/**
 * Returns the labels of nodes that decide where a volume of a class may be.
 *
 * @param allowed the `allowedTopologies` of the class
 */
export function topologyLabels(topologyKey: string, allowed: AllowedTopologies = []): string[] {
  const keys = allowed.flatMap(({ matchLabelExpressions = [] }) => matchLabelExpressions.map(({ key }) => key));
  return [topologyKey, ...keys];
}

/**
 * Requires that the selected node is that of the content source.
 *
 * @param sourceNode the node of the content source, or `undefined` when it is not known
 * @throws {WrongNodeError} with the node of the source
 * @throws {TopologyError} when the volume cannot be on the node of the source
 */
export function requireNodeOfSource(
  selected: string,
  sourceNode: string | undefined,
  allowed: AllowedTopologies,
  cluster: ClusterTopology,
): void {
  if (sourceNode === undefined || sourceNode === selected) return;
  const message =
    `node ${selected}: the source of the volume is on node ${sourceNode}, and the volume is created there`;
  try {
    topologyOfNode(sourceNode, allowed, cluster);
  } catch (error) {
    if (error instanceof WrongNodeError) throw new TopologyError(`${message}; ${error.message}`, "SourceOnOtherNode");
    throw error;
  }
  throw new WrongNodeError(message, "SourceOnOtherNode", { rightNode: sourceNode });
}

/** Reports whether the driver is registered on a node. While its agent restarts, it is not. */
export function isRegistered(node: string, { csiNodes, driverName }: ClusterTopology): boolean {
  const csiNode = csiNodes.get(node);
  return csiNode !== undefined && hasDriver(csiNode, driverName);
}

/**
 * Returns the topology of the node that the scheduler selected.
 *
 * @throws {WrongNodeError} when the driver is not registered there, or the class does not allow the node
 * @throws {TopologyError} when kubelet has not labelled the node yet
 */
export function topologyOfNode(
  name: string,
  allowed: AllowedTopologies,
  cluster: ClusterTopology,
): TopologyRequirement {
  const { driverName, topologyKey } = cluster;
  const node = cluster.nodes.get(name);
  if (node === undefined) throw new WrongNodeError(`node ${name}: there is no such node`, "NodeGone");
  if (!isRegistered(name, cluster)) {
    throw new WrongNodeError(`node ${name}: ${driverName} is not registered there`, "DriverNotRegistered");
  }
  if (!isAllowed(node, allowed)) {
    throw new WrongNodeError(`node ${name}: not in the allowedTopologies of the class`, "NodeExcludedByClass");
  }
  const value = node.metadata.labels?.[topologyKey];
  if (value === undefined) throw new TopologyError(`node ${name}: it has no label ${topologyKey} yet`);
  const only = [{ [topologyKey]: value }];
  return { requisite: only, preferred: only };
}

/**
 * Returns the topologies of all nodes that have the driver and that the class allows. For a claim of a StatefulSet, they
 * are also preferred, in an order that begins at another node for each replica, as csi-provisioner has it. For other
 * claims none is preferred: the driver chooses, since it knows the free space and which group the class prefers.
 *
 * @param claimName the name of the claim; none is preferred, when absent
 * @throws {TopologyError} when there is no such node
 */
export function topologyOfAllNodes(
  allowed: AllowedTopologies,
  cluster: ClusterTopology,
  claimName = "",
): TopologyRequirement {
  const { driverName, topologyKey } = cluster;
  const registered = registeredNodeNames(cluster);
  const values = cluster.nodes.list()
    .filter((node) => registered.has(node.metadata.name) && isAllowed(node, allowed))
    .flatMap(({ metadata }) => metadata.labels?.[topologyKey] ?? []);
  const requisite: Segments[] = [...new Set(values)].sort().map((value) => ({ [topologyKey]: value }));
  if (requisite.length === 0) {
    const where = allowed === undefined ? "no node" : "no node of the allowedTopologies of the class";
    throw new TopologyError(`${driverName}: registered on ${where}`, "DriverNotRegistered");
  }
  const replica = replicaOf(claimName);
  if (replica === undefined) return { requisite, preferred: [] };
  const first = (fnv1Hash(replica.statefulSet) + replica.ordinal) % requisite.length;
  return { requisite, preferred: [...requisite.slice(first), ...requisite.slice(0, first)] };
}

/**
 * Returns the StatefulSet and the ordinal of the replica that a claim is for, by its name: `TEMPLATE-STATEFULSET-ORDINAL`
 * or `NAME-ORDINAL`. As for csi-provisioner, the name of the StatefulSet is what follows the last dash before the
 * ordinal, so that all claims of a replica prefer the same node.
 */
function replicaOf(claimName: string): { statefulSet: string; ordinal: number } | undefined {
  const [, statefulSet, ordinal] = /(?:^|-)([^-]+)-(\d{1,9})$/.exec(claimName) ?? [];
  return statefulSet === undefined ? undefined : { statefulSet, ordinal: Number(ordinal) };
}

/** Returns the 32-bit FNV-1 hash of a text, by which csi-provisioner chooses the first node (Go's `fnv.New32`). */
function fnv1Hash(text: string): number {
  let hash = 2_166_136_261;
  for (const byte of new TextEncoder().encode(text)) hash = (Math.imul(hash, 16_777_619) ^ byte) >>> 0;
  return hash;
}

/** Returns the names of the nodes on which the driver is registered. */
function registeredNodeNames({ driverName, csiNodes }: ClusterTopology): Set<string> {
  return new Set(csiNodes.list().filter((node) => hasDriver(node, driverName)).map(({ metadata }) => metadata.name));
}

/** Reports whether a driver is registered on a node. */
export function hasDriver({ spec }: CsiNode, driverName: string): boolean {
  return (spec.drivers ?? []).some(({ name }) => name === driverName);
}

/** Reports whether a node has the labels of one of the terms. */
function isAllowed({ metadata }: Node, allowed: AllowedTopologies): boolean {
  if (allowed === undefined || allowed.length === 0) return true;
  return allowed.some(({ matchLabelExpressions = [] }) =>
    matchLabelExpressions.every(({ key, values }) => values.includes(metadata.labels?.[key] ?? ""))
  );
}
