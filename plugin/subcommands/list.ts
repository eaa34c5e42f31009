/**
 * The lists of nodes, volumes and snapshots, as tables, of which arguments and flags select a part.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { wrapText } from "../../base/text_table.ts";
import type { Flags } from "../../cli/command_line.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { nodes, persistentVolumeClaims, type Resource } from "../../k8s/api/objects.ts";
import { volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { type ClusterState, readClusterState } from "../diagnosis/cluster_state.ts";
import { type GroupView, type NodeView, nodeViews, type PoolView } from "../diagnosis/nodes.ts";
import { type SnapshotView, snapshotViews, type VolumeView, volumeViews } from "../diagnosis/volumes.ts";
import { LISTED, type Session } from "../session.ts";
import type { Colours } from "../output.ts";
import { type Column, formatAge, formatColumns, sizeText, type TableOptions, withUnread } from "../tables.ts";

/** How a list is formatted of which flags select a part. */
export interface ListOptions extends TableOptions {
  /** What is selected, after a blank; absent for everything. */
  readonly where?: string;
}

/** A kind of list. */
interface ListKind<T extends object> {
  /** Its name, which is that of its subcommand and of its field in JSON. */
  readonly name: string;
  /** What the namespace is of, in the plural; absent for what is in none. */
  readonly owners?: string;
  /** The objects that the rows stand for. */
  readonly resource: Resource;
  /** What has the labels by which rows are selected. */
  readonly labelled: Resource;
  /** Returns the rows for a cluster. */
  readonly rows: (state: ClusterState) => readonly T[];
  /** Returns the node of a row, and the object in a namespace that it belongs to, as `namespace/name`. */
  readonly placeOf: (row: T) => { readonly node: string; readonly owner?: string | undefined };
  /** Returns the names of a row, that of its object first. One after a namespace is also a name without it. */
  readonly namesOf: (row: T) => readonly [string, ...(string | undefined)[]];
  /** Formats the rows for people. */
  readonly table: (rows: readonly T[], options: ListOptions) => string;
}

/** The nodes. */
export const NODES: ListKind<NodeView> = {
  ...{ name: "nodes", resource: lvmNodes, labelled: nodes },
  rows: nodeViews,
  placeOf: ({ name }) => ({ node: name }),
  namesOf: ({ name }) => [name],
  table: nodesTable,
};

/** The volumes. */
export const VOLUMES: ListKind<VolumeView> = {
  ...{ name: "volumes", resource: lvmVolumes, labelled: persistentVolumeClaims, owners: "claims" },
  rows: volumeViews,
  placeOf: ({ node, claim }) => ({ node, owner: claim }),
  namesOf: ({ id, claim, persistentVolume }) => [id, claim, persistentVolume],
  table: volumesTable,
};

/** The snapshots. */
export const SNAPSHOTS: ListKind<SnapshotView> = {
  ...{ name: "snapshots", resource: lvmSnapshots, labelled: volumeSnapshots, owners: "VolumeSnapshots" },
  rows: snapshotViews,
  placeOf: ({ node, volumeSnapshot }) => ({ node, owner: volumeSnapshot }),
  namesOf: ({ id, volumeSnapshot }) => [id, volumeSnapshot],
  table: snapshotsTable,
};

