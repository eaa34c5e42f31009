/**
 * Creates the snapshots of a group at one point in time.
 *
 * @module
 */

import { messagePool } from "../host/device_mapper.ts";
import { sum } from "../../base/size.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { basename } from "@std/path";
import { StorageError } from "../../base/error.ts";
import { type Exec, runOk } from "../exec.ts";
import type { SnapshotId } from "../../base/ids.ts";
import type { Lvm } from "../client/client.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import type { Volume } from "../inventory/volume.ts";
import { lvchange, type LvcreateOptions } from "../model/command_lines.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { type Membership, membershipTag, ownedSnapshotId } from "../model/tags.ts";
import { activationArguments } from "../pools/activation.ts";
import { isThin, kernelNameOf } from "../pools/pool.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { cowBytes, type SizeOrPercent } from "../settings/cow_size.ts";
import { noCowSpaceError, snapshotCommand } from "../snapshots/snapshots.ts";
import { thinSnapshotOptions } from "../volumes/thin_volumes.ts";
import { type SuspendedDevices, whileSuspended } from "./suspension.ts";

/** A snapshot to create. */
export interface Member {
  /** Its id. */
  readonly id: SnapshotId;
  /** Its volume. */
  readonly volume: Volume;
  /** Its membership in the group snapshot. */
  readonly membership: Membership;
}

/** A snapshot of a thin volume that exists, and that its pool makes again while its volume is suspended. */
interface ThinMember {
  readonly volume: Volume;
  /** The group in which it is. */
  readonly group: VolumeGroup;
  /** Its LV, which is inactive. */
  readonly lv: LogicalVolume;
  /** The number of the volume in the pool, and that of the snapshot. */
  readonly thinIds: { readonly origin: bigint; readonly snapshot: bigint };
  /** The device of the pool, to which messages are sent. */
  readonly poolDevice: string;
}

/** Creates the snapshots of groups on this machine. */
export class MemberSnapshots {
  readonly #lvm: Lvm;
  readonly #exec: Exec;
  readonly #driver: string;
  readonly #reservation: PoolReservation;

  /** Creates the service. */
  constructor(lvm: Lvm, driver: string, reservation: PoolReservation) {
    this.#lvm = lvm;
    this.#exec = lvm.exec;
    this.#driver = driver;
    this.#reservation = reservation;
  }

