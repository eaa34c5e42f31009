/**
 * Compares the cluster, its nodes and LVM: each claim must have one volume, and nothing else may exist.
 *
 * @module
 */

import type { LvmVolume } from "../../../../k8s/api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../../../../k8s/api/objects.ts";
import { PENDING_ANNOTATION } from "../../../../k8s/api/lvm_objects.ts";
import { type VolumeId, volumeIdOf, volumeLvName } from "../../../../base/ids.ts";
import { parseUsedTags, parseVolumeTags } from "../../../../lvm/model/tags.ts";
import { DRIVER } from "./objects.ts";

/** An LV, as lvs shows it. */
export interface LogicalVolume {
  readonly group: string;
  readonly name: string;
  readonly uuid: string;
  readonly tags: readonly string[];
}

/** LVM's state on a node. */
export interface LvmState {
  readonly lvs: readonly LogicalVolume[];
  /** The tags of all groups. */
  readonly groupTags: readonly string[];
}

/** The API server's state. */
export interface ApiState {
  readonly claims: readonly PersistentVolumeClaim[];
  readonly volumes: readonly PersistentVolume[];
  readonly objects: readonly LvmVolume[];
}

/** Returns the name of the PersistentVolume of a claim. */
export function volumeNameOf(uid: string): string {
  return `pvc-${uid}`;
}

/**
 * Returns the inconsistencies in the API after all is done: a bound claim has its PersistentVolume and its LVMVolume,
 * and there are no objects of other claims.
 *
 * @param uids of all claims that ever existed; other volumes are ignored
 */
export function apiInconsistencies({ claims, volumes, objects }: ApiState, uids: ReadonlySet<string>): string[] {
  const wanted = new Map(claims.map((claim) => [claim.metadata.uid!, claim]));
  const inconsistencies = claims.flatMap((claim) => claimInconsistencies(claim, volumes, objects));
  for (const uid of uids) {
    if (wanted.has(uid)) continue;
    const names = new Set<string>([volumeNameOf(uid), volumeIdFor(uid)]);
    for (const { metadata: { name } } of volumes) {
      if (names.has(name)) inconsistencies.push(`PersistentVolume ${name}: no claim`);
    }
    for (const { metadata: { name } } of objects) {
      if (names.has(name)) inconsistencies.push(`LVMVolume ${name}: no claim`);
    }
  }
  return inconsistencies;
}

function claimInconsistencies(
  { metadata, spec, status }: PersistentVolumeClaim,
  volumes: ApiState["volumes"],
  objects: ApiState["objects"],
): string[] {
  const subject = `claim ${metadata.name}`;
  if (metadata.deletionTimestamp !== undefined) return [`${subject}: being deleted`];
  if (status?.phase !== "Bound") return [`${subject}: ${status?.phase}`];
  const expected = volumeNameOf(metadata.uid!);
  if (spec?.volumeName !== expected) return [`${subject}: bound to ${spec?.volumeName}, not ${expected}`];
  const claimed = volumes.filter((volume) => volume.spec?.claimRef?.uid === metadata.uid);
  if (claimed.length !== 1) return [`${subject}: ${claimed.length} PersistentVolumes`];
  const [volume] = claimed;
  if (volume?.spec?.csi?.volumeHandle !== volumeIdFor(metadata.uid!)) {
    return [`${subject}: a PersistentVolume of another volume`];
  }
  const object = objects.find(({ metadata: { name } }) => name === volumeIdFor(metadata.uid!));
  if (object?.status?.state !== "Ready") return [`${subject}: its LVMVolume is ${object?.status?.state ?? "missing"}`];
  const pending = object.metadata.annotations?.[PENDING_ANNOTATION] !== undefined;
  return pending ? [`LVMVolume ${object.metadata.name}: still marked as pending`] : [];
}

/**
 * Returns the differences between LVM and the API.
 *
 * @param uids of all claims that ever existed; other LVs are ignored
 */
export function lvmInconsistencies({ claims, objects }: ApiState, lvm: LvmState, uids: ReadonlySet<string>): string[] {
  const wanted = new Set(claims.map(({ metadata }) => metadata.uid!));
  return [...uids].flatMap((uid) => {
    const id = volumeIdFor(uid);
    const found = lvm.lvs.filter((lv) => belongsTo(lv, id));
    if (wanted.has(uid)) return lvInconsistencies(id, found, objects.find(({ metadata }) => metadata.name === id));
    return [
      ...found.map(({ group, name, tags }) => `LV ${group}/${name} (${tags}): no claim`),
      ...parseUsedTags(DRIVER, lvm.groupTags).filter((used) => used.id === id).map(({ tag }) => `tag ${tag}: no claim`),
    ];
  });
}

function lvInconsistencies(id: VolumeId, found: readonly LogicalVolume[], object: LvmVolume | undefined): string[] {
  if (found.length !== 1) return [`volume ${id}: ${found.length} LVs: ${found.map(({ name }) => name)}`];
  const [lv] = found;
  const { lvUUID, volumeGroup, lvName } = object?.status ?? {};
  const inconsistencies: string[] = [];
  if (lv!.uuid !== lvUUID) inconsistencies.push(`volume ${id}: LV ${lv!.uuid}, recorded is ${lvUUID}`);
  if (lv!.group !== volumeGroup || lv!.name !== lvName) {
    inconsistencies.push(`volume ${id}: is ${lv!.group}/${lv!.name}`);
  }
  if (parseVolumeTags(DRIVER, lv!.tags)?.id !== id) inconsistencies.push(`volume ${id}: tags ${lv!.tags}`);
  return inconsistencies;
}

/** Reports whether an LV belongs to a volume, by its name or by any of its tags. */
function belongsTo({ name, tags }: LogicalVolume, id: VolumeId): boolean {
  return name.startsWith(volumeLvName(id)) || tags.some((tag) => tag.includes(id));
}

/** Returns the id of a claim's volume. */
function volumeIdFor(uid: string): VolumeId {
  return volumeIdOf(volumeNameOf(uid));
}
