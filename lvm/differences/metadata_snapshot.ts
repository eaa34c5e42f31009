/**
 * The metadata snapshot of a thin pool: a copy of the pool's tables that programs can read while the pool is in use
 * (Documentation/admin-guide/device-mapper/thin-provisioning, "reserve_metadata_snap"). A pool has at most one. While it is
 * there, each table that changes takes more of the pool's metadata, so it is released at once when it has been read.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { runOk } from "../exec.ts";
import type { Lvm } from "../client/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isDriverPool } from "../pools/pool.ts";

/** A pool, and the group that it is in. */
export interface LocatedPool {
  /** The group. */
  readonly group: VolumeGroup;
  /** The pool. */
  readonly pool: LogicalVolume;
}

/** The status of a thin pool in the kernel: its name, and the block of its metadata snapshot, `-` without one. */
const POOL_STATUS = /^(\S+): \d+ \d+ thin-pool \d+ \d+\/\d+ \d+\/\d+ (\S+) /gm;

/** The metadata snapshots of the pools of this machine. */
export class MetadataSnapshots {
  readonly #lvm: Lvm;
  readonly #driver: string;
  /** The last use of each pool's snapshot, by the pool's UUID. */
  readonly #uses = new Map<string, Promise<unknown>>();
  /** The UUIDs of pools in which this process has reserved one, and may not have released it. */
  readonly #reserved = new Set<string>();

  /** Creates the service. @param driver the driver's name: whose pools it may clean up */
  constructor({ lvm, driver }: { readonly lvm: Lvm; readonly driver: string }) {
    this.#lvm = lvm;
    this.#driver = driver;
  }

  /**
   * Runs `body` while the metadata snapshot of a pool is there. Others wait until it is released.
   *
   * @throws {StorageError} `FailedPrecondition` when another program has reserved one of a pool that is not the driver's
   */
  async use<T>(located: LocatedPool, body: () => Promise<T>): Promise<T> {
    return await this.#inTurn(located.pool.uuid, async () => {
      await this.#releaseHeld(located);
      this.#reserved.add(located.pool.uuid);
      await this.#send(located.pool, "reserve_metadata_snap");
      try {
        return await body();
      } finally {
        await this.#release(located.pool);
      }
    });
  }

  /** Releases what an earlier process has left in pools of the driver. */
  async releaseLeft(groups: readonly VolumeGroup[]): Promise<void> {
    for (const group of groups) {
      for (const pool of group.lvs.filter((lv) => isDriverPool(this.#driver, lv))) {
        await this.#inTurn(pool.uuid, () => this.#releaseHeld({ group, pool }));
      }
    }
  }

  async #inTurn<T>(uuid: string, body: () => Promise<T>): Promise<T> {
    const before = this.#uses.get(uuid) ?? Promise.resolve();
    const use = before.then(body, body);
    this.#uses.set(uuid, use);
    try {
      return await use;
    } finally {
      if (this.#uses.get(uuid) === use) this.#uses.delete(uuid);
    }
  }

  async #releaseHeld({ group, pool }: LocatedPool): Promise<void> {
    const status = await runOk(this.#lvm.exec, {
      program: "dmsetup",
      args: ["status", "--target", "thin-pool", "--noflush"],
      mutates: false,
    });
    const held = [...status.matchAll(POOL_STATUS)].find(([, name]) => name === deviceName(pool))?.[2] ?? "-";
    if (held === "-") return;
    if (isDriverPool(this.#driver, pool) || this.#reserved.has(pool.uuid)) return await this.#release(pool);
    throw new StorageError(
      "FailedPrecondition",
      `reading the tables of thin pool ${group.name}/${pool.name}: another program has reserved its metadata snapshot, of ` +
        `which there can be one; if none is running, release it: dmsetup message ${
          deviceName(pool)
        } 0 release_metadata_snap`,
    );
  }

  async #release(pool: LogicalVolume): Promise<void> {
    await this.#send(pool, "release_metadata_snap");
    this.#reserved.delete(pool.uuid);
  }

  async #send(pool: LogicalVolume, message: string): Promise<void> {
    await runOk(this.#lvm.exec, {
      program: "dmsetup",
      args: ["message", deviceName(pool), "0", message],
      mutates: true,
    });
  }
}

/** Returns the name of the device of a pool that has the kernel's target, below the one that LVM shows. */
function deviceName({ devicePath }: LogicalVolume): string {
  return `${devicePath.replace("/dev/mapper/", "")}-tpool`;
}
