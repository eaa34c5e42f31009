/**
 * What a node writes into the status of an LVMVolume whose LV is there.
 *
 * @module
 */

import { formatQuantity } from "../lvm/size.ts";
import type { Volume } from "../lvm/volumes.ts";
import type { LvmVolume, LvmVolumeStatus } from "./lvm_objects.ts";
import { conditionsOf, groupHealth } from "./object_status.ts";
import { wantedRange } from "./volume_spec.ts";

/** The status of a volume whose LV is there. An error that a growth ended with stays until another size is wanted. */
export function madeStatus(object: LvmVolume, { lv, group, size }: Volume): LvmVolumeStatus {
  const { metadata: { generation = 0 }, status } = object;
  const refused = status?.error !== undefined && status.observedGeneration === generation &&
    size < wantedRange(object).required;
  return {
    state: "Ready",
    observedGeneration: generation,
    volumeGroup: group.name,
    volumeGroupUUID: group.uuid,
    lvName: lv.name,
    lvUUID: lv.uuid,
    devicePath: lv.devicePath,
    size: formatQuantity(size),
    ...(refused ? { error: status.error! } : {}),
    conditions: conditionsOf(object, {
      Ready: { status: "True", reason: "Made", message: "its logical volume is there" },
      Healthy: groupHealth(group),
    }),
  };
}
