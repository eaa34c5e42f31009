/**
 * The volumes and snapshots of a cluster, as people see them.
 *
 * @module
 */

import { heldForLongSince } from "../../k8s/api/volume_conditions.ts";
import { SNAPSHOT_CONDITIONS, VOLUME_CONDITIONS } from "../../k8s/api/condition_reasons.ts";
import { conditionsOf } from "../../k8s/api/conditions.ts";
import {
  type AgentManaged,
  type AgentManagedStatus,
  CLAIM_ANNOTATION,
  FORGOTTEN_ANNOTATION,
  type LvmSnapshot,
  type LvmVolume,
} from "../../k8s/api/lvm_objects.ts";
import type { PersistentVolume } from "../../k8s/api/objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { snapshotHandleOf, type VolumeSnapshotContent } from "../../k8s/api/snapshot_objects.ts";
import type { ClusterState } from "./cluster_state.ts";
import { adviceFor } from "./symptoms.ts";
import { compareText, conditionProblem, type Problem, problem, type Severity } from "../problem.ts";
import { defined } from "../../base/defined.ts";

/** A volume or a snapshot. */
interface LvView {
  /** Its id: the name of the LVMVolume or LVMSnapshot. */
  readonly id: string;
  /** Its node. */
  readonly node: string;
  /** Its volume group. */
  readonly group?: string;
  /** Its logical volume. */
  readonly logicalVolume?: string;
  /** Its state; `Deleting` once its deletion was requested. */
  readonly state: string;
  /** The time of its creation (RFC 3339). */
  readonly created?: string;
}

/** A volume. Sizes are in bytes. */
export interface VolumeView extends LvView {
  /** The claim that has it, or that it was made for, as `namespace/name`. */
  readonly claim?: string;
  /** Its PersistentVolume. */
  readonly persistentVolume?: string;
  /** Its StorageClass. */
  readonly storageClass?: string;
  /** Its size; the requested one before it exists. */
  readonly size: bigint;
  /** The used share of its filesystem, in percent, as its agent last saw it. */
  readonly usedPercent?: number;
  /** Its layout. */
  readonly layout: string;
  /** Its filesystem, or `Block`. */
  readonly content: string;
}

/** A snapshot. Sizes are in bytes. */
export interface SnapshotView extends LvView {
  /** Its VolumeSnapshot, as `namespace/name`. */
  readonly volumeSnapshot?: string;
  /** The id of its volume. */
  readonly volume: string;
  /** The size of its COW space; absent for a thin snapshot. */
  readonly size?: bigint;
  /** The size of its volume when it was taken. */
  readonly restoreSize?: bigint;
  /** Usage of its COW space, in percent. */
  readonly cowPercent?: number;
}

/** Returns the volumes, in the order of their claims. */
export function volumeViews({ volumes, persistentVolumes }: ClusterState): VolumeView[] {
  const byHandle = new Map(persistentVolumes.map((volume) => [volume.spec?.csi?.volumeHandle, volume]));
  return volumes.map((volume) => volumeView(volume, byHandle.get(volume.metadata.name)))
    .sort((a, b) => compareText(a.claim ?? "~", b.claim ?? "~") || compareText(a.id, b.id));
}

function volumeView(volume: LvmVolume, persistentVolume: PersistentVolume | undefined): VolumeView {
  const { metadata: { name: id, creationTimestamp }, spec, status } = volume;
  return defined({
    id,
    claim: claimOfVolume(volume, persistentVolume),
    persistentVolume: persistentVolume?.metadata.name,
    node: spec.nodeName,
    group: status?.volumeGroup,
    logicalVolume: status?.lvName,
    storageClass: persistentVolume?.spec?.storageClassName || undefined,
    size: quantityToBytes(status?.size ?? spec.size) ?? 0n,
    usedPercent: status?.usedPercent,
    state: stateOf(volume),
    layout: spec.thinProvision === true ? "thin" : spec.layout?.type ?? "linear",
    content: spec.volumeMode === "Block" ? "Block" : spec.fsType ?? "Filesystem",
    created: creationTimestamp,
  });
}

/** Returns the claim that a volume is bound to, or else the one that it was made for, as `namespace/name`. */
export function claimOfVolume(
  { metadata: { annotations } }: LvmVolume,
  persistentVolume: PersistentVolume | undefined,
): string | undefined {
  const { namespace, name } = persistentVolume?.spec?.claimRef ?? {};
  return namespace && name ? `${namespace}/${name}` : annotations?.[CLAIM_ANNOTATION];
}

/** Returns the state of an object that an agent carries out, in one word. */
export function stateOf({ metadata, status }: AgentManaged<AgentManagedStatus>): string {
  return metadata.deletionTimestamp !== undefined ? "Deleting" : status?.state ?? "Pending";
}

/** Returns the snapshots, in the order of their VolumeSnapshots. */
export function snapshotViews({ snapshots, contents }: ClusterState): SnapshotView[] {
  const byHandle = new Map(contents.map((content) => [snapshotHandleOf(content), content]));
  return snapshots.map((snapshot) => snapshotView(snapshot, byHandle.get(snapshot.metadata.name)))
    .sort((a, b) => compareText(a.volumeSnapshot ?? "~", b.volumeSnapshot ?? "~") || compareText(a.id, b.id));
}

