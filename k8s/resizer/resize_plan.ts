/**
 * Resizing a claim: what is due, and what the claim's status says of it (Kubernetes' KEP 1790, recovery from failed expansions).
 *
 * @module
 */

import { formatQuantity } from "../../lvm/size.ts";
import { conditionsOf, withConditions } from "../api/conditions.ts";
import type { MergePatch } from "../client/client.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import { quantityToBytes } from "../api/quantity.ts";
import type { ClaimCondition, Failure, StatusPatch } from "./claim_status.ts";
import { defined } from "../../lvm/defined.ts";

/** The size that a PersistentVolume had before it grew and until its filesystem did. */
export const PRE_RESIZE_CAPACITY_ANNOTATION = "volume.alpha.kubernetes.io/pre-resize-capacity";

/** Tells kubelet that it has nothing to do. */
const NODE_EXPANSION_NOT_REQUIRED_ANNOTATION = "volume.kubernetes.io/node-expansion-not-required";

/** How far a resize is; the API's names of `allocatedResourceStatuses`. */
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
  /** What is asked for. */
  readonly requested: bigint;
  /** What there is. */
  readonly actual: bigint;
  /** What was last begun, if anything was. */
  readonly allocated: bigint | undefined;
  /** How far that is. */
  readonly state: ResizeState | undefined;
}

/** The sizes of a claim. */
export function sizesOf({ spec, status }: PersistentVolumeClaim): ClaimSizes {
  return {
    requested: quantityToBytes(spec?.resources?.requests?.["storage"]) ?? 0n,
    actual: quantityToBytes(status?.capacity?.["storage"]) ?? 0n,
    allocated: quantityToBytes(status?.allocatedResources?.["storage"]),
    state: status?.allocatedResourceStatuses?.["storage"] as ResizeState | undefined,
  };
}

/** The size of a PersistentVolume, in bytes. */
export function capacityOf({ spec }: PersistentVolume): bigint {
  return quantityToBytes(spec?.capacity?.["storage"]) ?? 0n;
}

/** Whether a claim asks for more than it has. */
export function needsExpansion(claim: PersistentVolumeClaim): boolean {
  const { requested, actual } = sizesOf(claim);
  return claim.status?.phase === "Bound" && !!claim.spec?.volumeName && requested > actual;
}

/**
 * The size that a volume should be given next, in bytes; `undefined` while there is nothing for a controller to do. What was
 * begun is finished first, unless it is known to have failed: then what is asked for now counts, which may be less.
 */
export function nextSize(
  claim: PersistentVolumeClaim,
  volume: PersistentVolume,
  { hasFinalError }: { hasFinalError: boolean },
): bigint | undefined {
  const { requested, allocated = requested, state } = sizesOf(claim);
  const capacity = capacityOf(volume);
  const onNode = state === "NodeResizePending" || state === "NodeResizeInProgress";
  if (state === "ControllerResizeInfeasible") return requested;
  if (state === "ControllerResizeInProgress") return hasFinalError ? requested : allocated;
  // The node could not; only a repeated call by the controller lets it try again.
  if (state === "NodeResizeInfeasible") return allocated;
  if (capacity < requested) {
    if (!onNode) return requested;
    return capacity < allocated ? allocated : undefined;
  }
  if (onNode) return undefined;
  // Begun by a controller that knew no states: the call is repeated, and tells whether the node has to do something.
  const pending = claim.status?.conditions?.some(({ type }) => type === "FileSystemResizePending") ?? false;
  return pending && claim.status?.allocatedResources?.["storage"] === undefined ? undefined : allocated;
}

/** The claim when a resize begins; `undefined` when it says so already. */
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

/** The claim when the volume has grown and the node is to follow. */
export function nodeResizePendingPatch(claim: PersistentVolumeClaim, now: string): StatusPatch {
  const message = "The filesystem grows when a pod uses the volume.";
  return {
    ...nodeExpansionPatch(claim, null),
    status: {
      allocatedResourceStatuses: { storage: "NodeResizePending" },
      conditions: withResizeCondition(claim, { type: "FileSystemResizePending", now, message, keep: ["Resizing"] }),
    },
  };
}

/** The claim when it has the size, and no node has to follow. */
export function finishedPatch(claim: PersistentVolumeClaim, bytes: bigint): StatusPatch {
  return {
    ...nodeExpansionPatch(claim, "true"),
    status: {
      capacity: { storage: formatQuantity(bytes) },
      allocatedResourceStatuses: { storage: null },
      conditions: conditionsOf(claim).filter(({ type }) => !RESIZE_CONDITIONS.includes(type)),
    },
  };
}

/** The claim when a resize failed; `undefined` when it says so already. */
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

/** The PersistentVolume when its volume has grown; `undefined` when it says so already. */
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

/** Whether a PersistentVolume remembers a size that its claim has outgrown. */
export function hasStalePreResizeCapacity(claim: PersistentVolumeClaim, volume: PersistentVolume): boolean {
  if (volume.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] === undefined) return false;
  return sizesOf(claim).actual >= capacityOf(volume);
}

/** Whether a claim has a condition. */
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
