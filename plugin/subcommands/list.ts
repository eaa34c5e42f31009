/**
 * The lists of nodes, volumes and snapshots, of which arguments and flags select a part.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { Flags } from "../../cli/command_line.ts";
import { type ClusterState, readClusterState } from "../diagnosis/cluster_state.ts";
import { type NodeView, nodeViews } from "../diagnosis/nodes.ts";
import { type SnapshotView, snapshotViews, type VolumeView, volumeViews } from "../diagnosis/volumes.ts";
import { LISTED, type Session } from "../session.ts";
import { type ListOptions, nodesTable, snapshotsTable, volumesTable, withUnread } from "./tables.ts";

/** A kind of list. */
interface ListKind<T> {
  /** Its name, which is that of its subcommand and of its field in JSON. */
  readonly name: string;
  /** What the namespace is of, in the plural; absent for what is in none. */
  readonly owners?: string;
  /** Returns the rows for a cluster. */
  readonly rows: (state: ClusterState) => readonly T[];
  /** Returns the node of a row, and the object in a namespace that it belongs to, as `namespace/name`. */
  readonly placeOf: (row: T) => { readonly node: string; readonly owner?: string | undefined };
  /** Returns the names of a row. One after a namespace is also a name without it. */
  readonly namesOf: (row: T) => readonly (string | undefined)[];
  /** Formats the rows for people. */
  readonly table: (rows: readonly T[], options: ListOptions) => string;
}

/** The nodes. */
export const NODES: ListKind<NodeView> = {
  name: "nodes",
  rows: nodeViews,
  placeOf: ({ name }) => ({ node: name }),
  namesOf: ({ name }) => [name],
  table: nodesTable,
};

/** The volumes. */
export const VOLUMES: ListKind<VolumeView> = {
  name: "volumes",
  owners: "claims",
  rows: volumeViews,
  placeOf: ({ node, claim }) => ({ node, owner: claim }),
  namesOf: ({ id, claim, persistentVolume }) => [id, claim, persistentVolume],
  table: volumesTable,
};

/** The snapshots. */
export const SNAPSHOTS: ListKind<SnapshotView> = {
  name: "snapshots",
  owners: "VolumeSnapshots",
  rows: snapshotViews,
  placeOf: ({ node, volumeSnapshot }) => ({ node, owner: volumeSnapshot }),
  namesOf: ({ id, volumeSnapshot }) => [id, volumeSnapshot],
  table: snapshotsTable,
};

/** Shows a list. @returns 0 @throws {StorageError} `NotFound` when a name is that of no row, after the others are shown */
export async function showList<T>(session: Session, kind: ListKind<T>): Promise<number> {
  const { client, driver, flags } = session;
  const names = flags["NAME"]?.split(",");
  let missing: readonly string[] = [];
  const requireFound = (where: string) => {
    if (missing.length > 0) {
      throw new StorageError("NotFound", `${kind.name}: there is no ${missing.join(", ")}${where}`);
    }
  };
  let where = "";
  const status = await session.show(LISTED, async (now) => {
    const state = await readClusterState(client, driver, now);
    where = selectionText(state, flags, kind.owners);
    const selected = kind.rows(state).filter((row) => isSelected(kind.placeOf(row), flags));
    const isNamed = (row: T, name: string) =>
      kind.namesOf(row).some((own) => own === name || own?.replace(/^.*\//, "") === name);
    const rows = names === undefined ? selected : selected.filter((row) => names.some((name) => isNamed(row, name)));
    missing = names?.filter((name) => !selected.some((row) => isNamed(row, name))) ?? [];
    if (rows.length === 0) requireFound(where);
    return {
      data: { [kind.name]: rows, unread: state.unread },
      text: (options) => withUnread(kind.table(rows, { ...options, now, where }), state.unread),
    };
  });
  requireFound(where);
  return status;
}

/** Returns what `--node` and `--namespace` select, after a blank. @param owners what the namespace is of */
function selectionText({ nodes, lvmNodes, unread }: ClusterState, { node, namespace }: Flags, owners = ""): string {
  const isKnown = [...nodes, ...lvmNodes].some(({ metadata }) => metadata.name === node);
  const unknown = isKnown || unread.some((what) => what.startsWith("nodes:")) ? "" : ", which does not exist";
  return [
    ...(node === undefined ? [] : [` on node ${node}${unknown}`]),
    ...(namespace === undefined ? [] : [` of ${owners} of namespace ${namespace}`]),
  ].join(",");
}

/** Reports whether a row is one that `--node` and `--namespace` select. */
function isSelected(
  place: { readonly node: string; readonly owner?: string | undefined },
  { node, namespace }: Flags,
): boolean {
  return (node === undefined || place.node === node) &&
    (namespace === undefined || place.owner?.startsWith(`${namespace}/`) === true);
}
