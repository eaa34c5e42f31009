/**
 * The status of an LVMVolume whose LV exists, as the agent writes it.
 *
 * @module
 */

import { cacheProblem, groupProblem, poolProblem, type Problem, pvProblem } from "../../lvm/health/health.ts";
import type { KeyOutcome, KeyState } from "../../lvm/encryption/key_changes.ts";
import { defined } from "../../base/defined.ts";
import { redundancyOf } from "../../lvm/model/redundancy.ts";
import type { LogicalVolume, VolumeGroup } from "../../lvm/model/report.ts";
import { formatQuantity } from "../../base/size.ts";
import type { LimitsState } from "../../lvm/staging/io_limiter.ts";
import type { Volume } from "../../lvm/inventory/volume.ts";
import { type Condition, conditionsOf } from "../api/conditions.ts";
import { heldConditions, type HeldState } from "../api/volume_conditions.ts";
import type { LvmVolume, LvmVolumeStatus } from "../api/lvm_objects.ts";
import { type ConditionState, groupHealth, updatedConditions } from "../api/object_status.ts";
import { desiredSizeRange } from "../api/volume_mapping.ts";

/**
 * The type of the condition about IO limits: whether they apply to the pods that use the volume. It is absent while no
 * pod does.
 */
export const LIMITS_CONDITION = "IOLimitsApplied";

/** The type of the condition about the health of a volume and of what it depends on. */
export const HEALTHY_CONDITION = "Healthy";

/** The type of the condition about redundancy: whether a volume would survive the loss of a disk. */
export const REDUNDANT_CONDITION = "Redundant";

/**
 * The type of the condition about keys: whether an encrypted volume has the passphrase and the volume key that its Secret
 * requests. It is absent while no change was requested.
 */
export const KEYS_CONDITION = "KeysChanged";

/**
 * Returns the problems of a volume, its thin pool, its filesystem and its group. The first one may be the cause of the
 * others. Its redundancy has a condition of its own.
 */
function healthProblems(lv: LogicalVolume, group: VolumeGroup, filesystem: RuntimeState["filesystem"]) {
  const ofPv = pvProblem(lv, group);
  const partial = ofPv?.reason === "Partial" ? { reason: ofPv.reason, message: ofPv.message } : undefined;
  const all = [partial, cacheProblem(lv), poolProblem(lv, group), filesystem, groupProblem(group)];
  return all.filter((problem) => problem !== undefined);
}

/** Returns the problems that a status reports; those of agents of early versions are in the condition. */
export function problemsOf(status: LvmVolumeStatus | undefined): { reason: string; message: string }[] {
  const healthy = status?.conditions?.find(({ type }) => type === HEALTHY_CONDITION);
  return status?.problems ?? (healthy?.status === "False" ? [healthy] : []);
}

/** The state of a volume that is not read from its LV. */
export interface RuntimeState {
  /** The state of its IO limits, if it has any and pods use it. */
  readonly limits?: LimitsState | undefined;
  /** What is known of it while it is held. */
  readonly held?: HeldState | undefined;
  /** The problem of its filesystem, if it is mounted and has one. */
  readonly filesystem?: Problem<"FilesystemReadOnly"> | undefined;
  /** The state of its keys, as far as this process knows it. */
  readonly keys?: KeyState | undefined;
  /** The used share of its filesystem in percent, if it is mounted and kubelet has asked for it. */
  readonly usedPercent?: number | undefined;
  /** The largest logical sectors on which what is on it can be used, if they are known. */
  readonly maximumSectorSize?: string | undefined;
}

/**
 * Returns the status of a volume whose LV exists. The error of a failed expansion stays until another size is asked
 * for.
 */
export function readyStatus(
  object: LvmVolume,
  { lv, group, size }: Volume,
  { limits, filesystem, held, keys, maximumSectorSize, usedPercent }: RuntimeState = {},
): LvmVolumeStatus {
  const { metadata: { generation = 0 }, status } = object;
  const problems = healthProblems(lv, group, filesystem);
  const health: ConditionState = problems.length === 0
    ? groupHealth(group)
    : { status: "False", reason: problems[0]!.reason, message: problems.map(({ message }) => message).join("; ") };
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
    ...defined({
      maximumSectorSize,
      usedPercent: reportedUsage(status?.lvUUID === lv.uuid ? status.usedPercent : undefined, usedPercent),
    }),
    size: formatQuantity(size),
    ...(keepsError ? { error: status.error! } : {}),
    ...(problems.length === 0 ? {} : { problems }),
    conditions: limitsConditions(withKeys(withHeld(object, held), keys), limits, {
      Ready: { status: "True", reason: "Created", message: "its logical volume exists" },
      [HEALTHY_CONDITION]: health,
      ...redundancyHealth(lv, group),
    }),
  };
}

/** The change of usage from which on it is reported, in percent of the filesystem: each report is a write. */
const USAGE_STEP = 5;

/** Returns the usage that is reported: the recorded one, until another one differs by a step, or the filesystem is full. */
function reportedUsage(recorded: number | undefined, seen: number | undefined): number | undefined {
  if (recorded === undefined || seen === undefined) return seen ?? recorded;
  return Math.abs(seen - recorded) >= USAGE_STEP || seen === 100 ? seen : recorded;
}

/**
 * Returns an object with the condition about its being held, as it is known. The condition stays as it is where nothing is known
 * yet since this process started, and where the volume is not held any more: who removes the tag removes it before.
 */
function withHeld(object: LvmVolume, held: HeldState | undefined): LvmVolume {
  if (!object.spec.held || held === undefined) return object;
  return withConditions(object, heldConditions(object, held));
}

/** The reasons of the condition about keys that are over as soon as nothing shows them any more, also after a restart. */
const SHOWN_REASONS = ["KeyChangeInterrupted", "KeyChangeRunning"];

/**
 * Returns an object with the condition about its keys, as they are known. What an earlier process found out stays, but for what
 * would still be shown.
 */
function withKeys(object: LvmVolume, keys: KeyState | undefined): LvmVolume {
  const before = conditionsOf(object).find(({ type }) => type === KEYS_CONDITION);
  if (keys === undefined || keys === "NotRequested") {
    const isOver = before?.status === "False" && (keys !== undefined || SHOWN_REASONS.includes(before.reason));
    return isOver ? withConditions(object, conditionsOf(object).filter((each) => each !== before)) : object;
  }
  // that the previous passphrase opens nothing stays true when it is not in the Secret any more
  if (keys === "Complete" && before?.status === "True") return object;
  const state: ConditionState = typeof keys === "string"
    ? { status: "True", reason: "KeyChangeComplete", message: KEYS_COMPLETE[keys] }
    : { status: "False", ...keys };
  return withConditions(object, updatedConditions(object, { [KEYS_CONDITION]: state }));
}

function withConditions(object: LvmVolume, conditions: Condition[]): LvmVolume {
  return { ...object, status: { ...object.status, conditions } };
}

/** The messages of volumes that have the keys that their Secrets request. */
const KEYS_COMPLETE = {
  Complete: "it has the passphrase and the volume key that its Secret requests",
  PassphraseReplaced:
    "it has the passphrase and the volume key that its Secret requests, and the previous passphrase opens nothing",
} satisfies Record<KeyOutcome, string>;

/** Returns the condition about redundancy; none for a volume without redundancy. */
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

/** Returns the conditions of a volume with the one about its IO limits, and with others set. */
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
