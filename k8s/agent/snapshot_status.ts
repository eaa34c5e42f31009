/**
 * What a node writes into the status of an LVMSnapshot.
 *
 * @module
 */

import type { StorageError } from "../../lvm/error.ts";
import { usable } from "../../lvm/model/groups.ts";
import { formatQuantity } from "../../lvm/size.ts";
import { type LocatedSnapshot, storeState } from "../../lvm/snapshots/snapshots.ts";
import { timestamp } from "../runtime/clock.ts";
import type { LvmSnapshot, LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { conditionsOf, type Finding, groupHealth, lostStatus } from "../api/object_status.ts";

/** The status of a snapshot whose LV is there. One that overflowed stays so, though LVM cannot tell while it is inactive. */
export function takenStatus(object: LvmSnapshot, seen: LocatedSnapshot): LvmSnapshotStatus {
  const found = object.status?.state === "Overflowed"
    ? { ...seen, snapshot: { ...seen.snapshot, ready: false } }
    : seen;
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
    ...(lv.snapshotPercent === undefined ? {} : { storePercent: Math.min(100, Math.ceil(lv.snapshotPercent)) }),
    conditions: conditionsOf(object, { Ready: readiness(found), Healthy: health(found) }),
  };
}

/** The status of a snapshot whose LV was there and is gone, or was replaced. */
export function lostSnapshotStatus(object: LvmSnapshot, error: StorageError): LvmSnapshotStatus {
  return { ...lostStatus(object, error), readyToUse: false };
}

function readiness({ snapshot: { ready, source } }: LocatedSnapshot): Finding {
  if (ready) return { status: "True", reason: "Taken", message: "its logical volume is there" };
  return {
    status: "False",
    reason: "Overflowed",
    message:
      `more of volume ${source} changed than its store had room for, and its content is gone; delete it, it still ` +
      "slows the volume down",
  };
}

function health(found: LocatedSnapshot): Finding {
  const { lv, group } = found;
  const path = `${group.name}/${lv.name}`;
  switch (storeState(found)) {
    case "Overflowed":
      return { status: "False", reason: "Overflowed", message: `the store ${path} overflowed` };
    case "Filling": {
      const hasRoom = usable(group) && group.free >= group.extentSize;
      const remedy = hasRoom
        ? `lvextend --size +1G ${path}`
        : `volume group ${group.name} has no room to grow it; delete volumes or snapshots, or vgextend ${group.name}`;
      const message = `the store ${path} is nearly full, and then the snapshot is lost: ${remedy}`;
      return { status: "False", reason: hasRoom ? "StoreFilling" : "StoreCannotGrow", message };
    }
    case "Roomy":
      return groupHealth(group);
  }
}
