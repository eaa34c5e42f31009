/**
 * From a request for a snapshot to the object that asks for it, and back.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";
import {
  memberSnapshotIdOf,
  parseGroupSnapshotId,
  parseSnapshotId,
  parseVolumeId,
  type SnapshotId,
  type VolumeId,
} from "../../base/ids.ts";
import { defined } from "../../base/defined.ts";
import type { GroupSnapshotRequest } from "../../lvm/group_snapshots/group_snapshots.ts";
import { parseQuantity } from "../../base/size.ts";
import type { Snapshot } from "../../lvm/inventory/snapshot_finder.ts";
import type { SnapshotRequest } from "../../lvm/snapshots/snapshots.ts";
import { formatSizeOrPercent, FULL_COW, parseSizeOrPercent } from "../../lvm/settings/cow_size.ts";
import { CREATED_ANNOTATION, LVM_SNAPSHOT_FINALIZER, type LvmSnapshot, type LvmVolume } from "./lvm_objects.ts";
import type { NodeDriver } from "./volume_mapping.ts";

/** A request with the name that it came under. */
export type NamedSnapshotRequest = SnapshotRequest & { readonly name: string };

/** Creates the LVMSnapshot that asks a node for a snapshot. */
export function lvmSnapshotFor(request: NamedSnapshotRequest, { driver, nodeName }: NodeDriver): LvmSnapshot {
  const { id, name, source, cowSize } = request;
  return {
    metadata: { name: id, finalizers: [LVM_SNAPSHOT_FINALIZER], annotations: { [CREATED_ANNOTATION]: "false" } },
    spec: {
      driverName: driver,
      requestName: name,
      nodeName,
      sourceVolume: source,
      cowSize: formatSizeOrPercent(cowSize),
    },
  };
}

/** Creates the LVMSnapshots that together ask a node for a group snapshot: each names all volumes. */
export function lvmSnapshotsForGroup(
  { id, name, sources, cowSize }: GroupSnapshotRequest & { readonly name: string },
  node: NodeDriver,
): LvmSnapshot[] {
  return sources.map((source) => {
    const object = lvmSnapshotFor({ id: memberSnapshotIdOf(id, source), name, source, cowSize }, node);
    return { ...object, spec: { ...object.spec, groupSnapshot: { name: id, sourceVolumes: [...sources] } } };
  });
}

/**
 * Reads the request for a group snapshot from one of its LVMSnapshots.
 *
 * @returns `undefined` for a snapshot that is taken alone
 * @throws {StorageError} `InvalidArgument` when the object, written by somebody else, cannot be read
 */
export function groupRequestOf(object: LvmSnapshot): GroupSnapshotRequest | undefined {
  const { metadata: { name }, spec: { groupSnapshot } } = object;
  if (groupSnapshot === undefined) return undefined;
  const { id: snapshot, cowSize } = snapshotRequestOf(object);
  const id = parseGroupSnapshotId(`${groupSnapshot.name}`);
  const sources = [groupSnapshot.sourceVolumes].flat().map((source) => parseVolumeId(`${source}`));
  const known = sources.filter((source) => source !== undefined);
  const isMember = id !== undefined && known.some((source) => memberSnapshotIdOf(id, source) === snapshot);
  if (isMember && known.length === sources.length && new Set(known).size === known.length) {
    return { id, sources: known, cowSize };
  }
  throw new StorageError(
    "InvalidArgument",
    `reading LVMSnapshot ${name}: it does not belong to its groupSnapshot`,
  );
}

/**
 * Reads the request from an LVMSnapshot.
 *
 * @throws {StorageError} `InvalidArgument` when the object, written by somebody else, cannot be read
 */
export function snapshotRequestOf({ metadata: { name }, spec }: LvmSnapshot): NamedSnapshotRequest {
  const invalidArgument = (why: string) => new StorageError("InvalidArgument", `reading LVMSnapshot ${name}: ${why}`);
  const { requestName, sourceVolume, cowSize: cowSizeText } = spec;
  for (const [field, value] of Object.entries({ requestName, sourceVolume, cowSize: cowSizeText ?? "" })) {
    if (typeof value !== "string") throw invalidArgument(`its ${field} is no text`);
  }
  const id = parseSnapshotId(name);
  if (id === undefined) throw invalidArgument("its name is no snapshot id");
  const source = parseVolumeId(sourceVolume);
  if (source === undefined) throw invalidArgument(`its sourceVolume ${quote(sourceVolume)} is no volume id`);
  const cowSize = cowSizeText === undefined ? FULL_COW : parseSizeOrPercent(cowSizeText);
  if (cowSize === undefined) throw invalidArgument(`its cowSize ${quote(cowSizeText ?? "")} is not valid`);
  return { id, name: requestName, source, cowSize };
}

/** Returns the snapshot of an object, or `undefined` while it is not taken yet. */
export function snapshotOf({ metadata: { name }, spec, status = {} }: LvmSnapshot): Snapshot | undefined {
  const { lvUUID, restoreSize, creationTime, readyToUse = false } = status;
  if (typeof lvUUID !== "string" || typeof restoreSize !== "string" || typeof creationTime !== "string") {
    return undefined;
  }
  const createdAtMs = Date.parse(creationTime);
  return {
    id: name as SnapshotId, // the API server accepts no other name
    source: spec.sourceVolume as VolumeId, // nor another source
    size: parseQuantity(restoreSize) ?? 0n,
    createdAt: Number.isNaN(createdAtMs) ? 0 : createdAtMs / 1000,
    ready: readyToUse,
    ...defined({ groupSnapshot: parseGroupSnapshotId(spec.groupSnapshot?.name ?? "") }),
  };
}

/**
 * Reports whether a snapshot prevents the deletion of its volume. A copy-on-write snapshot does while it exists, and
 * while it is being taken or deleted.
 */
export function blocksSourceDeletion({ status }: LvmSnapshot): boolean {
  const wasNeverTaken = status?.state === "Failed" && status.lvUUID === undefined;
  return !wasNeverTaken && status?.state !== "Lost";
}

/** Returns the names of snapshots that keep a volume from deletion, in order: none of a thin one. */
export function namesOfBlocking(
  { metadata: { name }, spec: { driverName, thinProvision } }: LvmVolume,
  snapshots: readonly LvmSnapshot[],
): string[] {
  if (thinProvision) return [];
  const own = snapshots.filter(({ spec }) => spec.sourceVolume === name && spec.driverName === driverName);
  return own.filter(blocksSourceDeletion).map(({ metadata }) => metadata.name).sort();
}
