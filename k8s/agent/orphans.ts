/**
 * Orphans: LVs of the driver that no object of the cluster stands for. Which they are, in which words they are told, and who
 * asks for their removal (docs/adr/0013).
 *
 * @module
 */

import type { KnownObjects, OrphanLv, TaggedObject } from "../../lvm/inventory/inventory.ts";
import { formatBytes } from "../../lvm/size.ts";
import type { ApiClient } from "../client/client.ts";
import type { NewCondition } from "../api/conditions.ts";
import {
  type AgentManaged,
  LVM_GROUP,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../api/lvm_objects.ts";
import { recordedLvOf } from "./object_reconciler.ts";
import type { NodeDriver } from "../api/volume_mapping.ts";

/**
 * The annotation of an LVMNode by which somebody gives orphans of that node up: the UUIDs of their LVs, separated by commas.
 * No other LV ever has the same UUID, so what is left standing there does no harm.
 */
export const REMOVE_ORPHANS_ANNOTATION = `${LVM_GROUP}/remove-orphans`;

/**
 * Stands among those UUIDs where it is right that the cluster knows no volume, or no snapshot, of the node at all: otherwise an empty list may
 * come from a cluster that lost its objects, and is no proof.
 */
export const NONE_KNOWN = "allow-empty";

/** The type of the condition of an LVMNode that tells of orphans. */
export const ORPHANS_CONDITION = "Orphans";

/** How many orphans the condition names. */
const MAX_NAMED_ORPHANS = 32;

/** The objects that stand for LVs of a node. */
export interface ManagedObjects {
  /** LVMVolumes. */
  readonly volumes: readonly LvmVolume[];
  /** LVMSnapshots. */
  readonly snapshots: readonly LvmSnapshot[];
}

/** What the objects of a node say of what is on it. */
export function knownObjects({ volumes, snapshots }: ManagedObjects, { driver, nodeName }: NodeDriver): KnownObjects {
  const isOwn = ({ spec }: AgentManaged) => spec.driverName === driver && spec.nodeName === nodeName;
  return {
    volumes: new Map(volumes.filter(isOwn).map((object) => [object.metadata.name, recordedLvOf(object)])),
    snapshots: new Set(snapshots.filter(isOwn).map(({ metadata: { name } }) => name)),
    removeCommand: (lvUuid) =>
      `kubectl annotate lvmnode ${nodeName} --overwrite ${REMOVE_ORPHANS_ANNOTATION}=${lvUuid}`,
  };
}

/** The objects of a node, asked of the API server now. @throws {ApiError} */
export async function listManaged(client: ApiClient, { nodeName }: NodeDriver): Promise<ManagedObjects> {
  const own = { fieldSelector: `spec.nodeName=${nodeName}` };
  const [volumes, snapshots] = await Promise.all([client.list(lvmVolumes, own), client.list(lvmSnapshots, own)]);
  return { volumes: volumes.items, snapshots: snapshots.items };
}

/** What somebody asked to be removed. */
export interface RemovalRequest {
  /** The UUIDs of LVs. */
  readonly lvUuids: ReadonlySet<string>;
  /** Whether it is right that the cluster knows nothing of the kind on the node. */
  readonly noneKnown: boolean;
}

/** What the annotations of an LVMNode ask for. */
export function removalRequestOf(annotations: Readonly<Record<string, string>> = {}): RemovalRequest {
  const words = (annotations[REMOVE_ORPHANS_ANNOTATION] ?? "").split(",").map((word) => word.trim());
  return { lvUuids: new Set(words.filter((word) => word !== "")), noneKnown: words.includes(NONE_KNOWN) };
}

/** The condition of a node with such orphans. */
export function orphansCondition(orphans: readonly OrphanLv[]): NewCondition {
  if (orphans.length === 0) {
    const message = "each logical volume of the driver stands for an object of the cluster";
    return { type: ORPHANS_CONDITION, status: "False", reason: "NoOrphans", message };
  }
  const more = orphans.length > MAX_NAMED_ORPHANS ? ` and ${orphans.length - MAX_NAMED_ORPHANS} more` : "";
  const names = orphans.slice(0, MAX_NAMED_ORPHANS).map((orphan) => `${describeOrphan(orphan)}, UUID ${orphan.uuid}`)
    .join("; ");
  const message =
    `${orphans.length} of the driver's logical volumes stand for no object of the cluster: ${names}${more}. ` +
    "Nothing is done to them: see the events, or denolith status";
  return { type: ORPHANS_CONDITION, status: "True", reason: "OrphansFound", message };
}

/** What is said of an orphan once. */
export function orphanFoundMessage(orphan: OrphanLv): string {
  const { taggedAs } = orphan;
  if (taggedAs === undefined) {
    return `${describeOrphan(orphan)} is the driver's, but its tags cannot be read: see denolith doctor on the node`;
  }
  return `${describeOrphan(orphan)} is kept, though there is no ${
    objectKindOf(taggedAs)
  } ${taggedAs.id} of this node: it was forgotten, was made ` +
    `without the cluster, or somebody took its finalizer off. To give it up, with what is on it: ${taggedAs.removeCommand}`;
}

/** The kind of the object that would stand for it. */
export function objectKindOf({ kind }: TaggedObject): "LVMVolume" | "LVMSnapshot" {
  return kind === "volume" ? "LVMVolume" : "LVMSnapshot";
}

/** An orphan in a few words. */
export function describeOrphan({ lvFullName, size }: OrphanLv): string {
  return `${lvFullName} (${formatBytes(size)})`;
}
