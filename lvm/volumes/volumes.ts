/**
 * Creates, extends and deletes volumes on this machine.
 *
 * Creating a volume takes one report and one change, and so does deleting one; no report where LVM itself can decide.
 * {@linkcode VolumeFinder} finds volumes in a report.
 *
 * @module
 */

import { MappedDeviceReader } from "../host/device_mapper.ts";
import { deviceMounts, filesystemMounts, isMountOfLv, type Mount, mountsOf, readMounts } from "../host/mounts.ts";
import { ignoring, lateCompletion, StorageError } from "../../base/error.ts";
import { closeMapping, contentDevice } from "../encryption/mapping.ts";
import { sleep, systemClock } from "../../base/clock.ts";
import { type VolumeId, volumeLvName } from "../../base/ids.ts";
import {
  type CapacityRequest,
  isEmpty,
  requireCompatible,
  type Volume,
  type VolumeRequest,
} from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { type FreshReport, type Lvm, requirePvs } from "../client/client.ts";
import { type Candidate, type GroupCapacity, groupCapacity, selectCandidates } from "../model/groups.ts";
import { type IoLimits, isSameLimits } from "../settings/io_limits.ts";
import { isCached, layoutOf, LINEAR, sizeStep } from "../model/layout.ts";
import { cowSnapshotsOf, splitSnapshot, thinLvsOnOrigin } from "../deletion/cow_origin.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { removeUsedTags } from "../client/used_tags.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import { roundToExtents, type SizeRange } from "../../base/size.ts";
import { markLimits, markVolumeDeleted } from "../model/tags.ts";
import { markLooseCache, removeIncompleteVolume } from "../deletion/repair.ts";
import { refuseWhileCopied } from "../inventory/copying.ts";
import { deletedLvs, looseCaches } from "../inventory/leftovers.ts";
import { createThick, extendThick } from "./thick_volumes.ts";
import { volumeCommand } from "./volume_command.ts";
import { isThin, type ThinSpec, withPools, withSpaceFor } from "../pools/pool.ts";
import { extendThin, prepareThinPool, type ThinContext } from "./thin_volumes.ts";
import { deleteKnown, inUseError, isOutdated, knownGroupFor, readCreated, removeEmpty } from "./known_volumes.ts";
import { removeMissingVolume } from "../deletion/missing_thin.ts";
import type { Reaper } from "../deletion/reaper.ts";

/** A control of the copies that run in the background, as the deletion of a volume needs it. */
export interface CopyControl {
  /**
   * Stops filling an LV for good, and unmounts what was mounted of it.
   *
   * @throws {StorageError} `Busy` while a step of the copy does not end.
   */
  abandon(located: LocatedLv): Promise<void>;
  /** Starts the work that is left to do. */
  wake(): void;
}

/** Options of {@linkcode Volumes}. */
export interface VolumesOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the driver's volumes. */
  readonly finder: VolumeFinder;
  /** Removes the LVs of deleted volumes. */
  readonly reaper: Pick<Reaper, "wake">;
  /** Reserves space in the machine's thin pools. All who allocate from them share one reservation. */
  readonly reservation: PoolReservation;
  /** Called before a volume is deleted, extended or modified. */
  readonly onChange?: (id: VolumeId) => void;
  /** Called after a thin pool was created. */
  readonly onPoolCreated?: () => void;
  /** Controls the copies of volumes that are created from a volume or snapshot; without it, there are none. */
  readonly copies?: CopyControl;
}

/** The volumes of one driver on this machine. It keeps no state of its own. */
export class Volumes {
  readonly #lvm: Lvm;
  readonly #finder: VolumeFinder;
  readonly #driver: string;
  readonly #reaper: Pick<Reaper, "wake">;
  readonly #reservation: PoolReservation;
  readonly #thinContext: ThinContext;
  readonly #copies: CopyControl | undefined;
  readonly #devices: MappedDeviceReader;
  readonly #onChange: (id: VolumeId) => void;

