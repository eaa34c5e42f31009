/**
 * Snapshots of volumes on this machine.
 *
 * A snapshot's LV is read-only and lives in the group of its origin. That of a thin volume is thin, in the same pool, and
 * outlives it; any other is a copy-on-write snapshot, which keeps its origin from deletion. LVM freezes a mounted
 * filesystem for the moment of the cut (lvcreate suspends the origin with its filesystem locked), if it can.
 *
 * @module
 */

import { refuseWhileCopied } from "../copies/rules.ts";
import { StorageError } from "../error.ts";
import { type SnapshotId, snapshotLvName, uniqueLvName, type VolumeId } from "../ids.ts";
import { type Lvm, requireResponsive } from "../model/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import { cowBytes, fullCowBytes, type SizeOrPercent } from "../spec/cow_size.ts";
import {
  type Erasure,
  markSnapshotDeleted,
  ownedSnapshotId,
  ownedVolumeId,
  parseSnapshotTags,
  snapshotTags,
} from "../model/tags.ts";
import { deletedLvs, isIncompleteSnapshot, type Reaper } from "../volumes/reaper.ts";
import { isThin } from "../pools/pool.ts";
import { thinSnapshotArguments } from "../volumes/thin_volumes.ts";
import { lostError, type RecordedLv } from "../inventory/volume_state.ts";
import type { Volume } from "../inventory/volume.ts";
import type { Volumes } from "../volumes/volumes.ts";
import { syncFilesystem } from "./sync.ts";

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
  /** Its LV: for a copy-on-write snapshot, the store for changed blocks. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** Whether its LV was made, but never became a snapshot of the volume. */
  readonly incomplete: boolean;
  /** What becomes of its data when it is deleted. */
  readonly erase: Erasure;
}

/** What a report and the record say of a snapshot id. */
export type SnapshotState =
  | { readonly state: "present"; readonly found: LocatedSnapshot }
  /** It was taken, but its LV is gone, or is not it any more. */
  | { readonly state: "lost"; readonly error: StorageError }
  /** Also when its LV was made, but never became a snapshot. */
  | { readonly state: "absent" };

/** A snapshot to take. */
export interface SnapshotRequest {
  /** Its id. */
  readonly id: SnapshotId;
  /** The volume. */
  readonly source: VolumeId;
  /** The room for blocks of the volume that change; a snapshot of a thin volume needs none. */
  readonly cowSize: SizeOrPercent;
}

/** What {@linkcode Snapshots} needs. */
export interface SnapshotsOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Where the sources are found. */
  readonly volumes: Volumes;
  /** Removes the LVs of deleted snapshots. */
  readonly reaper: Pick<Reaper, "wake">;
  /** What is recorded elsewhere of a snapshot that was taken; nothing by default. */
  readonly recordedLv?: (id: SnapshotId) => RecordedLv | undefined;
}

/** A store that is this full, in percent, will soon be too small. */
const NEAR_FULL_PERCENT = 80;

/** The snapshots of one driver on this machine. */
export class Snapshots {
  readonly #lvm: Lvm;
  readonly #driver: string;
  readonly #volumes: Volumes;
  readonly #reaper: Pick<Reaper, "wake">;
  readonly #recordedLv: (id: SnapshotId) => RecordedLv | undefined;

  /** Makes the service; it keeps no state. */
  constructor(options: SnapshotsOptions) {
    this.#recordedLv = options.recordedLv ?? (() => undefined);
    this.#lvm = options.lvm;
    this.#driver = options.driver;
    this.#volumes = options.volumes;
    this.#reaper = options.reaper;
  }

  /**
   * Takes the snapshot that the request describes, unless it exists.
   *
   * @throws {StorageError} `AlreadyExists` when it exists of another volume, `Lost`, and those of
   * {@linkcode Snapshots.createNew}.
   */
  async create(request: SnapshotRequest): Promise<Snapshot> {
    const groups = await this.#lvm.report();
    const found = this.stateOf(groups, request);
    if (found.state === "lost") throw found.error;
    const { snapshot } = found.state === "present" ? found.found : await this.createNew(groups, request);
    requireSource(snapshot, request.source);
    return snapshot;
  }

