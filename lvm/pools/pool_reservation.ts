/**
 * Reservation of virtual size in thin pools. Callers check and allocate the virtual size of a group's pools one at a time:
 * concurrent callers could otherwise allocate together more than is available. LVM itself refuses no allocation.
 *
 * It covers what this process creates. What other programs create in a pool is counted once it exists.
 *
 * @module
 */

import { Queues } from "../../base/queues.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { type Lvm, requireResponsive } from "../client/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { describeFree } from "../settings/spare_space.ts";
import { formatBytes } from "../../base/size.ts";
import {
  allocatedVirtual,
  availableVirtual,
  DEFAULT_OVERCOMMIT,
  findPool,
  formatOvercommit,
  newPoolAvailableVirtual,
  newPoolBytes,
  overcommitOf,
  type ThinSpec,
  withPools,
} from "./pool.ts";

/** What each change of the LVs of a thin pool needs. */
export interface PoolContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Reserves space in the machine's thin pools. All who allocate from them share one reservation. */
  readonly reservation: PoolReservation;
}

/** The reservation for all thin pools of a machine. */
export class PoolReservation {
  readonly #lvm: Lvm;
  /** The overcommit ratio of pools that set no other, in percent of their size. */
  readonly defaultOvercommit: bigint;
  /** The bodies of groups, by the UUIDs of the groups. A change that hangs delays no other group. */
  readonly #bodies = new Queues();
  /** The UUIDs of the groups in which a command outlasted its deadline, and may still allocate. */
  readonly #allocating = new Set<string>();
  /** The number of interrupted changes of each group before its last body, by the group's UUID. */
  readonly #interruptedBefore = new Map<string, number>();
  /** The same number before LVM last sent each pool its messages, by the UUID of its group and its name. */
  readonly #pools = new Map<string, number>();
  readonly #prepare: (group: VolumeGroup) => Promise<boolean>;

  /**
   * Creates a reservation. There must be only one in the process for the machine.
   *
   * @param prepare removes from a group what an interrupted creation left in its pools; returns whether it removed anything
   */
  constructor(
    lvm: Lvm,
    defaultOvercommit = DEFAULT_OVERCOMMIT,
    prepare: (group: VolumeGroup) => Promise<boolean> = () => Promise.resolve(false),
  ) {
    this.#lvm = lvm;
    this.defaultOvercommit = defaultOvercommit;
    this.#prepare = prepare;
  }

