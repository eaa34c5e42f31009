/**
 * Executes the steps of a move. Each may be repeated, and each changes an object only as it was read.
 *
 * @module
 */

import type { GroupMatcher } from "../../lvm/model/groups.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import type { CopyGoal } from "../../lvm/model/remote_source.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { defined } from "../../base/defined.ts";
import { truncate } from "../../base/error.ts";
import {
  type ApiClient,
  ApiError,
  isAlreadyExists,
  type MergePatch,
  orAbsent,
  orAbsentOrChanged,
} from "../client/client.ts";
import { patchWithRetry } from "../client/patch_with_retry.ts";
import {
  FORGOTTEN_ANNOTATION,
  LVM_VOLUME_FINALIZER,
  type LvmVolume,
  lvmVolumes,
  MOVE_ANNOTATION,
  PENDING_ANNOTATION,
  REMOVE_ANNOTATION,
} from "../api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../api/objects.ts";
import { copySpecOf } from "../api/volume_mapping.ts";
import type { ClusterVolumes } from "../service/cluster_volumes.ts";
import type { ClusterTransfers } from "../service/transfers.ts";
import { copyRequestOf } from "./move_checks.ts";
import { isCopied } from "./copy_step.ts";
import {
  type AffinityMethod,
  copyIdOf,
  isHeldFor,
  type LvmMove,
  lvmMoves,
  type LvmMoveStatus,
  MOVE_FINALIZER,
  type MoveObjects,
  type MoveStep,
  type NamedGoal,
  type RecordedVolume,
} from "./moves.ts";
import { affinityTo, foreignFinalizers, recordOf, restoredTo, retainedFor, volumeFrom } from "./persistent_volume.ts";
import { finalStatus } from "./move_status.ts";
import { HELD_COW } from "./copy_mode.ts";

/** Options of {@linkcode carryOut}. */
export interface MoveActionsOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The volumes of the cluster. */
  readonly volumes: Pick<ClusterVolumes, "begin" | "delete">;
  /** The temporary snapshots. */
  readonly transfers: Pick<ClusterTransfers, "take" | "discard">;
  /** Parses a list of volume groups. */
  readonly parseGroups: (list: string) => GroupMatcher;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The time. */
  readonly now: Date;
}

/** The longest reason why a move is offline, in characters. */
const MAX_REASON_LENGTH = 1_024;

/**
 * Carries out a step.
 *
 * @returns the LVMMove as the step wrote it; nothing when the step does not write it, or somebody changed it meanwhile
 * @throws {StorageError} what the nodes said
 * @throws {ApiError}
 */
export async function carryOut(
  step: MoveStep,
  objects: MoveObjects,
  options: MoveActionsOptions,
): Promise<LvmMove | undefined | void> {
  const { client, volumes, topologyKey } = options;
  const { move, volume, copy, persistentVolume } = objects;
  switch (step.do) {
    case "add finalizer":
      return await setFinalizers(client, move, [...move.metadata.finalizers ?? [], MOVE_FINALIZER]);
    case "remove finalizer":
      return await setFinalizers(client, move, move.metadata.finalizers!.filter((name) => name !== MOVE_FINALIZER));
    case "hold":
      return await hold(client, volume!, move);
    case "release":
      return await release(client, volume!);
    case "copy":
      await options.volumes.begin(
        { ...copyRequestOf(move, volume!, options.parseGroups), goal: step.goal },
        { allowed: [move.spec.targetNode], preferred: [] },
      );
      return await takeSnapshot(step.goal, objects, options);
    case "take snapshot":
      return await takeSnapshot(step.goal, objects, options);
    case "difference":
      await takeSnapshot(step.goal, objects, options); // before the goal is set, so that the agent does not wait for it
      return await setGoal(client, copy!, step.goal);
    case "discard snapshots":
      for (const { metadata: { name } } of objects.temporary) await options.transfers.discard(name as SnapshotId);
      return;
    case "go offline":
      return await writeStatus(client, move, {
        way: "Offline",
        offlineReason: truncate(step.reason, MAX_REASON_LENGTH),
      });
    case "delete copy":
      return await volumes.delete(copyIdOf(move), { uid: copy!.metadata.uid });
    case "record": {
      const affinityMethod = await affinityMethodOf(client, persistentVolume!, move.spec.targetNode, topologyKey);
      return await writeStatus(client, move, { persistentVolume: recordOf(persistentVolume!), affinityMethod });
    }
    case "retain":
      return await patchVolume(client, persistentVolume!, retainedFor(move, recordedPolicyOf(move)));
    case "patch affinity":
      return await patchAffinity(persistentVolume!, step.node, objects, options);
    case "delete persistent volume":
      return await deletePersistentVolume(client, persistentVolume!);
    case "create persistent volume":
      return await createPersistentVolume(client, move, step.node, topologyKey);
    case "begin removing":
      return await writeStatus(client, move, { removing: true, volume: volumeRecordOf(volume!) });
    case "remove source":
      return await removeSource(objects, options);
    case "stop removing":
      return await writeStatus(client, move, {
        ...{ removing: null, volume: null, error: step.error },
        ...{ state: "Undoing", message: step.error.message },
      });
    case "create volume":
      return void await orExisting(client.create(lvmVolumes, volumeOnTarget(move)));
    case "forget copy":
      return await forgetCopy(client, copy!);
    case "restore policy":
      return await restore(client, persistentVolume!, recordedPolicyOf(move));
    case "finish":
      return await writeStatus(client, move, finalStatus(move, step, options.now));
    case "nothing":
    case "fail":
    case "wait":
  }
}

