/**
 * Volumes on this machine: made, found, grown and deleted.
 *
 * A volume is the LV that carries its tags. Its name is derived from the id, but the tags decide: an LV that was renamed
 * is still found. Making one takes one report and one change, and so does deleting one.
 *
 * @module
 */

import type { Copies } from "../copies/copies.ts";
import { type LocatedLv, refuseWhileCopied } from "../copies/rules.ts";
import { StorageError } from "../error.ts";
import { ANY_GROUP, type GroupCapacity, groupCapacity, type GroupMatcher, selectCandidates } from "../model/groups.ts";
import { type IoLimits, isSameLimits } from "../spec/io_limits.ts";
import { uniqueLvName, type VolumeId, volumeLvName } from "../ids.ts";
import { choosePvs, layoutArguments, layoutOf, LINEAR, sizeStep } from "../model/layout.ts";
import { type Lvm, requirePvs, requireResponsive } from "../model/client.ts";
import { cowSnapshotsOf, isPublishedAsDevice } from "./cow_origin.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { removeUsedTags } from "../model/used_tags.ts";
import type { PhysicalVolume, VolumeGroup } from "../model/report.ts";
import { roundToExtents, type SizeRange } from "../size.ts";
import {
  describeSource,
  markLimits,
  markVolumeDeleted,
  ownedVolumeId,
  parseVolumeTags,
  usedLvUuids,
  usedTag,
  volumeTags,
} from "../model/tags.ts";
import { extendThick } from "./thick_volumes.ts";
import { isThin, type ThinSpec, withPools, withSpaceFor } from "../pools/pool.ts";
import { extendThin, type ThinContext, thinPoolArguments } from "./thin_volumes.ts";
import { type CapacityRequest, requireCompatible, type Volume, type VolumeRequest } from "../inventory/volume.ts";
import { lostVolumeState, type RecordedLv, type VolumeRecord, type VolumeState } from "../inventory/volume_state.ts";
import { deletedLvs, incompleteVolumes, type Reaper, splitSnapshot } from "./reaper.ts";

/** What {@linkcode Volumes} needs. */
export interface VolumesOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** The groups in which the driver makes volumes. */
  readonly groups: GroupMatcher;
  /** Removes the LVs of deleted volumes. */
  readonly reaper: Pick<Reaper, "wake">;
  /** What is recorded elsewhere of a volume that was made, beside LVM's own records; nothing by default. */
  readonly recordedLv?: (id: VolumeId) => RecordedLv | undefined;
  /** The gate of the machine's thin pools; by default one of its own, by which no pool promises more than it has. */
  readonly reservation?: PoolReservation;
  /** Is told when a thin pool was made; nobody by default. */
  readonly onPoolCreated?: () => void;
  /** Fills volumes that are made from others; without it, there are none. */
  readonly copies?: Pick<Copies, "abandon" | "wake">;
}

/** The volumes of one driver on this machine. */
export class Volumes {
  readonly #lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
  readonly #groups: GroupMatcher;
  readonly #reaper: Pick<Reaper, "wake">;
  readonly #recordedLv: (id: VolumeId) => RecordedLv | undefined;
  /** The gate of the machine's thin pools. */
  readonly reservation: PoolReservation;
  readonly #thinContext: ThinContext;
  readonly #copies: Pick<Copies, "abandon" | "wake"> | undefined;

  /** Makes the service; it keeps no state of its own. */
  constructor(options: VolumesOptions) {
    this.#recordedLv = options.recordedLv ?? (() => undefined);
    this.reservation = options.reservation ?? new PoolReservation(options.lvm);
    this.#copies = options.copies;
    this.#lvm = options.lvm;
    this.driver = options.driver;
    this.#thinContext = { ...options, reservation: this.reservation };
    this.#groups = options.groups;
    this.#reaper = options.reaper;
  }

  /**
   * Makes the volume that the request describes, unless one exists that satisfies it; answers its size in bytes.
   *
   * @throws {StorageError} `AlreadyExists` when the existing one does not satisfy it, `Lost`, `NoSpace`, `OutOfRange`.
   */
  async create(request: VolumeRequest): Promise<bigint> {
    const groups = await this.#lvm.report();
    const found = this.locate(groups, request.id, request.groups);
    if (found.state === "lost") throw found.error;
    if (found.state === "present") {
      requireCompatible(found.volume, request);
      return found.volume.size;
    }
    return await this.createNew(groups, request);
  }

