/**
 * The lists of the plugin, as tables: nodes, volumes, snapshots, orphans, and problems.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import { wrapText } from "../../base/text_table.ts";
import type { GroupView, NodeView, PoolView } from "../diagnosis/nodes.ts";
import type { Overview } from "../diagnosis/overview.ts";
import type { Problem } from "../problem.ts";
import type { SnapshotView, VolumeView } from "../diagnosis/volumes.ts";
import type { Colours } from "../output.ts";
import { chapterCommand } from "../runbooks.ts";

/** How a list is formatted. */
export interface TableOptions {
  /** True with `--output wide`. */
  readonly wide: boolean;
  /** Colours. */
  readonly colours: Colours;
  /** The time of now, for ages. */
  readonly now: Date;
}

/** How a list is formatted of which flags select a part. */
export interface ListOptions extends TableOptions {
  /** What is selected, after a blank; absent for everything. */
  readonly where?: string;
}

/** A column: its title, its text for a row, and what it looks like. */
interface Column<T> {
  readonly title: string;
  readonly text: (row: T) => string;
  readonly right?: boolean;
  /** True if it is shown with `--output wide` only. */
  readonly wide?: boolean;
  readonly paint?: (text: string, row: T) => string;
}

/** Formats rows as kubectl does: titles in capitals, and three blanks between columns. */
function formatColumns<T>(columns: readonly Column<T>[], rows: readonly T[], { wide }: { wide: boolean }): string[] {
  const shown = columns.filter((column) => wide || column.wide !== true);
  const texts = rows.map((row) => shown.map(({ text }) => text(row)));
  const widths = shown.map(({ title }, index) =>
    texts.reduce((width, cells) => Math.max(width, cells[index]!.length), title.length)
  );
  const pad = (text: string, index: number) => {
    const blanks = " ".repeat(widths[index]! - text.length);
    return { before: shown[index]!.right === true ? blanks : "", after: shown[index]!.right === true ? "" : blanks };
  };
  const line = (cells: readonly string[], paint: (text: string, index: number) => string) =>
    cells.map((text, index) => {
      const { before, after } = pad(text, index);
      return before + paint(text, index) + (index === cells.length - 1 ? "" : after);
    }).join("   ").trimEnd();
  return [
    line(shown.map(({ title }) => title), (text) => text),
    ...texts.map((cells, row) => line(cells, (text, index) => shown[index]!.paint?.(text, rows[row]!) ?? text)),
  ];
}

/** Formats the time since a moment, as kubectl does: one unit below ten of it, two above it none. */
export function formatAge(time: string | undefined, now: Date): string {
  const ms = now.getTime() - Date.parse(time ?? "");
  if (Number.isNaN(ms)) return "";
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const units = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]] as const;
  const index = units.findIndex(([, size]) => seconds >= size * (size === 1 ? 0 : 2));
  const [unit, size] = units[index]!;
  const count = Math.floor(seconds / size);
  const next = units[index + 1];
  const rest = next === undefined || count >= 10 ? 0 : Math.floor(seconds % size / next[1]);
  return `${count}${unit}${rest === 0 ? "" : `${rest}${next![0]}`}`;
}

