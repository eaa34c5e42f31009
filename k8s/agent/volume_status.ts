/**
 * What a node writes into the status of an LVMVolume whose LV is there.
 *
 * @module
 */

import { poolProblem, type Problem, pvProblem } from "../../lvm/health/health.ts";
import { redundancyOf } from "../../lvm/model/redundancy.ts";
import type { LogicalVolume, VolumeGroup } from "../../lvm/model/report.ts";
import { formatQuantity } from "../../lvm/size.ts";
import type { LimitsState } from "../../lvm/staging/io_limiter.ts";
import type { Volume } from "../../lvm/inventory/volume.ts";
import type { Condition } from "../api/conditions.ts";
import type { LvmVolume, LvmVolumeStatus } from "../api/lvm_objects.ts";
import { type ConditionState, groupHealth, updatedConditions } from "../api/object_status.ts";
import { desiredSizeRange } from "../api/volume_mapping.ts";

/** The condition which says whether the volume's limits hold for the pods that have it; absent while none has. */
export const LIMITS_CONDITION = "IOLimitsApplied";

/** The type of the condition that says whether a volume, and what it is in, is fit for use. */
export const HEALTHY_CONDITION = "Healthy";

/** The type of the condition that says whether a volume would survive the loss of a disk. */
export const REDUNDANT_CONDITION = "Redundant";

/**
 * Whether a volume, its filesystem, its group and its thin pool, if it is in one, are fit for use: the first of what may be the
 * cause of the rest. Its copies have a condition of their own.
 */
function volumeHealth(lv: LogicalVolume, group: VolumeGroup, filesystem: RuntimeState["filesystem"]): ConditionState {
  const disk = pvProblem(lv, group);
  const problem = disk?.reason === "Partial" ? disk : poolProblem(lv, group) ?? filesystem;
  return problem === undefined ? groupHealth(group) : { status: "False", ...problem };
}

/** What is known of a volume beside its LV. */
export interface RuntimeState {
  /** What has become of its limits, if it has any and pods have it. */
  readonly limits?: LimitsState | undefined;
  /** What is wrong with its filesystem, if that is mounted. */
  readonly filesystem?: Problem<"FilesystemReadOnly"> | undefined;
}

/** The status of a volume whose LV is there. An error that a growth ended with stays until another size is wanted. */
export function readyStatus(
  object: LvmVolume,
  { lv, group, size }: Volume,
  { limits, filesystem }: RuntimeState = {},
): LvmVolumeStatus {
  const { metadata: { generation = 0 }, status } = object;
  const keepsError = status?.error !== undefined && status.observedGeneration === generation &&
    size < desiredSizeRange(object).required;
  return {
    state: "Ready",
    observedGeneration: generation,
    volumeGroup: group.name,
    volumeGroupUUID: group.uuid,
    lvName: lv.name,
    lvUUID: lv.uuid,
    devicePath: lv.devicePath,
    size: formatQuantity(size),
    ...(keepsError ? { error: status.error! } : {}),
    conditions: limitsConditions(object, limits, {
      Ready: { status: "True", reason: "Created", message: "its logical volume is there" },
      [HEALTHY_CONDITION]: volumeHealth(lv, group, filesystem),
      ...redundancyHealth(lv, group),
    }),
  };
}

/** The condition of a volume with redundancy alone: whether it would survive the loss of a disk. */
function redundancyHealth(lv: LogicalVolume, group: VolumeGroup): Readonly<Record<string, ConditionState>> {
  const redundancy = redundancyOf(lv, group);
  if (redundancy === undefined) return {};
  const { state, redundant, message } = redundancy;
  return {
    [REDUNDANT_CONDITION]: {
      status: redundant ? "True" : "False",
      reason: state,
      message: pvProblem(lv, group)?.message ?? message,
    },
  };
}

/** The conditions of a volume with what has become of its limits, and with those findings. */
export function limitsConditions(
  object: LvmVolume,
  limits: LimitsState | undefined,
  states: Readonly<Record<string, ConditionState>> = {},
): Condition[] {
  if (limits === undefined) return updatedConditions(object, states).filter(({ type }) => type !== LIMITS_CONDITION);
  const { applied, reason, message } = limits;
  return updatedConditions(object, {
    ...states,
    [LIMITS_CONDITION]: { status: applied ? "True" : "False", reason, message },
  });
}