  /**
   * Makes the volume, which does not exist, according to a report; answers its size in bytes. `onChoice` is told of each
   * group before it is tried, and the try waits for it.
   *
   * @throws {StorageError} `NoSpace`, `OutOfRange`.
   */
  async createNew(
    groups: readonly VolumeGroup[],
    request: VolumeRequest,
    onGroupChosen: (group: VolumeGroup) => Promise<void> = () => Promise.resolve(),
  ): Promise<bigint> {
    const managed = this.managedGroups(groups);
    if (managed.length === 0) {
      const names = groups.map((group) => group.name).join(", ") || "none";
      throw new StorageError(
        "NoSpace",
        `choosing a volume group: the driver may use ${this.#groups}; this machine has ${names}`,
      );
    }
    let refusal: unknown;
    const { range, preference, layout } = request;
    const fitting = selectCandidates(
      this.#withThinSpace(managed, request.thin),
      request.groups,
      range,
      preference,
      layout,
    );
    await this.#removeIncomplete(groups, request.id);
    for (const { group, size } of fitting) {
      await onGroupChosen(group);
      try {
        await this.#createInGroup(groups, group, size, request);
        return size;
      } catch (error) {
        // the group was filled since the report: the next one may do
        if (!(error instanceof StorageError && error.kind === "NoSpace")) throw error;
        refusal = error;
      }
    }
    throw refusal;
  }

