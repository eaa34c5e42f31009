/**
 * The expansion of a claim: its next step, and the status of the claim (Kubernetes' KEP 1790, recovery from failed
 * expansions).
 *
 * @module
 */

import { formatQuantity } from "../../base/size.ts";
import { conditionsOf, withConditions } from "../api/conditions.ts";
import type { MergePatch } from "../client/client.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import { quantityToBytes } from "../api/quantity.ts";
import type { ClaimCondition, Failure, StatusPatch } from "./claim_status.ts";
import { defined } from "../../base/defined.ts";

/** The annotation of a PersistentVolume with its size before the expansion, until its filesystem was expanded. */
export const PRE_RESIZE_CAPACITY_ANNOTATION = "volume.alpha.kubernetes.io/pre-resize-capacity";

/** The annotation that tells kubelet that it has nothing to do. */
export const NODE_EXPANSION_NOT_REQUIRED_ANNOTATION = "volume.kubernetes.io/node-expansion-not-required";

/** The state of an expansion, by the API's names of `allocatedResourceStatuses`. */
export type ResizeState =
  | "ControllerResizeInProgress"
  | "ControllerResizeInfeasible"
  | "NodeResizePending"
  | "NodeResizeInProgress"
  | "NodeResizeInfeasible";

const RESIZE_CONDITIONS: readonly string[] = [
  "Resizing",
  "FileSystemResizePending",
  "ControllerResizeError",
  "NodeResizeError",
];

/** The sizes of a claim, in bytes. */
export interface ClaimSizes {
  /** The requested size. */
  readonly requested: bigint;
  /** The actual state. */
  readonly actual: bigint;
  /** The size of the last expansion that was started, if any. */
  readonly allocated: bigint | undefined;
  /** The state of that expansion. */
  readonly state: ResizeState | undefined;
}

/** Returns the sizes of a claim. */
export function sizesOf({ spec, status }: PersistentVolumeClaim): ClaimSizes {
  return {
    requested: quantityToBytes(spec?.resources?.requests?.["storage"]) ?? 0n,
    actual: quantityToBytes(status?.capacity?.["storage"]) ?? 0n,
    allocated: quantityToBytes(status?.allocatedResources?.["storage"]),
    state: status?.allocatedResourceStatuses?.["storage"] as ResizeState | undefined,
  };
}

/** Returns the size of a PersistentVolume, in bytes. */
export function capacityOf({ spec }: PersistentVolume): bigint {
  return quantityToBytes(spec?.capacity?.["storage"]) ?? 0n;
}

/**
 * Reports whether a claim asks for more than it has, or has less than its volume got: kubelet may have ended an expansion at
 * the size that was asked for.
 */
export function needsExpansion(claim: PersistentVolumeClaim, volume?: PersistentVolume): boolean {
  const { requested, actual, allocated, state } = sizesOf(claim);
  const capacity = volume === undefined ? 0n : capacityOf(volume);
  const isBehind = state === undefined && allocated !== undefined && allocated < capacity && actual < capacity;
  return claim.status?.phase === "Bound" && !!claim.spec?.volumeName && (requested > actual || isBehind);
}

/**
 * Returns the size that a volume should be expanded to next. An expansion in progress is completed first, unless it
 * certainly failed: then the size that is requested now counts, which may be less.
 *
 * @returns the size in bytes, or `undefined` when the controller has nothing to do
 */
export function nextSize(
  claim: PersistentVolumeClaim,
  volume: PersistentVolume,
  { hasFinalError }: { hasFinalError: boolean },
): bigint | undefined {
  const { requested, allocated = requested, state } = sizesOf(claim);
  const capacity = capacityOf(volume);
  const onNode = state === "NodeResizePending" || state === "NodeResizeInProgress";
  if (state === "ControllerResizeInfeasible") return requested < capacity ? capacity : requested;
  if (state === "ControllerResizeInProgress") return hasFinalError ? requested : allocated;
  // The node failed; it only retries after another call by the controller.
  if (state === "NodeResizeInfeasible") return allocated;
  if (capacity < requested) {
    if (!onNode) return requested;
    return capacity < allocated ? allocated : undefined;
  }
  if (onNode) return undefined;
  // Started by a controller without states: the call is repeated, and returns whether the node has to expand.
  const pending = claim.status?.conditions?.some(({ type }) => type === "FileSystemResizePending") ?? false;
  return pending && claim.status?.allocatedResources?.["storage"] === undefined ? undefined : allocated;
}