  /**
   * Takes the snapshot, which does not exist, according to a report.
   *
   * @throws {StorageError} `NotFound` or `Lost` for the volume, `NoSpace` when the group cannot hold the store, or the pool
   * cannot promise it.
   */
  async createNew(groups: readonly VolumeGroup[], { id, source, cowSize }: SnapshotRequest): Promise<LocatedSnapshot> {
    const leftover = this.locate(groups, id, []);
    if (leftover?.incomplete) {
      await this.#markDeleted(id, leftover);
      groups = await this.#lvm.report();
    }
    const volume = this.#volumes.require(groups, source);
    await syncFilesystem(this.#lvm.exec, volume.lv, volume.tags.format);
    if (isThin(volume.lv)) await this.#takeThin(groups, volume, id);
    else await this.#takeCow(volume, id, cowSize);
    // its time of creation never changes for an id, so it is read back from LVM and not guessed
    const created = this.locate(await this.#lvm.reportAfterChanges(), id);
    if (created !== undefined && !created.incomplete) return created;
    throw new StorageError(
      "CommandFailed",
      `snapshotting volume ${source}: lvcreate succeeded, but no report shows ${id}`,
    );
  }

  /**
   * Deletes the snapshot; one that does not exist is deleted already. It holds what was the volume's data: it is marked, and
   * then erased and removed in the background.
   *
   * @throws {StorageError} `InUse` while it is open or copied; `Lost` when another LV has taken its place.
   */
  async delete(id: SnapshotId): Promise<void> {
    const groups = await this.#lvm.report();
    const found = this.locate(groups, id);
    if (found === undefined) return;
    const recorded = this.#recordedLv(id);
    if (recorded !== undefined && recorded.lvUuid !== found.lv.uuid) {
      throw lostError("snapshot", id, recorded, found.lv);
    }
    refuseWhileCopied(this.#driver, groups, { kind: "snapshot", id }, `deleting snapshot ${id}`);
    const path = lvPath(found);
    if (found.lv.open) throw new StorageError("InUse", `deleting snapshot ${id}: ${path} is open; unmount it first`);
    if (found.erase === "none" && !isThin(found.lv)) {
      return await this.#lvm.change(found.group, ["lvremove", "--yes", path]);
    }
    await this.#markDeleted(id, found);
  }

  /**
   * The snapshot.
   *
   * @throws {StorageError} `NotFound`.
   */
  async get(id: SnapshotId): Promise<Snapshot> {
    const found = this.locate(await this.#lvm.report(), id);
    if (found !== undefined && !found.incomplete) return found.snapshot;
    throw new StorageError("NotFound", `looking for snapshot ${id}: no logical volume carries its tag`);
  }

  /**
   * All snapshots of the driver, in the order of their ids. One whose tags cannot be read is left out; those of a group that
   * does not answer are there as they were last seen.
   */
  async list(): Promise<Snapshot[]> {
    const groups = (await this.#lvm.report()).map((group) => ({ ...group, responsive: true }));
    const ids = new Set(groups.flatMap((group) => group.lvs.map((lv) => ownedSnapshotId(this.#driver, lv.tags))));
    return [...ids].filter((id) => id !== undefined).sort().flatMap((id) => {
      try {
        const { snapshot, incomplete } = this.locate(groups, id)!;
        return incomplete ? [] : [snapshot];
      } catch {
        return [];
      }
    });
  }

  /**
   * What a report and the record say of a snapshot of the volume.
   *
   * @throws {StorageError} those of {@linkcode Snapshots.locate}.
   */
  stateOf(groups: readonly VolumeGroup[], { id, source }: Pick<SnapshotRequest, "id" | "source">): SnapshotState {
    const recorded = this.#recordedLv(id);
    const isSource = ({ tags }: LogicalVolume) => ownedVolumeId(this.#driver, tags) === source;
    const found = this.locate(
      groups,
      id,
      groups.filter(({ name, lvs }) => name === recorded?.groupName || lvs.some(isSource)),
    );
    if (recorded === undefined) {
      return found === undefined || found.incomplete ? { state: "absent" } : { state: "present", found };
    }
    if (found?.lv.uuid !== recorded.lvUuid) {
      return { state: "lost", error: lostError("snapshot", id, recorded, found?.lv) };
    }
    return found.incomplete ? { state: "lost", error: splitError(found) } : { state: "present", found };
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
      const names = found.map(lvPath).join(" and ");
      throw new StorageError(
        "ForeignData",
        `looking for snapshot ${id}: ${names} both claim to be it; remove the tags of one`,
      );
    }
    const [only] = found;
    for (const group of only === undefined ? within : [only.group]) {
      requireResponsive(`looking for snapshot ${id}`, group);
    }
    if (only === undefined) return undefined;
    const { lv } = only;
    const { source, erase } = parseSnapshotTags(this.#driver, lv.tags)!;
    const size = lv.originSize ?? lv.size;
    const snapshot = { id, source, size, createdAt: lv.createdAt, ready: !lv.invalidSnapshot };
    return { snapshot, ...only, incomplete: isIncompleteSnapshot(lv), erase };
  }

  /** Takes a copy-on-write snapshot, with a store in the group. */
  async #takeCow(volume: Volume, id: SnapshotId, cowSize: SizeOrPercent): Promise<void> {
    const { id: source, lv, group } = volume;
    const size = cowBytes(cowSize, lv.size, group.extentSize);
    if (size > group.free) {
      throw new StorageError(
        "NoSpace",
        `snapshotting volume ${source}: the store of ${
          formatBytes(size)
        } does not fit, volume group ${group.name} has ` +
          `${formatBytes(group.free)} free; a smaller snapSize may do`,
      );
    }
    await this.#lvcreate(volume, id, ["--size", `${size}b`]);
  }

  /**
   * Takes a thin snapshot, which shares its volume's pool and has no store. It is promised the volume's size: that much it
   * takes when all of the volume was written anew.
   */
  async #takeThin(groups: readonly VolumeGroup[], volume: Volume, id: SnapshotId): Promise<void> {
    const { reservation } = this.#volumes;
    await reservation.runExclusive(groups, volume.group, async (group) => {
      const { lv } = volume;
      reservation.requireAvailableVirtual(
        `snapshotting volume ${volume.id}`,
        group,
        reservation.requirePool(group, lv),
        lv.size,
      );
      await this.#lvcreate({ ...volume, group }, id, thinSnapshotArguments(this.#driver, group, lv));
    });
  }

  async #lvcreate({ id: source, lv, group, tags }: Volume, id: SnapshotId, options: readonly string[]): Promise<void> {
    const deleted = deletedLvs(this.#driver, [group]).map(({ lv }) => lv.name);
    await this.#lvm.change(group, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission",
      "r",
      "--name",
      uniqueLvName(snapshotLvName(id), deleted),
      ...options,
      ...snapshotTags(this.#driver, { id, source, erase: tags.erase }).flatMap((tag) => ["--addtag", tag]),
      `${group.name}/${lv.name}`,
    ]);
  }

  async #markDeleted(id: SnapshotId, found: LocatedSnapshot): Promise<void> {
    await this.#lvm.change(found.group, ["lvchange", ...markSnapshotDeleted(id), lvPath(found)]);
    this.#reaper.wake();
  }
}

/**
 * How the store of a snapshot is: whether it overflowed, or may soon, or has room. One that has room for the whole volume
 * cannot.
 */
export function cowState({ snapshot, lv, group }: LocatedSnapshot): "Overflowed" | "NearFull" | "Ok" {
  if (!snapshot.ready) return "Overflowed";
  const coversOrigin = lv.originSize !== undefined && lv.size >= fullCowBytes(lv.originSize, group.extentSize);
  return !coversOrigin && (lv.snapshotPercent ?? 0) >= NEAR_FULL_PERCENT ? "NearFull" : "Ok";
}

/**
 * Makes sure that a snapshot is of the volume.
 *
 * @throws {StorageError} `AlreadyExists`.
 */
export function requireSource(snapshot: Pick<Snapshot, "source">, source: VolumeId): void {
  if (snapshot.source === source) return;
  throw new StorageError(
    "AlreadyExists",
    `snapshotting volume ${source}: a snapshot of that name exists, of volume ${snapshot.source}`,
  );
}

function splitError(found: LocatedSnapshot): StorageError {
  const { snapshot: { id, source } } = found;
  return new StorageError(
    "Lost",
    `Lost: snapshot ${id} was the logical volume ${
      lvPath(found)
    }, which is no snapshot of volume ${source} any more: it was ` +
      `split off (lvconvert --splitsnapshot), and has only what changed. Nothing is made in its place. Delete the snapshot`,
  );
}

function lvPath({ group, lv }: Pick<LocatedSnapshot, "group" | "lv">): string {
  return `${group.name}/${lv.name}`;
}