/** Shows a list. @returns 0 @throws {StorageError} `NotFound` when a name is that of no row, after the others are shown */
export async function showList<T extends object>(session: Session, kind: ListKind<T>): Promise<number> {
  const { client, driver, flags } = session;
  const names = flags["NAME"]?.split(",");
  let missing: readonly string[] = [];
  const requireFound = (where: string) => {
    if (missing.length > 0) {
      throw new StorageError("NotFound", `${kind.name}: there is no ${missing.join(", ")}${where}`);
    }
  };
  let where = "";
  const qualified = `${kind.resource.kind.toLowerCase()}.${kind.resource.group}`;
  const status = await session.show(LISTED, async (now) => {
    const state = await readClusterState(client, driver, now);
    where = selectionText(state, flags, kind.owners);
    const labelled = await keysWithLabels(session, kind.labelled);
    const selected = kind.rows(state).map((row) => ({ row, place: kind.placeOf(row) }))
      .filter(({ place: { node, owner = node } }) => labelled?.has(owner) !== false)
      .filter(({ place }) => isSelected(place, flags)).map(({ row }) => row);
    const isNamed = (row: T, name: string) =>
      kind.namesOf(row).some((own) => own === name || own?.replace(/^.*\//, "") === name);
    const rows = names === undefined ? selected : selected.filter((row) => names.some((name) => isNamed(row, name)));
    missing = names?.filter((name) => !selected.some((row) => isNamed(row, name))) ?? [];
    if (rows.length === 0) requireFound(where);
    return {
      rows: rows.map((row) => ({ row, name: `${qualified}/${kind.namesOf(row)[0]}` })),
      data: { [kind.name]: rows, unread: state.unread },
      text: (options) => withUnread(kind.table(rows, { ...options, now, where }), state.unread),
    };
  });
  requireFound(where);
  return status;
}

/** Returns the objects that have the labels of `--selector`, as `namespace/name`; `undefined` without it. */
async function keysWithLabels({ client, flags }: Session, resource: Resource): Promise<Set<string> | undefined> {
  if (flags.selector === undefined) return undefined;
  const { items } = await client.list(resource, { labelSelector: flags.selector });
  return new Set(
    items.map(({ metadata: { namespace, name } }) => namespace === undefined ? name : `${namespace}/${name}`),
  );
}

/** Returns what flags select, after a blank. @param owners what the namespace is of */
function selectionText(
  { nodes, lvmNodes, unread }: ClusterState,
  { node, namespace, selector }: Flags,
  owners = "",
): string {
  const isKnown = [...nodes, ...lvmNodes].some(({ metadata }) => metadata.name === node);
  const unknown = isKnown || unread.some((what) => what.startsWith("nodes:")) ? "" : ", which does not exist";
  return [
    ...(node === undefined ? [] : [` on node ${node}${unknown}`]),
    ...(namespace === undefined ? [] : [` of ${owners} of namespace ${namespace}`]),
    ...(selector === undefined ? [] : [` with the labels ${selector}`]),
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

/** Formats the nodes: a line for each volume group, and below it one for each thin pool. */
export function nodesTable(nodes: readonly NodeView[], { wide, colours, now }: TableOptions): string {
  if (nodes.length === 0) return "No node has an agent of the driver.";
  type Row = { node?: NodeView; group?: GroupView; pool?: PoolView };
  const rows = nodes.flatMap((node): Row[] => {
    const lines = node.groups.flatMap((group): Row[] => [{ group }, ...group.pools.map((pool) => ({ pool }))]);
    return lines.length === 0 ? [{ node }] : [{ node, ...lines[0] }, ...lines.slice(1)];
  });
  const table = formatColumns<Row>(
    [
      { title: "NODE", text: ({ node }) => node?.name ?? "" },
      { title: "AGENT", text: ({ node }) => node?.agent ?? "", paint: (text) => colours.state(text) },
      { title: "SEEN", text: ({ node }) => formatAge(node?.seen, now) },
      { title: "GROUP", text: ({ group, pool }) => group?.name ?? (pool ? `  ${pool.name} (thin)` : "") },
      { title: "SIZE", text: ({ group, pool }) => sizeText((group ?? pool)?.size), right: true },
      { title: "FREE", text: ({ group, pool }) => sizeText(group?.free ?? pool?.availableVirtual), right: true },
      { title: "SPARE", text: ({ group }) => group?.spare ? sizeText(group.spare) : "", right: true, wide: true },
      { title: "ERASING", text: ({ group }) => sizeText(group?.erasing), right: true, wide: true },
      usedColumn(({ group, pool }) => group?.usedPercent ?? pool?.dataPercent, { warning: 80, error: 95 }, colours),
      { title: "VOLUMES", text: ({ group }) => group === undefined ? "" : `${group.volumes}`, right: true },
      { title: "PVS", text: (row) => row.group === undefined ? "" : pvsText(row.group), right: true, wide: true },
      { title: "METADATA", text: ({ pool }) => percentText(pool?.metadataPercent), right: true, wide: true },
      { title: "OVERCOMMIT", text: ({ pool }) => pool?.overcommit ?? "", right: true, wide: true },
      { title: "ORPHANS", text: ({ node }) => node === undefined ? "" : `${node.orphans}`, right: true, wide: true },
    ],
    rows,
    { wide },
  );
  return [...table, ...hostUseLines(nodes)].join("\n");
}

/** Returns the groups that classes do not use unless they name them. */
function hostUseLines(nodes: readonly NodeView[]): string[] {
  const lines = nodes.flatMap(({ name: node, groups }) =>
    groups.filter(({ hostUse }) => hostUse !== undefined).flatMap(({ name, hostUse }) =>
      wrapText("", `${name} of ${node}: only for StorageClasses that name it, since the node uses ${hostUse}.`)
    )
  );
  return lines.length === 0 ? [] : ["", ...lines];
}

function pvsText({ physicalVolumes, missing }: GroupView): string {
  return missing === 0 ? `${physicalVolumes}` : `${physicalVolumes} (${missing} missing)`;
}

/** Returns the column of used shares, in percent. @param limits from which share on it is a warning, or an error */
function usedColumn<T>(
  percentOf: (row: T) => number | undefined,
  { warning, error = Infinity }: { readonly warning: number; readonly error?: number },
  colours: Colours,
): Column<T> {
  return {
    title: "USED",
    text: (row) => percentText(percentOf(row)),
    right: true,
    paint: (text, row) => {
      const used = percentOf(row) ?? 0;
      return used >= error
        ? colours.severity("error", text)
        : used >= warning
        ? colours.severity("warning", text)
        : text;
    },
  };
}

function percentText(percent: number | undefined): string {
  return percent === undefined ? "" : `${percent}%`;
}

/** Formats the volumes. */
function volumesTable(volumes: readonly VolumeView[], { wide, colours, now, where = "" }: ListOptions): string {
  if (volumes.length === 0) return `There are no volumes${where}.`;
  return formatColumns<VolumeView>(
    [
      { title: "CLAIM", text: ({ claim = "" }) => claim },
      { title: "NODE", text: ({ node }) => node },
      { title: "GROUP", text: ({ group = "" }) => group },
      { title: "SIZE", text: ({ size }) => sizeText(size), right: true },
      usedColumn(({ usedPercent }) => usedPercent, { warning: 90 }, colours),
      { title: "STATE", text: ({ state }) => state, paint: (text) => colours.state(text) },
      { title: "LAYOUT", text: ({ layout }) => layout },
      { title: "CONTENT", text: ({ content }) => content },
      { title: "AGE", text: ({ created }) => formatAge(created, now) },
      { title: "VOLUME", text: ({ id }) => id },
      { title: "CLASS", text: ({ storageClass = "" }) => storageClass, wide: true },
      { title: "PERSISTENTVOLUME", text: ({ persistentVolume = "" }) => persistentVolume, wide: true },
      { title: "LOGICALVOLUME", text: ({ logicalVolume = "" }) => logicalVolume, wide: true },
    ],
    volumes,
    { wide },
  ).join("\n");
}

/** Formats the snapshots. */
function snapshotsTable(
  snapshots: readonly SnapshotView[],
  { wide, colours, now, where = "" }: ListOptions,
): string {
  if (snapshots.length === 0) return `There are no snapshots${where}.`;
  return formatColumns<SnapshotView>(
    [
      { title: "VOLUMESNAPSHOT", text: ({ volumeSnapshot = "" }) => volumeSnapshot },
      { title: "NODE", text: ({ node }) => node },
      { title: "GROUP", text: ({ group = "" }) => group },
      { title: "RESTORESIZE", text: ({ restoreSize }) => sizeText(restoreSize), right: true },
      { title: "COW", text: ({ size }) => sizeText(size), right: true },
      usedColumn(({ cowPercent }) => cowPercent, { warning: 80 }, colours),
      { title: "STATE", text: ({ state }) => state, paint: (text) => colours.state(text) },
      { title: "AGE", text: ({ created }) => formatAge(created, now) },
      { title: "SNAPSHOT", text: ({ id }) => id },
      { title: "VOLUME", text: ({ volume }) => volume, wide: true },
      { title: "LOGICALVOLUME", text: ({ logicalVolume = "" }) => logicalVolume, wide: true },
    ],
    snapshots,
    { wide },
  ).join("\n");
}
