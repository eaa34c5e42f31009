/**
 * The cluster as the page shows it: the answer of `kubectl denolith status`, with what each bar consists of.
 *
 * @module
 */

import { shellWord } from "../../base/text_table.ts";
import { layoutOfSpec } from "../../k8s/api/volume_mapping.ts";
import type { LvmNode, LvmVolume } from "../../k8s/api/lvm_objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import type { ClusterState } from "../diagnosis/cluster_state.ts";
import { type DiskState, type DiskView, diskViews } from "../diagnosis/disk_views.ts";
import { commandsFor, type CommandTarget, inCluster } from "./commands.ts";
import { type NamespaceUse, namespaceUses } from "./namespaces.ts";
import { underWay, type Work } from "./under_way.ts";
import { type WaitingClaim, waitingClaims } from "./waiting_claims.ts";
import type { AgentState, GroupView, NodeView, PoolView } from "../diagnosis/nodes.ts";
import { type Overview, overviewOf } from "../diagnosis/overview.ts";
import { compareText, type Problem, type Severity } from "../problem.ts";
import { type SnapshotView, snapshotViews, type VolumeView, volumeViews } from "../diagnosis/volumes.ts";
import { allocatedBytes } from "../../lvm/model/layout.ts";

/** A value as JSON has it: sizes are numbers. */
export type Sent<T> = T extends bigint ? number
  : T extends readonly (infer I)[] ? readonly Sent<I>[]
  : T extends object ? { readonly [K in keyof T]: Sent<T[K]> }
  : T;

/** A part of a bar. Sizes are in bytes. */
export interface Segment {
  /** What it is: `erasing` is space of deleted volumes, `other` space that none of the driver's volumes has. */
  readonly kind: "volume" | "snapshot" | "pool" | "erasing" | "other" | "free";
  /** Its name. */
  readonly name: string;
  /** The space that it takes; of a thin volume its virtual size. */
  readonly bytes: bigint;
  /** The id of the volume that it belongs to. */
  readonly volume?: string;
  /** How bad its worst problem is. */
  readonly severity?: Severity;
}

/** A thin pool, with the virtual sizes of its volumes and snapshots. */
export interface PoolPage extends PoolView {
  readonly segments: readonly Segment[];
}

/** A volume group. */
export interface GroupPage extends Omit<GroupView, "pools"> {
  readonly pools: readonly PoolPage[];
  readonly segments: readonly Segment[];
}

/** A volume in the list of its node. */
export interface VolumeEntry extends VolumeView {
  /** How bad its worst problem is. */
  readonly severity?: Severity;
}

/** A node. */
export interface NodePage extends Omit<NodeView, "groups" | "seen" | "agent"> {
  /** Its agent; absent for a node that has volumes and no LVMNode. */
  readonly agent?: AgentState;
  readonly size: bigint;
  readonly free: bigint;
  readonly groups: readonly GroupPage[];
  readonly volumes: readonly VolumeEntry[];
  /** The kinds of problems of the node and of what is on it, the worst first. */
  readonly problems: readonly ProblemKind[];
}

/** How often a node has problems of a kind. */
export interface ProblemKind {
  readonly severity: Severity;
  readonly reason: string;
  readonly count: number;
}

/** A problem, with what the page opens for it, and commands that can be run. */
export interface ProblemEntry extends Problem {
  readonly node?: string;
  readonly volume?: string;
  readonly commands: readonly string[];
}

/** A disk that nobody uses yet, with the command that accepts it. */
export interface DiskEntry extends DiskView {
  readonly commands: readonly string[];
}

/** The cluster, without its nodes. */
export interface ClusterSummary extends Omit<Overview, "nodes" | "problems"> {
  /** The context of the kubeconfig. */
  readonly context: string;
  readonly nodes: number;
  /** The size of the largest node: the bars of all nodes have its scale. */
  readonly largestNode: bigint;
  readonly problems: readonly ProblemEntry[];
  /** The claims that wait for their volumes. */
  readonly waiting: readonly WaitingClaim[];
  /** Moves, imports and copies. */
  readonly underWay: readonly Work[];
  /** The disks that rules name, which are proposed, or accepted and not taken. */
  readonly disks: readonly DiskEntry[];
  /** The space of the volumes of each namespace. */
  readonly namespaces: readonly NamespaceUse[];
}

