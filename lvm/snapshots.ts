/**
 * Copy-on-write snapshots of volumes on this machine.
 *
 * A snapshot's LV is read-only and lives in the group of its origin, which it keeps from deletion. LVM freezes a mounted
 * filesystem for the moment of the cut (lvcreate suspends the origin with its filesystem locked).
 *
 * @module
 */

import { change } from "./change.ts";
import { StorageError } from "./error.ts";
import type { Exec } from "./exec.ts";
import { type SnapshotId, snapshotLvName, type VolumeId } from "./ids.ts";
import { type LogicalVolume, readReport, type VolumeGroup } from "./report.ts";
import { formatBytes, roundUp } from "./size.ts";
import { ownedSnapshotId, parseSnapshotTags, snapshotTags } from "./tags.ts";
import type { Volumes } from "./volumes.ts";

/** A snapshot that exists. */
export interface Snapshot {
  /** Its id. */
  readonly id: SnapshotId;
  /** The volume that it was taken of. */
  readonly source: VolumeId;
  /** The size in bytes that the volume had at the cut: what a restored volume needs. */
  readonly size: bigint;
  /** When it was taken, in seconds since 1970. */
  readonly createdAt: number;
  /** Whether its content is there: false once its store overflowed. */
  readonly ready: boolean;
}

/** A snapshot and where it is. */
export interface LocatedSnapshot {
  /** The snapshot. */
  readonly snapshot: Snapshot;
  /** Its LV: the store for changed blocks. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
}

/** How large the store for changed blocks is: bytes, or a percentage of the volume. */
export type StoreSize = { readonly bytes: bigint } | { readonly percent: bigint };

/** A store that cannot overflow, whatever is written to the volume. */
export const FULL_STORE: StoreSize = { percent: 100n };

/** What {@linkcode Snapshots} needs. */
export interface SnapshotsOptions {
  /** Runs the commands. */
  readonly exec: Exec;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Where the sources are found. */
  readonly volumes: Volumes;
}

/** The snapshots of one driver on this machine. */
export class Snapshots {
  readonly #exec: Exec;
  readonly #driver: string;
  readonly #volumes: Volumes;

  /** Makes the service; it keeps no state. */
  constructor(options: SnapshotsOptions) {
    this.#exec = options.exec;
    this.#driver = options.driver;
    this.#volumes = options.volumes;
  }

  /**
   * Takes a snapshot of the volume, unless the snapshot exists.
   *
   * @throws {StorageError} `AlreadyExists` when it exists of another volume, `NotFound` or `Lost` for the volume,
   * `NoSpace` when the group cannot hold the store.
   */
  async create(id: SnapshotId, source: VolumeId, store: StoreSize): Promise<Snapshot> {
    const groups = await readReport(this.#exec);
    const existing = this.locate(groups, id);
    if (existing !== undefined) {
      if (existing.snapshot.source === source) return existing.snapshot;
      throw new StorageError(
        "AlreadyExists",
        `snapshotting volume ${source}: a snapshot of that name exists, of volume ${existing.snapshot.source}`,
      );
    }
    const { lv, group } = this.#volumes.require(groups, source);
    const size = storeBytes(store, lv.size, group.extentSize);
    if (size > group.free) {
      throw new StorageError(
        "NoSpace",
        `snapshotting volume ${source}: the store of ${
          formatBytes(size)
        } does not fit, volume group ${group.name} has ` +
          `${formatBytes(group.free)} free; a smaller snapSize may do`,
      );
    }
    await change(this.#exec, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission",
      "r",
      "--name",
      snapshotLvName(id),
      "--size",
      `${size}b`,
      ...snapshotTags(this.#driver, { id, source }).flatMap((tag) => ["--addtag", tag]),
      `${group.name}/${lv.name}`,
    ]);
    // its time of creation never changes for an id, so it is read back from LVM and not guessed
    const made = this.locate(await readReport(this.#exec), id);
    if (made === undefined) {
      throw new StorageError(
        "CommandFailed",
        `snapshotting volume ${source}: lvcreate succeeded, but no report shows ${id}`,
      );
    }
    return made.snapshot;
  }

  /**
   * Deletes the snapshot; one that does not exist is deleted already.
   *
   * @throws {StorageError} `InUse` while it is open.
   */
  async delete(id: SnapshotId): Promise<void> {
    const found = this.locate(await readReport(this.#exec), id);
    if (found === undefined) return;
    const path = `${found.group.name}/${found.lv.name}`;
    if (found.lv.open) throw new StorageError("InUse", `deleting snapshot ${id}: ${path} is open; unmount it first`);
    await change(this.#exec, ["lvremove", "--yes", path]);
  }

  /**
   * The snapshot.
   *
   * @throws {StorageError} `NotFound`.
   */
  async get(id: SnapshotId): Promise<Snapshot> {
    const found = this.locate(await readReport(this.#exec), id);
    if (found !== undefined) return found.snapshot;
    throw new StorageError("NotFound", `looking for snapshot ${id}: no logical volume carries its tag`);
  }

  /** All snapshots of the driver, in the order of their ids. One whose tags cannot be read is left out. */
  async list(): Promise<Snapshot[]> {
    const groups = await readReport(this.#exec);
    const ids = new Set(groups.flatMap((group) => group.lvs.map((lv) => ownedSnapshotId(this.#driver, lv.tags))));
    return [...ids].filter((id) => id !== undefined).sort().flatMap((id) => {
      try {
        return [this.locate(groups, id)!.snapshot];
      } catch {
        return [];
      }
    });
  }

  /**
   * The snapshot according to a report.
   *
   * @throws {StorageError} `ForeignData` when several LVs claim to be the snapshot, or its tags cannot be read.
   */
  locate(groups: readonly VolumeGroup[], id: SnapshotId): LocatedSnapshot | undefined {
    const found = groups.flatMap((group) =>
      group.lvs.filter((lv) => ownedSnapshotId(this.#driver, lv.tags) === id).map((lv) => ({ group, lv }))
    );
    if (found.length > 1) {
      const names = found.map(({ group, lv }) => `${group.name}/${lv.name}`).join(" and ");
      throw new StorageError(
        "ForeignData",
        `looking for snapshot ${id}: ${names} both claim to be it; remove the tags of one`,
      );
    }
    const [only] = found;
    if (only === undefined) return undefined;
    const { lv } = only;
    const { source } = parseSnapshotTags(this.#driver, lv.tags)!;
    const size = lv.originSize ?? lv.size;
    const snapshot = { id, source, size, createdAt: lv.createdAt, ready: !lv.invalidSnapshot };
    return { snapshot, ...only };
  }
}

/**
 * The size of the store in whole extents. One that cannot overflow needs room for its own table too; LVM reduces what is
 * more than it could ever use (lvcreate(8), --snapshot).
 */
function storeBytes(store: StoreSize, origin: bigint, extentSize: bigint): bigint {
  if ("bytes" in store) return roundUp(store.bytes, extentSize);
  if (store.percent >= 100n) return roundUp(origin + origin / 100n, extentSize);
  return roundUp(origin * store.percent / 100n, extentSize);
}
