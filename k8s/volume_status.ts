/**
 * What a node writes into the status of an LVMVolume.
 *
 * @module
 */

import type { StorageError } from "../lvm/error.ts";
import { usable } from "../lvm/groups.ts";
import { formatQuantity } from "../lvm/size.ts";
import type { Volume } from "../lvm/volumes.ts";
import { type LvmVolume, type LvmVolumeStatus, withCondition } from "./lvm_objects.ts";
import { wantedRange } from "./volume_spec.ts";

/** The longest message that the status takes, in characters. */
const LONGEST_MESSAGE = 4_096;

/** The status of a volume whose LV is there. An error that a growth ended with stays until another size is wanted. */
export function madeStatus(object: LvmVolume, { lv, group, size }: Volume): LvmVolumeStatus {
  const { metadata: { generation = 0 }, status } = object;
  const refused = status?.error !== undefined && status.observedGeneration === generation &&
    size < wantedRange(object).required;
  const healthy = usable(group);
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
    conditions: withCondition(readyCondition(object, "True", "Made", "its logical volume is there"), {
      type: "Healthy",
      status: healthy ? "True" : "False",
      observedGeneration: generation,
      reason: healthy ? "DisksThere" : "DisksMissing",
      message: healthy
        ? `volume group ${group.name} has all its disks`
        : `volume group ${group.name} does not answer, is read-only or has ${group.missingPvs} disks missing`,
    }, new Date()),
  };
}

/** The status of a volume whose LV was there and is gone, or was replaced. */
export function lostStatus(object: LvmVolume, error: StorageError): LvmVolumeStatus {
  return {
    ...object.status,
    state: "Lost",
    observedGeneration: object.metadata.generation ?? 0,
    error: inWords(error),
    conditions: readyCondition(object, "False", "Lost", error.message),
  };
}

/** The status after something failed: the volume itself is as it was. */
export function failedStatus(object: LvmVolume, error: StorageError): LvmVolumeStatus {
  const made = object.status?.lvUUID !== undefined;
  return {
    ...object.status,
    state: made ? object.status?.state ?? "Ready" : "Failed",
    observedGeneration: object.metadata.generation ?? 0,
    error: inWords(error),
    conditions: made
      ? object.status?.conditions ?? []
      : readyCondition(object, "False", error.kind, `not made: ${error.message}`),
  };
}

/** Whether two statuses say the same. */
export function isSame(a: LvmVolumeStatus | undefined, b: LvmVolumeStatus): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

function readyCondition(object: LvmVolume, status: "True" | "False", reason: string, message: string) {
  const { metadata: { generation = 0 }, status: before } = object;
  const condition = { type: "Ready", status, observedGeneration: generation, reason, message };
  return withCondition(before?.conditions, condition, new Date());
}

function inWords({ kind, message }: StorageError) {
  return { code: kind, message: message.slice(0, LONGEST_MESSAGE) };
}

/** The value with the keys of all objects in order, so that the same content is the same text. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, v]) => [key, sorted(v)]),
  );
}
