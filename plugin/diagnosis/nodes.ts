/**
 * The nodes of a cluster, as people see them: their agents, volume groups and thin pools.
 *
 * @module
 */

import { type NamedOrphan, ORPHANS_CONDITION, orphansInMessage } from "../../k8s/agent/orphans.ts";
import { lastSignOfLife, nodeOfAgentLease, SILENT_AFTER_MS } from "../../k8s/api/agent_leases.ts";
import { NODE_CONDITIONS } from "../../k8s/api/condition_reasons.ts";
import { conditionsOf } from "../../k8s/api/conditions.ts";
import { DEFINITIONS_CONDITION } from "../../k8s/client/definitions.ts";
import type { LvmNode, NodeDisk, NodeThinPool, NodeVolumeGroup } from "../../k8s/api/lvm_objects.ts";
import type { Node } from "../../k8s/api/objects.ts";
import { defined } from "../../base/defined.ts";
import { shellWord } from "../../base/text_table.ts";
import { isNodeReady } from "../../k8s/api/pods.ts";
import { formatBytes } from "../../base/size.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import type { AgentEvidence, ClusterState } from "./cluster_state.ts";
import { compareText, conditionOf, conditionProblem, isUnread, type Problem, problem } from "../problem.ts";

/** The agent of a node: `NotReported` before its first report, `Unknown` to somebody who may not read its Lease. */
export type AgentState = "Alive" | "Silent" | "NotReported" | "Unknown";

/** A thin pool. Sizes are in bytes. */
export interface PoolView {
  /** Its name. */
  readonly name: string;
  /** Its size. */
  readonly size: bigint;
  /** True if the driver created it, and extends it. */
  readonly owned: boolean;
  /** Usage of its data, in percent. */
  readonly dataPercent?: number;
  /** Usage of its metadata, in percent. */
  readonly metadataPercent?: number;
  /** The virtual size that may still be allocated. */
  readonly availableVirtual?: bigint;
  /** The ratio of overcommit. */
  readonly overcommit?: string;
}

/** A volume group. Sizes are in bytes. */
export interface GroupView {
  /** Its name. */
  readonly name: string;
  /** Its size. */
  readonly size: bigint;
  /** The size that volumes may get. */
  readonly free: bigint;
  /** The size that is free, and that volumes never get; absent for none. */
  readonly spare?: bigint;
  /** Its space that becomes free when the data of deleted volumes is erased; absent for none. */
  readonly erasing?: bigint;
  /** The size that volumes may not get, in percent. */
  readonly usedPercent: number;
  /** The number of its physical volumes. */
  readonly physicalVolumes: number;
  /** The number of its physical volumes that are missing. */
  readonly missing: number;
  /** The number of the driver's volumes in it. */
  readonly volumes: number;
  /** True if LVM can create an LV in it. */
  readonly writeable: boolean;
  /** What the node itself uses of it, so that only classes that name it use it; absent for nothing. */
  readonly hostUse?: string;
  /** Why LVM creates nothing in it, if its agent says so. */
  readonly refusal?: string;
  /** Its thin pools. */
  readonly pools: readonly PoolView[];
}

/** A node. */
export interface NodeView {
  /** Its name. */
  readonly name: string;
  /** True if the Node is Ready; absent when there is no Node, or it may not be read. */
  readonly ready?: boolean;
  /** Its agent. */
  readonly agent: AgentState;
  /** The time of the last sign of life of its agent (RFC 3339). */
  readonly seen?: string;
  /** Its volume groups. */
  readonly groups: readonly GroupView[];
  /** The number of its orphans, as far as its agent names them. */
  readonly orphans: number;
}

/** Returns the nodes with an LVMNode, in the order of their names. */
export function nodeViews(state: ClusterState): NodeView[] {
  const nodes = new Map(state.nodes.map((node) => [node.metadata.name, node]));
  const leases = Map.groupBy(state.agentLeases, (lease) => nodeOfAgentLease(lease));
  return state.lvmNodes.map((lvmNode) => {
    const { name } = lvmNode.metadata;
    return nodeView(lvmNode, { ...state, node: nodes.get(name), agentLeases: leases.get(name) ?? [] });
  }).sort((a, b) => compareText(a.name, b.name));
}