/**
 * Removes the volume on the source's node. Until the API server has its deletion, it must be held for the move: undoing a move
 * whose copy is gone releases the hold first.
 */
async function removeSource({ move, volume, copy }: MoveObjects, options: MoveActionsOptions): Promise<void> {
  const { metadata: { name, uid, deletionTimestamp } } = volume!;
  const id = name as VolumeId; // the API server accepts no other name
  if (move.spec.adopt || deletionTimestamp !== undefined) return await options.volumes.delete(id, { uid });
  const now = await orAbsent(options.client.get(lvmVolumes, { name: copyIdOf(move) }));
  // it was read at the same time as the volume, and may be gone since
  if (now?.metadata.uid !== copy?.metadata.uid || !isCopied({ move, copy: now }, volume!)) return;
  await options.volumes.delete(id, { uid, onlyIf: (latest) => isHeldFor(move, latest) });
}

/** Changes the affinity of a PersistentVolume; records that it has to be made again where that is refused by now. */
async function patchAffinity(
  persistentVolume: PersistentVolume,
  node: string,
  { move }: MoveObjects,
  { client, topologyKey }: MoveActionsOptions,
): Promise<void> {
  try {
    await patchVolume(client, persistentVolume, { spec: { nodeAffinity: affinityTo(node, topologyKey) } });
  } catch (error) {
    if (!isImmutable(error)) throw error;
    await writeStatus(client, move, { affinityMethod: "Recreate" }); // the gate was turned off
  }
}

/** Writes a part of the status, if the move is still as it was read. @returns the move, if it was written */
export async function writeStatus(
  client: ApiClient,
  move: LvmMove,
  status: MergePatch<LvmMoveStatus>,
): Promise<LvmMove | undefined> {
  const { name, resourceVersion } = move.metadata;
  const merge = { status } as MergePatch<LvmMove>;
  return await orAbsentOrChanged(
    client.patch<LvmMove>(lvmMoves, { name }, { merge, resourceVersion, subresource: "status" }),
  );
}

async function setFinalizers(
  client: ApiClient,
  { metadata }: LvmMove,
  finalizers: string[],
): Promise<LvmMove | undefined> {
  const { name, resourceVersion } = metadata;
  const merge = { metadata: { finalizers } };
  return await orAbsentOrChanged(client.patch(lvmMoves, { name }, { merge, resourceVersion }));
}

function recordedPolicyOf({ status }: LvmMove): string | undefined {
  return status?.persistentVolume?.spec.persistentVolumeReclaimPolicy;
}

/** Holds a volume for a move, if it is still as it was read. */
async function hold(
  client: ApiClient,
  { metadata: { name, resourceVersion } }: LvmVolume,
  move: LvmMove,
): Promise<void> {
  const merge = { metadata: { annotations: { [MOVE_ANNOTATION]: move.metadata.uid! } }, spec: { held: true } };
  await orAbsentOrChanged(client.patch(lvmVolumes, { name }, { merge, resourceVersion }));
}

/** Releases a volume, if it is still as it was read: a late release must not end the hold of a later move. */
export async function release(
  client: ApiClient,
  { metadata: { name, resourceVersion, deletionTimestamp } }: LvmVolume,
): Promise<void> {
  // also what the deletion begins with: it was not sent
  const annotations = {
    [MOVE_ANNOTATION]: null,
    ...(deletionTimestamp === undefined && { [REMOVE_ANNOTATION]: null }),
  };
  const merge = { metadata: { annotations }, spec: { held: null } };
  await orAbsentOrChanged(client.patch(lvmVolumes, { name }, { merge, resourceVersion }));
}

/** Restores the policy of a PersistentVolume, if that is still as it was read. */
export async function restore(
  client: ApiClient,
  persistentVolume: PersistentVolume,
  policy: string | undefined,
): Promise<void> {
  await patchVolume(client, persistentVolume, restoredTo(policy));
}

/** Takes the snapshot that a copy should have. Of a volume that nobody uses, it needs little COW space. */
async function takeSnapshot(
  { name, last }: NamedGoal,
  { move, volume }: MoveObjects,
  { transfers }: MoveActionsOptions,
): Promise<void> {
  const source = volume!.metadata.name as VolumeId; // the API server accepts no other name
  const grant = { volume: copyIdOf(move), node: move.spec.targetNode };
  await transfers.take({ name, source, cowSize: last ? HELD_COW : FULL_COW }, grant);
}

