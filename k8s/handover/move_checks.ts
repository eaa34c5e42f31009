/**
 * What must be true before a volume is moved. Each refusal says what to do.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { GroupMatcher } from "../../lvm/model/groups.ts";
import { snapshotRefusal } from "../../lvm/model/layout.ts";
import { KEYS_CONDITION } from "../agent/volume_status.ts";
import { isForgotten, type LvmNode, type LvmSnapshot, type LvmVolume } from "../api/lvm_objects.ts";
import type { StorageClass } from "../api/objects.ts";
import { namesOfBlocking } from "../api/snapshot_mapping.ts";
import { canTransfer, transferredVolumeOf } from "../api/transfers.ts";
import {
  actualSize,
  desiredSizeRange,
  layoutOf,
  maximumSectorBytesOf,
  type NamedVolumeRequest,
  volumeRequestOf,
} from "../api/volume_mapping.ts";
import { isManagedBy } from "../provisioner/persistent_volume.ts";
import { freeCapacityOf } from "../scheduling/free_capacity.ts";
import { chooseNode } from "../scheduling/placement.ts";
import { ClaimError } from "../sidecars/class_parameters.ts";
import { type ClusterTopology, topologyOfNode, WrongNodeError } from "../sidecars/claim_topology.ts";
import { isCopied, isGone } from "./copy_step.ts";
import { agentAbsence, claimRefusal } from "./handover.ts";
import { copyIdOf, copyRequestName, isHeldFor, type LvmMove, movedVolumeOf, type MoveObjects } from "./moves.ts";
import { nodeOfVolume } from "./persistent_volume.ts";

/** The cluster, as far as it decides whether a volume can be moved. */
export interface MoveSurroundings {
  /** The LVMNodes of source and target. */
  readonly lvmNodes: { readonly source: LvmNode | undefined; readonly target: LvmNode | undefined };
  /** Reports whether an agent has given no sign of life for minutes. */
  readonly isSilent: (node: string) => boolean;
  /** The LVMVolumes of the target's node. */
  readonly targetVolumes: readonly LvmVolume[];
  /** The class of the claim; absent when it was deleted. */
  readonly storageClass: StorageClass | undefined;
  /** The nodes. */
  readonly cluster: ClusterTopology;
  /** Parses a list of volume groups. */
  readonly parseGroups: (list: string) => GroupMatcher;
  /** The time, in milliseconds since 1970. */
  readonly now: number;
}

/** Returns why a volume can no longer be moved, although it could when the move began; `undefined` when it can. */
export function objectsRefusal(objects: MoveObjects, driver: string): string | undefined {
  const { self: move, volume, persistentVolume, claim, topologyKey } = objects;
  const { spec } = move;
  const volumeId = movedVolumeOf(move);
  if (volumeId === undefined) return "its name is no id of a volume";
  if (spec.sourceNode === spec.targetNode) return `the volume is on node ${spec.targetNode} already`;
  const refusal = claimRefusal(objects);
  if (refusal !== undefined) return refusal;
  const { metadata } = claim!;
  const pod = metadata.ownerReferences?.find(({ kind, controller }) => kind === "Pod" && controller);
  if (pod !== undefined) {
    return `claim ${metadata.namespace}/${metadata.name} is of a generic ephemeral volume, and is deleted with its pod ${pod.name}`;
  }
  if (volume === undefined || volume.spec.driverName !== driver || volume.metadata.deletionTimestamp !== undefined) {
    return `LVMVolume ${volumeId} does not exist, or is being deleted`;
  }
  if (volume.spec.nodeName !== spec.sourceNode) {
    return `the volume is on node ${volume.spec.nodeName}, not on node ${spec.sourceNode}`;
  }
  // the copy may be all that is left of it
  const isSaved = isGone(volume) && isCopied(objects, volume);
  if (!spec.adopt && volume.status?.state !== "Ready" && !isSaved) {
    return `the volume is ${volume.status?.state ?? "Pending"}: ${
      volume.status?.error?.message ?? "it is not created yet"
    }`;
  }
  const keys = spec.adopt || isSaved || isHeldFor(move, volume) ? undefined : keysRefusal(volume);
  if (keys !== undefined) return keys;
  const name = spec.persistentVolume;
  if (!isManagedBy(persistentVolume!, driver) || persistentVolume!.spec?.csi?.volumeHandle !== volumeId) {
    return `PersistentVolume ${name} is not of volume ${volumeId} of the driver`;
  }
  if (nodeOfVolume(persistentVolume!, topologyKey) !== spec.sourceNode) {
    return `the node affinity of PersistentVolume ${name} is not to node ${spec.sourceNode} alone, by the label ${topologyKey}`;
  }
  return undefined;
}

/** Returns that the data of a volume is encrypted by two volume keys, so that a copy could not be used. */
function keysRefusal({ status }: LvmVolume): string | undefined {
  const keys = status?.conditions?.find(({ type }) => type === KEYS_CONDITION);
  const isHalf = keys?.status === "False" && ["ReencryptionInterrupted", "KeyChangeRunning"].includes(keys.reason);
  return isHalf ? `a copy of the volume could not be used: ${keys.message}` : undefined;
}