  /**
   * Deletes the volume; one that does not exist is deleted already, and of a lost one the record is removed. An LV that was
   * never handed out and has nobody's data is removed at once. Another is marked, and then erased and removed in the
   * background; so is one that was being filled.
   *
   * @throws {StorageError} `InUse` while it is open, has snapshots or is copied; `Busy` while filling it cannot be stopped.
   */
  async delete(id: VolumeId): Promise<void> {
    const groups = await this.#lvm.report();
    const found = this.locate(groups, id);
    if (found.state === "absent") return await this.#removeIncomplete(groups, id);
    if (found.state === "lost") {
      if (found.replaced) throw found.error;
      if (found.group === undefined || found.usedTag === undefined) return;
      return await removeUsedTags(this.#lvm, found.group, [found.usedTag]);
    }
    const { lv, group, used, tags } = found.volume;
    if (tags.copied !== undefined) return await this.#deleteUnfinishedCopy(found.volume);
    refuseWhileCopied(this.driver, groups, { kind: "volume", id }, `deleting volume ${id}`);
    const { kept, deleted } = cowSnapshotsOf(this.driver, found.volume, groups);
    if (kept.length > 0) {
      const names = kept.map(({ name }) => name).join(", ");
      throw new StorageError(
        "InUse",
        `deleting volume ${id}: it is the origin of the snapshots ${names}; delete them first`,
      );
    }
    if (lv.open || await isPublishedAsDevice(this.#lvm.exec, found.volume)) {
      throw new StorageError(
        "InUse",
        `deleting volume ${id}: ${lv.devicePath} is in use; unpublish and unstage it first`,
      );
    }
    const path = `${group.name}/${lv.name}`;
    // or they would go with their origin, their stores not erased
    for (const snapshot of deleted) await splitSnapshot(this.#lvm, group, snapshot);
    // of a thin one, Upkeep sees to what becomes of its pool
    if (!used && tags.source === undefined && !isThin(lv)) {
      return await this.#lvm.change(group, ["lvremove", "--yes", path]);
    }
    await this.#markDeleted(found.volume);
  }

  /**
   * Grows the volume's LV to at least the size asked for; it never shrinks. Answers the volume with its size.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `OutOfRange` when the group is too full or the volume already exceeds the
   * limit, `FailedPrecondition` when a disk of the group is missing, or when it has snapshots and it or one of them is in use:
   * LVM grows the origin of a copy-on-write snapshot only while it is inactive, and its snapshots are inactive with it; `Busy`
   * while it is copied.
   */
  async expand(id: VolumeId, range: SizeRange): Promise<Volume> {
    const groups = await this.#lvm.report();
    const volume = this.require(groups, id);
    const { lv, group } = volume;
    if (range.limit !== undefined && lv.size > range.limit) {
      throw new StorageError(
        "OutOfRange",
        `growing volume ${id}: it has ${lv.size} bytes, above the limit of ${range.limit}`,
      );
    }
    if (lv.size >= range.required) return volume;
    refuseWhileCopied(this.driver, groups, { kind: "volume", id }, `growing volume ${id}`, "Busy");
    requirePvs(`growing volume ${id}`, group);
    const size = roundToExtents(range, sizeStep(layoutOf(lv) ?? LINEAR, group.extentSize));
    if (isThin(lv)) await extendThin(this.#thinContext, groups, volume, size);
    else await extendThick(this.#thinContext, groups, volume, size);
    return { ...volume, size, lv: { ...lv, size } };
  }

  /**
   * Records limits of the volume's IO in place of those of the same names; the others stay (CSI spec,
   * ControllerModifyVolume). All of them are one tag, so either all are recorded or none.
   *
   * @throws {StorageError} `NotFound`, `Lost`.
   */
  async setLimits(id: VolumeId, limits: IoLimits): Promise<void> {
    const { lv, group, tags } = await this.get(id);
    const changed = { ...tags.limits, ...limits };
    if (isSameLimits(tags.limits ?? {}, changed)) return;
    const args = ["lvchange", ...markLimits(tags.limits, changed), `${group.name}/${lv.name}`];
    await this.#lvm.change(group, args);
  }

  /**
   * The volume.
   *
   * @throws {StorageError} `NotFound` or `Lost`; `Busy` while it is being filled.
   */
  async get(id: VolumeId): Promise<Volume> {
    return this.require(await this.#lvm.report(), id);
  }

  /**
   * All volumes of the driver, in the order of their ids. A volume whose tags cannot be read is left out, and so is one that
   * is being filled; those of a group that does not answer are there as they were last seen.
   */
  async list(): Promise<Volume[]> {
    const groups = (await this.#lvm.report()).map((group) => ({ ...group, responsive: true }));
    const ids = new Set(groups.flatMap((group) => group.lvs.map((lv) => ownedVolumeId(this.driver, lv.tags))));
    return [...ids].filter((id) => id !== undefined).sort().flatMap((id) => {
      try {
        const found = this.locate(groups, id);
        return found.state === "present" && found.volume.tags.copied === undefined ? [found.volume] : [];
      } catch {
        return [];
      }
    });
  }

  /** What the driver's groups could still take of such volumes, in bytes. */
  async capacity({ groups: wanted, layout, thin }: CapacityRequest): Promise<GroupCapacity> {
    return groupCapacity(this.#withThinSpace(this.managedGroups(await this.#lvm.report()), thin), wanted, layout);
  }

  /** Those of the groups in which the driver makes volumes. */
  managedGroups(groups: readonly VolumeGroup[]): VolumeGroup[] {
    return groups.filter(({ name }) => this.#groups.matches(name));
  }

  /**
   * The volume according to a report.
   *
   * @throws {StorageError} `NotFound` or `Lost`; `Busy` while it is being filled.
   */
  require(groups: readonly VolumeGroup[], id: VolumeId): Volume {
    const found = this.locate(groups, id);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") {
      throw new StorageError("NotFound", `looking for volume ${id}: no logical volume carries its tag`);
    }
    const { tags: { copied, source } } = found.volume;
    if (copied !== undefined) {
      throw new StorageError("Busy", `using volume ${id}: it is still being made from ${describeSource(source)}`);
    }
    return found.volume;
  }

  /**
   * What a report says of a volume id, which may be in any of the groups that match: by default in all that there are, since
   * its group may have been renamed, or be none of the driver's any more.
   *
   * @throws {StorageError} `ForeignData` when several LVs claim to be the volume, or its tags cannot be read; `Unavailable`
   * when it is, or may be, in a group that does not answer.
   */
  locate(groups: readonly VolumeGroup[], id: VolumeId, within: GroupMatcher = ANY_GROUP): VolumeState {
    const incomplete = this.#incompleteLvs(groups, id);
    const found = groups.flatMap((group) =>
      group.lvs.filter((lv) => ownedVolumeId(this.driver, lv.tags) === id).map((lv) => ({ group, lv }))
    ).filter(({ lv }) => !incomplete.some((each) => each.lv === lv));
    if (found.length > 1) {
      const names = found.map(({ group, lv }) => `${group.name}/${lv.name}`).join(" and ");
      throw new StorageError(
        "ForeignData",
        `looking for volume ${id}: ${names} both claim to be it; remove the tags of one`,
      );
    }
    const [only] = found;
    const records = this.#usedRecords(groups, id);
    const [other] = records.filter(({ lvUuid }) => lvUuid !== only?.lv.uuid);
    const used = records.some(({ lvUuid, usedTag }) => usedTag !== undefined && lvUuid === only?.lv.uuid);
    const doing = `looking for volume ${id}`;
    if (only !== undefined) requireResponsive(doing, only.group);
    if (other !== undefined && !records.some(({ lvUuid }) => lvUuid === only?.lv.uuid)) {
      if (other.group !== undefined) requireResponsive(doing, other.group);
      return lostVolumeState(id, other, only?.lv);
    }
    if (only === undefined) {
      for (const group of groups.filter(({ name }) => within.matches(name))) requireResponsive(doing, group);
      return { state: "absent" };
    }
    const tags = parseVolumeTags(this.driver, only.lv.tags)!;
    return { state: "present", volume: { id, size: only.lv.size, tags, ...only, used } };
  }

  /** Deletes a volume that is being filled: nobody has it, but there is data on it. */
  async #deleteUnfinishedCopy(volume: Volume): Promise<void> {
    const { id, lv: { uuid } } = volume;
    await this.#copies?.abandon(volume);
    const found = this.locate(await this.#lvm.report(), id);
    if (found.state !== "present" || found.volume.lv.uuid !== uuid) return;
    if (found.volume.lv.open) {
      throw new StorageError(
        "Busy",
        `deleting volume ${id}: a program that was filling it still has ${found.volume.lv.devicePath} open; try again`,
      );
    }
    await this.#markDeleted(found.volume);
    this.#copies?.wake(); // what kept its source as it was is to go, too
  }

  async #markDeleted({ id, lv, group }: Volume): Promise<void> {
    await this.#lvm.change(group, ["lvchange", ...markVolumeDeleted(id), `${group.name}/${lv.name}`]);
    this.#reaper.wake();
  }

  /** The records of the volume, but for those of LVs that are deleted and still there. */
  #usedRecords(groups: readonly VolumeGroup[], id: VolumeId): VolumeRecord[] {
    const deleted = new Set(deletedLvs(this.driver, groups).map(({ lv }) => lv.uuid));
    const tagged = groups.flatMap((group) =>
      usedLvUuids(this.driver, id, group.tags).map((lvUuid) => {
        return { group, groupName: group.name, lvUuid, usedTag: usedTag(this.driver, id, lvUuid) };
      })
    );
    const recordedLv = this.#recordedLv(id);
    const group = groups.find(({ name }) => name === recordedLv?.groupName);
    const all = recordedLv === undefined ? tagged : [...tagged, { ...recordedLv, ...(group && { group }) }];
    return all.filter(({ lvUuid }) => !deleted.has(lvUuid));
  }

  /** The groups with what is free in them for such volumes. */
  #withThinSpace(groups: readonly VolumeGroup[], thin: ThinSpec | undefined): readonly VolumeGroup[] {
    return withSpaceFor(groups.map((group) => withPools(group, this.reservation.defaultOvercommit)), thin);
  }

  async #createInGroup(
    groups: readonly VolumeGroup[],
    group: VolumeGroup,
    size: bigint,
    request: VolumeRequest,
  ): Promise<void> {
    const { layout, thin } = request;
    if (thin === undefined) {
      const sizeArguments = ["--zero", "y", "--size", `${size}b`, ...layoutArguments(layout)];
      const pvs = layout.type === "linear" ? [] : choosePvs(layout, size, group)!;
      return await this.#lvcreate(group, request, { sizeArguments, pvs });
    }
    await this.reservation.runExclusive(groups, group, async (current) => {
      const sizeArguments = await thinPoolArguments(this.#thinContext, current, size, { ...request, thin });
      await this.#lvcreate(current, request, { sizeArguments, pvs: [] });
    });
  }

  /** Makes the LV, with as much space as the arguments say, of these disks, or of whichever LVM takes. */
  async #lvcreate(
    group: VolumeGroup,
    request: VolumeRequest,
    { sizeArguments, pvs }: { readonly sizeArguments: readonly string[]; readonly pvs: readonly PhysicalVolume[] },
  ): Promise<void> {
    const deleted = deletedLvs(this.driver, [group]).map(({ lv }) => lv.name);
    await this.#lvm.change(group, [
      "lvcreate",
      "--yes", // wipe old signatures without asking: the extents are free, so nothing on them is anybody's
      "--wipesignatures",
      "y",
      "--name",
      uniqueLvName(volumeLvName(request.id), deleted),
      ...sizeArguments,
      ...volumeTags(this.driver, request).flatMap((tag) => ["--addtag", tag]),
      group.name,
      ...pvs.map(({ path }) => path),
    ]);
  }

  /** What an lvcreate for the volume left that died: nothing was ever on it. */
  #incompleteLvs(groups: readonly VolumeGroup[], id: VolumeId): LocatedLv[] {
    return incompleteVolumes(this.driver, groups).filter(({ lv }) =>
      ownedVolumeId(this.driver, lv.tags) === id && this.#recordedLv(id)?.lvUuid !== lv.uuid
    );
  }

  async #removeIncomplete(groups: readonly VolumeGroup[], id: VolumeId): Promise<void> {
    for (const { group, lv } of this.#incompleteLvs(groups, id)) {
      await this.#lvm.change(group, ["lvremove", "--yes", `${group.name}/${lv.name}`]);
    }
  }
}
