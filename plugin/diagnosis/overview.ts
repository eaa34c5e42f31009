/**
 * The whole cluster in one answer: nodes, volume groups, thin pools, volumes, snapshots, orphans, how full it is, what
 * is wrong, and since when.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import { isForgotten } from "../../k8s/api/lvm_objects.ts";
import { DEFINITIONS } from "../../k8s/client/definitions.ts";
import type { ClusterState } from "./cluster_state.ts";
import { type GroupView, nodeProblems, type NodeView, nodeViews, usedPercent } from "./nodes.ts";
import { isHeld, knownFacts, noControllerProblem } from "./evidence.ts";
import { compareProblems, compareText, type Problem, problem } from "../problem.ts";
import { heldProblems, snapshotProblems, snapshotViews, volumeProblems, volumeViews } from "./volumes.ts";
import type { WhyAnswer } from "./why.ts";

/** Numbers of objects by their states, in the order of the states' names. */
export type Counts = Readonly<Record<string, number>>;

/** A cluster. Sizes are in bytes. */
export interface Overview {
  /** The driver. */
  readonly driver: string;
  /** The size of all volume groups. */
  readonly size: bigint;
  /** What of it is free. */
  readonly free: bigint;
  /** What of it becomes free when deleted volumes are erased. */
  readonly erasing: bigint;
  /** What of it is used, in percent. */
  readonly usedPercent: number;
  /** The nodes. */
  readonly nodes: readonly NodeView[];
  /** The volumes by their states. */
  readonly volumes: Counts;
  /** The snapshots by their states. */
  readonly snapshots: Counts;
  /** The number of logical volumes without objects. */
  readonly orphans: number;
  /** What is wrong, the worst first. */
  readonly problems: readonly Problem[];
  /** Kinds that could not be read, with the cause. */
  readonly unread: readonly string[];
}

/** Returns the overview of a cluster. */
export function overviewOf(state: ClusterState): Overview {
  const nodes = nodeViews(state);
  const groups = nodes.flatMap(({ groups }) => groups);
  const sumOf = (bytes: (group: GroupView) => bigint) => groups.reduce((sum, group) => sum + bytes(group), 0n);
  const [size, free, erasing] = [sumOf((one) => one.size), sumOf((one) => one.free), sumOf((one) => one.erasing ?? 0n)];
  const [volumes, snapshots] = [volumeViews(state), snapshotViews(state)];
  const claims = new Map(volumes.map(({ id, claim }) => [id, claim]));
  const names = new Map(snapshots.map(({ id, volumeSnapshot }) => [id, volumeSnapshot]));
  const nameOf = (kind: string, known: string | undefined, id: string) => known === undefined ? id : `${kind}/${known}`;
  return {
    ...{ driver: state.driver, size, free, erasing, usedPercent: usedPercent(size, free), nodes, unread: state.unread },
    volumes: countBy(volumes.map(({ state }) => state)),
    snapshots: countBy(snapshots.map(({ state }) => state)),
    orphans: nodes.reduce((sum, { orphans }) => sum + orphans, 0),
    problems: [
      ...controllerProblems(state),
      ...definitionsProblems(state),
      ...nodeProblems(state, nodes),
      ...withoutAgent(state, nodes),
      ...claimProblems(state),
      ...state.volumes.flatMap((volume) => {
        const { name } = volume.metadata;
        const object = nameOf("claim", claims.get(name), `lvmvolume/${name}`);
        return [...volumeProblems(volume, object), ...heldProblems(volume, object, state.now)];
      }),
      ...state.snapshots.flatMap((snapshot) => {
        const { name } = snapshot.metadata;
        return snapshotProblems(snapshot, nameOf("volumesnapshot", names.get(name), `lvmsnapshot/${name}`));
      }),
    ].sort(compareProblems),
  };
}