function snapshotView(snapshot: LvmSnapshot, content: VolumeSnapshotContent | undefined): SnapshotView {
  const { metadata: { name: id, creationTimestamp }, spec, status } = snapshot;
  const { namespace, name } = content?.spec.volumeSnapshotRef ?? {};
  return defined({
    id,
    volumeSnapshot: namespace && name ? `${namespace}/${name}` : undefined,
    volume: spec.sourceVolume,
    node: spec.nodeName,
    group: status?.volumeGroup,
    logicalVolume: status?.lvName,
    size: quantityToBytes(status?.size),
    restoreSize: quantityToBytes(status?.restoreSize),
    cowPercent: status?.cowPercent,
    state: stateOf(snapshot),
    created: status?.creationTime ?? creationTimestamp,
  });
}

/** Conditions of volumes and snapshots that are problems while they are False, with their severity. */
const PROBLEM_CONDITIONS: Readonly<Record<string, Severity>> = {
  Ready: "error",
  Healthy: "error",
  Redundant: "warning",
  IOLimitsApplied: "warning",
  KeysChanged: "warning",
  Held: "info",
  Imported: "info",
};

/** Reasons that are problems, though the condition is True. */
const PROBLEM_REASONS: readonly string[] = ["Mismatches"];

/** The severity of reasons that are not as bad as their conditions, or worse. */
const REASON_SEVERITIES: Readonly<Record<string, Severity>> = {
  Rebuilding: "info",
  KeyChangeRunning: "info",
  PhysicalVolumesMissing: "warning",
  VolumeGroupReadOnly: "warning",
  ThinPoolNearFull: "warning",
  CacheReadOnly: "warning",
  SnapshotNearFull: "warning",
  SnapshotCannotExtend: "warning",
  RaidFailed: "error",
};

/** Returns the problems that the agent reports of a volume: its own words. */
export function volumeProblems(volume: LvmVolume, object: string): Problem[] {
  return managedProblems(volume, object, VOLUME_CONDITIONS);
}

/** Returns the problem that nobody has been able to use a volume for minutes, because it is held for a move. */
export function heldProblems(volume: LvmVolume, object: string, now: Date): Problem[] {
  const since = heldForLongSince(volume, now);
  if (since === undefined) return [];
  return [problem("warning", "HeldForLong", object, {
    message: "nobody can use the volume, because it is held for a move that does not end",
    remedy:
      "`kubectl denolith why CLAIM` says what the move waits for; `kubectl denolith move CLAIM --cancel` undoes it.",
    since,
    runbook: "move/when-it-does-not-go-on",
  })];
}

/** Returns the problems that the agent reports of a snapshot: its own words. */
export function snapshotProblems(snapshot: LvmSnapshot, object: string): Problem[] {
  return managedProblems(snapshot, object, SNAPSHOT_CONDITIONS);
}

/** Reasons that all volumes of a volume group share. What is wrong with the volume itself comes before them. */
const GROUP_REASONS: readonly string[] = ["PhysicalVolumesMissing", "VolumeGroupReadOnly"];

function compareCauses(a: { readonly reason: string }, b: { readonly reason: string }): number {
  return Number(GROUP_REASONS.includes(a.reason)) - Number(GROUP_REASONS.includes(b.reason));
}

function managedProblems(
  one: AgentManaged<AgentManagedStatus>,
  object: string,
  descriptions: Readonly<Record<string, Parameters<typeof conditionProblem>[2]>>,
): Problem[] {
  const { metadata: { annotations }, status } = one;
  const forgotten = annotations?.[FORGOTTEN_ANNOTATION];
  const conditions = conditionsOf(one).filter(({ type, status, reason }) =>
    PROBLEM_CONDITIONS[type] !== undefined && (status === "False" || PROBLEM_REASONS.includes(reason))
  );
  const problems = conditions.sort(compareCauses).map((condition): Problem => {
    const { type, reason } = condition;
    const severity = REASON_SEVERITIES[reason] ?? PROBLEM_CONDITIONS[type]!;
    const described = conditionProblem(condition, { object, severity }, descriptions[type]);
    const problem = described.remedy === undefined ? { ...described, ...adviceFor(reason) } : described;
    if (type !== "Ready" || reason !== "Lost") return problem;
    return {
      ...problem,
      ...(forgotten === undefined
        ? { remedy: "Do not delete anything before you have read the runbook.", runbook: "lost-volume" }
        : {
          reason: "NodeForgotten",
          remedy: "Delete the claim and its pods to have a new volume. If the node comes back, so does this one.",
          runbook: "node-maintenance/remove-a-dead-node",
        }),
    };
  });
  const { error } = status ?? {};
  const isTold = problems.some(({ message }) => error !== undefined && message.includes(error.message));
  if (error === undefined || isTold) return problems;
  const reason = error.reason ?? error.code;
  return [...problems, { severity: "error", reason, object, message: error.message, ...adviceFor(reason) }];
}
