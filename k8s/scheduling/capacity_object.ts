/**
 * CSIStorageCapacities: what is written into them, and what is to be done about one that is there.
 *
 * @module
 */

import { sha256Hex } from "../../base/sha256.ts";
import { formatQuantity } from "../../base/size.ts";
import type { Capacity } from "../sidecars/csi_client.ts";
import { DRIVER_NAME_LABEL } from "../api/agent_leases.ts";
import { type LvmNode, lvmNodes } from "../api/lvm_objects.ts";
import { apiVersionOf, type CsiStorageCapacity } from "../api/objects.ts";
import { quantityToBytes } from "../api/quantity.ts";

/** The label that says who writes it; the official provisioner's value is another, so the two leave each other's alone. */
const MANAGED_BY_LABEL = "csi.storage.k8s.io/managed-by";

/** The value of the label of our objects. */
export const MANAGED_BY = "denolith";

/** The node and the class of a capacity. */
export interface CapacityKey {
  /** The node. */
  readonly nodeName: string;
  /** The StorageClass. */
  readonly className: string;
}

/** Options of {@linkcode csiStorageCapacityFor} puts together. */
export interface CapacityObjectOptions {
  /** The driver's name. */
  readonly driverName: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The namespace of the object. */
  readonly namespace: string;
  /** The node, whose name is the label's value. */
  readonly node: LvmNode;
  /** The name of the StorageClass. */
  readonly className: string;
  /** The capacity. */
  readonly capacity: Capacity;
}

/** The longest beginning of a name that leaves space for what distinguishes it from others: names have 253 characters at most. */
const MAX_PREFIX_LENGTH = 240;

/**
 * Returns the name of the object for a node and a class. It is always the same, so there is never a second object. For
 * people it begins with the node and the class; both may have dots, so only what follows is unique.
 */
export function capacityName(driverName: string, { nodeName, className }: CapacityKey): string {
  const hash = sha256Hex(JSON.stringify([driverName, nodeName, className]));
  const prefix = `${nodeName}.${className}`.slice(0, MAX_PREFIX_LENGTH).replace(/[^a-z0-9]+$/, "");
  return `${prefix}.${hash.slice(0, 10)}`;
}

/**
 * Creates a CSIStorageCapacity. The scheduler compares `maximumVolumeSize` with a claim. It is zero when not even the
 * smallest volume of the class fits: otherwise a smaller claim, which is rounded up to that size, would be sent to the
 * node again and again.
 */
export function csiStorageCapacityFor(
  { driverName, topologyKey, namespace, node, className, capacity }: CapacityObjectOptions,
): CsiStorageCapacity {
  const { name: nodeName, uid } = node.metadata;
  const { available, largest, smallest } = capacity;
  return {
    metadata: {
      name: capacityName(driverName, { nodeName, className }),
      namespace,
      labels: { [DRIVER_NAME_LABEL]: driverName, [MANAGED_BY_LABEL]: MANAGED_BY },
      ownerReferences: [{ apiVersion: apiVersionOf(lvmNodes), kind: lvmNodes.kind, name: nodeName, uid: uid! }],
    },
    storageClassName: className,
    nodeTopology: { matchLabels: { [topologyKey]: nodeName } },
    capacity: formatQuantity(available),
    maximumVolumeSize: formatQuantity(largest < smallest ? 0n : largest),
  };
}

/** Reports whether an object says that this driver's loop writes it. */
export function isManaged({ metadata: { labels } }: CsiStorageCapacity, driverName: string): boolean {
  return labels?.[DRIVER_NAME_LABEL] === driverName && labels[MANAGED_BY_LABEL] === MANAGED_BY;
}

/** Returns the largest volume that an object offers, in bytes. */
export function maximumVolumeSizeOf({ capacity, maximumVolumeSize }: CsiStorageCapacity): bigint {
  return quantityToBytes(maximumVolumeSize ?? capacity) ?? 0n;
}

/** The next step for an object. */
export type CapacityStep = "nothing" | "create" | "patch" | "delete";

/**
 * Returns the step that makes an object as desired, or deletes one that should not exist. The class and the node of an
 * object cannot be changed (API validation): such an object is deleted, and created again.
 */
export function nextCapacityStep(
  desired: CsiStorageCapacity | undefined,
  current: CsiStorageCapacity | undefined,
  driverName: string,
): CapacityStep {
  if (current === undefined) return desired === undefined ? "nothing" : "create";
  if (desired === undefined) return isManaged(current, driverName) ? "delete" : "nothing";
  if (!isEqual(immutableFields(desired), immutableFields(current))) return "delete";
  return isEqual(mutableFields(desired), mutableFields(current)) ? "nothing" : "patch";
}

function immutableFields({ storageClassName, nodeTopology }: CsiStorageCapacity) {
  return [storageClassName, nodeTopology?.matchLabels, nodeTopology?.matchExpressions ?? []];
}

function mutableFields(
  { metadata: { labels, ownerReferences = [] }, capacity, maximumVolumeSize }: CsiStorageCapacity,
) {
  const owners = ownerReferences.map(({ apiVersion, kind, name, uid }) => [apiVersion, kind, name, uid]);
  const sizes = [capacity, maximumVolumeSize].map((size) => `${quantityToBytes(size)}`);
  return [labels?.[DRIVER_NAME_LABEL], labels?.[MANAGED_BY_LABEL], owners, sizes];
}

function isEqual(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
