/**
 * Executes the steps of a move.
 *
 * @module
 */

import type { GroupMatcher } from "../../lvm/model/groups.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { defined } from "../../base/defined.ts";
import { truncate } from "../../base/error.ts";
import { type ApiClient, ApiError, orAbsent } from "../client/client.ts";
import {
  CREATED_ANNOTATION,
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
  marksOf,
  type MoveObjects,
  type NamedGoal,
  type OwnMoveStep,
  type RecordedVolume,
} from "./moves.ts";
import { affinityTo, recordOf, volumeFrom } from "./persistent_volume.ts";
import { finalStatus } from "./move_status.ts";
import { HELD_COW } from "./copy_mode.ts";
import { createOnce, forgetVolume, patchAsRead, writeStatus } from "./writes.ts";

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
  step: OwnMoveStep,
  objects: MoveObjects,
  options: MoveActionsOptions,
): Promise<LvmMove | undefined | void> {
  const { client, topologyKey } = options;
  const { self: move, volume, copy, persistentVolume } = objects;
  const write = (status: Parameters<typeof writeStatus<LvmMove>>[3]) => writeStatus(client, lvmMoves, move, status);
  switch (step.do) {
    case "hold":
      return void await patchAsRead(client, lvmVolumes, volume!, {
        metadata: { annotations: { [MOVE_ANNOTATION]: move.metadata.uid! } },
        spec: { held: true },
      });
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
      return void await patchAsRead(client, lvmVolumes, copy!, { spec: { copy: copySpecOf(step.goal) } });
    case "discard snapshots":
      for (const { metadata: { name } } of objects.temporary) await options.transfers.discard(name as SnapshotId);
      return;
    case "go offline":
      return await write({ copyMode: "Offline", offlineReason: truncate(step.reason, MAX_REASON_LENGTH) });
    case "delete copy":
      return await options.volumes.delete(copyIdOf(move), { uid: copy!.metadata.uid });
    case "record": {
      const affinityMethod = await affinityMethodOf(client, persistentVolume!, move.spec.targetNode, topologyKey);
      return await write({ persistentVolume: recordOf(persistentVolume!), affinityMethod });
    }
    case "patch affinity":
      return await patchAffinity(persistentVolume!, step.node, objects, options);
    case "create persistent volume": {
      const spec = { nodeAffinity: affinityTo(step.node, topologyKey) };
      const object = volumeFrom(move, move.status!.persistentVolume!, { annotations: marksOf(move), spec });
      return await createOnce(client, persistentVolumes, object);
    }
    case "begin removing":
      return await write({ removing: true, volume: volumeRecordOf(volume!) });
    case "remove source":
      return await removeSource(objects, options);
    case "stop removing":
      return await write({
        removing: null,
        volume: null,
        error: step.error,
        state: "Undoing",
        message: step.error.message,
      });
    case "create volume":
      return await createOnce(client, lvmVolumes, volumeOnTarget(move));
    case "forget copy":
      return await forgetVolume(client, copy!);
    case "finish":
      return await write(finalStatus(move, step, options.now));
  }
}

/**
 * Removes the volume on the source's node. Until the API server has its deletion, it must be held for the move: undoing a move
 * whose copy is gone releases the hold first. Of an adopted one, no agent is asked to remove an LV: it is the only one.
 */
async function removeSource({ self: move, volume, copy }: MoveObjects, options: MoveActionsOptions): Promise<void> {
  const { metadata: { name, uid, deletionTimestamp } } = volume!;
  const id = name as VolumeId; // the API server accepts no other name
  if (move.spec.adopt) return await forgetVolume(options.client, volume!);
  if (deletionTimestamp !== undefined) return await options.volumes.delete(id, { uid });
  const now = await orAbsent(options.client.get(lvmVolumes, { name: copyIdOf(move) }));
  // it was read at the same time as the volume, and may be gone since
  if (now?.metadata.uid !== copy?.metadata.uid || !isCopied({ self: move, copy: now }, volume!)) return;
  await options.volumes.delete(id, { uid, onlyIf: (latest) => isHeldFor(move, latest) });
}

/** Changes the affinity of a PersistentVolume; records that it has to be made again where that is refused by now. */
async function patchAffinity(
  persistentVolume: PersistentVolume,
  node: string,
  { self: move }: MoveObjects,
  { client, topologyKey }: MoveActionsOptions,
): Promise<void> {
  try {
    const merge = { spec: { nodeAffinity: affinityTo(node, topologyKey) } };
    await patchAsRead(client, persistentVolumes, persistentVolume, merge);
  } catch (error) {
    if (!isImmutable(error)) throw error;
    await writeStatus(client, lvmMoves, move, { affinityMethod: "Recreate" }); // the gate was turned off
  }
}

/** Releases a volume, if it is still as it was read: a late release must not end the hold of a later move. */
export async function release(client: ApiClient, volume: LvmVolume): Promise<void> {
  // also what the deletion begins with: it was not sent
  const isDeleting = volume.metadata.deletionTimestamp !== undefined;
  const annotations = { [MOVE_ANNOTATION]: null, ...(!isDeleting && { [REMOVE_ANNOTATION]: null }) };
  await patchAsRead(client, lvmVolumes, volume, { metadata: { annotations }, spec: { held: null } });
}

/** Takes the snapshot that a copy should have. Of a volume that nobody uses, it needs little COW space. */
async function takeSnapshot(
  { name, last }: NamedGoal,
  { self: move, volume }: MoveObjects,
  { transfers }: MoveActionsOptions,
): Promise<void> {
  const source = volume!.metadata.name as VolumeId; // the API server accepts no other name
  const grant = { volume: copyIdOf(move), node: move.spec.targetNode };
  await transfers.take({ name, source, cowSize: last ? HELD_COW : FULL_COW }, grant);
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

/** The annotations that a volume has only on its way, or before its deletion; and that its LV exists, which its agent writes. */
const PASSING_ANNOTATIONS = [
  CREATED_ANNOTATION,
  REMOVE_ANNOTATION,
  FORGOTTEN_ANNOTATION,
  PENDING_ANNOTATION,
  MOVE_ANNOTATION,
];

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
  const adoptsVolume = move.spec.adopt ? move.metadata.name : copyIdOf(move);
  return {
    metadata: { ...metadata, name: move.metadata.name, finalizers: [LVM_VOLUME_FINALIZER] },
    spec: { ...spec, nodeName: move.spec.targetNode, adoptsVolume },
  };
}
