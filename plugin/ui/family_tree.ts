/**
 * What was made from what: the snapshots of a volume, the volumes that were created from these, and what it was itself
 * created from.
 *
 * @module
 */

import type { ClusterState } from "../diagnosis/cluster_state.ts";
import { compareText } from "../problem.ts";
import { type SnapshotView, snapshotViews, type VolumeView, volumeViews } from "../diagnosis/volumes.ts";
import { defined } from "../../base/defined.ts";

/** A volume or a snapshot in the tree. */
export interface TreeNode extends Pick<SnapshotView, "id" | "state" | "size" | "cowPercent" | "created"> {
  readonly kind: "volume" | "snapshot";
  /** Its claim or VolumeSnapshot, or else its id. */
  readonly name: string;
  /** What was made from it, the oldest first. */
  readonly children: readonly TreeNode[];
}

/**
 * Returns the tree of a volume: what it was made from, as far as that still exists, and below the volume all that was
 * made from it. What else was made from its sources is left out.
 */
export function familyTree(view: VolumeView, state: ClusterState): TreeNode {
  const volumes = new Map(volumeViews(state).map((one) => [one.id, one]));
  const snapshots = new Map(snapshotViews(state).map((one) => [one.id, one]));
  const sources = new Map(state.volumes.map(({ metadata, spec }) => [metadata.name, spec.source ?? {}]));
  const seen = new Set<string>(); // objects could name each other in a circle

  const snapshotTree = (snapshot: SnapshotView) =>
    snapshotNode(snapshot, volumesMadeFrom((source) => source.snapshot === snapshot.id));
  const volumeTree = (volume: VolumeView): TreeNode => {
    seen.add(volume.id);
    const own = [...snapshots.values()].filter((snapshot) => snapshot.volume === volume.id).map(snapshotTree);
    return volumeNode(volume, [...own, ...volumesMadeFrom((source) => source.volume === volume.id)]);
  };
  const volumesMadeFrom = (isSource: (source: { snapshot?: string; volume?: string }) => boolean) =>
    [...volumes.values()].filter(({ id }) => !seen.has(id) && isSource(sources.get(id)!)).map(volumeTree);

  let tree = volumeTree(view);
  for (let volume: VolumeView | undefined = view; volume !== undefined;) {
    const source: { snapshot?: string; volume?: string } = sources.get(volume.id)!;
    const snapshot = snapshots.get(source.snapshot ?? "");
    if (snapshot !== undefined) tree = snapshotNode(snapshot, [tree]);
    volume = volumes.get(snapshot?.volume ?? source.volume ?? "");
    if (volume === undefined || seen.has(volume.id)) break;
    seen.add(volume.id);
    tree = volumeNode(volume, [tree]);
  }
  return tree;
}

function volumeNode({ id, claim, state, size, created }: VolumeView, children: readonly TreeNode[]): TreeNode {
  return { kind: "volume", id, name: claim ?? id, state, size, ...defined({ created }), children: byAge(children) };
}

function snapshotNode(
  { id, volumeSnapshot, state, size, cowPercent, created }: SnapshotView,
  children: readonly TreeNode[],
): TreeNode {
  const name = volumeSnapshot ?? id;
  const facts = defined({ size, cowPercent, created });
  return { kind: "snapshot", id, name, state, ...facts, children: byAge(children) };
}

function byAge(nodes: readonly TreeNode[]): TreeNode[] {
  return nodes.toSorted((a, b) => compareText(a.created ?? "", b.created ?? "") || compareText(a.name, b.name));
}
