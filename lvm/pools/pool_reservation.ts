/**
 * The gate of thin pools: what a pool promises is looked at and added to by one at a time, so that several who ask at the same
 * moment do not get together what each alone might have. LVM itself refuses no promise.
 *
 * It holds for what this process makes. What others make in a pool is counted, as far as it is there.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Lvm } from "../model/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import {
  allocatedVirtual,
  availableVirtual,
  DEFAULT_OVERCOMMIT,
  findPool,
  formatOvercommit,
  overcommitOf,
} from "./pool.ts";

/** The gate of all thin pools of a machine. */
export class PoolReservation {
  readonly #lvm: Lvm;
  /** How much pools may promise that say nothing else, in percent of their sizes. */
  readonly defaultOvercommit: bigint;
  #last: Promise<unknown> = Promise.resolve();

  /** Makes one; it has to be the only one of the process for the machine. */
  constructor(lvm: Lvm, defaultOvercommit = DEFAULT_OVERCOMMIT) {
    this.#lvm = lvm;
    this.defaultOvercommit = defaultOvercommit;
  }

  /**
   * Runs what changes the promises of a pool in the group, when nobody else does. It is given the group as it is then: that of
   * the report, if nothing was changed since.
   *
   * @throws {StorageError} `Unavailable` when the group is there no longer, and what the body throws.
   */
  runExclusive<T>(
    groups: readonly VolumeGroup[],
    { uuid, name }: Pick<VolumeGroup, "uuid" | "name">,
    body: (group: VolumeGroup) => Promise<T>,
  ): Promise<T> {
    const result = this.#last.then(async () => {
      const current = this.#lvm.isCurrent(groups) ? groups : await this.#lvm.report();
      const group = current.find((group) => group.uuid === uuid);
      if (group !== undefined) return await body(group);
      throw new StorageError(
        "Unavailable",
        `looking at the thin pools of volume group ${name}: it is not there any more`,
      );
    });
    this.#last = result.catch(() => {}); // its own caller is told
    return result;
  }

  /**
   * Makes sure that a pool may promise so much more.
   *
   * @throws {StorageError} `NoSpace`.
   */
  requireAvailableVirtual(operation: string, group: VolumeGroup, pool: LogicalVolume, bytes: bigint): void {
    const available = availableVirtual(group, pool, this.defaultOvercommit);
    if (bytes <= available) return;
    const ratio = formatOvercommit(overcommitOf(pool, this.defaultOvercommit));
    throw new StorageError(
      "NoSpace",
      `${operation}: thin pool ${group.name}/${pool.name} of ${
        formatBytes(pool.size)
      } may promise ${ratio} times its size, has ` +
        `promised ${formatBytes(allocatedVirtual(group, pool))}, and has ${formatBytes(available)} left; asked for is ${
          formatBytes(bytes)
        }. ` +
        `Grow the pool (lvextend), or let it promise more (docs/guides/thin-volumes.md)`,
    );
  }

  /** The pool that an LV is in. @throws {StorageError} `CommandFailed` when no report shows it. */
  requirePool(group: VolumeGroup, lv: LogicalVolume): LogicalVolume {
    const pool = findPool(group, lv.pool);
    if (pool !== undefined) return pool;
    throw new StorageError(
      "CommandFailed",
      `looking for the thin pool of ${group.name}/${lv.name}: no report shows it`,
    );
  }
}