/** Explains a node: what is wrong with it, and with the volumes and snapshots on it. @returns `undefined` for an unknown one */
export function explainNode(state: ClusterState, name: string): WhyAnswer | undefined {
  const isOn = ({ spec }: { spec: { nodeName: string } }) => spec.nodeName === name;
  const [volumes, snapshots] = [state.volumes.filter(isOn), state.snapshots.filter(isOn)];
  const lvmNodes = state.lvmNodes.filter(({ metadata }) => metadata.name === name);
  const isKnown = state.nodes.some(({ metadata }) => metadata.name === name) || lvmNodes.length > 0;
  if (!isKnown && volumes.length === 0) return undefined;
  const own = { ...state, lvmNodes, volumes, snapshots, pendingClaims: [], provisionerLeases: [] };
  const { nodes: [node], unread, ...overview } = overviewOf(own);
  const object = `node/${name}`;
  const withoutLvmNode = problem("info", "NodeWithoutAgent", object, {
    message: "it has no LVMNode: no agent of the driver has reported on it",
    remedy: "If it is to have volumes, see why the agents' DaemonSet has no pod there, or why that does not start.",
  });
  const counts = (of: Counts) => Object.entries(of).map(([state, count]) => `${count} ${state}`).join(", ");
  return {
    ...{ object, state: node?.agent ?? "NotReported", unread },
    problems: node === undefined && overview.problems.length === 0 ? [withoutLvmNode] : overview.problems,
    facts: knownFacts([
      ["Agent", node?.seen && `its last sign of life was at ${node.seen}`],
      ...(node?.groups ?? []).flatMap(({ name, size, free, usedPercent, erasing, pools }): [string, string][] => [
        [
          `Group ${name}`,
          `${formatBytes(free)} of ${formatBytes(size)} free, ${usedPercent}% used` +
          (erasing === undefined ? "" : `, ${formatBytes(erasing)} being erased`),
        ],
        ...pools.map(({ name: pool, size, dataPercent = 0 }): [string, string] => [
          `Pool ${name}/${pool}`,
          `${formatBytes(size)}, ${dataPercent}% used`,
        ]),
      ]),
      ["Volumes", counts(overview.volumes)],
      ["Snapshots", counts(overview.snapshots)],
      ["Orphans", overview.orphans === 0 ? undefined : `${overview.orphans}`],
    ]),
  };
}

/** Returns the problem that definitions are too old for this plugin. That they are for an agent, its LVMNode says. */
function definitionsProblems({ outdatedDefinitions: message }: ClusterState): Problem[] {
  if (message === undefined) return [];
  const name = DEFINITIONS.find((name) => message.includes(name));
  return [
    problem("warning", "DefinitionsOutdated", `customresourcedefinition/${name}`, {
      message,
      remedy:
        "Upgrade them with the driver. Until then, this plugin moves and imports nothing: use that of the driver's " +
        "version.",
      runbook: "upgrade/upgrade-the-driver",
    }),
  ];
}

/** Returns the problem that no controller holds the Lease that one has held: then nothing is created or deleted. */
function controllerProblems({ provisionerLeases, now }: ClusterState): Problem[] {
  const [last] = provisionerLeases.toSorted((a, b) => compareText(b.spec?.renewTime ?? "", a.spec?.renewTime ?? ""));
  if (last === undefined || isHeld(last, now)) return [];
  const problem = noControllerProblem(`lease/${last.metadata.name}`, last, { what: "controller that creates volumes" });
  // an official sidecar that has taken over may work without a Lease
  return [{ ...problem, severity: "warning" }];
}

/** Returns a problem for each node that has volumes and no LVMNode. That of a node that was given up is known. */
function withoutAgent({ volumes }: ClusterState, nodes: readonly NodeView[]): Problem[] {
  const known = new Set(nodes.map(({ name }) => name));
  const without = Map.groupBy(volumes.filter((volume) => !isForgotten(volume)), ({ spec }) => spec.nodeName);
  return [...without].filter(([name]) => !known.has(name)).map(([name, { length }]) =>
    problem("error", "NodeWithoutAgent", `node/${name}`, {
      message: `it has ${length} ${
        length === 1 ? "volume" : "volumes"
      }, and no LVMNode: the node is gone, or its agent`,
      remedy: `If it is gone for good: \`kubectl denolith forget-node ${name}\``,
      runbook: "node-does-not-come-back",
    })
  );
}

/** The age from which a claim without a volume is a problem, in milliseconds: a volume is created within seconds. */
const MAX_PENDING_MS = 60_000;

/** Returns a problem for each claim that has waited for its volume. The cause takes more objects than an overview reads. */
function claimProblems({ pendingClaims, now }: ClusterState): Problem[] {
  return pendingClaims.flatMap(({ metadata: { namespace, name, creationTimestamp: since = "" } }): Problem[] =>
    now.getTime() - Date.parse(since) < MAX_PENDING_MS
      ? []
      : [problem("warning", "ClaimPending", `claim/${namespace}/${name}`, {
        message: "the claim is Pending, and the driver was asked for its volume",
        remedy: `\`kubectl denolith why ${name} --namespace ${namespace}\` names the cause.`,
        runbook: "claim-stays-pending",
        since,
      })]
  );
}

function countBy(states: readonly string[]): Counts {
  const counts = Map.groupBy(states, (state) => state);
  return Object.fromEntries([...counts].map(([state, { length }]) => [state, length] as const).sort());
}
