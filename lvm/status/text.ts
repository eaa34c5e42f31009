/**
 * Formatting a status for users and for programs.
 *
 * @module
 */

import type { Inconsistency, OrphanLv } from "../inventory/inventory.ts";
import { describeRates } from "../settings/io_limits.ts";
import { LINEAR } from "../model/layout.ts";
import { usedPercent } from "../host/mounts.ts";
import type { PoolState, PoolStatus } from "../pools/pool_status.ts";
import { formatBytes } from "../../base/size.ts";
import { escapeControls, formatTable, withoutControls, wrapText } from "../../base/text_table.ts";
import type { DeletedStatus, GroupStatus, SnapshotStatus, Status, VolumeStatus } from "./status.ts";

/** The states of a thin pool, in words. */
const POOL_STATE_WORDS: Readonly<Record<PoolState, string>> = {
  Ready: "ready",
  NearFull: "near full",
  CannotExtend: "near full and cannot extend",
  Full: "full",
  Damaged: "damaged",
  Erasing: "erasing",
};

/** Formats a status as JSON. A `bigint` becomes a number, which represents sizes of whole extents exactly. */
export function statusJson(status: Status): string {
  return escapeControls(JSON.stringify(status, (_, value) => typeof value === "bigint" ? Number(value) : value, 2));
}

/** Formats a status as tables, for a terminal of 100 columns. */
export function statusText(status: Status): string {
  return [
    ...section("Volume groups", groupTable(status.groups)),
    ...(status.pools.length === 0 ? [] : section("Thin pools", poolTable(status.pools))),
    ...section("Volumes", volumeTable(status.volumes)),
    ...section("Snapshots", snapshotTable(status.snapshots)),
    ...(status.deleted.length === 0 ? [] : section("Deleted, to be erased and removed", deletedTable(status.deleted))),
    ...(status.inconsistencies.length === 0
      ? []
      : section("Inconsistencies", status.inconsistencies.flatMap(inconsistencyLines))),
    ...(status.orphans.length === 0 ? [] : section("Orphans", status.orphans.flatMap(orphanLines))),
  ].slice(1).map(withoutControls).join("\n");
}

function section(title: string, lines: readonly string[]): string[] {
  return ["", title, ...(lines.length === 0 ? ["  none"] : lines)];
}

function groupTable(groups: readonly GroupStatus[]): string[] {
  const hasSpare = groups.some(({ spare }) => spare > 0n);
  return formatTable(
    [
      ["NAME", "left"],
      ["SIZE", "right"],
      ["FREE", "right"],
      ...(hasSpare ? [["SPARE", "right"] as const] : []),
      ["VOLUMES", "right"],
      ["METADATA FREE", "right"],
      ["PVS", "left"],
    ],
    groups.map(({ name, size, free, spare, used, metadata, physicalVolumes, writeable, hostUse }) => ({
      cells: [
        name,
        formatBytes(size),
        formatBytes(free),
        ...(hasSpare ? [formatBytes(spare)] : []),
        formatBytes(used),
        formatBytes(metadata.free),
        (physicalVolumes.missing === 0
          ? `${physicalVolumes.count}`
          : `${physicalVolumes.missing} of ${physicalVolumes.count} missing`) +
        (writeable ? "" : ", not writeable"),
      ],
      notes: hostUse === undefined ? [] : [`only for classes that name it, since this host uses ${hostUse}`],
    })),
  );
}

function poolTable(pools: readonly PoolStatus[]): string[] {
  return formatTable(
    [
      ["POOL", "left"],
      ["SIZE", "right"],
      ["DATA", "right"],
      ["METADATA", "right"],
      ["ALLOCATED", "right"],
      [
        "AVAILABLE",
        "right",
      ],
      ["OVERCOMMIT", "right"],
      ["OWNER", "left"],
      ["STATE", "left"],
    ],
    pools.map((pool) => ({
      cells: [
        `${pool.group}/${pool.name}`,
        formatBytes(pool.size),
        formatPercent(pool.dataPercent),
        formatPercent(pool.metadataPercent),
        formatBytes(pool.allocatedVirtual),
        formatBytes(pool.availableVirtual),
        pool.overcommit,
        pool.owned ? "driver" : "other",
        pool.state + (pool.active ? "" : ", inactive"),
      ],
      notes: pool.problem === undefined ? [] : [pool.problem],
    })),
  );
}

