/**
 * Copy-on-write snapshots of volumes on this machine.
 *
 * A snapshot's LV is read-only and lives in the group of its origin, which it keeps from deletion. LVM freezes a mounted
 * filesystem for the moment of the cut (lvcreate suspends the origin with its filesystem locked).
 *
 * @module
 */

import { StorageError } from "./error.ts";
import { freeLvName, type SnapshotId, snapshotLvName, type VolumeId } from "./ids.ts";
import { type Lvm, requireAnswer } from "./lvm.ts";
import type { LogicalVolume, VolumeGroup } from "./report.ts";
import { formatBytes, roundUp } from "./size.ts";
import {
  type Erasure,
  markSnapshotDeleted,
  ownedSnapshotId,
  ownedVolumeId,
  parseSnapshotTags,
  snapshotTags,
} from "./tags.ts";
import { doomedLvs, isHalfMade, type Upkeep } from "./upkeep.ts";
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
  /** Whether its LV was made, but never became a snapshot of the volume. */
  readonly halfMade: boolean;
  /** What becomes of its data when it is deleted. */
  readonly erase: Erasure;
}

/** How large the store for changed blocks is: bytes, or a percentage of the volume. */
export type StoreSize = { readonly bytes: bigint } | { readonly percent: bigint };

/** A store that cannot overflow, whatever is written to the volume. */
export const FULL_STORE: StoreSize = { percent: 100n };

/** What {@linkcode Snapshots} needs. */
export interface SnapshotsOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Where the sources are found. */
  readonly volumes: Volumes;
  /** Removes the LVs of deleted snapshots. */
  readonly upkeep: Pick<Upkeep, "look">;
}

/** The snapshots of one driver on this machine. */
export class Snapshots {
  readonly #lvm: Lvm;
  readonly #driver: string;
  readonly #volumes: Volumes;
  readonly #upkeep: Pick<Upkeep, "look">;

  /** Makes the service; it keeps no state. */
  constructor(options: SnapshotsOptions) {
    this.#lvm = options.lvm;
    this.#driver = options.driver;
    this.#volumes = options.volumes;
    this.#upkeep = options.upkeep;
  }

  /**
   * Takes a snapshot of the volume, unless the snapshot exists.
   *
   * @throws {StorageError} `AlreadyExists` when it exists of another volume, `NotFound` or `Lost` for the volume,
   * `NoSpace` when the group cannot hold the store.
   */
  async create(id: SnapshotId, source: VolumeId, store: StoreSize): Promise<Snapshot> {
    const groups = await this.#lvm.report();
    const isSource = ({ tags }: LogicalVolume) => ownedVolumeId(this.#driver, tags) === source;
    const existing = this.locate(groups, id, groups.filter(({ lvs }) => lvs.some(isSource)));
    if (existing?.halfMade) {
      await this.#mark(id, existing);
      return await this.create(id, source, store);
    }
    if (existing !== undefined) {
      if (existing.snapshot.source === source) return existing.snapshot;
      throw new StorageError(
        "AlreadyExists",
        `snapshotting volume ${source}: a snapshot of that name exists, of volume ${existing.snapshot.source}`,
      );
    }
    const { lv, group, tags } = this.#volumes.require(groups, source);
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
    const deleted = doomedLvs(this.#driver, [group]).map(({ lv }) => lv.name);
    await this.#lvm.change(group, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission",
      "r",
      "--name",
      freeLvName(snapshotLvName(id), deleted),
      "--size",
      `${size}b`,
      ...snapshotTags(this.#driver, { id, source, erase: tags.erase }).flatMap((tag) => ["--addtag", tag]),
      `${group.name}/${lv.name}`,
    ]);
    // its time of creation never changes for an id, so it is read back from LVM and not guessed
    const made = this.locate(await this.#lvm.report(), id);
    if (made === undefined || made.halfMade) {
      throw new StorageError(
        "CommandFailed",
        `snapshotting volume ${source}: lvcreate succeeded, but no report shows ${id}`,
      );
    }
    return made.snapshot;
  }

  /**
   * Deletes the snapshot; one that does not exist is deleted already. Its store holds what was the volume's data: it is
   * marked, and then erased and removed in the background.
   *
   * @throws {StorageError} `InUse` while it is open.
   */
  async delete(id: SnapshotId): Promise<void> {
    const found = this.locate(await this.#lvm.report(), id);
    if (found === undefined) return;
    const path = pathOf(found);
    if (found.lv.open) throw new StorageError("InUse", `deleting snapshot ${id}: ${path} is open; unmount it first`);
    if (found.erase === "none") return await this.#lvm.change(found.group, ["lvremove", "--yes", path]);
    await this.#mark(id, found);
  }

  /**
   * The snapshot.
   *
   * @throws {StorageError} `NotFound`.
   */
  async get(id: SnapshotId): Promise<Snapshot> {
    const found = this.locate(await this.#lvm.report(), id);
    if (found !== undefined && !found.halfMade) return found.snapshot;
    throw new StorageError("NotFound", `looking for snapshot ${id}: no logical volume carries its tag`);
  }

  /**
   * All snapshots of the driver, in the order of their ids. One whose tags cannot be read is left out; those of a group that
   * does not answer are there as they were last seen.
   */
  async list(): Promise<Snapshot[]> {
    const groups = (await this.#lvm.report()).map((group) => ({ ...group, answers: true }));
    const ids = new Set(groups.flatMap((group) => group.lvs.map((lv) => ownedSnapshotId(this.#driver, lv.tags))));
    return [...ids].filter((id) => id !== undefined).sort().flatMap((id) => {
      try {
        const { snapshot, halfMade } = this.locate(groups, id)!;
        return halfMade ? [] : [snapshot];
      } catch {
        return [];
      }
    });
  }

  /**
   * The snapshot according to a report; it may be in any of the groups `within`.
   *
   * @throws {StorageError} `ForeignData` when several LVs claim to be the snapshot, or its tags cannot be read;
   * `Unavailable` when it is, or may be, in a group that does not answer.
   */
  locate(groups: readonly VolumeGroup[], id: SnapshotId, within = groups): LocatedSnapshot | undefined {
    const found = groups.flatMap((group) =>
      group.lvs.filter((lv) => ownedSnapshotId(this.#driver, lv.tags) === id).map((lv) => ({ group, lv }))
    );
    if (found.length > 1) {
      const names = found.map(pathOf).join(" and ");
      throw new StorageError(
        "ForeignData",
        `looking for snapshot ${id}: ${names} both claim to be it; remove the tags of one`,
      );
    }
    const [only] = found;
    for (const group of only === undefined ? within : [only.group]) requireAnswer(`looking for snapshot ${id}`, group);
    if (only === undefined) return undefined;
    const { lv } = only;
    const { source, erase } = parseSnapshotTags(this.#driver, lv.tags)!;
    const size = lv.originSize ?? lv.size;
    const snapshot = { id, source, size, createdAt: lv.createdAt, ready: !lv.invalidSnapshot };
    return { snapshot, ...only, halfMade: isHalfMade(lv), erase };
  }

  async #mark(id: SnapshotId, found: LocatedSnapshot): Promise<void> {
    await this.#lvm.change(found.group, ["lvchange", ...markSnapshotDeleted(id), pathOf(found)]);
    this.#upkeep.look();
  }
}

function pathOf({ group, lv }: Pick<LocatedSnapshot, "group" | "lv">): string {
  return `${group.name}/${lv.name}`;
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