  /**
   * Runs a body that changes the allocations of a pool in a group while no other body of the group runs. Before it, what
   * an interrupted creation left in the pools is removed.
   *
   * @param groups a report; a new one is read if anything was changed since
   * @param body called with the current group
   * @throws {StorageError} `Unavailable` when the group does not exist any more, or does not respond; `Busy` while a command of an earlier body,
   * which outlasted its deadline, is still running in the group; besides what the body throws
   */
  runExclusive<T>(
    groups: readonly VolumeGroup[],
    { uuid, name }: Pick<VolumeGroup, "uuid" | "name">,
    body: (group: VolumeGroup) => Promise<T>,
  ): Promise<T> {
    const run = async () => {
      this.#requireNotAllocating(uuid, name);
      const operation = `reading the thin pools of volume group ${name}`;
      const find = (current: readonly VolumeGroup[]) => {
        const group = current.find((group) => group.uuid === uuid);
        if (group === undefined) throw new StorageError("Unavailable", `${operation}: it does not exist any more`);
        requireResponsive(operation, group); // what changes it would not end
        return group;
      };
      let group = find(this.#lvm.isCurrent(groups) ? groups : await this.#lvm.report());
      if (await this.#prepare(group)) group = find(await this.#lvm.report());
      this.#interruptedBefore.set(uuid, this.#lvm.interruptedChanges(group));
      return await body(group);
    };
    return this.#bodies.run(uuid, () =>
      run().catch((error) => {
        this.#waitForCommand(uuid, error);
        throw error;
      }));
  }

  /**
   * Records that a body has created an LV in a pool, or removed one that has no data, and so LVM has sent the pool all messages
   * that it had when the body began.
   */
  recordMessagesSent({ uuid }: Pick<VolumeGroup, "uuid">, pool: string): void {
    this.#pools.set(`${uuid}/${pool}`, this.#interruptedBefore.get(uuid) ?? 0);
  }

  /** Reports whether LVM has sent a pool its messages while this process lives, and no change of the group was interrupted since. */
  areMessagesSent({ uuid }: Pick<VolumeGroup, "uuid">, pool: string): boolean {
    return this.#pools.get(`${uuid}/${pool}`) === this.#lvm.interruptedChanges({ uuid });
  }

  #requireNotAllocating(uuid: string, name: string): void {
    if (!this.#allocating.has(uuid)) return;
    throw new StorageError(
      "Busy",
      `changing the thin pools of volume group ${name}: a command of an earlier call is still running; try again when it ` +
        "is done",
    );
  }

  /** Remembers a command that outlasted its deadline, until it has ended. */
  #waitForCommand(uuid: string, error: unknown): void {
    const completion = lateCompletion(error);
    if (completion === undefined) return;
    this.#allocating.add(uuid);
    void completion.then(() => {}, () => {}).then(() => this.#allocating.delete(uuid));
  }

  /**
   * Checks that a pool can allocate a virtual size.
   *
   * @param operation beginning of the error message
   * @throws {StorageError} `NoSpace` when it cannot
   */
  requireAvailableVirtual(operation: string, group: VolumeGroup, pool: LogicalVolume, bytes: bigint): void {
    const available = availableVirtual(group, pool, this.defaultOvercommit);
    if (bytes <= available) return;
    const ratio = formatOvercommit(overcommitOf(pool, this.defaultOvercommit));
    throw new StorageError(
      "NoSpace",
      `${operation}: thin pool ${group.name}/${pool.name} of ${
        formatBytes(pool.size)
      } can allocate ${ratio} times its size, has ` +
        `allocated ${formatBytes(allocatedVirtual(group, pool))}, and has ${
          formatBytes(available)
        } available; requested is ${formatBytes(bytes)}. ` +
        `Extend the pool (lvextend), or set a higher overcommit ratio (its tag denolith.overcommit=RATIO)`,
    );
  }

  /**
   * Checks that the group's own pool, if it were created now, could allocate a virtual size.
   *
   * @param operation beginning of the error message
   * @param group the current group; it may have less free space than when it was chosen
   * @returns the size of the new pool, in bytes
   * @throws {StorageError} `NoSpace` when it could not
   */
  requireNewPool(operation: string, group: VolumeGroup, spec: ThinSpec, bytes: bigint): bigint {
    const poolBytes = newPoolBytes(group, spec);
    const available = newPoolAvailableVirtual(withPools(group, this.defaultOvercommit), spec);
    if (bytes <= available) return poolBytes;
    throw new StorageError(
      "NoSpace",
      `${operation}: volume group ${group.name} has ${describeFree(group)}, so a new thin pool would have ${
        formatBytes(poolBytes)
      } and could allocate ${formatBytes(available)}; requested is ${formatBytes(bytes)}. ` +
        "Extend the group (vgextend), or set a higher overcommit ratio (--thin-pool-overcommit)",
    );
  }

  /**
   * Returns the pool of an LV.
   *
   * @throws {StorageError} `CommandFailed` when the report does not contain it
   */
  requirePool(group: VolumeGroup, lv: LogicalVolume): LogicalVolume {
    const pool = findPool(group, lv.pool);
    if (pool !== undefined) return pool;
    throw new StorageError(
      "CommandFailed",
      `finding the thin pool of ${group.name}/${lv.name}: LVM does not report it`,
    );
  }
}