/** Returns the view of a node. @param about its Node, if there is one, and the Leases of its agent */
function nodeView(
  lvmNode: LvmNode,
  { node, ...about }: AgentEvidence & { readonly node: Node | undefined },
): NodeView {
  const { name } = lvmNode.metadata;
  const seenMs = lastSignOfLife(lvmNode, about.agentLeases);
  return defined({
    name,
    ready: node && isNodeReady(node),
    agent: agentStateOf(lvmNode, about),
    seen: seenMs === undefined ? undefined : new Date(seenMs).toISOString(),
    groups: (lvmNode.status?.volumeGroups ?? []).map(groupView).sort((a, b) => compareText(a.name, b.name)),
    orphans: orphanCount(lvmNode),
  });
}

/** Returns the state of the agent of a node, by the clock of this machine. Without its Lease, silence proves nothing. */
export function agentStateOf(lvmNode: LvmNode, { agentLeases, now, unread }: AgentEvidence): AgentState {
  const seenMs = lastSignOfLife(lvmNode, agentLeases);
  if (seenMs === undefined) return "NotReported";
  if (now.getTime() - seenMs < SILENT_AFTER_MS) return "Alive";
  return isUnread({ unread }, "leases") ? "Unknown" : "Silent";
}

function groupView(group: NodeVolumeGroup): GroupView {
  const { pvCount = 0, missingPVCount = 0, writeable = true } = group; // the CRD does not require them
  const [size, free] = [quantityToBytes(group.size) ?? 0n, quantityToBytes(group.free) ?? 0n];
  return defined({
    name: group.name,
    size,
    free,
    usedPercent: usedPercent(size, free),
    spare: quantityToBytes(group.spare) || undefined,
    erasing: quantityToBytes(group.erasing?.space) || undefined,
    hostUse: group.hostUse,
    physicalVolumes: pvCount,
    missing: missingPVCount,
    writeable,
    refusal: group.refusal,
    volumes: group.volumes?.length ?? 0,
    pools: (group.thinPools ?? []).map(poolView).sort((a, b) => compareText(a.name, b.name)),
  });
}

/** Returns what is used of a size, in percent, rounded up: a group with no free space is full, and no other one is. */
export function usedPercent(size: bigint, free: bigint): number {
  if (size === 0n) return 0;
  const percent = Number((size - free) * 100n / size);
  return free === 0n ? 100 : percent;
}

function poolView(pool: NodeThinPool): PoolView {
  const { name, size, owned = false, dataPercent, metadataPercent, availableVirtual, overcommit } = pool;
  return defined({
    name,
    size: quantityToBytes(size) ?? 0n,
    owned,
    dataPercent,
    metadataPercent,
    availableVirtual: quantityToBytes(availableVirtual),
    overcommit,
  });
}

function orphanCount(lvmNode: LvmNode): number {
  const { status, message = "" } = conditionOf(lvmNode, ORPHANS_CONDITION) ?? {};
  return status === "True" ? Number(/^(\d+) /.exec(message)?.[1] ?? 1) : 0;
}

/** An orphan on a node. */
export interface OrphanView extends NamedOrphan {
  /** The node. */
  readonly node: string;
  /** The time since when the node has orphans (RFC 3339). */
  readonly since?: string;
}

/** Returns the orphans that agents name, in the order of their nodes. An agent names no more than some dozens. */
export function orphanViews({ lvmNodes }: Pick<ClusterState, "lvmNodes">): OrphanView[] {
  return lvmNodes.flatMap((lvmNode) => {
    const { status, message = "", lastTransitionTime: since } = conditionOf(lvmNode, ORPHANS_CONDITION) ?? {};
    if (status !== "True") return [];
    return orphansInMessage(message).map((orphan) => defined({ node: lvmNode.metadata.name, ...orphan, since }));
  }).sort((a, b) => compareText(a.node, b.node) || compareText(a.logicalVolume, b.logicalVolume));
}