function formatPercent(usedPercent: number | undefined): string {
  return usedPercent === undefined ? "" : `${Math.ceil(usedPercent)} %`;
}

function volumeTable(volumes: readonly VolumeStatus[]): string[] {
  return formatTable(
    [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["FORMAT", "left"], ["USED", "right"], ["STATE", "left"]],
    volumes.map(({ id, group, size, layout, format, formatState, encryption, usage, mounts, problem, ...volume }) => ({
      cells: [
        id,
        group ?? "",
        size === undefined ? "" : formatBytes(size),
        [encryption, format ?? ""].filter((each) => each !== undefined).join(" ") +
        (formatState === "unformatted" || formatState === "formatting" ? ` (${formatState})` : ""),
        usage === undefined ? "" : usageText(usage.bytes),
        stateText(volume),
      ],
      notes: [
        ...(layout === undefined || layout === LINEAR.type ? [] : [layout]),
        ...(volume.pool === undefined ? [] : [`in thin pool ${volume.pool}`]),
        ...(volume.ioLimits === undefined ? [] : [`limited to ${describeRates(volume.ioLimits)}`]),
        ...mounts.map(({ target, readOnly }) => target + (readOnly ? " (read-only)" : "")),
        ...(problem === undefined ? [] : [problem]),
      ],
    })),
  );
}

function stateText(
  { state, copy, syncPercent, active, poolState }: Omit<VolumeStatus, "id" | "mounts">,
): string {
  const { copied = 0n, total = 0n } = copy ?? {};
  const progress = state === "Rebuilding" ? syncPercent : total === 0n ? undefined : copied * 100n / total;
  return [
    state + (progress === undefined ? "" : ` ${progress} %`),
    ...(active === false ? ["inactive"] : []),
    ...(poolState === undefined ? [] : [`pool ${POOL_STATE_WORDS[poolState]}`]),
  ].join(", ");
}

function deletedTable(deleted: readonly DeletedStatus[]): string[] {
  return formatTable(
    [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["ERASE", "left"]],
    deleted.map(({ id, group, size, erase }) => ({ cells: [id, group, formatBytes(size), erase], notes: [] })),
  );
}

/** Formats the usage as df(1) does: of the space that ordinary users can use. */
function usageText({ used, available }: { used: bigint; available: bigint }): string {
  return used + available === 0n ? "" : `${usedPercent({ used, available })} %`;
}

function snapshotTable(snapshots: readonly SnapshotStatus[]): string[] {
  return formatTable(
    [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["COW", "right"], ["COW%", "right"], ["STATE", "left"]],
    snapshots.map(({ id, group, size, pool, cowSize, cowPercent, state, source, createdAt }) => ({
      cells: [
        id,
        group,
        formatBytes(size),
        pool === undefined ? formatBytes(cowSize) : "thin",
        cowPercent === undefined ? "" : `${cowPercent} %`,
        state,
      ],
      notes: [`of ${source}, ${new Date(createdAt * 1000).toISOString().slice(0, 19)}Z`],
    })),
  );
}

const INCONSISTENCIES: Readonly<Record<Inconsistency["kind"], string>> = {
  duplicate: "has the same tags as another logical volume",
  dangling: "a record without a logical volume",
  unreadable: "has tags that cannot be parsed",
  untagged: "has a name of the driver, but no tags of it",
};

function inconsistencyLines({ kind, subject, group }: Inconsistency): string[] {
  return wrapText("  ", `${kind === "dangling" ? `${group}: ` : ""}${subject}: ${INCONSISTENCIES[kind]}`);
}

function orphanLines({ lvFullName, size, taggedAs: { kind, id, removeCommand } }: Required<OrphanLv>): string[] {
  const what = `${formatBytes(size)}, ${kind} ${id}. To remove it and its data:`;
  return [...wrapText("  ", `${lvFullName}: ${what}`), `      ${removeCommand}`]; // the command stays on one line, so that it can be copied
}