/** Formats the nodes: a line for each volume group, and below it one for each thin pool. */
export function nodesTable(nodes: readonly NodeView[], { wide, colours, now }: TableOptions): string {
  if (nodes.length === 0) return "No node has an agent of the driver.";
  type Row = { node?: NodeView; group?: GroupView; pool?: PoolView };
  const rows = nodes.flatMap((node): Row[] => {
    const lines = node.groups.flatMap((group): Row[] => [{ group }, ...group.pools.map((pool) => ({ pool }))]);
    return lines.length === 0 ? [{ node }] : [{ node, ...lines[0] }, ...lines.slice(1)];
  });
  const percent = ({ group, pool }: Row) =>
    group ? `${group.usedPercent}%` : pool?.dataPercent === undefined ? "" : `${pool.dataPercent}%`;
  const table = formatColumns<Row>(
    [
      { title: "NODE", text: ({ node }) => node?.name ?? "" },
      { title: "AGENT", text: ({ node }) => node?.agent ?? "", paint: (text) => colours.state(text) },
      { title: "SEEN", text: ({ node }) => formatAge(node?.seen, now) },
      { title: "GROUP", text: ({ group, pool }) => group?.name ?? (pool ? `  ${pool.name} (thin)` : "") },
      { title: "SIZE", text: ({ group, pool }) => sizeText((group ?? pool)?.size), right: true },
      { title: "FREE", text: ({ group, pool }) => sizeText(group?.free ?? pool?.availableVirtual), right: true },
      { title: "SPARE", text: ({ group }) => group?.spare ? sizeText(group.spare) : "", right: true, wide: true },
      {
        title: "USED",
        text: percent,
        right: true,
        paint: (text, { pool, group }) => {
          const used = pool?.dataPercent ?? group?.usedPercent ?? 0;
          return used >= 95 ? colours.severity("error", text) : used >= 80 ? colours.severity("warning", text) : text;
        },
      },
      { title: "VOLUMES", text: ({ group }) => group === undefined ? "" : `${group.volumes}`, right: true },
      { title: "PVS", text: (row) => row.group === undefined ? "" : pvsText(row.group), right: true, wide: true },
      {
        title: "METADATA",
        text: ({ pool }) => pool?.metadataPercent === undefined ? "" : `${pool.metadataPercent}%`,
        ...{ right: true, wide: true },
      },
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

/** Formats the volumes. */
export function volumesTable(volumes: readonly VolumeView[], { wide, colours, now, where = "" }: ListOptions): string {
  if (volumes.length === 0) return `There are no volumes${where}.`;
  return formatColumns<VolumeView>(
    [
      { title: "CLAIM", text: ({ claim = "" }) => claim },
      { title: "NODE", text: ({ node }) => node },
      { title: "GROUP", text: ({ group = "" }) => group },
      { title: "SIZE", text: ({ size }) => sizeText(size), right: true },
      { title: "STATE", text: ({ state }) => state, paint: (text) => colours.state(text) },
      { title: "LAYOUT", text: ({ layout }) => layout },
      { title: "CONTENT", text: ({ content }) => content },
      { title: "AGE", text: ({ created }) => formatAge(created, now) },
      { title: "VOLUME", text: ({ id }) => id },
      { title: "PERSISTENTVOLUME", text: ({ persistentVolume = "" }) => persistentVolume, wide: true },
      { title: "LOGICALVOLUME", text: ({ logicalVolume = "" }) => logicalVolume, wide: true },
    ],
    volumes,
    { wide },
  ).join("\n");
}

/** Formats the snapshots. */
export function snapshotsTable(
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
      {
        title: "USED",
        text: ({ cowPercent }) => cowPercent === undefined ? "" : `${cowPercent}%`,
        right: true,
        paint: (text, { cowPercent = 0 }) => cowPercent >= 80 ? colours.severity("warning", text) : text,
      },
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

/** Formats the overview of a cluster. */
export function overviewText(overview: Overview, options: TableOptions): string {
  const { nodes, size, free, usedPercent, volumes, snapshots, orphans, problems, unread, driver } = overview;
  const { colours } = options;
  const silent = nodes.filter(({ agent }) => agent === "Silent" || agent === "NotReported").length;
  return [
    `${colours.bold("Driver")}      ${driver}`,
    `${colours.bold("Nodes")}       ${nodes.length}${silent === 0 ? "" : `, ${silent} without a living agent`}`,
    `${colours.bold("Space")}       ${sizeText(free)} of ${sizeText(size)} free, ${usedPercent}% used`,
    `${colours.bold("Volumes")}     ${countsText(volumes)}`,
    `${colours.bold("Snapshots")}   ${countsText(snapshots)}`,
    `${colours.bold("Orphans")}     ${orphans}`,
    ...unread.map((what) => `${colours.bold("Not read")}    ${what}`),
    "",
    nodesTable(nodes, options),
    "",
    ...(problems.length === 0 ? [nothingWrongText(unread)] : problemsText(problems, options)),
  ].join("\n");
}

/** Returns what is said when there are no problems. @param unread kinds that could not be read, with the cause */
export function nothingWrongText(unread: readonly string[]): string {
  return unread.length === 0 ? "Nothing is wrong." : "Nothing is wrong in what you may read.";
}

/** Adds to a list what could not be read for it: an empty list may be empty because of that. */
export function withUnread(table: string, unread: readonly string[]): string {
  return [table, ...(unread.length === 0 ? [] : ["", ...unread.map((what) => `Not read: ${what}`)])].join("\n");
}

/** Formats problems: a line for each, with its age, and the message below it; with `--output wide` also the remedy. */
export function problemsText(problems: readonly Problem[], { wide, colours, now }: TableOptions): string[] {
  return problems.flatMap(({ severity, reason, object, message, since, remedy, runbook }) => {
    const age = formatAge(since, now);
    const title = `${colours.severity(severity, severity.toUpperCase())} ${colours.bold(reason)} ${object}`;
    return [
      `${title}${age === "" ? "" : `, for ${age}`}`,
      ...wrapText("  ", message.trim().replace(/\s+/g, " ")), // a line feed could begin another problem
      ...(wide && remedy !== undefined ? wrapText("  ", remedy) : []),
      ...(wide && runbook !== undefined ? [`  ${chapterCommand(runbook)}`] : []),
    ];
  });
}

function countsText(counts: Readonly<Record<string, number>>): string {
  const entries = Object.entries(counts);
  const total = entries.reduce((sum, [, count]) => sum + count, 0);
  return total === 0 ? "0" : `${total} (${entries.map(([state, count]) => `${count} ${state}`).join(", ")})`;
}

function sizeText(bytes: bigint | undefined): string {
  return bytes === undefined ? "" : formatBytes(bytes);
}
