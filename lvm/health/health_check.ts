/**
 * Looks at the health of what a driver has on this machine. It changes nothing.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { problemOf, type StorageProblem, storageProblems, type VolumeHealth, volumeProblems } from "./health.ts";
import type { VolumeId } from "../ids.ts";
import { takeInventory } from "../inventory/inventory.ts";
import type { Lvm } from "../model/client.ts";
import { type Mount, readMounts } from "../host/mounts.ts";
import type { VolumeGroup } from "../model/report.ts";
import type { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";

/** What {@linkcode HealthCheck} needs. */
export interface HealthCheckOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Where the volumes are found. */
  readonly volumes: VolumeFinder;
  /** Where the snapshots are found. */
  readonly snapshots: SnapshotFinder;
}

/** Looks at the health of volumes, and of the groups that they are in. */
export class HealthCheck {
  readonly #lvm: Lvm;
  readonly #volumes: VolumeFinder;
  readonly #snapshots: SnapshotFinder;

  /** Makes the service; it keeps no state. */
  constructor({ lvm, volumes, snapshots }: HealthCheckOptions) {
    this.#lvm = lvm;
    this.#volumes = volumes;
    this.#snapshots = snapshots;
  }

  /**
   * The health of a volume. That it is Lost, or cannot be told from another, is its health, and no failure.
   *
   * @throws {StorageError} `NotFound`; `Busy` while it is being filled.
   */
  async volume(id: VolumeId): Promise<VolumeHealth> {
    const { groups, mounts } = await this.#read();
    try {
      return healthOf(this.#volumes.require(groups.map(asResponsive), id), groups, mounts);
    } catch (error) {
      const problem = error instanceof StorageError ? problemOf(error) : undefined;
      if (problem === undefined) throw error;
      return { id, problems: [problem] };
    }
  }

  /** The health of all volumes with which something is wrong, in the order of their ids, but for those being filled. */
  async volumes(): Promise<VolumeHealth[]> {
    const { groups, mounts } = await this.#read();
    const inventory = takeInventory(groups.map(asResponsive), { volumes: this.#volumes, snapshots: this.#snapshots });
    const all = [
      ...inventory.volumes.filter(({ tags }) => tags.copied === undefined)
        .map((volume) => healthOf(volume, groups, mounts)),
      ...[...inventory.lost, ...inventory.foreign].map(({ id, error }) => ({ id, problems: [problemOf(error)!] })),
    ];
    return all.filter(({ problems }) => problems.length > 0).sort((a, b) => a.id < b.id ? -1 : 1);
  }

  /** What is wrong with the groups in which the driver makes volumes, and with their thin pools. */
  async storage(): Promise<StorageProblem[]> {
    try {
      return storageProblems(this.#volumes.managedGroups(await this.#lvm.report()), this.#volumes.driver);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      return [{ status: "Unreachable", reason: "LvmFailed", message: error.message }];
    }
  }

  async #read(): Promise<{ groups: readonly VolumeGroup[]; mounts: Mount[] }> {
    const [groups, mounts] = await Promise.all([this.#lvm.report(), readMounts(this.#lvm.exec)]);
    return { groups, mounts };
  }
}

/** A group as if it answered: where a volume was seen last is where its health is to be told. */
function asResponsive(group: VolumeGroup): VolumeGroup {
  return { ...group, responsive: true };
}

/** The health of a volume that was found in groups as if they answered. */
function healthOf({ id, lv, group }: Volume, groups: readonly VolumeGroup[], mounts: readonly Mount[]): VolumeHealth {
  const { responsive } = groups.find(({ uuid }) => uuid === group.uuid)!;
  return { id, problems: volumeProblems({ lv, group: { ...group, responsive } }, mounts) };
}
