/**
 * One volume as the page shows it: the answer of `kubectl denolith why`, with its layout, its snapshots, and its events.
 *
 * @module
 */

import type { Event } from "../../k8s/api/objects.ts";
import { layoutOfSpec } from "../../k8s/api/volume_mapping.ts";
import type { LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { ClaimState } from "../diagnosis/claim_state.ts";
import type { ClusterState } from "../diagnosis/cluster_state.ts";
import { type Facts, knownFacts, timeOfEvent } from "../diagnosis/evidence.ts";
import { compareProblems, compareText, conditionOf, type Problem } from "../problem.ts";
import { snapshotProblems, volumeProblems, type VolumeView, volumeViews } from "../diagnosis/volumes.ts";
import { explainClaim, type WhyAnswer } from "../diagnosis/why.ts";
import { describeLayout, isRedundant, requiredPvCount } from "../../lvm/model/layout.ts";
import { commandsFor, type CommandTarget } from "./commands.ts";
import { familyTree, type TreeNode } from "./family_tree.ts";

/** What a volume is shown from. */
export interface VolumeEvidence {
  /** The cluster. */
  readonly state: ClusterState;
  /** Its claim, where it has one. */
  readonly claim?: ClaimState | undefined;
  /** The events about a volume without a claim. */
  readonly events?: readonly Event[];
  /** How full it is, or why that is not known. */
  readonly usage: VolumeUsage | string;
  /** What else could not be read, with the cause. */
  readonly unread?: readonly string[];
  /** What commands are for. */
  readonly target: CommandTarget;
}

/** An event. */
export interface EventEntry extends Pick<Problem, "reason" | "object" | "message"> {
  readonly time: string;
  /** `Normal` or `Warning`. */
  readonly type: string;
  readonly count: number;
}

/** A volume. */
export interface VolumePage extends VolumeView, Pick<WhyAnswer, "facts" | "unread"> {
  /** What is wrong with it, with commands that can be run. */
  readonly problems: readonly (Problem & { readonly commands: readonly string[] })[];
  readonly usage: VolumeUsage | string;
  /** Its IO limits, as parameters of a StorageClass. */
  readonly limits: Readonly<Record<string, string>>;
  /** The volume, or what it was made from, with all that was made from the volume. */
  readonly tree: TreeNode;
  readonly events: readonly EventEntry[];
}

/** What the page gets of a volume; nothing but the time when there is none any more. */
export interface VolumeMessage {
  /** The time at which it was read (RFC 3339). */
  readonly read: string;
  readonly volume?: VolumePage;
}

/** The number of events that are shown. */
const MAX_EVENTS = 50;

/** Returns what the page shows of a volume; `undefined` when there is none with this id. */
export function volumePage(
  id: string,
  { state, claim, events = [], usage, unread = [], target }: VolumeEvidence,
): VolumePage | undefined {
  const view = volumeViews(state).find((one) => one.id === id);
  const volume = state.volumes.find(({ metadata }) => metadata.name === id);
  if (view === undefined || volume === undefined) return undefined;
  const why = claim && explainClaim(claim);
  const explained = why?.problems ?? [];
  const isExplained = ({ message }: Problem) => explained.some((one) => one.message.includes(message));
  const all = claim ? [...claim.claimEvents, ...claim.podEvents, ...claim.volumeEvents] : events;
  return {
    ...view,
    problems: [
      ...explained,
      // of a claim that is gone, the explanation is about its deletion; the list of the cluster has the agent's words
      ...volumeProblems(volume, `lvmvolume/${id}`).filter((problem) => !isExplained(problem)),
      ...state.snapshots.filter(({ spec }) => spec.sourceVolume === id)
        .flatMap((snapshot) => snapshotProblems(snapshot, `lvmsnapshot/${snapshot.metadata.name}`)),
    ].sort(compareProblems).map((one) => ({ ...one, commands: commandsFor(one, { ...target, node: view.node }) })),
    facts: [...why?.facts ?? ownerFacts(view), ...storageFacts(volume, view)],
    ...{ usage, limits: volume.spec.ioLimits ?? {}, tree: familyTree(view, state), events: eventEntries(all) },
    unread: [...new Set([...state.unread, ...unread, ...why?.unread ?? []])].sort(),
  };
}

/** Returns the facts about a volume without a claim that the explanation of a claim has. */
function ownerFacts({ id, node, persistentVolume, state }: VolumeView): Facts {
  return [
    ["Node", node],
    ...(persistentVolume === undefined ? [] : [["PersistentVolume", persistentVolume] as const]),
    ["Volume", `${id} (${state})`],
  ];
}

function storageFacts(volume: LvmVolume, { group, logicalVolume, content }: VolumeView): Facts {
  const { spec, status, metadata: { creationTimestamp } } = volume;
  const layout = layoutOfSpec(spec.layout);
  const redundant = conditionOf(volume, "Redundant");
  const images = requiredPvCount(layout);
  const health = redundant?.status === "False" ? redundant.reason : redundant && "redundant";
  return knownFacts([
    ["Volume group", group],
    ["Logical volume", logicalVolume],
    ["Device", status?.devicePath],
    [
      "Layout",
      spec.thinProvision === true ? `thin, in ${spec.thinPool ?? "the group's own pool"}` : describeLayout(layout),
    ],
    [
      "Images",
      isRedundant(layout) ? `${images}, each on a physical volume of its own${health ? `; ${health}` : ""}` : undefined,
    ],
    ["Filesystem", content === "Block" ? "none: a block device" : content],
    ["Options of mkfs", spec.mkfsOptions?.join(" ")],
    ["Discard", spec.discard === true ? "mounted with discard" : spec.fstrim && `fstrim each ${spec.fstrim}`],
    ["When deleted", spec.erase === "none" ? "its data is not erased" : `its data is erased (${spec.erase})`],
    ["Copied", status?.copy && copyText(status.copy)],
    ["Created", creationTimestamp],
  ]);
}

function copyText({ copied, total, percent }: NonNullable<NonNullable<LvmVolume["status"]>["copy"]>): string {
  return `${copied}${total === undefined ? "" : ` of ${total}`}${percent === undefined ? "" : `, ${percent}%`}`;
}

/** Returns events as the page shows them, the last ones first. */
export function eventEntries(events: readonly Event[]): EventEntry[] {
  return events.map((event): EventEntry => {
    const { type = "Normal", reason = "", message = "", involvedObject, count, series } = event;
    return {
      ...{ time: timeOfEvent(event), type, reason, message, count: series?.count ?? count ?? 1 },
      object: `${involvedObject?.kind ?? ""}/${involvedObject?.name ?? ""}`,
    };
  }).sort((a, b) => compareText(b.time, a.time)).slice(0, MAX_EVENTS);
}

/** How full a volume is, in bytes. */
export interface VolumeUsage {
  readonly used: number;
  readonly capacity: number;
  readonly inodesUsed?: number;
  readonly inodes?: number;
}

/** Returns the path at which the API server passes on kubelet's statistics (the Summary API of kubelet). */
export function summaryPath(node: string): string {
  return `/api/v1/nodes/${encodeURIComponent(node)}/proxy/stats/summary`;
}

/** The part of the answer that is read. */
interface Summary {
  readonly pods?: readonly {
    readonly volume?: readonly {
      readonly pvcRef?: { readonly namespace?: string; readonly name?: string };
      readonly usedBytes?: number;
      readonly capacityBytes?: number;
      readonly inodesUsed?: number;
      readonly inodes?: number;
    }[];
  }[];
}

/**
 * Finds a claim in kubelet's statistics.
 *
 * @param claim as `namespace/name`
 * @returns `undefined` for a claim that no pod on the node has mounted, or that kubelet has not measured
 */
export function usageInSummary(json: string, claim: string): VolumeUsage | undefined {
  const { pods = [] } = JSON.parse(json) as Summary;
  for (
    const { pvcRef, usedBytes: used, capacityBytes: capacity, inodesUsed, inodes } of pods.flatMap(({ volume = [] }) =>
      volume
    )
  ) {
    if (`${pvcRef?.namespace}/${pvcRef?.name}` !== claim || used === undefined || capacity === undefined) continue;
    return { used, capacity, ...(inodesUsed !== undefined && inodes !== undefined && { inodesUsed, inodes }) };
  }
  return undefined;
}
