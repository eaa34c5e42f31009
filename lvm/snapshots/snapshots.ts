/**
 * Creates and deletes snapshots of volumes on this machine.
 *
 * A snapshot's LV is read-only and lives in the group of its origin. The snapshot of a thin volume is thin, is in the
 * same pool, and outlives the volume. Any other snapshot is a copy-on-write snapshot; its origin cannot be deleted
 * before it. While LVM creates a snapshot, it freezes a mounted filesystem if it can (lvcreate suspends the origin with
 * its filesystem locked).
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import { type Command, type Exec, runOk } from "../exec.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import type { FormatState } from "../settings/format.ts";
import { StorageError } from "../../base/error.ts";
import { type GroupSnapshotId, type SnapshotId, snapshotLvName, uniqueLvName, type VolumeId } from "../../base/ids.ts";
import { copiesInProgress, refuseWhileCopied, requireSnapshots } from "../inventory/copying.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { LocatedSnapshot, Snapshot, SnapshotFinder } from "../inventory/snapshot_finder.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { FreshReport, Lvm } from "../client/client.ts";
import { describeFree } from "../settings/spare_space.ts";
import { markSnapshotDeleted, ownedVolumeId, snapshotPolicyOf, snapshotTags } from "../model/tags.ts";
import { isThin } from "../pools/pool.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { formatBytes } from "../../base/size.ts";
import { cowBytes, type SizeOrPercent } from "../settings/cow_size.ts";
import type { Reaper } from "../deletion/reaper.ts";
import { removePendingSnapshot } from "../deletion/missing_thin.ts";
import { isOutdated } from "../volumes/known_volumes.ts";
import { thinSnapshotOptions } from "../volumes/thin_volumes.ts";
import { lvcreate, type LvcreateOptions, lvremove } from "../model/command_lines.ts";

/** A request for a snapshot. */
export interface SnapshotRequest {
  /** Its id. */
  readonly id: SnapshotId;
  /** The volume. */
  readonly source: VolumeId;
  /** The COW space for blocks of the volume that change; a snapshot of a thin volume needs none. */
  readonly cowSize: SizeOrPercent;
}

/** Options of {@linkcode Snapshots}. */
export interface SnapshotsOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the driver's snapshots. */
  readonly finder: SnapshotFinder;
  /** Finds their volumes. */
  readonly volumes: VolumeFinder;
  /** Removes the LVs of deleted snapshots. */
  readonly reaper: Pick<Reaper, "wake">;
  /** Reserves space in the machine's thin pools. All who allocate from them share one reservation. */
  readonly reservation: PoolReservation;
}

/** The snapshots of one driver on this machine. It keeps no state. */
export class Snapshots {
  readonly #options: SnapshotsOptions;
  readonly #lvm: Lvm;
  readonly #driver: string;

  /** Creates the service. */
  constructor(options: SnapshotsOptions) {
    this.#options = options;
    this.#lvm = options.lvm;
    this.#driver = options.finder.driver;
  }