/** Returns why a volume cannot be moved now; `undefined` when it can. It is asked before the volume is held. */
export function surroundingsRefusal(objects: MoveObjects, surroundings: MoveSurroundings): string | undefined {
  const { self: move, volume, snapshots } = objects;
  const { targetNode, adopt } = move.spec;
  if (adopt) return adoptionRefusal(objects, surroundings) ?? topologyRefusal(targetNode, surroundings);
  const agents = agentsRefusal(move, surroundings);
  if (agents !== undefined) return agents;
  if (!volume!.spec.thinProvision && snapshots.length > 0) {
    return `the thick volume is the origin of the snapshots ${snapshots.join(", ")}; delete them first`;
  }
  return topologyRefusal(targetNode, surroundings) ?? copyRefusal(objects, surroundings);
}

/**
 * Returns why a node cannot have a volume whose disks were carried to it; `undefined` when it can. It is asked until the volume is
 * removed from its first node: the disks may be carried back.
 */
export function adoptionRefusal(
  { self: { spec: { sourceNode, targetNode } }, volume }: MoveObjects,
  { lvmNodes: { source, target } }: Pick<MoveSurroundings, "lvmNodes">,
): string | undefined {
  if (!isForgotten(volume!)) {
    return `node ${sourceNode} is not forgotten: see kubectl denolith forget-node ${sourceNode}`;
  }
  if (source !== undefined) return `node ${sourceNode} has an agent again: it may have the disks`;
  const { volumeGroup, volumeGroupUUID } = volume!.status ?? {};
  const hasGroup = target?.status?.volumeGroups?.some(({ uuid }) => uuid === volumeGroupUUID) ?? false;
  return hasGroup
    ? undefined
    : `node ${targetNode} does not report volume group ${volumeGroup} (UUID ${volumeGroupUUID})`;
}

/** Returns why the agents cannot copy a volume now; `undefined` when they can. */
export function agentsRefusal(
  { spec: { sourceNode, targetNode } }: LvmMove,
  { lvmNodes, isSilent, now }: Pick<MoveSurroundings, "lvmNodes" | "isSilent" | "now">,
): string | undefined {
  for (const [name, node] of [[sourceNode, lvmNodes.source], [targetNode, lvmNodes.target]] as const) {
    const absence = agentAbsence(name, node, isSilent);
    if (absence !== undefined) {
      return name === sourceNode && node !== undefined
        ? `${absence}. The data are on its disks alone: bring the node back, or restore a backup`
        : absence;
    }
    if (!canTransfer(node!, now)) {
      return `the agent of node ${name} takes no part in transfers: set transfer.enabled of the chart`;
    }
  }
  return undefined;
}

function topologyRefusal(node: string, { storageClass, cluster }: MoveSurroundings): string | undefined {
  try {
    topologyOfNode(node, storageClass?.allowedTopologies, cluster);
    return undefined;
  } catch (error) {
    if (error instanceof WrongNodeError || error instanceof ClaimError) return error.message;
    throw error;
  }
}

/** Returns why a copy of a volume cannot be made on the target's node; `undefined` when it can. */
function copyRefusal({ self: move, volume }: MoveObjects, surroundings: MoveSurroundings): string | undefined {
  const { lvmNodes, targetVolumes, parseGroups } = surroundings;
  const { targetNode } = move.spec;
  try {
    const layout = snapshotRefusal(layoutOf(volume!));
    if (layout !== undefined) {
      return `the volume ${layout}, which it would be copied from; restore a backup of it on the other node`;
    }
    const request = copyRequestOf(move, volume!, parseGroups);
    const capacity = freeCapacityOf(lvmNodes.target!, targetVolumes, parseGroups);
    chooseNode(request, { allowed: [targetNode], preferred: [] }, [capacity]);
    return undefined;
  } catch (error) {
    if (error instanceof StorageError) return error.message;
    throw error;
  }
}

/** Returns the request for the copy of a volume: one of the same kind, with its size and content. @throws {StorageError} */
export function copyRequestOf(
  move: LvmMove,
  volume: LvmVolume,
  parseGroups: (list: string) => GroupMatcher,
): NamedVolumeRequest {
  const { sourceNode: _, goal: _goal, ...request } = volumeRequestOf(volume, parseGroups);
  return {
    ...request,
    id: copyIdOf(move),
    name: copyRequestName(move),
    range: { required: actualSize(volume) ?? desiredSizeRange(volume).required },
    ...maximumSectorBytesOf(volume),
    source: { kind: "volume", id: request.id },
  };
}

/** Returns the names of the snapshots that keep a volume from deletion, without the temporary ones of the move. */
export function blockingSnapshots(
  move: LvmMove,
  volume: LvmVolume | undefined,
  snapshots: readonly LvmSnapshot[],
  { withTemporary = false } = {},
): string[] {
  if (volume === undefined) return [];
  const copy = copyIdOf(move);
  return namesOfBlocking(volume, snapshots.filter((one) => withTemporary || transferredVolumeOf(one) !== copy));
}
