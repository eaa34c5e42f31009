/**
 * The plan of a node's removal, as text and as JSON.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import { formatTable, wrapText } from "../../base/text_table.ts";
import type { ForgetPlan, ForgottenSnapshot, ForgottenVolume, Outcome } from "./plan.ts";

/** Formats a plan as tables for a terminal of 100 columns, before or after it was carried out. */
export function forgetPlanText(plan: ForgetPlan, done: boolean): string {
  const { nodeName, livenessEvidence, lvmNode, volumes, snapshots } = plan;
  if (!lvmNode && volumes.length === 0 && snapshots.length === 0) {
    return `There is nothing of node ${nodeName} to forget.`;
  }
  const would = done ? "" : "would be ";
  return [
    `Node ${nodeName}`,
    ...(lvmNode ? [`  its LVMNode ${done ? "is removed" : "would be removed"}`] : []),
    ...livenessEvidence.map((evidence) => `  it seems to be alive: ${evidence}`),
    ...section(`Volumes that no PersistentVolume needs: ${would}removed`, "removed", volumes, volumeNotes),
    ...section(`Volumes of PersistentVolumes, moves and imports: ${would}marked as Lost`, "lost", volumes, volumeNotes),
    ...section(`Snapshots that no VolumeSnapshotContent needs: ${would}removed`, "removed", snapshots, snapshotNotes),
    ...section(`Snapshots of VolumeSnapshotContents: ${would}marked as Lost`, "lost", snapshots, snapshotNotes),
    ...(done ? [] : ["", ...wrapText("", nextCommand(plan))]),
  ].join("\n");
}

function section<T extends ForgottenVolume | ForgottenSnapshot>(
  title: string,
  outcome: Outcome,
  objects: readonly T[],
  notes: (one: T) => string[],
): string[] {
  const rows = objects.filter((one) => one.outcome === outcome);
  if (rows.length === 0) return [];
  return [
    "",
    title,
    ...formatTable(
      [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["STATE", "left"]],
      rows.map((one) => ({
        cells: [one.id, one.volumeGroup ?? "", formatBytes(one.size), one.state ?? ""],
        notes: notes(one),
      })),
    ),
  ];
}

function volumeNotes({ claim, persistentVolume, neededBy }: ForgottenVolume): string[] {
  if (neededBy !== undefined) return [`${neededBy} is under way, and needs it`];
  if (persistentVolume === undefined) return claim === undefined ? [] : [`made for claim ${claim}`];
  const { name, phase, reclaimPolicy } = persistentVolume;
  return [`PersistentVolume ${name} (${phase}, ${reclaimPolicy}): ${remedy(phase, reclaimPolicy, claim)}`];
}

function snapshotNotes({ sourceVolume, volumeSnapshotContent }: ForgottenSnapshot): string[] {
  const source = `of volume ${sourceVolume}`;
  if (volumeSnapshotContent === undefined) return [source];
  const { name, deletionPolicy, volumeSnapshot } = volumeSnapshotContent;
  const owner = volumeSnapshot === undefined ? "it" : `VolumeSnapshot ${volumeSnapshot}`;
  const suffix = deletionPolicy === "Delete" ? "" : ", then the content";
  return [`${source}, VolumeSnapshotContent ${name} (${deletionPolicy}): delete ${owner}${suffix} to be rid of it`];
}

/** Returns what the owner can do, or what happens automatically. */
function remedy(phase: string, reclaimPolicy: string, claim: string | undefined): string {
  if (phase === "Bound" && claim !== undefined) return `delete claim ${claim} and its pods to have a new volume`;
  if (["Released", "Failed"].includes(phase) && reclaimPolicy === "Delete") return "goes by itself within five minutes";
  return "delete it, and forget the node once more";
}

function nextCommand({ nodeName, livenessEvidence }: ForgetPlan): string {
  const command = `kubectl denolith forget-node ${nodeName} --yes`;
  if (livenessEvidence.length === 0) return `Nothing was changed. To do it: ${command}`;
  return `Nothing was changed. Since the node seems to live, it is only done with a reason: ${command} --force REASON`;
}
