/**
 * The status of an LVMSnapshot, as the agent writes it.
 *
 * @module
 */

import type { StorageError } from "../../base/error.ts";
import { isUsable } from "../../lvm/model/groups.ts";
import { formatQuantity } from "../../base/size.ts";
import { cowState, type LocatedSnapshot } from "../../lvm/inventory/snapshot_finder.ts";
import { timestamp } from "../../base/clock.ts";
import type { LvmSnapshot, LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { type ConditionState, groupHealth, lostStatus, updatedConditions } from "../api/object_status.ts";

/**
 * Returns the status of a snapshot whose LV exists. A snapshot that overflowed stays so, although LVM does not show it
 * while the LV is inactive.
 */
export function takenStatus(object: LvmSnapshot, located: LocatedSnapshot): LvmSnapshotStatus {
  const found = object.status?.state === "Overflowed"
    ? { ...located, snapshot: { ...located.snapshot, ready: false } }
    : located;
  const { snapshot: { size, createdAt, ready }, lv, group } = found;
  return {
    state: ready ? "Ready" : "Overflowed",
    observedGeneration: object.metadata.generation ?? 0,
    volumeGroup: group.name,
    volumeGroupUUID: group.uuid,
    lvName: lv.name,
    lvUUID: lv.uuid,
    size: formatQuantity(lv.size),
    restoreSize: formatQuantity(size),
    creationTime: timestamp(new Date(createdAt * 1000)),
    readyToUse: ready,
    ...(lv.snapshotPercent === undefined ? {} : { cowPercent: Math.min(100, Math.ceil(lv.snapshotPercent)) }),
    conditions: updatedConditions(object, { Ready: readyCondition(found), Healthy: healthyCondition(found) }),
  };
}

/** Returns the status of a snapshot whose LV was created, and then removed or replaced. */
export function lostSnapshotStatus(object: LvmSnapshot, error: StorageError): LvmSnapshotStatus {
  return { ...lostStatus(object, error), readyToUse: false };
}

function readyCondition({ snapshot: { ready, source } }: LocatedSnapshot): ConditionState {
  if (ready) return { status: "True", reason: "Created", message: "its logical volume exists" };
  return {
    status: "False",
    reason: "Overflowed",
    message:
      `more of volume ${source} changed than its COW space can hold, and its content is lost; delete it, it still ` +
      "slows the volume down",
  };
}

function healthyCondition(found: LocatedSnapshot): ConditionState {
  const { lv, group } = found;
  const path = `${group.name}/${lv.name}`;
  switch (cowState(found)) {
    case "Overflowed":
      return { status: "False", reason: "Overflowed", message: `the COW space ${path} overflowed` };
    case "NearFull": {
      const hasSpace = isUsable(group) && group.free >= group.extentSize;
      const remedy = hasSpace
        ? `lvextend --size +1G ${path}`
        : `volume group ${group.name} has no free space to extend it; delete volumes or snapshots, or vgextend ${group.name}`;
      const message = `the COW space ${path} is nearly full; when it is full, the snapshot is lost: ${remedy}`;
      return { status: "False", reason: hasSpace ? "SnapshotNearFull" : "SnapshotCannotExtend", message };
    }
    case "Ok":
      return groupHealth(group);
  }
}
