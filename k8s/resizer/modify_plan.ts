/**
 * The modification of a volume's attributes: its next step, and the status of the claim (Kubernetes' KEP 3751; as
 * csi-resizer does it).
 *
 * @module
 */

import { conditionsOf, withConditions } from "../api/conditions.ts";
import type { MergePatch } from "../client/client.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import type { ClaimCondition, Failure, StatusPatch } from "./claim_status.ts";

const MODIFYING = "ModifyingVolume";
const MODIFY_FAILED = "ModifyVolumeError";

/** The next step for a claim. */
export type ModifyStep =
  | { readonly action: "nothing" }
  /** A modification that failed is no longer asked for. */
  | { readonly action: "cancel" }
  /** A modification in progress may have been carried out, so it is completed before anything else. */
  | { readonly action: "continue"; readonly className: string }
  /** The claim names another class than its volume has. */
  | { readonly action: "begin"; readonly className: string };

/**
 * Returns the next step for a claim.
 *
 * @param certain whether what was begun is known to have failed
 */
export function nextModification(
  claim: PersistentVolumeClaim,
  { hasFinalError }: { hasFinalError: boolean },
): ModifyStep {
  const { volumeAttributesClassName: wanted = "", volumeName } = claim.spec ?? {};
  const { phase, currentVolumeAttributesClassName: current = "", modifyVolumeStatus: modifyStatus } = claim.status ??
    {};
  if (phase !== "Bound" || !volumeName) return { action: "nothing" };
  if (modifyStatus === undefined && wanted === current) return { action: "nothing" };
  const inProgress = modifyStatus?.status === "InProgress";
  if (wanted === "" && !inProgress) return { action: isModifying(claim) ? "cancel" : "nothing" };
  const target = modifyStatus?.targetVolumeAttributesClassName ?? "";
  if (inProgress && target !== "" && (!hasFinalError || wanted === "")) {
    return { action: "continue", className: target };
  }
  return wanted === "" ? { action: "nothing" } : { action: "begin", className: wanted };
}

/** Returns the patch of a claim whose class does not exist, or `undefined` when nothing changes. */
export function pendingPatch({ status }: PersistentVolumeClaim): StatusPatch | undefined {
  if (status?.modifyVolumeStatus?.status === "Pending") return undefined;
  return { status: { modifyVolumeStatus: { status: "Pending" } } };
}

/** Returns the patch of a claim when a modification starts, or `undefined` when nothing changes. */
export function startedPatch(claim: PersistentVolumeClaim, className: string, now: string): StatusPatch | undefined {
  const { status, targetVolumeAttributesClassName: target } = claim.status?.modifyVolumeStatus ?? {};
  if (status === "InProgress" && target === className) return undefined;
  const message = `The volume is being changed to ${JSON.stringify(className)}.`;
  return {
    status: {
      modifyVolumeStatus: { status: "InProgress", targetVolumeAttributesClassName: className },
      conditions: withTrueConditions(claim, now, [{ type: MODIFYING, message }]),
    },
  };
}

/** A failed modification of a volume. */
export interface ModifyFailure extends Failure {
  /** The name of the VolumeAttributesClass. */
  readonly className: string;
  /** The name of the gRPC code. */
  readonly reason: string;
  /** True if the modification may still be in progress. */
  readonly uncertain: boolean;
}

/** Returns the patch of a claim when a modification failed, or `undefined` when nothing changes. */
export function failedPatch(claim: PersistentVolumeClaim, failure: ModifyFailure): StatusPatch | undefined {
  const { className, reason, message, infeasible, uncertain, now } = failure;
  const status = infeasible ? "Infeasible" : "InProgress";
  const reported = conditionsOf(claim).find(({ type }) => type === MODIFY_FAILED);
  if (reported?.message === message && claim.status?.modifyVolumeStatus?.status === status) return undefined;
  const quoted = JSON.stringify(className);
  const outcome = uncertain
    ? `Changing the volume to ${quoted} may still be in progress.`
    : `Changing the volume to ${quoted} failed, and is retried.`;
  return {
    status: {
      modifyVolumeStatus: { status, targetVolumeAttributesClassName: className },
      conditions: withTrueConditions(claim, now, [
        { type: MODIFYING, message: outcome },
        { type: MODIFY_FAILED, reason, message },
      ]),
    },
  };
}

/** Returns the patch of a claim whose volume has the attributes of the class. */
export function modifiedPatch(claim: PersistentVolumeClaim, className: string): StatusPatch {
  return {
    status: {
      currentVolumeAttributesClassName: className,
      modifyVolumeStatus: null,
      conditions: conditionsOf(claim).filter(({ type }) => type !== MODIFYING && type !== MODIFY_FAILED),
    },
  };
}

/**
 * Returns the patch of a claim that asks for no modification any more, or `undefined` when nothing changes. The
 * condition about the failure stays.
 */
export function canceledPatch(claim: PersistentVolumeClaim): StatusPatch | undefined {
  if (!isModifying(claim)) return undefined;
  return { status: { conditions: conditionsOf(claim).filter(({ type }) => type !== MODIFYING) } };
}

/**
 * Returns the patch of a PersistentVolume whose volume has the attributes of the class, or `undefined` when nothing
 * changes.
 */
export function volumeAttributesPatch(
  { spec }: PersistentVolume,
  className: string,
): MergePatch<PersistentVolume> | undefined {
  return spec?.volumeAttributesClassName === className ? undefined : { spec: { volumeAttributesClassName: className } };
}

/** Returns the fields of a claim that decide about a modification. */
export function reconcileInputs({ spec, status }: PersistentVolumeClaim): string {
  const { phase, currentVolumeAttributesClassName, modifyVolumeStatus } = status ?? {};
  const { volumeName, volumeAttributesClassName } = spec ?? {};
  return JSON.stringify([
    volumeName,
    volumeAttributesClassName,
    phase,
    currentVolumeAttributesClassName,
    modifyVolumeStatus,
  ]);
}

function isModifying(claim: PersistentVolumeClaim): boolean {
  return conditionsOf(claim).some(({ type }) => type === MODIFYING);
}

/** Returns the conditions of a claim with some that are true. A transition time is kept where the reason is the same. */
function withTrueConditions(
  claim: PersistentVolumeClaim,
  now: string,
  added: readonly { type: string; reason?: string; message: string }[],
): ClaimCondition[] {
  const conditions = added.map((one) => ({ ...one, status: "True", lastProbeTime: now }));
  const isSame = (before: Partial<ClaimCondition>, now: Partial<ClaimCondition>) =>
    before.status === now.status && (before.reason ?? "") === (now.reason ?? "");
  return withConditions(conditionsOf(claim), conditions, now, isSame);
}
