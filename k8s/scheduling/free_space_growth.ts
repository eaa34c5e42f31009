/**
 * Growth of the free space of nodes, which wakes what waits for space.
 *
 * @module
 */

import { DEFAULT_OVERCOMMIT, parseOvercommit } from "../../lvm/pools/pool.ts";
import { parseQuantity } from "../../base/size.ts";
import type { LvmNode, NodePhysicalVolume, NodeVolumeGroup } from "../api/lvm_objects.ts";
import type { FreeSpaceGrowth } from "../sidecars/wake_ups.ts";

/**
 * Returns the growth of a node's free space from one report to the next: a group, one of its physical volumes or one of
 * its thin pools has more, or is new, or LVM may use the group again.
 *
 * @returns `undefined` when the node has no more space than before
 */
export function freeSpaceGrowth(before: LvmNode | undefined, now: LvmNode): FreeSpaceGrowth | undefined {
  const groupsBefore = new Map((before?.status?.volumeGroups ?? []).map((group) => [group.name, group]));
  const groups = (now.status?.volumeGroups ?? []).filter(isUsable);
  const overcommit = overcommitOf(now);
  const mayOvercommitMore = before !== undefined && overcommit > overcommitOf(before);
  if (!mayOvercommitMore && !groups.some((group) => hasGrown(groupsBefore.get(group.name), group))) return undefined;
  // a new thin pool takes volumes of more than its own size
  const sizes = groups.flatMap(({ free, thinPools = [] }) => [
    bytesOf(free) * (overcommit > 100n ? overcommit : 100n) / 100n,
    ...thinPools.map(({ availableVirtual }) => bytesOf(availableVirtual)),
  ]);
  return { nodeName: now.metadata.name, largestBytes: sizes.reduce((max, size) => size > max ? size : max, 0n) };
}

function hasGrown(before: NodeVolumeGroup | undefined, now: NodeVolumeGroup): boolean {
  if (before === undefined || !isUsable(before)) return true;
  if (bytesOf(now.free) > bytesOf(before.free)) return true;
  const pvs = new Map((before.physicalVolumes ?? []).map((pv) => [pv.uuid, pvBytes(pv)]));
  if ((now.physicalVolumes ?? []).some((pv) => pvBytes(pv) > (pvs.get(pv.uuid) ?? -1n))) return true;
  const pools = new Map(
    (before.thinPools ?? []).map(({ name, availableVirtual }) => [name, bytesOf(availableVirtual)]),
  );
  return (now.thinPools ?? []).some(({ name, availableVirtual }) =>
    bytesOf(availableVirtual) > (pools.get(name) ?? -1n)
  );
}

function pvBytes({ free, cacheFree }: NodePhysicalVolume): bigint {
  return bytesOf(cacheFree ?? free);
}

function isUsable({ writeable, missingPVCount }: NodeVolumeGroup): boolean {
  return writeable && missingPVCount === 0;
}

/** Returns the overcommit of new thin pools of a node, in percent. */
function overcommitOf({ status }: LvmNode): bigint {
  return parseOvercommit(status?.thinPoolOvercommit ?? "") ?? DEFAULT_OVERCOMMIT;
}

function bytesOf(quantity = "0"): bigint {
  return parseQuantity(quantity) ?? 0n;
}