/** The cluster: a value for each key, so that a change of one node sends this node alone. */
export interface ClusterPage {
  readonly cluster: ClusterSummary;
  /** The nodes by their names. */
  readonly nodes: ReadonlyMap<string, NodePage>;
}

/** Returns what the page shows of a cluster. Two states that differ in nothing but their time give the same. */
export function clusterPage(state: ClusterState, target: CommandTarget): ClusterPage {
  const { nodes: views, problems: found, ...overview } = overviewOf(state);
  const [volumes, snapshots] = [volumeViews(state), snapshotViews(state)];
  const subjects = subjectsOf(volumes, snapshots);
  const problems = found.map((problem): ProblemEntry => {
    const subject = subjectOf(problem, subjects);
    return { ...problem, ...subject, commands: commandsFor(problem, { ...target, node: subject.node }) };
  });
  const known = new Set(views.map(({ name }) => name));
  const withoutAgent = new Set(volumes.map(({ node }) => node).filter((node) => !known.has(node)));
  const shared = {
    objects: new Map(state.volumes.map((volume) => [volume.metadata.name, volume])),
    severities: {
      volumes: firstBy(problems, ({ volume }) => volume, ({ severity }) => severity),
      objects: firstBy(problems, ({ object }) => object, ({ severity }) => severity),
    },
  };
  // by node: a cluster may have thousands, with very many volumes
  const lvmNodes = firstBy(state.lvmNodes, ({ metadata: { name } }) => name, (node) => node);
  const [volumesOf, snapshotsOf, problemsOf] = [
    Map.groupBy(volumes, ({ node }) => node),
    Map.groupBy(snapshots, ({ node }) => node),
    Map.groupBy(problems, ({ node }) => node),
  ];
  const nodes = new Map(
    [...views, ...[...withoutAgent].map((name) => ({ name, groups: [], orphans: 0 }))].map((view) => {
      const { name } = view;
      const own = { volumes: volumesOf.get(name) ?? [], snapshots: snapshotsOf.get(name) ?? [] };
      const page = nodePage(view, {
        ...shared,
        lvmNode: lvmNodes.get(name),
        ...own,
        problems: problemsOf.get(name) ?? [],
      });
      return [name, page];
    }),
  );
  const largestNode = [...nodes.values()].reduce((max, { size }) => size > max ? size : max, 0n);
  const summary = { ...overview, context: target.context, nodes: views.length, largestNode, problems };
  return {
    cluster: {
      ...summary,
      waiting: waitingClaims(state),
      underWay: underWay(state, volumes, target),
      disks: diskEntries(state, target),
      namespaces: namespaceUses(volumes),
    },
    nodes,
  };
}

/** The states of disks about which there is something to do, or to wait for. */
const OPEN_DISKS: readonly DiskState[] = ["Proposed", "Accepted", "Taking", "Refused", "Lost"];

function diskEntries({ lvmNodes }: ClusterState, target: CommandTarget): DiskEntry[] {
  return diskViews(lvmNodes).filter(({ state }) => OPEN_DISKS.includes(state)).map((disk): DiskEntry => {
    const command = disk.state === "Proposed" ? "accept" : disk.state === "Refused" ? "withdraw" : undefined;
    const line = `kubectl denolith disks --${command} ${shellWord(disk.name)} --node ${disk.node}`;
    return { ...disk, commands: command === undefined ? [] : [inCluster(line, target)] };
  });
}

/** What a node has. */
interface Contents {
  readonly lvmNode: LvmNode | undefined;
  readonly volumes: readonly VolumeView[];
  readonly snapshots: readonly SnapshotView[];
  readonly problems: readonly Problem[];
  /** The LVMVolumes of the cluster, by their names. */
  readonly objects: ReadonlyMap<string, LvmVolume>;
  /** How bad the worst problem is of each volume, by its id, and of each object. */
  readonly severities: Readonly<Record<"volumes" | "objects", ReadonlyMap<string, Severity>>>;
}

