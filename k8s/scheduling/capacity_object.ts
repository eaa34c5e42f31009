/**
 * CSIStorageCapacities: what is written into them, and what is to be done about one that is there.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { formatQuantity } from "../../lvm/size.ts";
import type { Capacity } from "../sidecars/csi_client.ts";
import { type LvmNode, lvmNodes } from "../api/lvm_objects.ts";
import { apiVersionOf, csiStorageCapacities, type CsiStorageCapacity } from "../api/objects.ts";
import { bytesOf } from "../api/quantity.ts";

/** The label that says whose capacity it is; the official provisioner has the same. */
const DRIVER_LABEL = "csi.storage.k8s.io/drivername";

/** The label that says who writes it; the official provisioner's value is another, so the two leave each other's alone. */
const MANAGER_LABEL = "csi.storage.k8s.io/managed-by";

/** Who writes ours. */
export const MANAGER = "denolith";

/** Where and for what there is capacity. */
export interface Place {
  /** The node. */
  readonly nodeName: string;
  /** The StorageClass. */
  readonly className: string;
}

/** What {@linkcode capacityObject} puts together. */
export interface CapacityParts {
  /** The driver's name. */
  readonly driverName: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** Where the object is to be. */
  readonly namespace: string;
  /** The node, whose name is the label's value. */
  readonly node: LvmNode;
  /** The name of the StorageClass. */
  readonly className: string;
  /** What there is room for. */
  readonly capacity: Capacity;
}

/** The longest beginning of a name that leaves room for what tells it from others: names have 253 characters at most. */
const LONGEST_BEGINNING = 240;

/**
 * The name of the object for a place, the same whoever writes it and whenever: so there is never a second one. It begins with the
 * node and the class, for people; both may have dots, so only what follows tells places apart.
 */
export function capacityName(driverName: string, { nodeName, className }: Place): string {
  const hash = createHash("sha256").update(JSON.stringify([driverName, nodeName, className])).digest("hex");
  const beginning = `${nodeName}.${className}`.slice(0, LONGEST_BEGINNING).replace(/[^a-z0-9]+$/, "");
  return `${beginning}.${hash.slice(0, 10)}`;
}

/**
 * The object as it should be. `maximumVolumeSize` is what the scheduler compares with a claim; it is none where even the smallest
 * volume of the class does not fit, or a smaller claim, which is raised to that size, would be sent to the node again and again.
 */
export function capacityObject(
  { driverName, topologyKey, namespace, node, className, capacity }: CapacityParts,
): CsiStorageCapacity {
  const { name: nodeName, uid } = node.metadata;
  const { available, largest, smallest } = capacity;
  return {
    apiVersion: apiVersionOf(csiStorageCapacities),
    kind: csiStorageCapacities.kind,
    metadata: {
      name: capacityName(driverName, { nodeName, className }),
      namespace,
      labels: { [DRIVER_LABEL]: driverName, [MANAGER_LABEL]: MANAGER },
      ownerReferences: [{ apiVersion: apiVersionOf(lvmNodes), kind: lvmNodes.kind, name: nodeName, uid: uid! }],
    },
    storageClassName: className,
    nodeTopology: { matchLabels: { [topologyKey]: nodeName } },
    capacity: formatQuantity(available),
    maximumVolumeSize: formatQuantity(largest < smallest ? 0n : largest),
  };
}

/** Whether an object says that this driver's loop writes it. */
export function isManaged({ metadata: { labels } }: CsiStorageCapacity, driverName: string): boolean {
  return labels?.[DRIVER_LABEL] === driverName && labels[MANAGER_LABEL] === MANAGER;
}

/** The largest volume that an object offers, in bytes. */
export function offeredBy({ capacity, maximumVolumeSize }: CsiStorageCapacity): bigint {
  return bytesOf(maximumVolumeSize ?? capacity) ?? 0n;
}

/** What is to be done about an object. */
export type CapacityStep = "nothing" | "create" | "patch" | "delete";

/**
 * What is to be done so that the object of a name is as it should be, or is not there where there should be none. One for another
 * class or node cannot be changed (API validation): it goes, and comes back as it should be.
 */
export function nextStep(
  wanted: CsiStorageCapacity | undefined,
  there: CsiStorageCapacity | undefined,
  driverName: string,
): CapacityStep {
  if (there === undefined) return wanted === undefined ? "nothing" : "create";
  if (wanted === undefined) return isManaged(there, driverName) ? "delete" : "nothing";
  if (!isSame(fixedPart(wanted), fixedPart(there))) return "delete";
  return isSame(changingPart(wanted), changingPart(there)) ? "nothing" : "patch";
}

function fixedPart({ storageClassName, nodeTopology }: CsiStorageCapacity) {
  return [storageClassName, nodeTopology?.matchLabels, nodeTopology?.matchExpressions ?? []];
}

function changingPart({ metadata: { labels, ownerReferences = [] }, capacity, maximumVolumeSize }: CsiStorageCapacity) {
  const owners = ownerReferences.map(({ apiVersion, kind, name, uid }) => [apiVersion, kind, name, uid]);
  const sizes = [capacity, maximumVolumeSize].map((size) => `${bytesOf(size)}`);
  return [labels?.[DRIVER_LABEL], labels?.[MANAGER_LABEL], owners, sizes];
}

function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