/** Returns what to do about a full volume group. @param disk one that nobody uses, and that a rule proposes for it */
function fullRemedy(node: string, disk: NodeDisk | undefined): string {
  if (disk === undefined) return "Add a disk, or delete claims.";
  return `Add the disk that nobody uses (\`kubectl denolith disks --accept ${
    shellWord(disk.name)
  } --node ${node}\`), or delete claims.`;
}

/** The reasons of conditions of a node by which volumes are in danger. */
const SEVERE_REASONS: readonly string[] = ["ThinPoolFull", "PhysicalVolumesMissing", "DisksLost"];

/** Returns the problems of the nodes. @param views what {@linkcode nodeViews} returns */
export function nodeProblems(state: ClusterState, views: readonly NodeView[]): Problem[] {
  return [
    ...views.flatMap(viewProblems),
    ...state.lvmNodes.flatMap((lvmNode) =>
      conditionsOf(lvmNode).filter(({ status, type }) =>
        // the plugin itself says it once
        status === "True" && (type !== DEFINITIONS_CONDITION || state.outdatedDefinitions === undefined)
      ).map((condition) =>
        conditionProblem(
          condition,
          {
            object: `node/${lvmNode.metadata.name}`,
            severity: SEVERE_REASONS.includes(condition.reason) ? "error" : "warning",
          },
          NODE_CONDITIONS[condition.type as keyof typeof NODE_CONDITIONS],
        )
      )
    ),
    ...views.flatMap((view) =>
      groupProblems(view, state.lvmNodes.find(({ metadata }) => metadata.name === view.name)?.status?.disks ?? [])
    ),
  ];
}

function viewProblems({ name, ready, agent, seen }: NodeView): Problem[] {
  if (agent === "Silent") return [silenceProblem(name, ready, seen!)];
  return agent !== "NotReported" ? [] : [problem("error", "AgentNotReported", `node/${name}`, {
    message: "its agent has not reported yet",
    remedy: silenceRemedy(name),
    runbook: "reconcile-failing",
  })];
}

/** Returns that the agent of a node is silent. @param ready whether the Node is Ready, if that is known */
export function silenceProblem(name: string, ready: boolean | undefined, since: string): Problem {
  const isDown = ready === false;
  return problem("error", isDown ? "NodeDown" : "AgentSilent", `node/${name}`, {
    message: isDown
      ? "the Node is not Ready, and its agent is silent"
      : "its agent is silent: it gives no sign of life",
    since,
    remedy: isDown
      ? `Wait for the node. If it is gone for good: \`kubectl denolith forget-node ${name}\``
      : silenceRemedy(name),
    runbook: "node-does-not-come-back",
  });
}

function silenceRemedy(name: string): string {
  return `\`kubectl denolith doctor ${name}\` shows whether LVM waits for a disk. If it gets no answer, read the log of the agent's ` +
    "pod, and restart it. Until the agent reports, its node gets no new volumes.";
}

/** @param disks the disks that rules name on the node */
function groupProblems({ name, groups }: NodeView, disks: readonly NodeDisk[]): Problem[] {
  return groups.flatMap((group): Problem[] => {
    const object = `node/${name}`;
    const problems: Problem[] = [];
    // a thin pool may have all of the space
    const hasThinSpace = group.pools.some(({ availableVirtual = 0n }) => availableVirtual > 0n);
    if (group.size > 0n && group.free === 0n && !hasThinSpace) {
      problems.push(problem("warning", "VolumeGroupFull", object, {
        message: `volume group ${group.name} has no free space` +
          (group.spare === undefined ? "" : ` but ${formatBytes(group.spare)} of spare space`) +
          (group.erasing === undefined
            ? ""
            : `; ${formatBytes(group.erasing)} become free when deleted volumes are erased`),
        ...{ remedy: fullRemedy(name, disks.find((disk) => disk.proposed && disk.volumeGroup === group.name)) },
        runbook: "volume-group-full",
      }));
    }
    if (!group.writeable) {
      problems.push(problem("warning", "VolumeGroupReadOnly", object, {
        message: `LVM can create nothing in volume group ${group.name} now` +
          (group.refusal === undefined ? "" : `: ${group.refusal}`),
        remedy: `See \`kubectl denolith doctor ${name}\`.`,
      }));
    }
    return problems;
  });
}
