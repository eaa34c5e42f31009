/**
 * Changing a volume's attributes: what is due for a claim whose VolumeAttributesClass changed, and what the claim's status says
 * of it (Kubernetes' KEP 3751; as csi-resizer does it).
 *
 * @module
 */

import { conditionsOf, withConditions } from "../api/conditions.ts";
import type { MergePatch } from "../client/client.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import type { ClaimCondition, Failure, StatusPatch } from "./claim_status.ts";

const MODIFYING = "ModifyingVolume";
const MODIFY_FAILED = "ModifyVolumeError";

/** What is due for a claim. */
export type ModifyStep =
  | { readonly action: "nothing" }
  /** What was begun and failed is wanted no more. */
  | { readonly action: "cancel" }
  /** What was begun may have been done: it is done before anything else. */
  | { readonly action: "continue"; readonly className: string }
  /** The class that the claim names is another one than it has. */
  | { readonly action: "begin"; readonly className: string };

/**
 * What is due for a claim.
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

/** The claim while the class that it names is not there; `undefined` when it says so already. */
export function pendingPatch({ status }: PersistentVolumeClaim): StatusPatch | undefined {
  if (status?.modifyVolumeStatus?.status === "Pending") return undefined;
  return { status: { modifyVolumeStatus: { status: "Pending" } } };
}

/** The claim when a change begins; `undefined` when it says so already. */
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
  /** Whether the modification may still be in progress. */
  readonly uncertain: boolean;
}

/** The claim when a change failed; `undefined` when it says so already. */
export function failedPatch(claim: PersistentVolumeClaim, failure: ModifyFailure): StatusPatch | undefined {
  const { className, reason, message, infeasible, uncertain, now } = failure;
  const status = infeasible ? "Infeasible" : "InProgress";
  const reported = conditionsOf(claim).find(({ type }) => type === MODIFY_FAILED);
  if (reported?.message === message && claim.status?.modifyVolumeStatus?.status === status) return undefined;
  const quoted = JSON.stringify(className);
  const outcome = uncertain
    ? `Changing the volume to ${quoted} may still be going on.`
    : `Changing the volume to ${quoted} failed. It is tried again.`;
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

/** The claim whose volume has the attributes of the class. */
export function modifiedPatch(claim: PersistentVolumeClaim, className: string): StatusPatch {
  return {
    status: {
      currentVolumeAttributesClassName: className,
      modifyVolumeStatus: null,
      conditions: conditionsOf(claim).filter(({ type }) => type !== MODIFYING && type !== MODIFY_FAILED),
    },
  };
}

/** The claim that wants no change any more; `undefined` when it says so already. What failed stays told. */
export function canceledPatch(claim: PersistentVolumeClaim): StatusPatch | undefined {
  if (!isModifying(claim)) return undefined;
  return { status: { conditions: conditionsOf(claim).filter(({ type }) => type !== MODIFYING) } };
}

/** The PersistentVolume whose volume has the attributes of the class; `undefined` when it says so already. */
export function volumeAttributesPatch(
  { spec }: PersistentVolume,
  className: string,
): MergePatch<PersistentVolume> | undefined {
  return spec?.volumeAttributesClassName === className ? undefined : { spec: { volumeAttributesClassName: className } };
}

/** What of a claim decides about a change. */
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