  /**
   * Creates all snapshots, at one point in time. When it fails, some may exist.
   *
   * @param groups the report in which the volumes were found
   * @throws {StorageError} `NoSpace`; those of {@linkcode whileSuspended}, and of commands
   */
  async create(groups: readonly VolumeGroup[], members: readonly Member[], cowSize: SizeOrPercent): Promise<void> {
    const commands = new Map(
      members.filter(({ volume }) => !isThin(volume.lv)).map((member) => [
        member,
        { size: cowBytes(cowSize, member.volume.lv.size, member.volume.group.extentSize) },
      ]),
    );
    for (const group of groupsOf(members)) requireCowSpace(group, commands);
    const thin = members.filter(({ volume }) => isThin(volume.lv));
    // in one order for all requests, of which each would wait for the other's group otherwise
    const thinGroups = groupsOf(thin).toSorted((a, b) => a.uuid < b.uuid ? -1 : 1);
    await this.#withReservation(groups, thinGroups, async () => {
      const thinMembers = await this.#createThin(thin);
      await this.#sync(members);
      // LVM would wait for a mapping that is on a suspended LV: it looks for physical volumes on it
      const readsOwnDisks = members.some(({ volume }) => volume.tags.format.luks !== undefined);
      await this.#lvm.runAlone(groupsOf(members), async (change) => {
        const report = await this.#lvm.report();
        // what was allocated since the first report; nothing is as long as this body runs
        for (const group of groupsOf(members)) {
          requireCowSpace(report.find(({ uuid }) => uuid === group.uuid) ?? group, commands);
        }
        const active = activeLvs(report);
        const devices = members.filter(({ volume }) => active.has(volume.lv.uuid))
          .map(({ volume }) => deviceName(volume.lv));
        await whileSuspended(this.#exec, devices, async (suspended) => {
          // nobody has written to an inactive volume since its snapshot was created
          for (const member of thinMembers.filter(({ volume }) => active.has(volume.lv.uuid))) {
            await this.#makeAgain(member, suspended);
          }
          for (const [member, options] of commands) {
            await suspended.requireSuspended();
            await change(member.volume.group, this.#command(member, options));
            suspended.forget(deviceName(member.volume.lv));
          }
        });
      }, { readsOwnDisks });
      for (const { group, lv } of thinMembers) {
        await this.#lvm.change(group, activationArguments(this.#driver, group, lv));
      }
    });
  }

  #command({ id, volume, membership }: Member, options: LvcreateOptions): string[] {
    return snapshotCommand(this.#driver, volume, { id, ...options, addtag: [membershipTag(membership)] });
  }

  /** Runs a body while nothing else allocates in the thin pools of some groups. */
  async #withReservation(
    groups: readonly VolumeGroup[],
    [first, ...others]: readonly VolumeGroup[],
    body: () => Promise<void>,
  ): Promise<void> {
    if (first === undefined) return await body();
    await this.#reservation.runExclusive(groups, first, () => this.#withReservation(groups, others, body));
  }

  /** Creates snapshots of thin volumes, which their pools will make again, and deactivates them: a pool keeps active ones. */
  async #createThin(members: readonly Member[]): Promise<readonly ThinMember[]> {
    for (const member of members) {
      const { id, lv } = member.volume;
      const group = (await this.#lvm.report()).find(({ uuid }) => uuid === member.volume.group.uuid);
      if (group === undefined) {
        throw new StorageError("Busy", `snapshotting volume ${id}: its volume group was renamed`);
      }
      const pool = this.#reservation.requirePool(group, lv);
      this.#reservation.requireAvailableVirtual(`snapshotting volume ${id}`, group, pool, lv.size);
      await this.#lvm.change(group, this.#command(member, thinSnapshotOptions(this.#driver, group, lv)));
      this.#reservation.recordMessagesSent(group, lv.pool!);
    }
    if (members.length === 0) return [];
    const report = await this.#lvm.report();
    const created = members.map((member) => this.#findThin(report, member));
    for (const { group, lv } of created) {
      await this.#lvm.change(group, lvchange({ activate: "n" }, lvPath({ group, lv })));
    }
    return created.map((member) => ({ ...member, lv: { ...member.lv, active: false } }));
  }

  #findThin(report: readonly VolumeGroup[], { id, volume }: Member): ThinMember {
    const group = report.find(({ uuid }) => uuid === volume.group.uuid);
    const origin = group?.lvs.find(({ uuid }) => uuid === volume.lv.uuid);
    const lv = group?.lvs.find(({ tags }) => ownedSnapshotId(this.#driver, tags) === id);
    const originId = origin?.segment.thinId;
    const snapshotId = lv?.segment.thinId;
    if (group === undefined || lv === undefined || originId === undefined || snapshotId === undefined) {
      throw new StorageError("Busy", `snapshotting volume ${volume.id}: LVM does not report its snapshot; try again`);
    }
    const pool = this.#reservation.requirePool(group, lv);
    return { volume, group, lv, thinIds: { origin: originId, snapshot: snapshotId }, poolDevice: kernelNameOf(pool) };
  }

  /** Makes the pool make a snapshot again, with what its volume has now. LVM's metadata stay as they are. */
  async #makeAgain({ volume, thinIds, poolDevice }: ThinMember, suspended: SuspendedDevices): Promise<void> {
    await suspended.requireSuspended();
    for (const message of [`delete ${thinIds.snapshot}`, `create_snap ${thinIds.snapshot} ${thinIds.origin}`]) {
      await messagePool(this.#exec, poolDevice, message);
    }
    await suspended.resume(deviceName(volume.lv));
  }

  /** Writes out the files of volumes, and what was written to block devices, so that little is left to write when they are suspended. */
  async #sync(members: readonly Member[]): Promise<void> {
    const mounts = await readMounts(this.#exec);
    for (const { volume: { lv, tags } } of members.filter(({ volume }) => volume.lv.active)) {
      const device = contentDevice(lv);
      const [mount] = filesystemMounts(mounts, device);
      if (mount === undefined && tags.format.state !== "raw") continue;
      if (device !== lv && !lv.open) continue; // its mapping is not open: nothing was written since it was closed
      const args = mount === undefined ? [device.devicePath] : ["--file-system", mount.target];
      await runOk(this.#exec, { program: "sync", args, mutates: true });
    }
  }
}

/** Returns the UUIDs of the active LVs. The reservation of a pool may have activated a volume to see whether the pool has it. */
function activeLvs(groups: readonly VolumeGroup[]): ReadonlySet<string> {
  return new Set(groups.flatMap(({ lvs }) => lvs).filter(({ active }) => active).map(({ uuid }) => uuid));
}

/** Makes sure that a group can hold the COW space of all its new snapshots. */
function requireCowSpace(group: VolumeGroup, commands: ReadonlyMap<Member, { readonly size: bigint }>): void {
  const sizes = [...commands].filter(([{ volume }]) => volume.group.uuid === group.uuid).map(([, { size }]) => size);
  const size = sum(sizes);
  if (size > group.free) throw noCowSpaceError("creating a group snapshot", group, size);
}

/** Returns the groups of volumes, each once. */
function groupsOf(members: readonly Member[]): VolumeGroup[] {
  return [...new Map(members.map(({ volume: { group } }) => [group.uuid, group])).values()];
}

/** Returns the name of an LV's device for dmsetup(8). */
function deviceName({ devicePath }: LogicalVolume): string {
  return basename(devicePath);
}
