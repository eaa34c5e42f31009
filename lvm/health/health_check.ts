/**
 * Checks the health of a driver's volumes and volume groups on this machine. It changes nothing.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { KeyChanges } from "../encryption/key_changes.ts";
import { problemOf, type StorageProblem, storageProblems, type VolumeHealth, volumeProblems } from "./health.ts";
import type { VolumeId } from "../../base/ids.ts";
import { takeInventory } from "../inventory/inventory.ts";
import type { Lvm } from "../client/client.ts";
import { type Mount, readMountStates } from "../host/mounts.ts";
import type { VolumeGroup } from "../model/report.ts";
import type { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";

/** Options of {@linkcode HealthCheck}. */
export interface HealthCheckOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly volumes: VolumeFinder;
  /** Finds the snapshots. */
  readonly snapshots: SnapshotFinder;
  /** Knows what comes of changes of keys; by default, only what a report shows of them. */
  readonly keyChanges?: Pick<KeyChanges, "problemOf">;
}

/** A check of the health of volumes, volume groups and thin pools. It keeps no state. */
export class HealthCheck {
  readonly #options: HealthCheckOptions;
  readonly #keyChanges: Pick<KeyChanges, "problemOf">;

  /** Creates the check. */
  constructor(options: HealthCheckOptions) {
    this.#options = options;
    this.#keyChanges = options.keyChanges ?? new KeyChanges();
  }

  /**
   * Returns the health of a volume. For a volume that is Lost or cannot be identified, that is its problem, and not an
   * error.
   *
   * @throws {StorageError} `NotFound`; `Busy` while it is being filled; those of reading the report or the mount table.
   */
  async volume(id: VolumeId): Promise<VolumeHealth> {
    const { groups, mounts } = await this.#read();
    try {
      return this.#healthOf(this.#options.volumes.require(groups.map(asResponsive), id), groups, mounts);
    } catch (error) {
      const problem = error instanceof StorageError ? problemOf(error) : undefined;
      if (problem === undefined) throw error;
      return { id, problems: [problem] };
    }
  }

  /**
   * Returns the health of all volumes with problems, in the order of their ids. It leaves out volumes that are being
   * filled.
   *
   * @throws {StorageError} when the report or the mount table cannot be read.
   */
  async volumes(): Promise<VolumeHealth[]> {
    const { groups, mounts } = await this.#read();
    const inventory = takeInventory(groups.map(asResponsive), this.#options);
    const all = [
      ...inventory.volumes.filter(({ tags }) => tags.copied === undefined)
        .map((volume) => this.#healthOf(volume, groups, mounts)),
      ...[...inventory.lost, ...inventory.foreign].map(({ id, error }) => ({ id, problems: [problemOf(error)!] })),
    ];
    return all.filter(({ problems }) => problems.length > 0).sort((a, b) => a.id < b.id ? -1 : 1);
  }

  /**
   * Returns the problems of the groups in which the driver creates volumes, and of their thin pools.
   *
   * @returns the problems. If LVM reports nothing, that is the only one
   */
  async storage(): Promise<StorageProblem[]> {
    const { lvm, volumes } = this.#options;
    try {
      return storageProblems(volumes.managedGroups(await lvm.report()), volumes.driver);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      return [{ status: "Unreachable", reason: "LvmFailed", message: error.message }];
    }
  }

  /** Returns the health of a volume that was found in groups by {@linkcode asResponsive}. */
  #healthOf(volume: Volume, groups: readonly VolumeGroup[], mounts: readonly Mount[]): VolumeHealth {
    const { id, lv, group } = volume;
    const { responsive } = groups.find(({ uuid }) => uuid === group.uuid)!;
    const keyProblem = this.#keyChanges.problemOf(volume);
    const problems = volumeProblems({ lv, group: { ...group, responsive } }, mounts);
    return { id, problems: keyProblem === undefined ? problems : [...problems, keyProblem] };
  }

  async #read(): Promise<{ groups: readonly VolumeGroup[]; mounts: Mount[] }> {
    const [groups, mounts] = await Promise.all([this.#options.lvm.report(), readMountStates(this.#options.lvm.exec)]);
    return { groups, mounts };
  }
}

/** Returns a group as if it were responsive, so that the health of its volumes is reported as they were last seen. */
function asResponsive(group: VolumeGroup): VolumeGroup {
  return { ...group, responsive: true };
}