/** Sets what a copy should have next, if it is still as it was read. */
async function setGoal(client: ApiClient, copy: LvmVolume, goal: CopyGoal): Promise<void> {
  const { name, resourceVersion } = copy.metadata;
  const merge = { spec: { copy: copySpecOf(goal) } };
  await orAbsentOrChanged(client.patch(lvmVolumes, { name }, { merge, resourceVersion }));
}

async function patchVolume(
  client: ApiClient,
  { metadata: { name, resourceVersion } }: PersistentVolume,
  merge: MergePatch<PersistentVolume>,
): Promise<void> {
  await orAbsentOrChanged(client.patch(persistentVolumes, { name }, { merge, resourceVersion }));
}

/** Returns how a PersistentVolume gets another affinity: the API server says it, without changing anything. */
async function affinityMethodOf(
  client: ApiClient,
  { metadata: { name } }: PersistentVolume,
  node: string,
  topologyKey: string,
): Promise<AffinityMethod> {
  const merge = { spec: { nodeAffinity: affinityTo(node, topologyKey) } };
  try {
    await client.patch(persistentVolumes, { name }, { merge, dryRun: true });
    return "Patch";
  } catch (error) {
    if (isImmutable(error)) return "Recreate";
    throw error;
  }
}

/**
 * Reports whether the API server lets nobody change an affinity. What else it refuses as invalid, as an admission policy does,
 * is no reason to delete a PersistentVolume.
 */
function isImmutable(error: unknown): boolean {
  return error instanceof ApiError && error.status === 422 && /nodeAffinity: .*immutable/is.test(error.message);
}

/**
 * Deletes a PersistentVolume although it is bound, if it is still as it was read: what it stands for stays, because its policy is
 * Retain.
 */
async function deletePersistentVolume(client: ApiClient, object: PersistentVolume): Promise<void> {
  const { name, uid, resourceVersion, deletionTimestamp } = object.metadata;
  if (deletionTimestamp === undefined) {
    return await orAbsentOrChanged(client.delete(persistentVolumes, { name }, { uid, resourceVersion }));
  }
  await patchVolume(client, object, { metadata: { finalizers: foreignFinalizers(object) } });
}

async function createPersistentVolume(
  client: ApiClient,
  move: LvmMove,
  node: string,
  topologyKey: string,
): Promise<void> {
  const object = volumeFrom(move, move.status!.persistentVolume!, node, topologyKey);
  await orExisting(client.create(persistentVolumes, object));
}

/** Removes the LVMVolume of the copy. Its LV is that of the volume now, so nothing else is removed. */
async function forgetCopy(client: ApiClient, copy: LvmVolume): Promise<void> {
  const { name, uid } = copy.metadata;
  const change = ({ metadata: { finalizers = [] } }: LvmVolume) => ({
    metadata: { finalizers: finalizers.filter((one) => one !== LVM_VOLUME_FINALIZER) },
  });
  if (copy.metadata.finalizers?.includes(LVM_VOLUME_FINALIZER)) {
    await orAbsentOrChanged(patchWithRetry(client, lvmVolumes, copy, change, {}));
  }
  await orAbsentOrChanged(client.delete(lvmVolumes, { name }, { uid }));
}

/** The annotations that a volume has only on its way, or before its deletion. */
const PASSING_ANNOTATIONS = [REMOVE_ANNOTATION, FORGOTTEN_ANNOTATION, PENDING_ANNOTATION, MOVE_ANNOTATION];

function volumeRecordOf({ metadata: { labels, annotations = {} }, spec }: LvmVolume): RecordedVolume {
  const kept = Object.entries(annotations).filter(([name]) => !PASSING_ANNOTATIONS.includes(name));
  return { metadata: { ...defined({ labels }), annotations: Object.fromEntries(kept) }, spec };
}

/**
 * Returns the LVMVolume on the target's node. Its agent creates no LV for it: the LV comes from the copy, or, of a volume that
 * is adopted, is there already.
 */
function volumeOnTarget(move: LvmMove) {
  const { metadata, spec: { source: _, sourceNode: _node, copy: _copy, held: _held, ...spec } } = move.status!.volume!;
  const takes = move.spec.adopt ? move.metadata.name : copyIdOf(move);
  return {
    apiVersion: `${lvmVolumes.group}/${lvmVolumes.version}`,
    kind: lvmVolumes.kind,
    metadata: { ...metadata, name: move.metadata.name, finalizers: [LVM_VOLUME_FINALIZER] },
    spec: { ...spec, nodeName: move.spec.targetNode, takes },
  };
}

async function orExisting<T>(creation: Promise<T>): Promise<T | undefined> {
  return await orAbsent(creation.catch((error) => {
    if (isAlreadyExists(error)) return undefined;
    throw error;
  }));
}