/** Returns the patch of a claim when an expansion starts, or `undefined` when nothing changes. */
export function startedPatch(claim: PersistentVolumeClaim, bytes: bigint, now: string): StatusPatch | undefined {
  const { allocated, state } = sizesOf(claim);
  const resizing = hasCondition(claim, "Resizing");
  if (allocated === bytes && state !== undefined && resizing) return undefined;
  const changed = allocated !== bytes || state === undefined;
  return {
    ...nodeExpansionPatch(claim, null),
    status: {
      allocatedResources: { storage: formatQuantity(bytes) },
      ...(changed ? { allocatedResourceStatuses: { storage: "ControllerResizeInProgress" } } : {}),
      conditions: withResizeCondition(claim, { type: "Resizing", now, keep: changed ? [] : RESIZE_CONDITIONS }),
    },
  };
}

/**
 * Returns the patch of a claim whose volume is expanded, and whose filesystem the node has to expand.
 *
 * @param bytes what the volume got, which may be more than the claim asks for: kubelet takes `allocatedResources` as the new
 * size, and expands the filesystem again and again while the PersistentVolume is larger
 */
export function nodeResizePendingPatch(claim: PersistentVolumeClaim, bytes: bigint, now: string): StatusPatch {
  const message = "The node expands the filesystem when a pod uses the volume.";
  return {
    ...nodeExpansionPatch(claim, null),
    status: {
      allocatedResources: { storage: formatQuantity(bytes) },
      allocatedResourceStatuses: { storage: "NodeResizePending" },
      conditions: withResizeCondition(claim, { type: "FileSystemResizePending", now, message, keep: ["Resizing"] }),
    },
  };
}

/** Returns the patch of a claim that has the size, and whose node has nothing to do. */
export function finishedPatch(claim: PersistentVolumeClaim, bytes: bigint): StatusPatch {
  return {
    ...nodeExpansionPatch(claim, "true"),
    status: {
      capacity: { storage: formatQuantity(bytes) },
      allocatedResources: { storage: formatQuantity(bytes) },
      allocatedResourceStatuses: { storage: null },
      conditions: conditionsOf(claim).filter(({ type }) => !RESIZE_CONDITIONS.includes(type)),
    },
  };
}

/** Returns the patch of a claim when an expansion failed, or `undefined` when nothing changes. */
export function failedPatch(
  claim: PersistentVolumeClaim,
  { message, infeasible, now }: Failure,
): StatusPatch | undefined {
  const isReported = conditionsOf(claim).find(({ type }) => type === "ControllerResizeError")?.message === message;
  const isMarked = !infeasible || sizesOf(claim).state === "ControllerResizeInfeasible";
  if (isReported && isMarked) return undefined;
  return {
    status: {
      ...(infeasible ? { allocatedResourceStatuses: { storage: "ControllerResizeInfeasible" } } : {}),
      conditions: withResizeCondition(claim, { type: "ControllerResizeError", now, message, keep: RESIZE_CONDITIONS }),
    },
  };
}

/** Returns the patch of a PersistentVolume whose volume is expanded, or `undefined` when nothing changes. */
export function expandedPatch(
  volume: PersistentVolume,
  bytes: bigint,
  { preResizeCapacity }: { preResizeCapacity: string | undefined },
): MergePatch<PersistentVolume> | undefined {
  const recordPreResizeCapacity = preResizeCapacity !== undefined &&
    volume.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] === undefined;
  if (capacityOf(volume) === bytes && !recordPreResizeCapacity) return undefined;
  return {
    spec: { capacity: { storage: formatQuantity(bytes) } },
    ...(recordPreResizeCapacity
      ? { metadata: { annotations: { [PRE_RESIZE_CAPACITY_ANNOTATION]: preResizeCapacity } } }
      : {}),
  };
}

/** Reports whether a PersistentVolume has the annotation of a size that is no longer needed. */
export function hasStalePreResizeCapacity(claim: PersistentVolumeClaim, volume: PersistentVolume): boolean {
  if (volume.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] === undefined) return false;
  return sizesOf(claim).actual >= capacityOf(volume);
}

/** Reports whether a claim has a condition. */
function hasCondition(claim: PersistentVolumeClaim, type: string): boolean {
  return conditionsOf(claim).some((condition) => condition.type === type && condition.status === "True");
}

/** Returns the conditions of a claim with one that is true, and of the others about resizing only those to keep. */
function withResizeCondition(
  claim: PersistentVolumeClaim,
  { type, now, message, keep }: { type: string; now: string; message?: string; keep: readonly string[] },
): ClaimCondition[] {
  const kept = conditionsOf(claim).filter((condition) =>
    !RESIZE_CONDITIONS.includes(condition.type) || keep.includes(condition.type)
  );
  return withConditions(kept, [{ type, status: "True", ...defined({ message }) }], now);
}

function nodeExpansionPatch({ metadata }: PersistentVolumeClaim, value: "true" | null): StatusPatch {
  if ((metadata.annotations?.[NODE_EXPANSION_NOT_REQUIRED_ANNOTATION] ?? null) === value) return {};
  return { metadata: { annotations: { [NODE_EXPANSION_NOT_REQUIRED_ANNOTATION]: value } } };
}
