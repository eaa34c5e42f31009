/**
 * A status for people and for programs.
 *
 * @module
 */

import type { Orphan, Stray } from "../inventory/inventory.ts";
import { describeRates } from "../spec/io_limits.ts";
import { LINEAR } from "../model/layout.ts";
import type { PoolStatus } from "../pools/pool_status.ts";
import { formatBytes } from "../size.ts";
import { table, wrap } from "../text_table.ts";
import type { DeletedStatus, GroupStatus, SnapshotStatus, Status, VolumeStatus } from "./status.ts";

/** The status as JSON. A `bigint` becomes a number, in which sizes of whole extents are exact. */
export function statusJson(status: Status): string {
  return JSON.stringify(status, (_, value) => typeof value === "bigint" ? Number(value) : value, 2);
}

/** The status as tables, for a terminal of 100 columns. */
export function statusText(status: Status): string {
  return [
    ...section("Volume groups", groupTable(status.groups)),
    ...(status.pools.length === 0 ? [] : section("Thin pools", poolTable(status.pools))),
    ...section("Volumes", volumeTable(status.volumes)),
    ...section("Snapshots", snapshotTable(status.snapshots)),
    ...(status.deleted.length === 0 ? [] : section("Deleted, to be erased and removed", deletedTable(status.deleted))),
    ...(status.orphans.length === 0 ? [] : section("Neither volume nor snapshot", status.orphans.flatMap(orphanLines))),
    ...(status.strays.length === 0 ? [] : section("Unknown to the cluster", status.strays.flatMap(strayLines))),
  ].slice(1).join("\n");
}

function section(title: string, lines: readonly string[]): string[] {
  return ["", title, ...(lines.length === 0 ? ["  none"] : lines)];
}

function groupTable(groups: readonly GroupStatus[]): string[] {
  return table(
    [["NAME", "left"], ["SIZE", "right"], ["FREE", "right"], ["VOLUMES", "right"], ["METADATA FREE", "right"], [
      "DISKS",
      "left",
    ]],
    groups.map(({ name, size, free, used, metadata, disks, writeable }) => ({
      cells: [
        name,
        formatBytes(size),
        formatBytes(free),
        formatBytes(used),
        formatBytes(metadata.free),
        (disks.missing === 0 ? `${disks.count}` : `${disks.missing} of ${disks.count} missing`) +
        (writeable ? "" : ", not writeable"),
      ],
      notes: [],
    })),
  );
}

function poolTable(pools: readonly PoolStatus[]): string[] {
  return table(
    [
      ["POOL", "left"],
      ["SIZE", "right"],
      ["DATA", "right"],
      ["METADATA", "right"],
      ["PROMISED", "right"],
      [
        "LEFT",
        "right",
      ],
      ["RATIO", "right"],
      ["OWNER", "left"],
      ["STATE", "left"],
    ],
    pools.map((pool) => ({
      cells: [
        `${pool.group}/${pool.name}`,
        formatBytes(pool.size),
        full(pool.dataPercent),
        full(pool.metadataPercent),
        formatBytes(pool.promised),
        formatBytes(pool.promisable),
        pool.overcommit,
        pool.owned ? "driver" : "other",
        pool.state + (pool.active ? "" : ", inactive"),
      ],
      notes: pool.problem === undefined ? [] : [pool.problem],
    })),
  );
}

function full(percent: number | undefined): string {
  return percent === undefined ? "" : `${Math.ceil(percent)} %`;
}

function volumeTable(volumes: readonly VolumeStatus[]): string[] {
  return table(
    [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["CONTENT", "left"], ["USED", "right"], ["STATE", "left"]],
    volumes.map(({ id, group, size, layout, content, contentState, usage, mounts, problem, ...volume }) => ({
      cells: [
        id,
        group ?? "",
        size === undefined ? "" : formatBytes(size),
        (content ?? "") + (contentState === "wanted" || contentState === "formatting" ? ` (${contentState})` : ""),
        usage === undefined ? "" : percent(usage.bytes),
        stateOf(volume),
      ],
      notes: [
        ...(layout === undefined || layout === LINEAR.type ? [] : [layout]),
        ...(volume.pool === undefined ? [] : [`in thin pool ${volume.pool}`]),
        ...(volume.limits === undefined ? [] : [`limited to ${describeRates(volume.limits)}`]),
        ...mounts.map(({ target, readOnly }) => target + (readOnly ? " (read-only)" : "")),
        ...(problem === undefined ? [] : [problem]),
      ],
    })),
  );
}

function stateOf(
  { state, copy, syncPercent, active, poolState }: Omit<VolumeStatus, "id" | "mounts">,
): string {
  const { copied = 0n, total = 0n } = copy ?? {};
  const progress = state === "Rebuilding" ? syncPercent : total === 0n ? undefined : copied * 100n / total;
  return [
    state + (progress === undefined ? "" : ` ${progress} %`),
    ...(active === false ? ["inactive"] : []),
    ...(poolState === undefined ? [] : [`pool ${poolState.toLowerCase()}`]),
  ].join(", ");
}

function deletedTable(deleted: readonly DeletedStatus[]): string[] {
  return table(
    [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["ERASE", "left"]],
    deleted.map(({ id, group, size, erase }) => ({ cells: [id, group, formatBytes(size), erase], notes: [] })),
  );
}

/** As df(1) counts: of what ordinary users can have. */
function percent({ used, available }: { used: bigint; available: bigint }): string {
  const all = used + available;
  return all === 0n ? "" : `${(used * 100n + all - 1n) / all} %`;
}

function snapshotTable(snapshots: readonly SnapshotStatus[]): string[] {
  return table(
    [["ID", "left"], ["GROUP", "left"], ["SIZE", "right"], ["STORE", "right"], ["FULL", "right"], ["STATE", "left"]],
    snapshots.map(({ id, group, size, pool, storeSize, storePercent, state, source, createdAt }) => ({
      cells: [
        id,
        group,
        formatBytes(size),
        pool === undefined ? formatBytes(storeSize) : "thin",
        storePercent === undefined ? "" : `${storePercent} %`,
        state,
      ],
      notes: [`of ${source}, ${new Date(createdAt * 1000).toISOString().slice(0, 19)}Z`],
    })),
  );
}

const ORPHANS: Readonly<Record<Orphan["kind"], string>> = {
  duplicate: "claims to be what another one claims to be",
  record: "a record, and no such logical volume",
  unreadable: "its tags cannot be read",
  untagged: "a name of ours without our tags",
};

function orphanLines({ kind, on, group }: Orphan): string[] {
  return wrap("  ", `${kind === "record" ? `${group}: ` : ""}${on}: ${ORPHANS[kind]}`);
}

function strayLines({ on, size, claim: { of, id, removal } }: Required<Stray>): string[] {
  const what = `${formatBytes(size)}, ${of} ${id}. To give it up, with what is on it:`;
  return [...wrap("  ", `${on}: ${what}`), `      ${removal}`]; // the command in one piece, to be copied
}