/** Returns what is first for each key. What has none is left out. */
function firstBy<T, R>(
  items: readonly T[],
  keyOf: (item: T) => string | undefined,
  valueOf: (item: T) => R,
): Map<string, R> {
  const first = new Map<string, R>();
  for (const item of items) {
    const key = keyOf(item);
    if (key !== undefined && !first.has(key)) first.set(key, valueOf(item));
  }
  return first;
}

/** The volumes and snapshots that problems are about, by what names them. */
function subjectsOf(volumes: readonly VolumeView[], snapshots: readonly SnapshotView[]) {
  return {
    volumes: firstBy(volumes, ({ id }) => id, (volume) => volume),
    claims: firstBy(volumes, ({ claim }) => claim, (volume) => volume),
    snapshots: firstBy(snapshots, ({ id }) => id, (snapshot) => snapshot),
    volumeSnapshots: firstBy(snapshots, ({ volumeSnapshot }) => volumeSnapshot, (snapshot) => snapshot),
  };
}

/** Returns the node and the volume that a problem is about. */
function subjectOf(
  { object }: Problem,
  { volumes, claims, snapshots, volumeSnapshots }: ReturnType<typeof subjectsOf>,
): Pick<ProblemEntry, "node" | "volume"> {
  const [, kind, name = ""] = /^([^/]*)\/(.*)$/s.exec(object) ?? [];
  if (kind === "node") return { node: name };
  const ofKind = { lvmsnapshot: snapshots, volumesnapshot: volumeSnapshots }[kind ?? ""];
  const snapshot = ofKind?.get(name);
  const volume = snapshot ? volumes.get(snapshot.volume) : (kind === "claim" ? claims : volumes).get(name);
  const node = volume?.node ?? snapshot?.node;
  return { ...(node !== undefined && { node }), ...(volume && { volume: volume.id }) };
}

/** A node, perhaps without an agent. */
type AnyNode = Omit<NodeView, "agent"> & Partial<Pick<NodeView, "agent">>;

function nodePage({ seen: _, groups: groupViews, ...node }: AnyNode, contents: Contents): NodePage {
  // without the time at which a live agent was seen, which is another one each time
  const groups = groupViews.map((group) => groupPage(group, contents));
  const sum = (of: (group: GroupView) => bigint) => groupViews.reduce((total, group) => total + of(group), 0n);
  return {
    ...{ ...node, groups, size: sum(({ size }) => size), free: sum(({ free }) => free) },
    volumes: contents.volumes
      .map((volume) => ({ ...volume, ...severityOf(contents.severities.volumes, volume.id) })),
    problems: problemKinds(contents.problems),
  };
}

function problemKinds(problems: readonly Problem[]): ProblemKind[] {
  const kinds = Map.groupBy(problems, ({ severity, reason }) => `${severity} ${reason}`);
  return [...kinds.values()].map((same) => {
    const { severity, reason } = same[0]!;
    return { severity, reason, count: same.length };
  });
}

/** Returns the severity of the first problem: they are in order, the worst first. */
function severityOf(severities: ReadonlyMap<string, Severity>, key: string): { severity?: Severity } {
  const severity = severities.get(key);
  return severity === undefined ? {} : { severity };
}

function groupPage({ pools: poolViews, ...group }: GroupView, contents: Contents): GroupPage {
  const { lvmNode, objects } = contents;
  const isHere = (one: { group?: string }) => one.group === group.name;
  const [volumes, snapshots] = [contents.volumes.filter(isHere), contents.snapshots.filter(isHere)];
  const extentSize = extentSizeOf(lvmNode, group.name);
  const pools = poolViews.map((pool): PoolPage => {
    const inPool = volumes.filter(({ id, layout }) =>
      layout === "thin" && poolOf(objects.get(id)!, poolViews) === pool.name
    );
    const ids = new Set(inPool.map(({ id }) => id));
    const thinSnapshots = snapshots.filter(({ volume, size }) => size === undefined && ids.has(volume));
    return {
      ...pool,
      segments: [
        ...inPool.map((volume) => volumeSegment(volume, volume.size, contents)),
        ...thinSnapshots.map((snapshot) => snapshotSegment(snapshot, snapshot.restoreSize ?? 0n, contents)),
      ],
    };
  });
  const used = [
    ...volumes.filter(({ layout }) => layout !== "thin").map((volume) =>
      volumeSegment(
        volume,
        allocatedBytes(layoutOfSpec(objects.get(volume.id)!.spec.layout), volume.size, extentSize),
        contents,
      )
    ),
    ...snapshots.flatMap((snapshot) =>
      snapshot.size === undefined ? [] : [snapshotSegment(snapshot, snapshot.size, contents)]
    ),
    ...pools.map(({ name, size }): Segment => ({ kind: "pool", name, bytes: size })),
  ];
  return { ...group, pools, segments: [...used, ...restOf(group, used)] };
}