  /** Creates the service. */
  constructor(options: VolumesOptions) {
    const { lvm, finder, reaper, reservation, copies } = options;
    this.#lvm = lvm;
    this.#finder = finder;
    this.#driver = finder.driver;
    this.#reaper = reaper;
    this.#reservation = reservation;
    this.#copies = copies;
    this.#devices = new MappedDeviceReader(lvm.exec);
    this.#onChange = options.onChange ?? (() => {});
    this.#thinContext = { ...options, driver: finder.driver };
  }

  /**
   * Creates the volume that a request describes, unless a volume exists that satisfies it. Requires the volume's lock.
   *
   * @returns the size of the volume in bytes
   * @throws {StorageError} `AlreadyExists` when the existing volume does not satisfy the request; `Lost`; `NoSpace`;
   * `OutOfRange`.
   */
  async create(request: VolumeRequest): Promise<bigint> {
    const known = this.knownPlaceFor(request);
    if (known !== undefined && await this.createKnown(known, request)) return known.size;
    const groups = await this.#lvm.report();
    const found = this.#finder.locate(groups, request.id, request.groups);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") return await this.createNew(groups, request);
    requireCompatible(found.volume, request);
    if (!await removeMissingVolume(this.#lvm, this.#driver, found.volume)) return found.volume.size;
    return await this.createNew(await this.#lvm.report(), request);
  }

  /** Returns where to create a volume that is known not to exist; `undefined` when a report must decide. */
  knownPlaceFor(request: VolumeRequest): Candidate<VolumeGroup> | undefined {
    return knownGroupFor({ lvm: this.#lvm, finder: this.#finder }, request);
  }

  /**
   * Creates a volume where it is known not to exist, without a report. Requires the volume's lock.
   *
   * @returns false when a report must decide
   * @throws {StorageError} those of {@linkcode Lvm.change} but for refusals
   */
  async createKnown({ group, size }: Candidate<VolumeGroup>, request: VolumeRequest): Promise<boolean> {
    try {
      await createThick(this.#thinContext, group, size, request);
      return true;
    } catch (error) {
      if (!(error instanceof StorageError && isOutdated(error))) throw error;
      return false;
    }
  }

  /**
   * Creates a volume that does not exist. Requires the volume's lock.
   *
   * @param groups the report that shows that the volume does not exist
   * @param onGroupChosen called with each group before it is tried; the attempt waits for the call
   * @returns the size of the volume in bytes
   * @throws {StorageError} `NoSpace`, `OutOfRange`.
   */
  async createNew(
    groups: FreshReport,
    request: VolumeRequest,
    onGroupChosen: (group: VolumeGroup) => Promise<void> = () => Promise.resolve(),
  ): Promise<bigint> {
    const managed = this.#finder.managedGroups(groups);
    if (managed.length === 0) {
      const names = groups.map((group) => group.name).join(", ") || "none";
      throw new StorageError(
        "NoSpace",
        `choosing a volume group: the driver may use ${this.#finder.groups}; this machine has ${names}`,
      );
    }
    let refusal: StorageError | undefined;
    const { range, preference, layout } = request;
    const spaces = this.#withThinSpace(managed, request.thin);
    const candidates = selectCandidates(spaces, request.groups, range, preference, layout);
    await this.#removeIncomplete(groups, request.id);
    for (const { group, size } of candidates) {
      await onGroupChosen(group);
      try {
        await this.#createInGroup(groups, group, size, request);
        return size;
      } catch (error) {
        refusal = groupRefusal(error);
        if (refusal === undefined) throw error;
      }
    }
    throw refusal;
  }

  /**
   * Returns a volume that {@linkcode createNew} has just made.
   *
   * @param group the group that was chosen last
   * @param size its size in bytes
   */
  async readCreated(request: VolumeRequest, group: VolumeGroup, size: bigint): Promise<Volume> {
    const created = await readCreated({ devices: this.#devices, driver: this.#driver }, group, request, size);
    if (created !== undefined) this.#lvm.noteCreated(group, created.lv);
    return created ?? this.#finder.require(await this.#lvm.reportAfterChanges(), request.id);
  }

  /**
   * Deletes a volume. A volume that does not exist is deleted already; of a lost volume, the record is removed.
   * Requires the volume's lock.
   *
   * An LV that was never in use and is still to be formatted has no data, and is removed at once. Any other LV is
   * marked as deleted, and the reaper erases and removes it in the background. The record of use alone does not decide:
   * an LV that an administrator gave to the driver has none before it is staged.
   *
   * @param options.byReport whether a new report must show that no other LV claims to be the volume; false by default
   * @throws {StorageError} `InUse` while the volume is open or has snapshots; `Busy` while it is copied, or its own copy
   * cannot be stopped; `Lost` when another LV has taken its place.
   */
  async delete(id: VolumeId, { byReport = false } = {}): Promise<void> {
    this.#onChange(id);
    const outcome = byReport ? undefined : await deleteKnown({ lvm: this.#lvm, finder: this.#finder }, id);
    if (outcome === "marked") this.#reaper.wake();
    if (outcome !== undefined) return;
    const groups = await reportOnceClosed(this.#lvm, this.#finder, id);
    const found = this.#finder.locate(groups, id);
    if (found.state === "absent") {
      if (deletedLvs(this.#driver, groups).some(({ tags }) => tags.id === id)) this.#reaper.wake(); // it was marked late
      return await this.#removeIncomplete(groups, id);
    }
    if (found.state === "lost") {
      if (found.replaced) throw found.error;
      if (found.group === undefined || found.usedTag === undefined) return;
      return await removeUsedTags(this.#lvm, found.group, [found.usedTag]);
    }
    const { group, lv, tags } = found.volume;
    if (tags.copied !== undefined) return await this.#deleteUnfinishedCopy(found.volume);
    // For a thin LV, the reaper decides what happens to its pool.
    const isRemovedNow = isEmpty(found.volume) && !isThin(lv);
    await this.#requireDeletable(groups, found.volume, { isRemovedNow });
    const { deleted } = cowSnapshotsOf(this.#driver, found.volume, groups);
    // Without the split, LVM would remove the deleted snapshots with their origin, before their COW space is erased.
    for (const snapshot of deleted) await splitSnapshot(this.#lvm, group, snapshot);
    if (isRemovedNow) return await removeEmpty(this.#lvm, this.#finder, found.volume);
    await this.#markDeleted(found.volume);
  }

  /**
   * Requires that no filesystem of the volume is mounted. Reads the mount table, and no report of LVM.
   *
   * @throws {StorageError} `InUse`
   */
  async requireUnmounted(id: VolumeId): Promise<void> {
    const name = volumeLvName(id);
    const mount = (await readMounts(this.#lvm.exec)).find((mount) => isMountOfLv(mount, name));
    if (mount !== undefined) throw inUseError(id, `its mount ${mount.target}`, { retryOnChange: true });
  }

  /** Reports whether nothing prevents the deletion of a volume, by a report. */
  async isDeletable(groups: readonly VolumeGroup[], id: VolumeId): Promise<boolean> {
    const found = this.#finder.locate(groups, id);
    if (found.state !== "present") return true;
    try {
      await this.#requireDeletable(groups, found.volume);
      return true;
    } catch (error) {
      if (error instanceof StorageError) return false;
      throw error;
    }
  }

  /**
   * Requires that a volume is not in use. For one that `lvremove` removes now, LVM decides whether a program has it open:
   * it waits some seconds for udev, which opens a new device (lvm.conf(5), `retry_deactivation`).
   *
   * @throws {StorageError} `InUse`
   */
  async #requireDeletable(
    groups: readonly VolumeGroup[],
    volume: Volume,
    { isRemovedNow = false } = {},
  ): Promise<void> {
    const { id, lv, tags } = volume;
    refuseWhileCopied(this.#driver, groups, { kind: "volume", id }, `deleting volume ${id}`);
    const { kept } = cowSnapshotsOf(this.#driver, volume, groups);
    if (kept.length > 0) {
      const names = kept.map(({ name }) => name).join(", ");
      throw new StorageError(
        "InUse",
        `deleting volume ${id}: it is the origin of the snapshots ${names}; delete them first`,
        { retryOnChange: true, reason: "HasSnapshots" },
      );
    }
    const onOrigin = thinLvsOnOrigin(volume).map(({ name }) => name).join(", ");
    if (onOrigin !== "") {
      const message =
        `deleting volume ${id}: it is the external origin of the thin volumes ${onOrigin}; remove them first`;
      throw new StorageError("InUse", message);
    }
    const isBlock = tags.format.state === "raw";
    if (!lv.open && !isBlock) return;
    const mounts = await readMounts(this.#lvm.exec);
    const [mount] = (isBlock ? deviceMounts : filesystemMounts)(mounts, contentDevice(lv));
    // the driver does not observe how long other programs have the device open
    if (mount !== undefined) throw inUseError(id, `its mount ${mount.target}`, { retryOnChange: true });
    if (lv.open && !isRemovedNow) throw inUseError(id, lv.devicePath);
  }

  /**
   * Extends the volume's LV to at least the requested size. A volume never shrinks. Requires the volume's lock.
   *
   * @returns the volume with its new size
   * @throws {StorageError} `NotFound`; `Lost`; `OutOfRange` when the group is too full or the volume already exceeds the
   * limit; `FailedPrecondition` when a PV of the group is missing, or when the volume has snapshots and it or one of them
   * is in use: LVM extends the origin of a copy-on-write snapshot only while the origin and its snapshots are inactive;
   * `Busy` while the volume is copied.
   */
  async expand(id: VolumeId, range: SizeRange): Promise<Volume> {
    this.#onChange(id);
    const groups = await this.#lvm.report();
    const volume = this.#finder.require(groups, id);
    const { lv, group } = volume;
    if (range.limit !== undefined && lv.size > range.limit) {
      throw new StorageError(
        "OutOfRange",
        `expanding volume ${id}: it has ${lv.size} bytes, above the limit of ${range.limit}`,
      );
    }
    if (lv.size >= range.required) return volume;
    refuseWhileCopied(this.#driver, groups, { kind: "volume", id }, `expanding volume ${id}`);
    requirePvs(`expanding volume ${id}`, group);
    const size = roundToExtents(range, sizeStep(layoutOf(lv) ?? LINEAR, group.extentSize));
    if (isThin(lv)) await extendThin(this.#thinContext, groups, volume, size);
    else await extendThick(this.#thinContext, groups, volume, size);
    return { ...volume, size, lv: { ...lv, size } };
  }

  /**
   * Records limits of the volume's IO in place of those with the same names; the other limits stay (CSI spec,
   * ControllerModifyVolume). All limits are in one tag, so either all are recorded or none. Requires the volume's lock.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `Busy`.
   */
  async setLimits(id: VolumeId, limits: IoLimits): Promise<void> {
    this.#onChange(id);
    const volume = await this.get(id);
    const { tags } = volume;
    const changed = { ...tags.limits, ...limits };
    if (isSameLimits(tags.limits ?? {}, changed)) return;
    await this.#lvm.changeTags(volume, markLimits(tags.limits, changed));
  }

  /**
   * Returns the volume according to a new report.
   *
   * @throws {StorageError} `NotFound` or `Lost`; `Busy` while the volume is being filled.
   */
  async get(id: VolumeId): Promise<Volume> {
    return this.#finder.require(await this.#lvm.report(), id);
  }

  /** Returns all volumes according to a new report ({@linkcode VolumeFinder.list}). */
  async list(): Promise<Volume[]> {
    return this.#finder.list(await this.#lvm.report());
  }

  /** Returns how much the driver's groups could still take of such volumes, in bytes. */
  async capacity({ groups: wanted, layout, thin }: CapacityRequest): Promise<GroupCapacity> {
    const managed = this.#finder.managedGroups(await this.#lvm.report());
    return groupCapacity(this.#withThinSpace(managed, thin), wanted, layout);
  }

  /** Deletes a volume whose copy is not complete. It was never used, but has data of its source. */
  async #deleteUnfinishedCopy(volume: Volume): Promise<void> {
    const { id, lv: { uuid } } = volume;
    await this.#copies?.abandon(volume);
    const found = this.#finder.locate(await this.#lvm.report(), id);
    if (found.state !== "present" || found.volume.lv.uuid !== uuid) return;
    if (found.volume.lv.open) {
      throw new StorageError(
        "Busy",
        `deleting volume ${id}: a program that was filling it still has ${found.volume.lv.devicePath} open; try again`,
      );
    }
    await this.#markDeleted(found.volume);
    this.#copies?.wake(); // The copies remove the temporary snapshot of the source.
  }

  async #markDeleted(volume: Volume): Promise<void> {
    const { id, lv, tags } = volume;
    await this.#lvm.changeTags(volume, markVolumeDeleted(id, tags.format, lv.tags));
    this.#reaper.wake();
  }

  /** Returns the groups with the space that is free in them for such volumes. */
  #withThinSpace(groups: readonly VolumeGroup[], thin: ThinSpec | undefined): readonly VolumeGroup[] {
    return withSpaceFor(groups.map((group) => withPools(group, this.#reservation.defaultOvercommit)), thin);
  }

  async #createInGroup(
    groups: FreshReport,
    group: VolumeGroup,
    size: bigint,
    request: VolumeRequest,
  ): Promise<void> {
    const { thin } = request;
    if (thin === undefined) {
      return await createThick(this.#thinContext, group, size, request).catch(async (error) => {
        // the LV of the cache is there already; not while the command may still use it
        const isLeft = isCached(request.layout) && lateCompletion(error) === undefined;
        if (isLeft) await this.#removeIncomplete(await this.#lvm.report(), request.id).catch(() => {});
        throw error;
      });
    }
    await this.#reservation.runExclusive(groups, group, async (current) => {
      const options = await prepareThinPool(this.#thinContext, current, size, { ...request, thin });
      await this.#lvm.change(current, volumeCommand(this.#driver, current, request, { options }));
      this.#reservation.recordMessagesSent(current, options.thinpool!);
    });
  }

  async #removeIncomplete(groups: FreshReport, id: VolumeId): Promise<void> {
    // the reaper removes them, too
    for (const located of this.#finder.incompleteLvs(groups, id)) await removeIncompleteVolume(this.#lvm, located);
    for (const cache of looseCaches(this.#driver, groups).filter((cache) => cache.id === id)) {
      await markLooseCache(this.#lvm, cache);
      this.#reaper.wake();
    }
  }
}

/**
 * Returns the refusal of a group that was filled or removed after the report, or that LVM does not change: the next one, or
 * another node, may take the volume. `undefined` for other errors.
 */
function groupRefusal(error: unknown): StorageError | undefined {
  if (!(error instanceof StorageError)) return undefined;
  if (error.kind === "NoSpace") return error;
  // the caller would take NotFound for the content source (CSI spec, CreateVolume), and would not choose another node
  return error.kind === "NotFound" || error.ofGroup
    ? new StorageError("NoSpace", error.message, { cause: error })
    : undefined;
}

/** The waits for a device to be closed, in milliseconds. */
const WAITS_MS = [100, 300, 600] as const;

/**
 * Closes what an interrupted call left open of a volume: its mapping, if it is encrypted. One that is in use stays open.
 */
async function closeLeftover({ exec }: Lvm, { id, tags }: Volume, mounts: readonly Mount[]): Promise<void> {
  if (tags.format.luks === undefined) return;
  await closeMapping(exec, id, mounts).catch(ignoring("InUse"));
}

/**
 * Returns a report in which the device of a volume is not open, if that comes within a second. When a program closes a device
 * that it could write to, udev opens the device for a moment to look what is on it (udev(7), `OPTIONS+="watch"`). A device
 * that is mounted stays open, so nothing is waited for.
 *
 * @throws {StorageError} those of {@linkcode Lvm.report} and {@linkcode readMounts}
 */
async function reportOnceClosed(lvm: Lvm, finder: VolumeFinder, id: VolumeId): Promise<FreshReport> {
  let groups = await lvm.report();
  for (const ms of WAITS_MS) {
    const found = finder.locate(groups, id);
    if (found.state !== "present" || !found.volume.lv.open) break;
    const mounts = await readMounts(lvm.exec);
    if (mountsOf(mounts, contentDevice(found.volume.lv)).length > 0) break;
    await closeLeftover(lvm, found.volume, mounts);
    await sleep(systemClock, ms);
    groups = await lvm.report();
  }
  return groups;
}
