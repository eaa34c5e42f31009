/**
 * Orphans: LVs of the driver that no object of the cluster stands for. This module finds them, describes them, and
 * reads who asked for their removal (docs/adr/0013).
 *
 * @module
 */

import type { KnownObjects, OrphanLv, TaggedObject } from "../../lvm/inventory/inventory.ts";
import { formatBytes } from "../../base/size.ts";
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
 * The annotation of an LVMNode that asks for the removal of orphans of that node: the UUIDs of their LVs, separated by
 * commas. No other LV ever has the same UUID, so entries of removed LVs are harmless.
 */
export const REMOVE_ORPHANS_ANNOTATION = `${LVM_GROUP}/remove-orphans`;

/**
 * The word among those UUIDs that confirms that the cluster has no volume, or no snapshot, of the node at all. Without
 * it an empty list is no proof, since the cluster may have lost its objects.
 */
export const NONE_KNOWN = "allow-empty";

/** The type of the condition of an LVMNode about orphans. */
export const ORPHANS_CONDITION = "Orphans";

/** The maximum number of orphans that the condition names. */
const MAX_NAMED_ORPHANS = 32;

/** The objects that stand for LVs of a node. */
export interface ManagedObjects {
  /** LVMVolumes. */
  readonly volumes: readonly LvmVolume[];
  /** LVMSnapshots. */
  readonly snapshots: readonly LvmSnapshot[];
}

/** Returns the LVs that the objects of a node stand for. */
export function knownObjects({ volumes, snapshots }: ManagedObjects, { driver, nodeName }: NodeDriver): KnownObjects {
  const isOwn = ({ spec }: AgentManaged) => spec.driverName === driver && spec.nodeName === nodeName;
  return {
    volumes: new Map(volumes.filter(isOwn).map((object) => [object.metadata.name, recordedLvOf(object)])),
    snapshots: new Set(snapshots.filter(isOwn).map(({ metadata: { name } }) => name)),
    removeCommand: (lvUuid) =>
      `kubectl annotate lvmnodes.lvm.denolith.dev ${nodeName} --overwrite ${REMOVE_ORPHANS_ANNOTATION}=${lvUuid}`,
  };
}

/** Lists the objects of a node from the API server, not from a cache. @throws {ApiError} */
export async function listManaged(client: ApiClient, { nodeName }: NodeDriver): Promise<ManagedObjects> {
  const own = { fieldSelector: `spec.nodeName=${nodeName}` };
  const [volumes, snapshots] = await Promise.all([client.list(lvmVolumes, own), client.list(lvmSnapshots, own)]);
  return { volumes: volumes.items, snapshots: snapshots.items };
}

/** A request to remove orphans. */
export interface RemovalRequest {
  /** The UUIDs of LVs. */
  readonly lvUuids: ReadonlySet<string>;
  /** True if the request confirms that the cluster has no object of the kind on the node. */
  readonly noneKnown: boolean;
}

/** Reads the removal request from the annotations of an LVMNode. */
export function removalRequestOf(annotations: Readonly<Record<string, string>> = {}): RemovalRequest {
  const words = (annotations[REMOVE_ORPHANS_ANNOTATION] ?? "").split(",").map((word) => word.trim());
  return { lvUuids: new Set(words.filter((word) => word !== "")), noneKnown: words.includes(NONE_KNOWN) };
}

/** Returns the condition of an LVMNode about its orphans. */
export function orphansCondition(orphans: readonly OrphanLv[]): NewCondition {
  if (orphans.length === 0) {
    const message = "each logical volume of the driver has an object in the cluster";
    return { type: ORPHANS_CONDITION, status: "False", reason: "NoOrphans", message };
  }
  const more = orphans.length > MAX_NAMED_ORPHANS ? ` and ${orphans.length - MAX_NAMED_ORPHANS} more` : "";
  const names = orphans.slice(0, MAX_NAMED_ORPHANS).map((orphan) => `${describeOrphan(orphan)}, UUID ${orphan.uuid}`)
    .join("; ");
  const message = `${orphans.length} of the driver's logical volumes have no object in the cluster: ${names}${more}. ` +
    "Nothing is done to them: see the events, or denolith status";
  return { type: ORPHANS_CONDITION, status: "True", reason: "OrphansFound", message };
}

/** An orphan as the condition of an LVMNode names it. */
export interface NamedOrphan {
  /** The volume group and the LV, as `GROUP/LV`. */
  readonly logicalVolume: string;
  /** Its size, for people. */
  readonly size: string;
  /** The UUID of its LV. */
  readonly uuid: string;
}

/** Returns the orphans that the message of {@linkcode orphansCondition} names. */
export function orphansInMessage(message: string): NamedOrphan[] {
  return [...message.matchAll(/([^\s;]+) \(([\d.]+ [KMGTPE]?i?B)\), UUID ([\w-]+)/g)].map((
    [, logicalVolume, size, uuid],
  ) => ({ logicalVolume: logicalVolume!, size: size!, uuid: uuid! }));
}

/** Returns the message of the event about a new orphan. */
export function orphanFoundMessage(orphan: OrphanLv): string {
  const { taggedAs } = orphan;
  if (taggedAs === undefined) {
    return `${describeOrphan(orphan)} is the driver's, but its tags cannot be read: see denolith doctor on the node`;
  }
  return `${describeOrphan(orphan)} has no ${
    objectKindOf(taggedAs)
  } ${taggedAs.id} on this node: it was forgotten, was created ` +
    `without the cluster, or somebody removed its finalizer. To remove it with its data: ${taggedAs.removeCommand}`;
}

/** Returns the kind of the object that would stand for an LV. */
export function objectKindOf({ kind }: TaggedObject): "LVMVolume" | "LVMSnapshot" {
  return kind === "volume" ? "LVMVolume" : "LVMSnapshot";
}

/** Describes an orphan in a few words. */
export function describeOrphan({ lvFullName, size }: OrphanLv): string {
  return `${lvFullName} (${formatBytes(size)})`;
}