  /**
   * Creates the snapshot that a request describes, unless it exists. The caller holds the snapshot's lock, and its
   * volume's shared lock.
   *
   * @throws {StorageError} `AlreadyExists` when a snapshot of another volume has the id; `Lost`; those of {@linkcode
   * Snapshots.createNew}.
   */
  async create(request: SnapshotRequest): Promise<Snapshot> {
    const volume = this.#knownVolume(request);
    const created = volume && await this.#createOfKnown(volume, request);
    if (created !== undefined) return created.snapshot;
    const groups = await this.#lvm.report();
    const found = this.#options.finder.stateOf(groups, request);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") return (await this.createNew(groups, request)).snapshot;
    requireSource(found.found.snapshot, request.source);
    if (!await removePendingSnapshot(this.#lvm, this.#driver, found.found)) return found.found.snapshot;
    return (await this.createNew(await this.#lvm.report(), request)).snapshot;
  }

  /**
   * Creates a snapshot that does not exist. The caller holds the snapshot's lock, and its volume's shared lock.
   *
   * @param groups the report that shows that the snapshot does not exist
   * @throws {StorageError} `NotFound` or `Lost` for the volume; `NoSpace` when the group cannot hold the COW space, or
   * the pool cannot reserve the size; `Busy` when the volume is not as the report shows it any more.
   */
  async createNew(groups: FreshReport, { id, source, cowSize }: SnapshotRequest): Promise<LocatedSnapshot> {
    const leftover = this.#options.finder.locate(groups, id, []);
    if (leftover?.incomplete) {
      await this.#markDeleted(leftover);
      groups = await this.#lvm.report();
    }
    const volume = this.#options.volumes.require(groups, source);
    requireSnapshots(`snapshotting volume ${source}`, volume);
    await syncFilesystem(this.#lvm.exec, volume.lv, volume.tags.format);
    if (isThin(volume.lv)) await this.#takeThin(groups, volume, id);
    else await this.#takeCow(volume, id, cowSize);
    const created = await this.#readBack(volume, id);
    if (created !== undefined) return created;
    throw new StorageError(
      "CommandFailed",
      `snapshotting volume ${source}: lvcreate succeeded, but no report shows ${id}`,
    );
  }

  /**
   * Deletes a snapshot. A snapshot that does not exist is deleted already. The LV holds data of the volume, so it is
   * marked as deleted, and the reaper erases and removes it in the background. A COW snapshot that needs no erasure is
   * removed at once. The caller holds the snapshot's lock.
   *
   * @param withGroup the group snapshot that is deleted with all its snapshots
   * @throws {StorageError} `InUse` while it is open; `Busy` while it is copied; `Lost` when another LV has taken its place;
   * `InvalidArgument` when it belongs to another group snapshot
   */
  async delete(id: SnapshotId, withGroup?: GroupSnapshotId): Promise<void> {
    const groups = await this.#lvm.report();
    const found = this.#options.finder.locate(groups, id);
    if (found === undefined) {
      if (deletedLvs(this.#driver, groups).some(({ tags }) => tags.id === id)) this.#options.reaper.wake(); // it was marked late
      return;
    }
    this.#options.finder.requireRecorded(found);
    requireAlone(found, withGroup);
    refuseWhileCopied(this.#driver, groups, { kind: "snapshot", id }, `deleting snapshot ${id}`);
    const path = lvPath(found);
    if (found.lv.open) throw new StorageError("InUse", `deleting snapshot ${id}: ${path} is open; unmount it first`);
    if (found.erase === "none" && !isThin(found.lv)) {
      return await this.#lvm.change(found.group, lvremove({ yes: true, uuid: found.lv.uuid }, path));
    }
    await this.#markDeleted(found);
  }

  /** Reports whether nothing prevents the deletion of a snapshot, by a report. */
  isDeletable(groups: readonly VolumeGroup[], id: SnapshotId): boolean {
    const copied = copiesInProgress(this.#driver, groups).some(({ source }) =>
      source.kind === "snapshot" && source.id === id
    );
    return !copied && this.#options.finder.locate(groups, id)?.lv.open !== true;
  }

  /**
   * Returns the snapshot according to a new report.
   *
   * @throws {StorageError} `NotFound`.
   */
  async get(id: SnapshotId): Promise<Snapshot> {
    const found = this.#options.finder.locate(await this.#lvm.report(), id);
    if (found !== undefined && !found.incomplete) return found.snapshot;
    throw new StorageError("NotFound", `looking for snapshot ${id}: no logical volume carries its tag`);
  }

  /** Returns all snapshots according to a new report ({@linkcode SnapshotFinder.list}). */
  async list(): Promise<Snapshot[]> {
    return this.#options.finder.list(await this.#lvm.report());
  }

  /**
   * Returns the thick volume of which to create a snapshot that is known not to exist; `undefined` when a report must decide.
   */
  #knownVolume({ id, source }: SnapshotRequest): Volume | undefined {
    const known = this.#lvm.known(id) && this.#lvm.known(source);
    // a deleted snapshot may still have the name
    const isNamed = known?.some(({ lvs }) => lvs.some(({ name }) => name.startsWith(snapshotLvName(id))));
    if (known === undefined || isNamed) return undefined;
    try {
      if (this.#options.finder.stateOf(known, { id, source }).state !== "absent") return undefined;
      const volume = this.#options.volumes.require(known, source);
      requireSnapshots(`snapshotting volume ${source}`, volume);
      return isThin(volume.lv) ? undefined : volume;
    } catch (error) {
      if (error instanceof StorageError) return undefined;
      throw error;
    }
  }

  /**
   * Creates a snapshot of a volume that is known.
   *
   * @returns `undefined` when LVM refuses, or the volume is not as it was known any more
   */
  async #createOfKnown(volume: Volume, { id, cowSize }: SnapshotRequest): Promise<LocatedSnapshot | undefined> {
    try {
      await syncFilesystem(this.#lvm.exec, volume.lv, volume.tags.format);
      await this.#takeCow(volume, id, cowSize);
      return await this.#readBack(volume, id);
    } catch (error) {
      if (error instanceof StorageError && (isOutdated(error) || error.kind === "Busy")) return undefined;
      throw error;
    }
  }

  /**
   * Returns a snapshot that was just created, as a report shows it: the time of creation of an id never changes, so it is not
   * guessed. LVM takes the volume by its name. So a snapshot of another LV is deleted, and so is one of the volume with another
   * size, whose COW space may be too small, or of the volume after its deletion, which may be erased already. So is one that the
   * kernel does not have, since something else resumed the volume meanwhile: what is written to the volume would be in it.
   *
   * @returns `undefined` when there is no snapshot of that id
   * @throws {StorageError} `Busy` when it was deleted
   */
  async #readBack(volume: Volume, id: SnapshotId): Promise<LocatedSnapshot | undefined> {
    const created = this.#options.finder.locate(await this.#lvm.reportAfterChanges(), id);
    if (created === undefined || created.incomplete) return undefined;
    const origin = created.group.lvs.find(({ name }) => name === created.lv.origin);
    const { originSize = volume.lv.size } = created.lv;
    const isOfVolume = origin === undefined ||
      (origin.uuid === volume.lv.uuid && ownedVolumeId(this.#driver, origin.tags) === volume.id);
    if (isOfVolume && originSize === volume.lv.size && isInKernel(created, origin)) return created;
    await this.#markDeleted(created);
    throw new StorageError(
      "Busy",
      `snapshotting volume ${volume.id}: ${
        lvPath(volume)
      } was renamed, resumed, extended or deleted meanwhile; try again`,
    );
  }

  /** Creates a COW snapshot, with its COW space in the group of the volume. */
  async #takeCow(volume: Volume, id: SnapshotId, cowSize: SizeOrPercent): Promise<void> {
    const { id: source, lv, group } = volume;
    const size = cowBytes(cowSize, lv.size, group.extentSize);
    if (size > group.free) throw noCowSpaceError(`snapshotting volume ${source}`, group, size);
    await this.#lvm.allocate(group, size, snapshotCommand(this.#driver, volume, { id, size }));
  }

  /**
   * Creates a thin snapshot, which is in the pool of its volume and has no COW space. The volume's size is reserved in
   * the pool, because the snapshot needs that much once all of the volume was overwritten.
   */
  async #takeThin(groups: FreshReport, volume: Volume, id: SnapshotId): Promise<void> {
    const reservation = this.#options.reservation;
    await reservation.runExclusive(groups, volume.group, async (group) => {
      const { lv } = volume;
      reservation.requireAvailableVirtual(
        `snapshotting volume ${volume.id}`,
        group,
        reservation.requirePool(group, lv),
        lv.size,
      );
      const options = thinSnapshotOptions(this.#driver, group, lv);
      await this.#lvm.change(group, snapshotCommand(this.#driver, { ...volume, group }, { id, ...options }));
      reservation.recordMessagesSent(group, lv.pool!);
    });
  }

  async #markDeleted(found: LocatedSnapshot): Promise<void> {
    await this.#lvm.changeTags(found, markSnapshotDeleted(found.snapshot.id));
    this.#options.reaper.wake();
  }
}

/** Makes sure that a snapshot is not deleted without its group snapshot. */
function requireAlone(
  { snapshot: { id, groupSnapshot }, incomplete }: LocatedSnapshot,
  withGroup?: GroupSnapshotId,
): void {
  if (groupSnapshot === undefined || groupSnapshot === withGroup || incomplete) return;
  throw new StorageError(
    "InvalidArgument",
    `deleting snapshot ${id}: it belongs to group snapshot ${groupSnapshot}; delete that, with all its snapshots`,
  );
}

/** Reports whether the kernel has a snapshot that was just created. A thin one is in its pool, if LVM says so. */
export function isInKernel({ lv }: LocatedSnapshot, origin: LogicalVolume | undefined): boolean {
  return isThin(lv) || origin?.active !== true || lv.active;
}

/** Returns the arguments of lvm that create the LV of a snapshot, which is read-only. */
export function snapshotCommand(
  driver: string,
  { id: source, group, lv, tags }: Volume,
  { id, addtag = [], ...options }: LvcreateOptions & { readonly id: SnapshotId },
): string[] {
  const deleted = deletedLvs(driver, [group]).map(({ lv }) => lv.name);
  const lvcreateOptions: LvcreateOptions = {
    yes: true,
    snapshot: true,
    permission: "r",
    name: uniqueLvName(snapshotLvName(id), deleted),
    ...options,
    addtag: [...snapshotTags(driver, { id, source, ...snapshotPolicyOf(tags) }), ...addtag],
  };
  return lvcreate(lvcreateOptions, lvPath({ group, lv }));
}

/** Creates the error for COW space that its group cannot hold. */
export function noCowSpaceError(operation: string, group: VolumeGroup, bytes: bigint): StorageError {
  return new StorageError(
    "NoSpace",
    `${operation}: the COW space of ${formatBytes(bytes)} does not fit, volume group ${group.name} has ` +
      `${describeFree(group)}; a smaller snapSize may do`,
  );
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

/**
 * Syncs a mounted filesystem that device-mapper does not freeze itself.
 *
 * When device-mapper suspends a device, it freezes the device's filesystem. The kernel does not find a btrfs by its
 * device (freeze_bdev), so it is not frozen. A btrfs is consistent on its device at any moment, as after a loss of
 * power. But without the sync, the writes of the last half a minute would be missing in the snapshot. The same is so for
 * the filesystem of an encrypted volume: it is on the mapping, and the LV below that is suspended.
 *
 * @param lv the LV of which a snapshot will be created
 * @param content the format of the LV, from its tags
 * @throws {StorageError} `CommandFailed`.
 */
export async function syncFilesystem(exec: Exec, lv: LogicalVolume, content: FormatState): Promise<void> {
  // the report may be from before the mount, so it does not decide whether there is one
  if (content.state === "raw" || (content.type !== "btrfs" && content.luks === undefined)) return;
  const [mount] = filesystemMounts(await readMounts(exec), contentDevice(lv));
  if (mount === undefined) return;
  const command: Command = content.type === "btrfs"
    ? { program: "btrfs", args: ["filesystem", "sync", mount.target], mutates: true }
    : { program: "sync", args: ["--file-system", mount.target], mutates: true };
  await runOk(exec, command);
}