/** Returns the space of a group that its segments do not have: that of other LVs and of metadata, deleted, spare and free. */
function restOf(
  { size, free, spare = 0n, erasing = 0n }: Pick<GroupView, "size" | "free" | "spare" | "erasing">,
  used: readonly Segment[],
): Segment[] {
  const other = size - free - spare - erasing - used.reduce((sum, { bytes }) => sum + bytes, 0n);
  return [
    ...(other > 0n ? [{ kind: "other" as const, name: "other logical volumes and metadata", bytes: other }] : []),
    ...(erasing > 0n ? [{ kind: "erasing" as const, name: "deleted volumes, being erased", bytes: erasing }] : []),
    ...(spare > 0n ? [{ kind: "other" as const, name: "spare space", bytes: spare }] : []),
    ...(free > 0n ? [{ kind: "free" as const, name: "free", bytes: free }] : []),
  ];
}

/** Returns the extent size of a group; one byte where its node does not report it, which rounds nothing. */
function extentSizeOf(node: LvmNode | undefined, group: string): bigint {
  return quantityToBytes(node?.status?.volumeGroups?.find(({ name }) => name === group)?.extentSize) || 1n;
}

/** Returns the name of the pool of a thin volume: the one that it names, or else the group's own. */
function poolOf({ spec }: LvmVolume, pools: readonly PoolView[]): string | undefined {
  return spec.thinPool ?? pools.find(({ owned }) => owned)?.name;
}

function volumeSegment({ id, claim }: VolumeView, bytes: bigint, contents: Contents): Segment {
  const severity = severityOf(contents.severities.volumes, id);
  return { kind: "volume", name: claim ?? id, bytes, volume: id, ...severity };
}

function snapshotSegment({ id, volumeSnapshot, volume }: SnapshotView, bytes: bigint, contents: Contents): Segment {
  const name = volumeSnapshot ?? id;
  const object = volumeSnapshot === undefined ? `lvmsnapshot/${id}` : `volumesnapshot/${volumeSnapshot}`;
  return { kind: "snapshot", name, bytes, volume, ...severityOf(contents.severities.objects, object) };
}

/** Returns the JSON of a value, with sizes as numbers. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, one) => typeof one === "bigint" ? Number(one) : one);
}

/** What the page gets of a cluster: everything at first, and then what has changed. */
export interface ClusterMessage {
  /** The time at which it was read (RFC 3339). */
  readonly read: string;
  /** True for the first message: what it does not name is not there. */
  readonly whole: boolean;
  /** The cluster, if it has changed. */
  readonly cluster?: ClusterSummary;
  /** The nodes that have changed; `null` for one that is gone. */
  readonly nodes: Readonly<Record<string, NodePage | null>>;
}

/** Compares a cluster with the one before, for one reader. */
export class ClusterChanges {
  #known: ReadonlyMap<string, string> | undefined;

  /** Returns what has changed since the last call. */
  next({ cluster, nodes }: ClusterPage, now: Date): ClusterMessage {
    const known = this.#known;
    const texts = new Map([["", toJson(cluster)], ...[...nodes].map(([name, node]) => [name, toJson(node)] as const)]);
    this.#known = texts;
    const hasChanged = (name: string) => known?.get(name) !== texts.get(name);
    const gone = [...known?.keys() ?? []].filter((name) => !texts.has(name));
    return {
      ...{ read: now.toISOString(), whole: known === undefined, ...(hasChanged("") && { cluster }) },
      nodes: Object.fromEntries([
        ...[...nodes].filter(([name]) => hasChanged(name)),
        ...gone.sort(compareText).map((name) => [name, null] as const),
      ]),
    };
  }
}
